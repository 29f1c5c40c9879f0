// SPDX-License-Identifier: Apache-2.0

package history

import (
	"context"
	"encoding/pem"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/rclone/gofakes3"
	"github.com/rclone/gofakes3/s3mem"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/trireme-mpi/trireme/internal/engine/history"
)

// listing treats an empty delimiter as none, as S3 does.
type listing struct{ *s3mem.Backend }

func (l listing) ListBucket(ctx context.Context, name string, prefix *gofakes3.Prefix, page gofakes3.ListBucketPage) (*gofakes3.ObjectList, error) {
	if prefix != nil && prefix.Delimiter == "" {
		prefix = &gofakes3.Prefix{HasPrefix: prefix.HasPrefix, Prefix: prefix.Prefix}
	}
	return l.Backend.ListBucket(ctx, name, prefix, page)
}

// bucketOf is a store on an S3 server with TLS and a private CA, which checks signatures.
func bucketOf(t *testing.T, secret string) *Bucket {
	t.Helper()
	backend := s3mem.New()
	if err := backend.CreateBucket(t.Context(), "records"); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewTLSServer(gofakes3.New(listing{backend}, gofakes3.WithV4Auth(map[string]string{"AKIATEST": "right"})).Server())
	t.Cleanup(server.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	bucket, err := OpenBucket(&BucketOptions{Endpoint: server.URL, Authorities: string(authority), Region: "us-east-1", Location: "s3://records/cluster/a", Credentials: credentials.NewStaticV4("AKIATEST", secret, "")})
	if err != nil {
		t.Fatal(err)
	}
	return bucket
}

// Records in a bucket are found again, are read back, and leave it.
func TestRecordsInABucket(t *testing.T) {
	bucket := bucketOf(t, "right")
	openOn := func() *Catalog {
		c, err := openCatalog(t.Context(), bucket, history.Retention{}, testingclock.NewFakePassiveClock(now), newMetrics(), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	first := openOn()
	saved := recordOf("aa", "1", time.Hour)
	if err := first.Save(t.Context(), saved, []byte(lineJSON("one"))); err != nil {
		t.Fatal(err)
	}
	second := openOn()
	record, err := second.Record(t.Context(), saved.Key)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(saved, record); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"one"}, texts(t, second, saved.Key)); diff != "" {
		t.Error(diff)
	}
	if err := second.Delete(t.Context(), saved.Key); err != nil {
		t.Fatal(err)
	}
	if blobs, err := bucket.List(t.Context()); err != nil || len(blobs) != 0 {
		t.Errorf("after the deletion, the bucket has %v %v", blobs, err)
	}
}

func TestBucketErrors(t *testing.T) {
	bucket := bucketOf(t, "wrong")
	if _, err := bucket.List(t.Context()); err == nil {
		t.Error("the wrong key may list")
	}
	if err := bucket.Put(t.Context(), "a", nil); err == nil {
		t.Error("the wrong key may write")
	}
	right := bucketOf(t, "right")
	if _, err := right.Get(t.Context(), "missing"); err == nil {
		t.Error("a missing object was read")
	}
	if _, err := OpenBucket(&BucketOptions{Endpoint: "https://s3.example.com", Location: "s3://records", Authorities: "none"}); err == nil || !strings.Contains(err.Error(), "PEM") {
		t.Errorf("a CA that is none: %v", err)
	}
	for _, options := range []BucketOptions{
		{Endpoint: "https://s3.example.com", Location: "records"}, {Endpoint: "https://s3.example.com", Location: "https://records"},
		{Endpoint: "s3.example.com", Location: "s3://records"}, {Endpoint: "https://s3.example.com/path", Location: "s3://records"},
	} {
		if _, err := OpenBucket(&options); err == nil || !strings.Contains(err.Error(), "such as") {
			t.Errorf("%+v: %v", options, err)
		}
	}
}
