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
		{name: "limit", kind: "integer", least: 1, most: 10},
		{name: "follow", kind: "boolean"},
		{name: "since", kind: "date-time"},
		{name: "sort", kind: "string", words: []string{"name", "-name"}},
		{name: "search", kind: "string"},
	}
	tests := map[string]struct{ query, want string }{
		"nothing":             {"", ""},
		"all of them":         {"limit=3&follow=true&since=2026-01-31T12:00:00Z&sort=-name&search=x", ""},
		"an unknown name":     {"limt=3", "limt: there is no such parameter here; there are limit, follow, since, sort, search"},
		"twice":               {"limit=3&limit=4", "limit: it is given 2 times"},
		"no number":           {"limit=many", `limit: "many" is no whole number from 1 to 10`},
		"too large":           {"limit=11", `limit: "11" is no whole number from 1 to 10`},
		"an overflow":         {"limit=99999999999999999999", "is no whole number"},
		"neither":             {"follow=yes", `follow: "yes" is neither true nor false`},
		"no time":             {"since=yesterday", `since: "yesterday" is no time such as`},
		"no such word":        {"sort=size", `sort: "size" is none of name, -name`},
		"no UTF-8":            {"search=%ff", "search: it is not UTF-8"},
		"a zero byte":         {"search=a%00b", "search: it has a zero byte in it"},
		"a broken escape":     {"search=%zz", "query: it cannot be read"},
		"a semicolon, as one": {"search=a;limit=3", "query: it cannot be read"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			request := &http.Request{URL: httptest.NewRequest(http.MethodGet, "/", nil).URL}
			request.URL.RawQuery = test.query
			wantProblem(t, newQuery(request).check(known), test.want)
		})
	}
}

// wantProblem: a client's mistake is told as one, in these words; none is no error.
func wantProblem(t *testing.T, err error, words string) {
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
	wantProblem(t, query.check([]parameter{{name: "namespace", kind: "string", description: "namespace of the job", required: true}}), "namespace: is required: namespace of the job")
}

func TestBodies(t *testing.T) {
	tests := map[string]struct{ contentType, body, want string }{
		"JSON":                  {"application/json", `{"spec":{"slotsPerWorker":2}}`, ""},
		"with a charset":        {"application/json; charset=utf-8", `{}`, ""},
		"no type at all":        {"", `{}`, ""},
		"YAML":                  {"application/yaml", "spec: {slotsPerWorker: 2}", ""},
		"a form":                {"application/x-www-form-urlencoded", "a=b", `A body of type "application/x-www-form-urlencoded" cannot be read`},
		"a broken type":         {"application/json; =", "{}", "cannot be read"},
		"empty":                 {"application/json", " \n", "body: it is empty"},
		"not UTF-8":             {"application/json", "{\"spec\":\"\xff\"}", "body: it is not UTF-8"},
		"no JSON":               {"application/json", "{", "body: it is no MPIJob"},
		"a list":                {"application/json", "[]", "body: it is no MPIJob"},
		"YAML with its marks":   {"application/yaml", "---\n# a job\nspec: {slotsPerWorker: 2}\n---\n# nothing\n", ""},
		"two documents":         {"application/yaml", "spec: {}\n---\nspec: {}\n", "body: it has more than one document"},
		"twice the same key":    {"application/yaml", "spec: {}\nspec: {}", "body: it is no YAML"},
		"an unknown field":      {"application/json", `{"spec":{"slots":2}}`, "The body has fields that no MPIJob has"},
		"a wrong type":          {"application/json", `{"spec":{"slotsPerWorker":"two"}}`, "spec.slotsPerWorker must be int32, not a string"},
		"another kind":          {"application/json", `{"apiVersion":"kubeflow.org/v2alpha1","kind":"TrainJob"}`, "kind: it is TrainJob of kubeflow.org/v2alpha1; what is wanted here is MPIJob of kubeflow.org/v2beta1"},
		"another version of it": {"application/json", `{"apiVersion":"kubeflow.org/v1","kind":"MPIJob"}`, "kind: it is MPIJob of kubeflow.org/v1"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			request := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(test.body))
			request.Header.Set("Content-Type", test.contentType)
			content, err := document(request)
			if err == nil {
				_, err = readJob(content, jobview.MPIJobs)
			}
			wantProblem(t, err, test.want)
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
	_, err := document(request)
	if told := apierror.From(err); told.Code != http.StatusRequestEntityTooLarge || !strings.Contains(told.Message, "more than 10 bytes") {
		t.Errorf("it says %d %s", told.Code, told.Message)
	}
}

func TestNamesAreChecked(t *testing.T) {
	for value, want := range map[string]string{
		"": "", "train": "", "a.b": "", "..": "is no name", "../../secrets": "is no name", "a/b": "is no name", "A": "is no name", "a\x00": "is no name", strings.Repeat("a", 254): "is no name",
	} {
		wantProblem(t, checkName("name", value), want)
	}
}

// Bodies are the first that a stranger reaches: nothing in them may break the server.
func FuzzBody(f *testing.F) {
	f.Add([]byte(`{"metadata":{"name":"train"},"spec":{}}`), "application/json")
	f.Add([]byte("spec: {slotsPerWorker: 2}"), "application/yaml")
	f.Add([]byte("a: &a [*a]"), "application/yaml")
	f.Fuzz(func(t *testing.T, body []byte, contentType string) {
		request := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(string(body)))
		request.Header["Content-Type"] = []string{contentType}
		content, err := document(request)
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
