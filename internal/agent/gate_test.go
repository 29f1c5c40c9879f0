// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trireme-mpi/trireme/internal/agent/protocol"
)

// loopbacks are many hosts on one machine: every address of 127.0.0.0/8 is local.
func loopbacks(count int) []string {
	var hosts []string
	for i := range count {
		hosts = append(hosts, fmt.Sprintf("127.1.%d.%d", i/250, i%250+1))
	}
	return hosts
}

// serveEverywhere serves all loopback addresses on one port.
func serveEverywhere(t testing.TB, keys string) int {
	t.Helper()
	listener, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = newLocalWorker(t, keys, io.Discard).Serve(t.Context(), listener)
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-served
	})
	return listener.Addr().(*net.TCPAddr).Port
}

func TestGateWithThousandWorkers(t *testing.T) {
	keys := newKeys(t)
	caller := newTestClient(t, keys)
	caller.port = serveEverywhere(t, keys)
	began := time.Now()
	got := (&gate{client: caller, timeout: time.Minute}).pass(t.Context(), loopbacks(1000))
	t.Logf("1,000 workers, client and servers in one process: %s, the slowest %s", time.Since(began), got.connect)
	if len(got.unreached) > 0 {
		t.Errorf("%d workers were not reached; the first: %+v", len(got.unreached), got.unreached[0])
	}
	if got.connect <= 0 {
		t.Error("the time of the slowest is not known")
	}
}

func TestGateWithThousandWorkersInProcesses(t *testing.T) {
	worker := startWorker(t, newKeys(t))
	hostfile := mustWrite(t, filepath.Join(t.TempDir(), "hostfile"), strings.Join(loopbacks(1000), " slots=2\n"))
	got := runAgent(t, worker.keys, worker.port, []string{protocol.HostfileVariable + "=" + hostfile}, "gate")
	if got.Status != 0 {
		t.Errorf("exit code %d: %s", got.Status, got.Stderr)
	}
	mustContain(t, "stderr", got.Stderr, "trireme: 1000 workers reached in ")
	t.Log(got.Stderr)
}

func TestGateTriesManyAtATimeButNotAll(t *testing.T) {
	// No client gets a response before many have connected.
	const many = gateParallel / 4
	enough := make(chan struct{})
	let := sync.OnceFunc(func() { close(enough) })
	var now, most atomic.Int64
	port := answerEverywhere(t, func(connection net.Conn) {
		count := now.Add(1)
		for seen := most.Load(); count > seen && !most.CompareAndSwap(seen, count); seen = most.Load() {
		}
		if count == many {
			let()
		}
		select {
		case <-enough:
			time.Sleep(20 * time.Millisecond)
		case <-time.After(attemptTimeout - time.Second):
		}
		now.Add(-1)
		_, _ = io.WriteString(connection, "SSH-2.0-x\r\n")
	})
	caller := newTestClient(t, newKeys(t))
	caller.bannerPorts = []int{port}
	got := (&gate{client: caller, timeout: time.Minute}).pass(t.Context(), loopbacks(500))
	if len(got.unreached) > 0 {
		t.Errorf("not reached: %+v", got.unreached)
	}
	if most.Load() > gateParallel || most.Load() < many {
		t.Errorf("%d at a time, want up to %d", most.Load(), gateParallel)
	}
}

func answerEverywhere(t testing.TB, answer func(net.Conn)) int {
	t.Helper()
	listener, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer connection.Close()
				answer(connection)
			}()
		}
	}()
	return listener.Addr().(*net.TCPAddr).Port
}

func TestGateWaitsForAWorkerThatIsLate(t *testing.T) {
	t.Parallel()
	keys, port := newKeys(t), freePort(t)
	caller := newTestClient(t, keys)
	caller.port = port
	var listeners sync.WaitGroup
	defer listeners.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for i, host := range []string{"127.0.0.1", "127.0.0.2"} {
		listeners.Go(func() {
			time.Sleep(time.Duration(i) * time.Second)
			listener, err := net.Listen("tcp", fmt.Sprintf("%s:%d", host, port))
			if err != nil {
				t.Error(err)
				return
			}
			_ = newLocalWorker(t, keys, io.Discard).Serve(ctx, listener)
		})
	}
	got := (&gate{client: caller, timeout: time.Minute}).pass(t.Context(), []string{"127.0.0.1", "127.0.0.2"})
	if len(got.unreached) > 0 {
		t.Errorf("not reached: %+v", got.unreached)
	}
}

func TestGateClock(t *testing.T) {
	t.Parallel()
	const timeout = 3 * time.Second
	tests := map[string]struct {
		// first is in the file when the gate starts; a time that far from then is in
		// it after half of the timeout.
		first     string
		then      time.Duration
		noFile    bool
		wantAfter time.Duration
	}{
		"without a clock the time starts at once": {noFile: true, wantAfter: timeout},
		"not all are running yet":                 {then: 2 * time.Second, wantAfter: 2*time.Second + timeout},
		"all have run for long":                   {first: "2026-01-02T03:04:05Z\n", wantAfter: timeout},
		"the file has no valid time":              {first: "soon", then: time.Second, wantAfter: time.Second + timeout},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			caller := newTestClient(t, newKeys(t))
			caller.port = freePort(t)
			gate := &gate{client: caller, timeout: timeout}
			began := time.Now()
			if !tc.noFile {
				gate.clock = mustWrite(t, filepath.Join(t.TempDir(), "clock"), tc.first)
			}
			if tc.then > 0 {
				time.AfterFunc(timeout/2, func() {
					mustWrite(t, gate.clock, began.Add(tc.then).UTC().Format(time.RFC3339Nano)+"\n")
				})
			}
			hosts := loopbacks(3)
			got := gate.pass(t.Context(), hosts)
			if took := time.Since(began); took < tc.wantAfter-200*time.Millisecond || took > tc.wantAfter+patience {
				t.Errorf("it gave up after %s, want %s", took, tc.wantAfter)
			}
			var unreached []string
			for _, entry := range got.unreached {
				unreached = append(unreached, entry.Host)
				mustContain(t, "the record", entry.Message, entry.Host, troubleText[protocol.Refused], advice[protocol.Refused])
			}
			slices.Sort(unreached)
			if diff := cmp.Diff(hosts, unreached); diff != "" {
				t.Errorf("unreached (-want +got):\n%s", diff)
			}
		})
	}
}

func TestGateWaitsAsLongAsNotAllRun(t *testing.T) {
	t.Parallel()
	caller := newTestClient(t, newKeys(t))
	caller.port = freePort(t)
	ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
	defer cancel()
	began := time.Now()
	// The file may also not be there yet.
	_ = (&gate{client: caller, timeout: 100 * time.Millisecond, clock: filepath.Join(t.TempDir(), "none")}).pass(ctx, loopbacks(1))
	if took := time.Since(began); took < time.Second {
		t.Errorf("it gave up after %s", took)
	}
}
