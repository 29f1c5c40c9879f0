// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/trireme-mpi/trireme/internal/server/apierror"
	"github.com/trireme-mpi/trireme/internal/server/auth"
)

// guard accepts every user name as a token, until it is revoked.
type guard struct {
	mutex   sync.Mutex
	refused map[string]error
	// known are the accepted users; reviews counts the reviews of unknown tokens.
	known   map[string]bool
	reviews int
}

// unauthorized is the error for unknown users.
var unauthorized = apierror.New(http.StatusUnauthorized, "Unauthorized", "who are you?", "say it")

func (g *guard) Identify(ctx context.Context, request *http.Request) (*auth.Caller, error) {
	caller := &auth.Caller{User: userOf(request), Source: "192.0.2.1"}
	err := g.StillValid(ctx, caller)
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if !g.known[caller.User] && caller.User != "" {
		g.reviews++
	}
	if g.known == nil {
		g.known = map[string]bool{}
	}
	g.known[caller.User] = err == nil
	return caller, err
}

func userOf(request *http.Request) string {
	return strings.TrimPrefix(request.Header.Get("Authorization"), "Bearer ")
}

func (g *guard) Knows(request *http.Request) bool {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	return g.known[userOf(request)]
}

func (g *guard) reviewed() int {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	return g.reviews
}

func (g *guard) Allow(context.Context, *auth.Caller, auth.Permission) error { return nil }

func (g *guard) StillValid(_ context.Context, caller *auth.Caller) error {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if caller.User == "" || strings.HasPrefix(caller.User, "guess-") {
		return unauthorized
	}
	return g.refused[caller.User]
}

func (g *guard) revoke(user string) { g.refuse(user, unauthorized) }

// refuse returns an error for a user from now on.
func (g *guard) refuse(user string, err error) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	g.refused = map[string]error{user: err}
}

// buffer is safe for concurrent use.
type buffer struct {
	mutex   sync.Mutex
	content bytes.Buffer
}

func (b *buffer) Write(content []byte) (int, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.content.Write(content)
}

func (b *buffer) String() string {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.content.String()
}

// running is a server under test.
type running struct {
	*Server
	guard      *guard
	address    string
	audit, log *buffer
	stop       context.CancelFunc
	ended      chan error
}

// start runs a server with an API of the test. configure may change its options.
func start(t *testing.T, api http.Handler, configure func(*Options)) *running {
	t.Helper()
	if api == nil {
		api = http.NotFoundHandler()
	}
	running := &running{guard: &guard{}, audit: &buffer{}, log: &buffer{}, ended: make(chan error, 1)}
	options := Options{
		Address: "127.0.0.1:0", Guard: running.guard, API: api, Limits: DefaultLimits(), Drain: 5 * time.Second, Version: "1.2.3",
		Log: slog.New(slog.NewJSONHandler(running.log, nil)), Audit: running.audit, GRPCStatus: statusOf,
		Registry: prometheus.NewRegistry(),
	}
	if configure != nil {
		configure(&options)
	}
	made, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	running.Server = made
	made.checkInterval = 20 * time.Millisecond
	ctx, stop := context.WithCancel(context.Background())
	running.stop = stop
	started := make(chan net.Addr, 1)
	go func() { running.ended <- made.Run(ctx, func(address net.Addr) { started <- address }) }()
	select {
	case address := <-started:
		running.address = address.String()
	case err := <-running.ended:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		select {
		case err := <-running.ended:
			if err != nil {
				t.Errorf("the server ended with %v", err)
			}
		case <-time.After(time.Minute):
			t.Error("the server does not end")
		}
	})
	return running
}

// await waits until the server has ended.
func (r *running) await(t *testing.T) {
	t.Helper()
	select {
	case err := <-r.ended:
		r.ended <- err
	case <-time.After(time.Minute):
		t.Fatal("the server does not end")
	}
}

// statusOf converts an error to a gRPC status.
func statusOf(err error) error {
	told := apierror.From(err)
	code, known := map[int]codes.Code{
		http.StatusBadRequest: codes.InvalidArgument, http.StatusUnauthorized: codes.Unauthenticated, http.StatusTooManyRequests: codes.ResourceExhausted,
	}[told.Code]
	if !known {
		code = codes.Internal
	}
	return status.Error(code, told.Message)
}

// answer is a response that a client received.
type answer struct {
	code   int
	header http.Header
	body   string
	apiErr apierror.Error
}

func (r *running) do(t *testing.T, method, path, user string, body io.Reader, headers ...string) answer {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, "http://"+r.address+path, body)
	if err != nil {
		t.Fatal(err)
	}
	if user != "" {
		request.Header.Set("Authorization", "Bearer "+user)
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			request.Host = headers[i+1]
		}
		request.Header.Set(headers[i], headers[i+1])
	}
	return exchange(t, http.DefaultClient, request)
}

func exchange(t *testing.T, client *http.Client, request *http.Request) answer {
	t.Helper()
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	got := answer{code: response.StatusCode, header: response.Header, body: string(content)}
	if response.StatusCode >= http.StatusBadRequest {
		if err := json.Unmarshal(content, &got.apiErr); err != nil {
			t.Fatalf("%d is not in the common shape (%v): %s", got.code, err, content)
		}
		if got.apiErr.Code != got.code || got.apiErr.Message == "" || got.apiErr.Reason == "" {
			t.Errorf("%d says of itself %s", got.code, content)
		}
	}
	return got
}

// lines returns the lines of a stream of JSON.
func lines(t *testing.T, stream *buffer) (lines []map[string]any) {
	t.Helper()
	for line := range strings.Lines(stream.String()) {
		var read map[string]any
		if err := json.Unmarshal([]byte(line), &read); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		lines = append(lines, read)
	}
	return lines
}
