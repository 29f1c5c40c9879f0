// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/trireme-mpi/trireme/internal/kube/jobview"
	"github.com/trireme-mpi/trireme/internal/server/apierror"
)

func TestQueriesAreChecked(t *testing.T) {
	known := []parameter{
		{name: "limit", kind: "integer", min: 1, max: 10},
		{name: "follow", kind: "boolean"},
		{name: "since", kind: "date-time"},
		{name: "sort", kind: "string", values: []string{"name", "-name"}},
		{name: "search", kind: "string"},
	}
	tests := map[string]struct{ query, want string }{
		"nothing":             {"", ""},
		"all of them":         {"limit=3&follow=true&since=2026-01-31T12:00:00Z&sort=-name&search=x", ""},
		"an unknown name":     {"limt=3", "limt: unknown parameter; this path has limit, follow, since, sort, search"},
		"twice":               {"limit=3&limit=4", "limit: is given 2 times"},
		"no number":           {"limit=many", `limit: "many" is not an integer from 1 to 10`},
		"too large":           {"limit=11", `limit: "11" is not an integer from 1 to 10`},
		"an overflow":         {"limit=99999999999999999999", "is not an integer"},
		"neither":             {"follow=yes", `follow: "yes" must be true or false`},
		"no time":             {"since=yesterday", `since: "yesterday" is not a time such as`},
		"no such word":        {"sort=size", `sort: "size" is not one of name, -name`},
		"no UTF-8":            {"search=%ff", "search: is not valid UTF-8"},
		"a zero byte":         {"search=a%00b", "search: has a zero byte"},
		"a broken escape":     {"search=%zz", "query: cannot be read"},
		"a semicolon, as one": {"search=a;limit=3", "query: cannot be read"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			request := &http.Request{URL: httptest.NewRequest(http.MethodGet, "/", nil).URL}
			request.URL.RawQuery = test.query
			wantClientError(t, newQuery(request).check(known), test.want)
		})
	}
}

// wantClientError checks that an error of the client has a text; "" expects no error.
func wantClientError(t *testing.T, err error, words string) {
	t.Helper()
	if words == "" {
		if err != nil {
			t.Errorf("it is refused: %v", err)
		}
		return
	}
	if err == nil || !strings.Contains(err.Error(), words) {
		t.Fatalf("it says %v, want %q", err, words)
	}
	if code := apierror.From(err).Code; code < 400 || code > 499 {
		t.Errorf("the code is %d", code)
	}
}

func TestRequiredParameters(t *testing.T) {
	query := newQuery(httptest.NewRequest(http.MethodGet, "/", nil))
	wantClientError(t, query.check([]parameter{{name: "namespace", kind: "string", description: "Namespace of the job", required: true}}), "namespace: is required: Namespace of the job")
}

func TestBodies(t *testing.T) {
	tests := map[string]struct{ contentType, body, want string }{
		"JSON":                  {"application/json", `{"spec":{"slotsPerWorker":2}}`, ""},
		"with a charset":        {"application/json; charset=utf-8", `{}`, ""},
		"no type at all":        {"", `{}`, ""},
		"YAML":                  {"application/yaml", "spec: {slotsPerWorker: 2}", ""},
		"a form":                {"application/x-www-form-urlencoded", "a=b", `Content-Type "application/x-www-form-urlencoded" is not supported`},
		"a broken type":         {"application/json; =", "{}", "is not supported"},
		"empty":                 {"application/json", " \n", "body: is empty"},
		"not UTF-8":             {"application/json", "{\"spec\":\"\xff\"}", "body: is not valid UTF-8"},
		"no JSON":               {"application/json", "{", "body: is not a valid MPIJob"},
		"a list":                {"application/json", "[]", "body: is not a valid MPIJob"},
		"YAML with its marks":   {"application/yaml", "---\n# a job\nspec: {slotsPerWorker: 2}\n---\n# nothing\n", ""},
		"two documents":         {"application/yaml", "spec: {}\n---\nspec: {}\n", "body: has more than one document"},
		"twice the same key":    {"application/yaml", "spec: {}\nspec: {}", "body: is not valid YAML"},
		"an unknown field":      {"application/json", `{"spec":{"slots":2}}`, "The body has unknown or duplicate MPIJob fields"},
		"a wrong type":          {"application/json", `{"spec":{"slotsPerWorker":"two"}}`, "spec.slotsPerWorker must be int32, not a string"},
		"another kind":          {"application/json", `{"apiVersion":"kubeflow.org/v2alpha1","kind":"TrainJob"}`, "kind: is TrainJob of kubeflow.org/v2alpha1, but must be MPIJob of kubeflow.org/v2beta1"},
		"another version of it": {"application/json", `{"apiVersion":"kubeflow.org/v1","kind":"MPIJob"}`, "kind: is MPIJob of kubeflow.org/v1"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			request := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(test.body))
			request.Header.Set("Content-Type", test.contentType)
			content, err := readBody(request)
			if err == nil {
				_, err = readJob(content, jobview.MPIJobs)
			}
			wantClientError(t, err, test.want)
		})
	}
}

func TestUnknownFieldsAreNamed(t *testing.T) {
	_, err := readJob([]byte(`{"spec":{"slots":2,"runPolicy":{"suspended":true}}}`), jobview.MPIJobs)
	told := apierror.From(err)
	if len(told.Details) != 2 || told.Details[0].Field != "spec.runPolicy.suspended" && told.Details[1].Field != "spec.runPolicy.suspended" {
		t.Errorf("the details are %+v", told.Details)
	}
}

func TestBodiesHaveALimit(t *testing.T) {
	request := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(strings.Repeat(" ", 100)))
	request.Body = http.MaxBytesReader(httptest.NewRecorder(), request.Body, 10)
	_, err := readBody(request)
	if told := apierror.From(err); told.Code != http.StatusRequestEntityTooLarge || !strings.Contains(told.Message, "more than 10 bytes") {
		t.Errorf("it says %d %s", told.Code, told.Message)
	}
}

func TestNamesAreChecked(t *testing.T) {
	for value, want := range map[string]string{
		"": "", "train": "", "a.b": "", "..": "is not a valid name", "../../secrets": "is not a valid name", "a/b": "is not a valid name", "A": "is not a valid name", "a\x00": "is not a valid name", strings.Repeat("a", 254): "is not a valid name",
	} {
		wantClientError(t, checkName("name", value), want)
	}
}

// Any client can send a body: nothing in it may break the server.
func FuzzBody(f *testing.F) {
	f.Add([]byte(`{"metadata":{"name":"train"},"spec":{}}`), "application/json")
	f.Add([]byte("spec: {slotsPerWorker: 2}"), "application/yaml")
	f.Add([]byte("a: &a [*a]"), "application/yaml")
	f.Fuzz(func(t *testing.T, body []byte, contentType string) {
		request := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(string(body)))
		request.Header["Content-Type"] = []string{contentType}
		content, err := readBody(request)
		for _, kind := range jobview.Kinds {
			if err == nil {
				_, err = readJob(content, kind)
			}
		}
		if err != nil {
			if code := apierror.From(err).Code; code < 400 || code > 499 {
				t.Errorf("%d for %v", code, err)
			}
		}
	})
}
