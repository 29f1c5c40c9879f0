// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestSourceOf(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.1":                 "192.0.2.1",
		"::ffff:192.0.2.1":          "192.0.2.1",
		"2001:db8:1:2::7":           "2001:db8:1:2::/64",
		"2001:db8:1:2:ffff::7":      "2001:db8:1:2::/64",
		"fe80::1%eth0":              "fe80::/64",
		"::1":                       "::/64",
		"what a proxy must not say": "what a proxy must not say",
	} {
		if got := sourceOf(address); got != want {
			t.Errorf("%s is counted as %s, want %s", address, got, want)
		}
	}
}

func TestBudgetOfASource(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	sources := newSources(Limits{UnauthenticatedRate: 0.5, UnauthenticatedBurst: 3}, 10, clock)
	for range 3 {
		if err := sources.acquire("192.0.2.1"); err != nil {
			t.Fatal(err)
		}
	}
	limited, is := errors.AsType[*limitError](sources.acquire("192.0.2.1"))
	if !is || limited.retryAfter() != "2" || limited.cause != causeUnauthenticated {
		t.Fatalf("one more than the burst: %+v", limited)
	}
	if err := sources.acquire("192.0.2.2"); err != nil {
		t.Errorf("another source: %v", err)
	}
	clock.SetTime(clock.Now().Add(2 * time.Second))
	if err := sources.acquire("192.0.2.1"); err != nil {
		t.Errorf("after as long as was said: %v", err)
	}
	sources.release("192.0.2.1")
	if err := sources.acquire("192.0.2.1"); err != nil {
		t.Errorf("after one was given back: %v", err)
	}
	// The budget never exceeds the burst, after any pause or release.
	clock.SetTime(clock.Now().Add(time.Hour))
	sources.release("192.0.2.1")
	for range 3 {
		if err := sources.acquire("192.0.2.1"); err != nil {
			t.Fatal(err)
		}
	}
	if err := sources.acquire("192.0.2.1"); err == nil {
		t.Error("more than a burst is left after an hour")
	}
}

func TestSourcesAreForgotten(t *testing.T) {
	sources := newSources(Limits{UnauthenticatedRate: 0.001, UnauthenticatedBurst: 1}, 10, clocktesting.NewFakePassiveClock(time.Now()))
	for i := range 100 {
		// The first source is used all the time, and must not be evicted.
		if err := sources.acquire("192.0.2.1"); (err == nil) != (i == 0) {
			t.Fatalf("after %d others: %v", i, err)
		}
		if err := sources.acquire(fmt.Sprintf("198.51.100.%d", i)); err != nil {
			t.Fatal(err)
		}
		if len(sources.byName) > 10 || sources.recent.Len() != len(sources.byName) {
			t.Fatalf("%d sources are remembered", len(sources.byName))
		}
	}
}

// limited returns a server whose sources may send a few requests, and no more during the
// test.
func limited(t *testing.T, attempts int) *running {
	t.Helper()
	return start(t, api(), func(options *Options) {
		options.RegisterGRPC = registerJobs
		options.Limits.UnauthenticatedRate, options.Limits.UnauthenticatedBurst = 0.0001, attempts
	})
}

const aJob = "/api/v1/namespaces/n/mpijobs/hello"

// A client that guesses many tokens at the same time gets no more reviews than the budget.
func TestGuessedTokensAreNotReviewed(t *testing.T) {
	running := limited(t, 10)
	var guessing sync.WaitGroup
	var mutex sync.Mutex
	found := map[int]int{}
	for i := range 100 {
		guessing.Go(func() {
			got := running.do(t, http.MethodGet, aJob, fmt.Sprintf("guess-%d", i), nil)
			mutex.Lock()
			defer mutex.Unlock()
			found[got.code]++
			if got.code == 429 && (got.header.Get("Retry-After") == "" || len(got.apiErr.Suggestions) == 0) {
				t.Errorf("429 without help: %v %s", got.header, got.body)
			}
		})
	}
	guessing.Wait()
	if found[401] != 10 || found[429] != 90 || running.guard.reviewed() != 10 {
		t.Errorf("answers %v, %d reviews", found, running.guard.reviewed())
	}
	if refused := running.refusals(t, causeUnauthenticated); refused != "90" {
		t.Errorf("%s refusals are counted", refused)
	}
}

// Users who share the address of a flooding client are admitted if their token is known,
// and use no budget if it is valid.
func TestUsersBesideAFlood(t *testing.T) {
	running := limited(t, 3)
	get := func(user string) int { return running.do(t, http.MethodGet, aJob, user, nil).code }
	for i := range 10 {
		if code := get(fmt.Sprintf("user-%d", i)); code != 200 {
			t.Fatalf("a valid token gets %d", code)
		}
	}
	for range 3 {
		if code := get(""); code != 401 {
			t.Fatalf("no token gets %d", code)
		}
	}
	if code := get(""); code != 429 {
		t.Fatalf("one more gets %d", code)
	}
	if code := get("user-3"); code != 200 {
		t.Errorf("a known user gets %d", code)
	}
	if code := get("user-99"); code != 429 {
		t.Errorf("an unknown token gets %d", code)
	}
	running.guard.revoke("user-4")
	if code := get("user-4"); code != 401 {
		t.Errorf("a revoked token gets %d", code)
	}
	if code := get("user-4"); code != 429 {
		t.Errorf("a revoked token is still known: %d", code)
	}
}

// REST, streams and gRPC are limited in the same way.
func TestUnauthenticatedCallsAreLimitedEverywhere(t *testing.T) {
	for name, call := range map[string]func(*testing.T, *running) (code int, retryAfter string){
		"REST": func(t *testing.T, running *running) (int, string) {
			got := running.do(t, http.MethodGet, aJob, "", nil)
			return got.code, got.header.Get("Retry-After")
		},
		"a change": func(t *testing.T, running *running) (int, string) {
			got := running.do(t, http.MethodPost, "/api/v1/namespaces/n/mpijobs", "guess-1", strings.NewReader("{}"))
			return got.code, got.header.Get("Retry-After")
		},
		"WebSocket": func(t *testing.T, running *running) (int, string) {
			got := running.do(t, http.MethodGet, "/api/v1/watch/namespaces/n/mpijobs", "", nil,
				"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
			return got.code, got.header.Get("Retry-After")
		},
		"server-sent events": func(t *testing.T, running *running) (int, string) {
			got := running.do(t, http.MethodGet, "/api/v1/watch/namespaces/n/mpijobs", "", nil, "Accept", "text/event-stream")
			return got.code, got.header.Get("Retry-After")
		},
		"gRPC": func(t *testing.T, running *running) (int, string) {
			return overRPC(t, running, "/training.MPIJobService/GetMPIJob")
		},
		"a method that nobody has": func(t *testing.T, running *running) (int, string) {
			return overRPC(t, running, "/training.MPIJobService/Invented")
		},
	} {
		t.Run(name, func(t *testing.T) {
			running := limited(t, 2)
			for range 2 {
				if code, _ := call(t, running); code != 401 {
					t.Fatalf("within the budget: %d", code)
				}
			}
			if code, after := call(t, running); code != 429 || after == "" {
				t.Errorf("beyond the budget: %d, Retry-After %q", code, after)
			}
		})
	}
}

// overRPC calls without a token, and returns the HTTP status code.
func overRPC(t *testing.T, running *running, method string) (code int, retryAfter string) {
	t.Helper()
	var header metadata.MD
	err := running.dial(t).Invoke(t.Context(), method, wrapperspb.String("x"), &wrapperspb.StringValue{}, grpc.Header(&header))
	code = map[codes.Code]int{codes.Unauthenticated: 401, codes.ResourceExhausted: 429}[status.Code(err)]
	return code, strings.Join(header.Get("retry-after"), ",")
}

// Public paths are limited as well, except those that load balancers use.
func TestOpenPathsAreLimited(t *testing.T) {
	running := limited(t, 2)
	for range 2 {
		if code := running.do(t, http.MethodGet, "/version", "", nil).code; code != 200 {
			t.Fatalf("/version: %d", code)
		}
	}
	if code := running.do(t, http.MethodGet, "/version", "", nil).code; code != 429 {
		t.Errorf("/version beyond the budget: %d", code)
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		if code := running.do(t, http.MethodGet, path, "", nil).code; code != 200 {
			t.Errorf("%s: %d", path, code)
		}
	}
}

// A client cannot get another budget with a header.
func TestForwardedForIsNotBelieved(t *testing.T) {
	running := limited(t, 2)
	var codes []int
	for i := range 3 {
		codes = append(codes, running.do(t, http.MethodGet, aJob, "", nil, "X-Forwarded-For", fmt.Sprintf("192.0.2.%d", i)).code)
	}
	if fmt.Sprint(codes) != "[401 401 429]" {
		t.Errorf("%v", codes)
	}
}
