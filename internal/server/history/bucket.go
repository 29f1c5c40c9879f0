// SPDX-License-Identifier: Apache-2.0

package history

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	// The image has only this program, so the certificates of public CAs are part of it.
	_ "golang.org/x/crypto/x509roots/fallback"
)

// s3Retries are the attempts of one call: the recorder retries, too.
const s3Retries = 3

// s3Timeout is how long the S3 server may take before it answers.
const s3Timeout = time.Minute

// Bucket is a store in a bucket of an S3 server.
type Bucket struct {
	client       *minio.Client
	name, prefix string
}

// BucketOptions say where a bucket is.
type BucketOptions struct {
	// Endpoint is the URL of the S3 server.
	Endpoint string
	Region   string
	// Location is the bucket, and a prefix for the names of records: s3://bucket/prefix.
	Location string
	// Authorities are more CA certificates in PEM, besides those of public CAs.
	Authorities string
	// Credentials to write and delete objects of the bucket.
	Credentials *credentials.Credentials
}

// OpenBucket returns the store in a bucket that exists. It does not connect yet.
func OpenBucket(options *BucketOptions) (*Bucket, error) {
	location, err := url.Parse(options.Location)
	if err != nil || location.Scheme != "s3" || location.Host == "" {
		return nil, fmt.Errorf("%q is not a bucket such as s3://bucket/prefix", options.Location)
	}
	endpoint, err := url.Parse(options.Endpoint)
	if err != nil || endpoint.Scheme != "https" && endpoint.Scheme != "http" || endpoint.Host == "" || strings.Trim(endpoint.Path, "/") != "" {
		return nil, fmt.Errorf("%q is not the URL of an S3 server such as https://s3.example.com", options.Endpoint)
	}
	transport, err := transportWith(options.Authorities)
	if err != nil {
		return nil, err
	}
	client, err := minio.New(endpoint.Host, &minio.Options{
		Creds: options.Credentials, Secure: endpoint.Scheme == "https", Transport: transport, Region: options.Region, MaxRetries: s3Retries,
	})
	if err != nil {
		return nil, fmt.Errorf("connect to the S3 server %s: %w", options.Endpoint, err)
	}
	prefix := strings.Trim(location.Path, "/")
	if prefix != "" {
		prefix += "/"
	}
	return &Bucket{client: client, name: location.Host, prefix: prefix}, nil
}

// transportWith returns a transport that trusts some CAs, too.
func transportWith(authorities string) (*http.Transport, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.ResponseHeaderTimeout = s3Timeout
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	if authorities == "" {
		return transport, nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM([]byte(authorities)) {
		return nil, errors.New("the CA certificates for the S3 server are not in PEM")
	}
	transport.TLSClientConfig.RootCAs = pool
	return transport, nil
}

// Put writes an object, which S3 shows when it is complete.
func (b *Bucket) Put(ctx context.Context, name string, content []byte) error {
	_, err := b.client.PutObject(ctx, b.name, b.prefix+name, bytes.NewReader(content), int64(len(content)), minio.PutObjectOptions{ContentType: "application/octet-stream"})
	return err
}

// Get reads an object.
func (b *Bucket) Get(ctx context.Context, name string) ([]byte, error) {
	object, err := b.client.GetObject(ctx, b.name, b.prefix+name, minio.GetObjectOptions{})
	if err != nil {
		return nil, err
	}
	defer object.Close()
	return io.ReadAll(io.LimitReader(object, maxUnsealed))
}

// Delete deletes an object. S3 does not tell whether it existed.
func (b *Bucket) Delete(ctx context.Context, name string) error {
	return b.client.RemoveObject(ctx, b.name, b.prefix+name, minio.RemoveObjectOptions{})
}

// List returns all objects below the prefix.
func (b *Bucket) List(ctx context.Context) (blobs []Blob, err error) {
	// The library ends its goroutine with the context.
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for object := range b.client.ListObjects(ctx, b.name, minio.ListObjectsOptions{Prefix: b.prefix, Recursive: true}) {
		if object.Err != nil {
			return nil, object.Err
		}
		blobs = append(blobs, Blob{Name: strings.TrimPrefix(object.Key, b.prefix), Bytes: object.Size})
	}
	return blobs, nil
}
