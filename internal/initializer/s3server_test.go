// SPDX-License-Identifier: Apache-2.0

package initializer

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rclone/gofakes3"
	"github.com/rclone/gofakes3/s3mem"
)

const (
	testAccessKey = "AKIATESTTESTTESTTEST"
	testSecretKey = "secret/of+the=tests"
)

// s3Server is a local S3 server that checks signatures. It adds If-Match, and can send
// faulty responses.
type s3Server struct {
	*httptest.Server
	t       *testing.T
	backend *s3mem.Backend

	mutex sync.Mutex
	// requests for objects: method, key and range.
	requests []string
	sent     int64
	// before may respond to a request itself; it then returns true.
	before func(writer http.ResponseWriter, request *http.Request) bool
	// spoil may add a fault to the response to a GET of an object.
	spoil func(key string, try int, spoiled *spoiled)
	tries map[string]int
}

// listing treats an empty delimiter as none, as S3 does.
type listing struct{ *s3mem.Backend }

func (l listing) ListBucket(ctx context.Context, name string, prefix *gofakes3.Prefix, page gofakes3.ListBucketPage) (*gofakes3.ObjectList, error) {
	if prefix != nil && prefix.Delimiter == "" {
		prefix = &gofakes3.Prefix{HasPrefix: prefix.HasPrefix, Prefix: prefix.Prefix}
	}
	return l.Backend.ListBucket(ctx, name, prefix, page)
}

func newS3Server(t *testing.T, objects map[string]string) *s3Server {
	server := &s3Server{t: t, backend: s3mem.New(), tries: map[string]int{}}
	if err := server.backend.CreateBucket(t.Context(), "data"); err != nil {
		t.Fatal(err)
	}
	for key, content := range objects {
		server.put(key, content)
	}
	fake := gofakes3.New(listing{server.backend}, gofakes3.WithV4Auth(map[string]string{testAccessKey: testSecretKey})).Server()
	server.Server = httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) { server.serve(writer, request, fake) }))
	t.Cleanup(server.Close)
	return server
}

func (s *s3Server) put(key, content string) {
	s.t.Helper()
	if _, err := s.backend.PutObject(context.Background(), "data", key, map[string]string{"Last-Modified": time.Now().UTC().Format(http.TimeFormat)}, bytes.NewReader([]byte(content)), int64(len(content))); err != nil {
		s.t.Fatal(err)
	}
}

func (s *s3Server) remove(key string) {
	s.t.Helper()
	if _, err := s.backend.DeleteObject(context.Background(), "data", key); err != nil {
		s.t.Fatal(err)
	}
}

func (s *s3Server) serve(writer http.ResponseWriter, request *http.Request, fake http.Handler) {
	s.mutex.Lock()
	before := s.before
	s.mutex.Unlock()
	if before != nil && before(writer, request) {
		return
	}
	key, isObject := strings.CutPrefix(request.URL.Path, "/data/")
	if !isObject || key == "" {
		fake.ServeHTTP(writer, request)
		return
	}
	if s.replaced(writer, request, key) {
		return
	}
	answer := &spoiled{ResponseWriter: writer, cutAfter: -1, stallAfter: -1, sent: new(int64), done: request.Context().Done()}
	s.mutex.Lock()
	s.requests = append(s.requests, strings.TrimSpace(request.Method+" "+key+" "+request.Header.Get("Range")))
	if s.spoil != nil && request.Method == http.MethodGet {
		s.spoil(key, s.tries[key], answer)
	}
	if request.Method == http.MethodGet {
		s.tries[key]++
	}
	s.mutex.Unlock()
	defer func() {
		s.mutex.Lock()
		s.sent += *answer.sent
		s.mutex.Unlock()
	}()
	fake.ServeHTTP(answer, request)
}

// replaced responds as S3 does if the object has changed.
func (s *s3Server) replaced(writer http.ResponseWriter, request *http.Request, key string) bool {
	wanted := strings.Trim(request.Header.Get("If-Match"), `"`)
	if wanted == "" {
		return false
	}
	object, err := s.backend.HeadObject(request.Context(), "data", key)
	if err != nil || hexOf(object.Hash) == wanted {
		return false
	}
	s3Error(writer, http.StatusPreconditionFailed, "PreconditionFailed", "")
	return true
}

// s3Error responds as S3 does.
func s3Error(writer http.ResponseWriter, status int, code, message string) {
	writer.Header().Set("Content-Type", "application/xml")
	writer.WriteHeader(status)
	_, _ = writer.Write([]byte(`<?xml version="1.0" encoding="UTF-8"?><Error><Code>` + code + `</Code><Message>` + message + `</Message></Error>`))
}

// environment returns the variables for this server.
func (s *s3Server) environment() map[string]string {
	return map[string]string{
		"AWS_ENDPOINT_URL_S3": s.URL,
		// Secrets often have a line feed at the end.
		accessKeyVariable: testAccessKey + "\n",
		secretKeyVariable: testSecretKey + "\n",
	}
}

func (s *s3Server) host() string { return strings.TrimPrefix(s.URL, "http://") }

// asked returns the requests for objects since the last call.
func (s *s3Server) asked() []string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	asked := s.requests
	s.requests = nil
	return asked
}
