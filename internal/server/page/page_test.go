// SPDX-License-Identifier: Apache-2.0

package page

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

var files = fstest.MapFS{
	"index.html":          {Data: []byte("<title>index</title>")},
	"favicon.svg":         {Data: []byte("<svg/>")},
	"assets/main-1234.js": {Data: []byte("main")},
}

func newPage(t *testing.T, codes *Codes) *Page {
	t.Helper()
	p, err := New(files, codes)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestFilesAndIndex(t *testing.T) {
	p := newPage(t, nil)
	for path, want := range map[string]struct{ body, cache, contentType string }{
		"/":                             {"<title>index</title>", "no-cache", "text/html; charset=utf-8"},
		"/jobs/vision/trainjobs/one":    {"<title>index</title>", "no-cache", "text/html; charset=utf-8"},
		"/history/vision/trainjobs/uid": {"<title>index</title>", "no-cache", "text/html; charset=utf-8"},
		"/create":                       {"<title>index</title>", "no-cache", "text/html; charset=utf-8"},
		"/assets/main-1234.js":          {"main", "public, max-age=31536000, immutable", "text/javascript; charset=utf-8"},
		"/favicon.svg":                  {"<svg/>", "no-cache", "image/svg+xml"},
	} {
		t.Run(path, func(t *testing.T) {
			request := httptest.NewRequest(http.MethodGet, path, nil)
			if !p.Handles(request) {
				t.Fatal("not handled")
			}
			response := httptest.NewRecorder()
			p.ServeHTTP(response, request)
			header := response.Header()
			if response.Code != http.StatusOK || response.Body.String() != want.body || header.Get("Cache-Control") != want.cache || header.Get("Content-Type") != want.contentType {
				t.Errorf("%d %q %v", response.Code, response.Body, header)
			}
			if policy := header.Get("Content-Security-Policy"); policy != Policy || strings.Contains(policy, "unsafe") {
				t.Errorf("policy %q", policy)
			}
			unchanged := httptest.NewRequest(http.MethodGet, path, nil)
			unchanged.Header.Set("If-None-Match", header.Get("ETag"))
			again := httptest.NewRecorder()
			p.ServeHTTP(again, unchanged)
			if again.Code != http.StatusNotModified {
				t.Errorf("with its ETag: %d", again.Code)
			}
		})
	}
}

func TestCompression(t *testing.T) {
	script := strings.Repeat("export const a = 1;\n", 1000)
	p, err := New(fstest.MapFS{
		"index.html": {Data: []byte("<title>index</title>")}, "assets/main.js": {Data: []byte(script)},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	etags := map[string]string{}
	for name, test := range map[string]struct {
		path, accept, wantEncoding string
	}{
		"gzip":          {"/assets/main.js", "gzip, deflate, br", "gzip"},
		"second time":   {"/assets/main.js", "br;q=1.0, GZIP;q=0.8", "gzip"},
		"forbidden":     {"/assets/main.js", "gzip;q=0, br", ""},
		"not mentioned": {"/assets/main.js", "br", ""},
		"none":          {"/assets/main.js", "", ""},
		"not smaller":   {"/", "gzip", ""},
	} {
		t.Run(name, func(t *testing.T) {
			request := httptest.NewRequest(http.MethodGet, test.path, nil)
			request.Header.Set("Accept-Encoding", test.accept)
			response := httptest.NewRecorder()
			p.ServeHTTP(response, request)
			header := response.Header()
			if header.Get("Content-Encoding") != test.wantEncoding || header.Get("Vary") != "Accept-Encoding" {
				t.Errorf("%v", header)
			}
			if test.path != "/assets/main.js" {
				return
			}
			etags[header.Get("ETag")] = test.wantEncoding
			body, size := io.Reader(response.Body), response.Body.Len()
			if test.wantEncoding == "gzip" {
				if size > len(script)/10 {
					t.Errorf("%d bytes", size)
				}
				if body, err = gzip.NewReader(body); err != nil {
					t.Fatal(err)
				}
			}
			if content, err := io.ReadAll(body); err != nil || string(content) != script {
				t.Errorf("%v: %d bytes", err, len(content))
			}
		})
	}
	if len(etags) != 2 {
		t.Errorf("one ETag for each encoding: %v", etags)
	}
}

func TestWhatIsNotThePage(t *testing.T) {
	p := newPage(t, nil)
	for _, request := range []*http.Request{
		httptest.NewRequest(http.MethodGet, "/api/v1/trainjobs", nil), httptest.NewRequest(http.MethodGet, "/jobsx", nil),
		httptest.NewRequest(http.MethodPost, "/jobs", nil), httptest.NewRequest(http.MethodPost, "/session", nil),
	} {
		if p.Handles(request) {
			t.Errorf("%s %s is handled", request.Method, request.URL)
		}
	}
	response := httptest.NewRecorder()
	p.ServeHTTP(response, httptest.NewRequest(http.MethodGet, "/assets/main-0000.js", nil))
	if response.Code != http.StatusNotFound {
		t.Errorf("a file of another version: %d", response.Code)
	}
}

func TestWithoutTheBuiltPage(t *testing.T) {
	p, err := New(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	response := httptest.NewRecorder()
	p.ServeHTTP(response, httptest.NewRequest(http.MethodGet, "/", nil))
	if !strings.Contains(response.Body.String(), "make web") {
		t.Errorf("%s", response.Body)
	}
}

func TestCodesAreValidOnce(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	codes := NewCodes("the-token", clock)
	p := newPage(t, codes)
	exchange := func(code string) string {
		request := httptest.NewRequest(http.MethodPost, "/session", strings.NewReader(`{"code":"`+code+`"}`))
		if !p.Handles(request) {
			t.Fatal("not handled")
		}
		response := httptest.NewRecorder()
		p.ServeHTTP(response, request)
		if response.Code == http.StatusOK != strings.Contains(response.Body.String(), "the-token") {
			t.Errorf("%d %s", response.Code, response.Body)
		}
		return http.StatusText(response.Code)
	}
	if got := exchange(""); got != "Unauthorized" {
		t.Errorf("without a code: %s", got)
	}
	code := codes.New()
	if got := exchange("wrong"); got != "Unauthorized" {
		t.Errorf("wrong code: %s", got)
	}
	if got := exchange(code); got != "OK" {
		t.Errorf("first use: %s", got)
	}
	if got := exchange(code); got != "Unauthorized" {
		t.Errorf("second use: %s", got)
	}
	late := codes.New()
	clock.Step(CodeValidity)
	if got := exchange(late); got != "Unauthorized" {
		t.Errorf("after its time: %s", got)
	}
}
