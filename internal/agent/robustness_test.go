// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/ssh"

	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

// localWorker is a worker inside the test, whose goroutines can be counted. Its
// logins must all be of one launch: a second would end the test's own children.
type localWorker struct {
	keys    string
	address string
	log     *buffer
}

func serveLocally(t testing.TB, keys string) *localWorker {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	log := &buffer{}
	worker := newLocalWorker(t, keys, log)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = worker.Serve(t.Context(), listener)
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-served
		mustHoldNoSecret(t, keys, "the worker's log", log.String())
	})
	return &localWorker{keys: keys, address: listener.Addr().String(), log: log}
}

func newLocalWorker(t testing.TB, keys string, log io.Writer) *Worker {
	t.Helper()
	logger := slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	return NewWorker(signerOf(t, keys, protocol.HostKey), []ssh.PublicKey{signerOf(t, keys, protocol.ClientKey).PublicKey()}, logger)
}

func (lw *localWorker) login(t testing.TB) *ssh.Client {
	t.Helper()
	client, err := ssh.Dial("tcp", lw.address, clientConfig(t, lw.keys, "mpi"))
	if err != nil {
		t.Fatal(err)
	}
	closeInTime(client)
	return client
}

func (lw *localWorker) dial(t testing.TB) net.Conn {
	t.Helper()
	connection, err := net.Dial("tcp", lw.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return connection
}

// footprint is what must return to its base line after every load test.
type footprint struct {
	goroutines, descriptors int
	heap                    uint64
}

func measure(t testing.TB) footprint {
	t.Helper()
	descriptors, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	return footprint{goroutines: runtime.NumGoroutine(), descriptors: len(descriptors), heap: memory.HeapAlloc}
}

// mustCalmDown waits until nothing of a load test is left.
func (lw *localWorker) mustCalmDown(t testing.TB, base footprint) {
	t.Helper()
	var now footprint
	// What is not a leak: goroutines of the runtime's, and what pools keep.
	const spareGoroutines, spareDescriptors, spareHeap = 5, 5, 16 << 20
	for deadline := time.Now().Add(handshakeTimeout + patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		now = measure(t)
		if now.goroutines <= base.goroutines+spareGoroutines && now.descriptors <= base.descriptors+spareDescriptors && now.heap <= base.heap+spareHeap {
			t.Logf("before %+v, after %+v", base, now)
			return
		}
	}
	stacks := make([]byte, 1<<16)
	t.Errorf("before %+v, after %+v\n%s", base, now, stacks[:runtime.Stack(stacks, true)])
}

func (lw *localWorker) mustStillWork(t testing.TB) {
	t.Helper()
	client := lw.login(t)
	defer client.Close()
	if diff := cmp.Diff(outcome{Stdout: "in", Status: 3}, execute(t, client, "cat; exit 3", "in")); diff != "" {
		t.Errorf("a normal command (-want +got):\n%s", diff)
	}
}

func TestFiveHundredSessionsAtOnce(t *testing.T) {
	const connections, each = 250, 2
	worker := serveLocally(t, newKeys(t))
	worker.mustStillWork(t)
	base := measure(t)
	began := time.Now()
	running, release := make(chan string, connections*each), make(chan struct{})
	var clients sync.WaitGroup
	for range connections {
		clients.Go(func() {
			client, err := ssh.Dial("tcp", worker.address, clientConfig(t, worker.keys, "mpi"))
			if err != nil {
				for range each {
					running <- err.Error()
				}
				return
			}
			defer client.Close()
			closeInTime(client)
			var sessions sync.WaitGroup
			for range each {
				sessions.Go(func() { waitingSession(client, running, release) })
			}
			sessions.Wait()
		})
	}
	for range connections * each {
		if failure := <-running; failure != "" {
			t.Error(failure)
		}
	}
	t.Logf("500 sessions run at once after %s: %+v", time.Since(began), measure(t))
	close(release)
	clients.Wait()
	worker.mustStillWork(t)
	worker.mustCalmDown(t, base)
}

// waitingSession runs a command that prints a line and then waits.
func waitingSession(client *ssh.Client, running chan<- string, release <-chan struct{}) {
	session, err := client.NewSession()
	if err != nil {
		running <- err.Error()
		return
	}
	defer session.Close()
	stdin, _ := session.StdinPipe()
	stdout, _ := session.StdoutPipe()
	if err := session.Start("echo x; read line"); err != nil {
		running <- err.Error()
		return
	}
	if _, err := io.ReadFull(stdout, make([]byte, 2)); err != nil {
		running <- err.Error()
		return
	}
	running <- ""
	<-release
	_, _ = stdin.Write([]byte("go\n"))
	_ = session.Wait()
}

func TestStorms(t *testing.T) {
	packet := binary.BigEndian.AppendUint32(nil, 10<<20)
	hello := []byte("SSH-2.0-storm\r\n")
	noise := make([]byte, 1<<20)
	_, _ = rand.Read(noise)
	tests := map[string]struct {
		count int
		say   []byte
	}{
		"probes that only open the port":             {count: 300},
		"garbage in place of the version":            {count: 100, say: noise},
		"a version that never ends":                  {count: 100, say: bytes.Repeat([]byte("x"), 1<<20)},
		"garbage after the version":                  {count: 100, say: append(bytes.Clone(hello), noise[:64<<10]...)},
		"a packet that claims to have 10 MB":         {count: 100, say: append(append(bytes.Clone(hello), packet...), noise...)},
		"a handshake that breaks in the first bytes": {count: 100, say: append(bytes.Clone(hello), 0, 0, 1, 0, 10, 20, 1, 2, 3)},
		"HTTP": {count: 50, say: []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			worker := serveLocally(t, newKeys(t))
			worker.mustStillWork(t)
			base := measure(t)
			for range tc.count {
				connection := worker.dial(t)
				_ = connection.SetDeadline(time.Now().Add(time.Second))
				_, _ = connection.Write(tc.say)
				_ = connection.Close()
			}
			worker.mustStillWork(t)
			worker.mustCalmDown(t, base)
		})
	}
}

func TestHalfOpenConnections(t *testing.T) {
	worker := serveLocally(t, newKeys(t))
	worker.mustStillWork(t)
	base := measure(t)
	var connections []net.Conn
	for range 300 {
		connections = append(connections, worker.dial(t))
	}
	for range 100 {
		connection := worker.dial(t)
		_, _ = connection.Write([]byte("SSH-2.0-stops-here\r\n"))
		connections = append(connections, connection)
	}
	worker.mustStillWork(t)
	// More than fit: the oldest are dropped at once, the others when their time is over.
	for range maxLogins {
		connections = append(connections, worker.dial(t))
	}
	eventually.HoldsWithin(t, handshakeTimeout+patience, "they are thrown out", func() bool { return allClosed(connections) })
	for _, connection := range connections {
		_ = connection.Close()
	}
	worker.mustStillWork(t)
	worker.mustCalmDown(t, base)
}

func allClosed(connections []net.Conn) bool {
	for _, connection := range connections {
		_ = connection.SetReadDeadline(time.Now().Add(time.Millisecond))
		if _, err := io.Copy(io.Discard, connection); errors.Is(err, os.ErrDeadlineExceeded) {
			return false
		}
	}
	return true
}

func TestOversizedRequests(t *testing.T) {
	secret := "planted-command-token"
	tests := map[string]func(t *testing.T, session *ssh.Session){
		"a command of 10 MB": func(t *testing.T, session *ssh.Session) {
			if session.Run(secret+strings.Repeat("x", 10<<20)) == nil {
				t.Error("it ran")
			}
		},
		"a command that the kernel does not take": func(t *testing.T, session *ssh.Session) {
			if session.Run(secret+strings.Repeat("x", 200<<10)) == nil {
				t.Error("it ran")
			}
		},
		"the longest command that the kernel takes": func(t *testing.T, session *ssh.Session) {
			if err := session.Run(": " + strings.Repeat("x", 128<<10-100)); err != nil {
				t.Error(err)
			}
		},
		"an environment over the limit": func(t *testing.T, session *ssh.Session) {
			taken := 0
			for i := range 100 {
				if session.Setenv(fmt.Sprintf("V%d", i), secret+strings.Repeat("x", 100<<10)) == nil {
					taken++
				}
			}
			if taken == 0 || taken > maxEnvironment/(100<<10) {
				t.Errorf("%d variables of 100 KiB were taken", taken)
			}
			if err := session.Run("true"); err != nil {
				t.Errorf("no command after that: %v", err)
			}
		},
		"a variable that the kernel does not take": func(t *testing.T, session *ssh.Session) {
			_ = session.Setenv("LONG", secret+strings.Repeat("x", 200<<10))
			if session.Run("true") == nil {
				t.Error("it ran")
			}
		},
	}
	for name, ask := range tests {
		t.Run(name, func(t *testing.T) {
			worker := serveLocally(t, newKeys(t))
			worker.mustStillWork(t)
			base := measure(t)
			for range 5 {
				client := worker.login(t)
				session, err := client.NewSession()
				if err != nil {
					t.Fatal(err)
				}
				ask(t, session)
				_ = client.Close()
			}
			worker.mustStillWork(t)
			worker.mustCalmDown(t, base)
			mustHoldNoSecret(t, worker.keys, "the worker's log", worker.log.String(), secret)
		})
	}
}

// A reader that stops must cost no more than its buffers, and must not block others.
func TestReadersThatStop(t *testing.T) {
	worker := serveLocally(t, newKeys(t))
	worker.mustStillWork(t)
	base := measure(t)
	var clients []*ssh.Client
	for range 20 {
		client := worker.login(t)
		clients = append(clients, client)
		session, err := client.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := session.StdoutPipe(); err != nil {
			t.Fatal(err)
		}
		if err := session.Start("head -c 100000000 /dev/zero"); err != nil {
			t.Fatal(err)
		}
	}
	worker.mustStillWork(t)
	// Each side may hold a window of 2 MB for each of them.
	if now := measure(t); now.heap > base.heap+20*(8<<20) {
		t.Errorf("%d MB are held for 20 readers that stopped", (now.heap-base.heap)>>20)
	}
	for _, client := range clients {
		_ = client.Close()
	}
	worker.mustCalmDown(t, base)
	worker.mustStillWork(t)
}
