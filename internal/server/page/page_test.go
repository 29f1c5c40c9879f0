// SPDX-License-Identifier: Apache-2.0

package page

import (
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
		"/":                          {"<title>index</title>", "no-cache", "text/html; charset=utf-8"},
		"/jobs/vision/trainjobs/one": {"<title>index</title>", "no-cache", "text/html; charset=utf-8"},
		"/create":                    {"<title>index</title>", "no-cache", "text/html; charset=utf-8"},
		"/assets/main-1234.js":       {"main", "public, max-age=31536000, immutable", "text/javascript; charset=utf-8"},
		"/favicon.svg":               {"<svg/>", "no-cache", "image/svg+xml"},
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
	clock.Step(codeValidity)
	if got := exchange(late); got != "Unauthorized" {
		t.Errorf("after its time: %s", got)
	}
}
