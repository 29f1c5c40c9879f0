// SPDX-License-Identifier: Apache-2.0

// The storage server stands in for S3 and for the hub in tests of initializers:
// a bucket with a dataset on port 9000, whose signatures are checked, and a
// repository with a model on port 8080, behind a token.
package main

import (
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"strings"
	"time"

	"github.com/rclone/gofakes3"
	"github.com/rclone/gofakes3/s3mem"
)

const (
	commit  = "0123456789abcdef0123456789abcdef01234567"
	token   = "hf_test"
	weights = "the weights of the net"
	config  = `{"layers": 3}`
)

func main() {
	backend := s3mem.New()
	must(backend.CreateBucket(context.Background(), "data"))
	for key, content := range map[string]string{"digits/train.csv": "1,2,3\n", "digits/test/one.csv": "4,5,6\n"} {
		_, err := backend.PutObject(context.Background(), "data", key,
			map[string]string{"Last-Modified": time.Now().UTC().Format(http.TimeFormat)}, bytes.NewReader([]byte(content)), int64(len(content)))
		must(err)
	}
	s3 := gofakes3.New(bucket{backend}, gofakes3.WithV4Auth(map[string]string{"AKIATEST": "secret"})).Server()
	go func() { must(http.ListenAndServe(":9000", s3)) }()
	must(http.ListenAndServe(":8080", http.HandlerFunc(hub)))
}

// bucket is listed as S3 lists it: a delimiter that is empty is none.
type bucket struct{ *s3mem.Backend }

func (bucket bucket) ListBucket(ctx context.Context, name string, prefix *gofakes3.Prefix, page gofakes3.ListBucketPage) (*gofakes3.ObjectList, error) {
	if prefix != nil {
		prefix.HasDelimiter = prefix.HasDelimiter && prefix.Delimiter != ""
	}
	return bucket.Backend.ListBucket(ctx, name, prefix, page)
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// hub answers as the real one does for the model team/net.
func hub(writer http.ResponseWriter, request *http.Request) {
	if request.Header.Get("Authorization") != "Bearer "+token {
		http.Error(writer, `{"error":"Invalid username or password."}`, http.StatusUnauthorized)
		return
	}
	switch path := request.URL.Path; {
	case strings.HasPrefix(path, "/api/models/team/net/revision/"):
		answer(writer, map[string]string{"sha": commit})
	case strings.HasPrefix(path, "/api/models/team/net/tree/"+commit):
		answer(writer, []map[string]any{
			{"type": "file", "path": "config.json", "size": len(config), "oid": fmt.Sprintf("%x", sha1.Sum(fmt.Appendf(nil, "blob %d\x00%s", len(config), config)))},
			{"type": "file", "path": "model.bin", "size": len(weights), "oid": strings.Repeat("0", 40),
				"lfs": map[string]any{"oid": fmt.Sprintf("%x", sha256.Sum256([]byte(weights))), "size": len(weights)}},
		})
	case path == "/team/net/resolve/"+commit+"/config.json":
		http.ServeContent(writer, request, "config.json", time.Time{}, strings.NewReader(config))
	case path == "/team/net/resolve/"+commit+"/model.bin":
		http.ServeContent(writer, request, "model.bin", time.Time{}, strings.NewReader(weights))
	default:
		http.NotFound(writer, request)
	}
}

func answer(writer http.ResponseWriter, content any) {
	writer.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(writer).Encode(content)
}
