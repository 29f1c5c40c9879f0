// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	messages "github.com/trireme-mpi/trireme/api/grpc/training"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
	"github.com/trireme-mpi/trireme/internal/testing/surface"
)

// tokenReviews is how many the API server has answered.
func (cluster *cluster) tokenReviews(t *testing.T) (count float64) {
	t.Helper()
	text, err := cluster.typed.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		line := lines.Text()
		if !strings.HasPrefix(line, "apiserver_request_total{") || !strings.Contains(line, `resource="tokenreviews"`) {
			continue
		}
		var one float64
		if _, err := fmt.Sscan(line[strings.LastIndex(line, " ")+1:], &one); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		count += one
	}
	return count
}

// clientFrom is a client with an address of this machine, which opens a connection for
// each call.
func clientFrom(address string) *http.Client {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}, Timeout: time.Minute}
	return &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		DisableKeepAlives: true, DialContext: dialer.DialContext, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
}

// Whoever sends tokens that nobody has, over every protocol at once, has the API server
// review a few of them. A user of the same address goes on working.
func TestFloodOfInvalidTokens(t *testing.T) {
	const budget = 20
	cluster := sharedCluster.For(t)
	jane := cluster.person(t, "jane")
	program := cluster.startServer(t, "--unauthenticated-requests-per-second=0.001", fmt.Sprintf("--unauthenticated-burst=%d", budget))
	jobs := program.url + "/api/v1/namespaces/" + jane.namespace + "/mpijobs"
	if got := ask(t, http.MethodGet, jobs, jane.token, nil); got.code != 200 {
		t.Fatalf("%d %s", got.code, got.body)
	}
	before := cluster.tokenReviews(t)
	if before == 0 {
		t.Fatal("the API server counts no reviews: its metric has another name")
	}

	overRPC := messages.NewMPIJobServiceClient(program.dial(t))
	watch := strings.Replace(jobs, "/api/v1/", "/api/v1/watch/", 1)
	calls := map[string]func() int{
		"REST":               func() int { return ask(t, http.MethodGet, jobs, rand.Text(), nil).code },
		"without a token":    func() int { return ask(t, http.MethodGet, jobs, "", nil).code },
		"server-sent events": func() int { return ask(t, http.MethodGet, watch, rand.Text(), nil, "Accept", "text/event-stream").code },
		"WebSocket": func() int {
			return askWith(t, clientOver1(), http.MethodGet, watch, rand.Text(), nil, "Connection", "Upgrade", "Upgrade", "websocket",
				"Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==").code
		},
		"gRPC": func() int {
			ctx, cancel := context.WithTimeout(surface.WithToken(t.Context(), rand.Text()), time.Minute)
			defer cancel()
			_, err := overRPC.ListMPIJobs(ctx, &messages.ListMPIJobsRequest{Namespace: jane.namespace})
			return map[codes.Code]int{codes.Unauthenticated: 401, codes.ResourceExhausted: 429}[status.Code(err)]
		},
	}
	const rounds = 40
	found := flood(calls, rounds)
	if found[401] != budget || found[429] != rounds*len(calls)-budget || len(found) != 2 {
		t.Errorf("the flood is answered with %v", found)
	}
	if reviews := cluster.tokenReviews(t) - before; reviews > budget+1 {
		t.Errorf("%v tokens were reviewed", reviews)
	}

	for name, call := range calls {
		if code := call(); code != 429 {
			t.Errorf("%s after the flood: %d", name, code)
		}
	}
	if got := ask(t, http.MethodGet, jobs, "guess", nil); got.header.Get("Retry-After") == "" || !strings.Contains(got.told.Message, "without a valid token") {
		t.Errorf("%v %s", got.header, got.body)
	}
	if got := ask(t, http.MethodGet, jobs, jane.token, nil); got.code != 200 {
		t.Errorf("a user of the same address: %d %s", got.code, got.body)
	}
	if got := askWith(t, clientFrom("127.0.0.2"), http.MethodGet, jobs, "guess", nil); got.code != 401 {
		t.Errorf("another source: %d %s", got.code, got.body)
	}
	if got := askWith(t, clientFrom("127.0.0.2"), http.MethodGet, jobs, cluster.token(t, jane), nil); got.code != 200 {
		t.Errorf("a new token of another source: %d %s", got.code, got.body)
	}
	if got := ask(t, http.MethodGet, program.probes+"/metrics", "", nil); !strings.Contains(got.body, `trireme_server_refusals_total{cause="unauthenticated"}`) || strings.Contains(got.body, "127.0.0.1") {
		t.Error("the metrics do not count refusals, or name sources")
	}
}

// flood makes every call many times, side by side, and counts the codes.
func flood(calls map[string]func() int, rounds int) map[int]int {
	var mutex sync.Mutex
	var flooding sync.WaitGroup
	found := map[int]int{}
	for _, call := range calls {
		for range 4 {
			flooding.Go(func() {
				for range rounds / 4 {
					code := call()
					mutex.Lock()
					found[code]++
					mutex.Unlock()
				}
			})
		}
	}
	flooding.Wait()
	return found
}

// Connections that say nothing fill the share of their source, and no other's.
func TestFloodOfConnections(t *testing.T) {
	cluster := sharedCluster.For(t)
	jane := cluster.person(t, "jane")
	program := cluster.startServer(t, "--connections-per-source=5", "--connections=100")
	for range 5 {
		connection, err := net.Dial("tcp", program.url[len("https://"):])
		if err != nil {
			t.Fatal(err)
		}
		defer connection.Close()
	}
	eventually.Succeeds(t, "the connections are counted", func() error {
		if got := ask(t, http.MethodGet, program.probes+"/metrics", "", nil); !strings.Contains(got.body, "\ntrireme_server_connections 5\n") {
			return fmt.Errorf("%.100s", got.body[strings.Index(got.body, "\ntrireme_server_connections"):])
		}
		return nil
	})
	jobs := program.url + "/api/v1/namespaces/" + jane.namespace + "/mpijobs"
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, jobs, nil)
	if err != nil {
		t.Fatal(err)
	}
	if response, err := clientFrom("127.0.0.1").Do(request); err == nil {
		response.Body.Close()
		t.Errorf("one more of the same source gets %s", response.Status)
	}
	if got := askWith(t, clientFrom("127.0.0.2"), http.MethodGet, jobs, jane.token, nil); got.code != 200 {
		t.Errorf("another source: %d %s", got.code, got.body)
	}
	// The certificate's handshake has its time, and no more.
	eventually.Succeeds(t, "who says nothing is cut off", func() error {
		response, err := clientFrom("127.0.0.1").Do(request)
		if err == nil {
			response.Body.Close()
		}
		return err
	})
}
