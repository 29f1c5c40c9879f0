// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trireme-mpi/trireme/internal/server/apierror"
	"github.com/trireme-mpi/trireme/internal/server/auth"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

// api is a small fake API.
func api() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/namespaces/{namespace}/mpijobs/{name}", func(writer http.ResponseWriter, request *http.Request) {
		fmt.Fprintf(writer, "%s reads %s", auth.CallerFrom(request.Context()).User, request.PathValue("name"))
	})
	mux.HandleFunc("POST /api/v1/namespaces/{namespace}/mpijobs", func(writer http.ResponseWriter, request *http.Request) {
		if _, err := io.ReadAll(request.Body); err != nil {
			if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
				http.Error(writer, "too large", http.StatusRequestEntityTooLarge)
				return
			}
			panic(err)
		}
		auth.RecordFrom(request.Context()).Name = "made"
		writer.WriteHeader(http.StatusCreated)
	})
	mux.HandleFunc("POST /api/v1/namespaces/{namespace}/preflight", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("DELETE /api/v1/namespaces/{namespace}/mpijobs/{name}", func(http.ResponseWriter, *http.Request) { panic("a mistake") })
	mux.HandleFunc("GET /half", func(writer http.ResponseWriter, _ *http.Request) {
		_, _ = writer.Write([]byte("half"))
		panic("a mistake")
	})
	mux.HandleFunc("GET /api/v1/watch/namespaces/{namespace}/mpijobs", watch)
	return mux
}

// watch sends a line, and then the reason of its end.
func watch(writer http.ResponseWriter, request *http.Request) {
	fmt.Fprintln(writer, "watching")
	if err := http.NewResponseController(writer).Flush(); err != nil {
		panic(err)
	}
	<-request.Context().Done()
	var told *apierror.Error
	if cause := context.Cause(request.Context()); errors.As(cause, &told) {
		fmt.Fprintln(writer, told.Reason)
	}
}

func TestHTTP(t *testing.T) {
	running := start(t, api(), func(options *Options) {
		options.Public = map[string]http.Handler{"/openapi.json": http.HandlerFunc(func(writer http.ResponseWriter, _ *http.Request) { fmt.Fprint(writer, "open") })}
		options.Origins = []string{"https://dashboard.example"}
	})
	large := strings.Repeat("x", maxBody+1)
	for name, test := range map[string]struct {
		method, path, user string
		body               io.Reader
		headers            []string
		code               int
		// want is the body, or the message of an error.
		want string
	}{
		"a call":                     {path: "/api/v1/namespaces/n/mpijobs/hello", user: "jane", code: 200, want: "jane reads hello"},
		"without a token":            {path: "/api/v1/namespaces/n/mpijobs/hello", code: 401, want: "who are you?"},
		"what is open":               {path: "/openapi.json", code: 200, want: "open"},
		"changing what is open":      {method: "POST", path: "/openapi.json", code: 401, want: "who are you?"},
		"nothing there":              {path: "/nothing", user: "jane", code: 404, want: "404 page not found"},
		"nothing there for nobody":   {path: "/nothing", code: 401, want: "who are you?"},
		"not with this method":       {method: "PUT", path: "/api/v1/namespaces/n/mpijobs/hello", user: "jane", code: 405, want: "Method Not Allowed"},
		"a body of 4 MiB":            {method: "POST", path: "/api/v1/namespaces/n/mpijobs", user: "jane", body: strings.NewReader(large[:maxBody]), code: 201},
		"a larger one":               {method: "POST", path: "/api/v1/namespaces/n/mpijobs", user: "jane", body: strings.NewReader(large), code: 413, want: "The body has 4194305 bytes; the maximum is 4194304"},
		"a larger one, in pieces":    {method: "POST", path: "/api/v1/namespaces/n/mpijobs", user: "jane", body: io.MultiReader(strings.NewReader(large)), code: 413, want: "too large"},
		"a mistake of ours":          {method: "DELETE", path: "/api/v1/namespaces/n/mpijobs/hello", user: "jane", code: 500, want: "Internal server error; the server log has the cause"},
		"a page of somebody else's":  {method: "POST", path: "/api/v1/namespaces/n/mpijobs", user: "jane", headers: []string{"Origin", "https://evil.example"}, code: 403, want: `Origin "https://evil.example" is not allowed to send requests to this server`},
		"a page that is allowed":     {method: "POST", path: "/api/v1/namespaces/n/mpijobs", user: "jane", headers: []string{"Origin", "https://dashboard.example"}, code: 201},
		"health, for everybody":      {path: "/healthz", code: 200, want: "ok\n"},
		"readiness, for everybody":   {path: "/readyz", code: 200, want: "ok\n"},
		"the version, for everybody": {path: "/version", code: 200, want: "{\"version\":\"1.2.3\"}\n"},
		"gRPC where there is none":   {method: "POST", path: "/training.MPIJobService/CreateMPIJob", user: "jane", headers: []string{"Content-Type", "application/grpc"}, code: 404, want: "404 page not found"},
	} {
		t.Run(name, func(t *testing.T) {
			if test.method == "" {
				test.method = http.MethodGet
			}
			got := running.do(t, test.method, test.path, test.user, test.body, test.headers...)
			said := got.body
			if got.code >= 400 {
				said = got.apiErr.Message
			}
			if got.code != test.code || said != test.want {
				t.Errorf("%d %s", got.code, got.body)
			}
			for header, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"} {
				if got.header.Get(header) != want {
					t.Errorf("%s is %q", header, got.header.Get(header))
				}
			}
			if got.header.Get("X-Request-Id") == "" {
				t.Error("the call has no name")
			}
			if challenge := got.header.Get("WWW-Authenticate"); (challenge != "") != (got.code == 401) {
				t.Errorf("%d asks for %q", got.code, challenge)
			}
		})
	}
	if logged := running.log.String(); !strings.Contains(logged, "a mistake") || !strings.Contains(logged, "http_test.go") {
		t.Errorf("the log does not say where the mistake is: %s", logged)
	}
}

// A client must be able to detect an incomplete response.
func TestPanicAbortsResponse(t *testing.T) {
	running := start(t, api(), nil)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+running.address+"/half", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer jane")
	response, err := http.DefaultClient.Do(request)
	if err == nil {
		defer response.Body.Close()
		_, err = io.ReadAll(response.Body)
	}
	if err == nil {
		t.Error("the answer looks whole")
	}
}

// Every call that changes something is in the audit log exactly once.
func TestAudit(t *testing.T) {
	running := start(t, api(), func(options *Options) { options.Limits = Limits{Rate: 0.001, Burst: 3, Streams: 1} })
	jobs := "/api/v1/namespaces/team-cv/mpijobs"
	for _, call := range []struct{ method, path, user, body string }{
		{"POST", jobs, "jane", "{}"},
		{"GET", jobs + "/hello", "jane", ""},
		{"DELETE", jobs + "/hello", "jane", ""},
		{"POST", jobs, "jane", "{}"},
		{"POST", jobs, "", "{}"},
		{"POST", "/api/v1/namespaces/team-cv/preflight", "max", "{}"},
		{"POST", jobs + "/hello/suspend", "max", ""},
		{"POST", jobs, "max", strings.Repeat("x", maxBody+1)},
	} {
		running.do(t, call.method, call.path, call.user, strings.NewReader(call.body))
	}
	var got []string
	for _, line := range lines(t, running.audit) {
		if line["source"] != "127.0.0.1" || line["requestID"] == "" {
			t.Errorf("from where? %v", line)
		}
		got = append(got, fmt.Sprintf("%s %s %s %s %s %v %s", line["user"], line["verb"], line["kind"], line["namespace"], line["name"], line["code"], line["result"]))
	}
	want := []string{
		"jane create MPIJob team-cv made 201 done",
		"jane delete MPIJob team-cv hello 500 failed",
		"jane create MPIJob team-cv  429 refused",
		" create MPIJob team-cv  401 refused",
		"max patch MPIJob team-cv hello 404 refused",
		" create MPIJob team-cv  413 refused",
	}
	if difference := cmp.Diff(want, got); difference != "" {
		t.Error(difference)
	}
}

// isAboutThousand: the wait at a rate of one request per 1000 s, minus the time that the
// test took.
func isAboutThousand(seconds string) bool {
	number, err := strconv.Atoi(seconds)
	return err == nil && number > 900 && number <= 1000
}

func TestTooManyRequests(t *testing.T) {
	running := start(t, api(), func(options *Options) { options.Limits = Limits{Rate: 0.001, Burst: 2, Streams: 1} })
	get := func(user string) answer {
		t.Helper()
		return running.do(t, http.MethodGet, "/api/v1/namespaces/n/mpijobs/hello", user, nil)
	}
	get("jane")
	get("jane")
	refused := get("jane")
	if refused.code != 429 || !isAboutThousand(refused.header.Get("Retry-After")) {
		t.Errorf("%d, try again after %q", refused.code, refused.header.Get("Retry-After"))
	}
	if other := get("max"); other.code != 200 {
		t.Errorf("somebody else gets %d", other.code)
	}
}

// open starts a watch, and returns its lines.
func (r *running) open(t *testing.T, user string) (int, *bufio.Reader) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.address+"/api/v1/watch/namespaces/n/mpijobs", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+user)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	return response.StatusCode, bufio.NewReader(response.Body)
}

func wantLine(t *testing.T, from *bufio.Reader, want string) {
	t.Helper()
	if line, err := from.ReadString('\n'); strings.TrimSpace(line) != want {
		t.Errorf("got %q (%v), want %q", line, err, want)
	}
}

func TestStreams(t *testing.T) {
	running := start(t, api(), func(options *Options) { options.Limits.Streams = 1 })
	code, watching := running.open(t, "jane")
	if code != 200 {
		t.Fatal(code)
	}
	wantLine(t, watching, "watching")
	if code, _ := running.open(t, "jane"); code != 429 {
		t.Errorf("a second stream gets %d", code)
	}
	if code, _ := running.open(t, "max"); code != 200 {
		t.Errorf("somebody else's stream gets %d", code)
	}
	running.guard.revoke("jane")
	wantLine(t, watching, "Unauthorized")
	eventually.Holds(t, "the stream is counted no longer", func() bool {
		running.users.mutex.Lock()
		defer running.users.mutex.Unlock()
		return running.users.users["jane"].streams == 0 && running.users.users["max"].streams == 1
	})
}
