// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"net"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

// floodedLogin is how long a login may take during a flood: far less than it takes
// until silent connections are closed.
const floodedLogin = handshakeTimeout / 4

// dialFrom opens a connection from an address of this machine.
func (lw *localWorker) dialFrom(source string) (net.Conn, error) {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}, Timeout: floodedLogin}
	return dialer.Dial("tcp", lw.address)
}

// mustLogInFast logs in like a launcher, with one attempt from 127.0.0.1.
func (lw *localWorker) mustLogInFast(t testing.TB) {
	t.Helper()
	began := time.Now()
	connection, err := lw.dialFrom("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	_ = connection.SetDeadline(began.Add(floodedLogin))
	client, _, _, err := ssh.NewClientConn(connection, lw.address, clientConfig(t, lw.keys, "mpi"))
	if err != nil {
		t.Fatalf("log in: %v after %s", err, time.Since(began))
	}
	_ = client.Close()
	t.Logf("logged in after %s", time.Since(began))
}

// Addresses that no other test listens at: closed connections keep their ports for a
// minute.
func TestFloodDoesNotBlockLauncher(t *testing.T) {
	const count = maxLogins + 100
	from := func(source string) func(int) string { return func(int) string { return source } }
	tests := map[string]struct {
		source func(i int) string
		say    string
		// wantOpen is how many of them the worker keeps.
		wantOpen int
	}{
		"silent connections of one address":       {source: from("127.9.0.2"), wantOpen: maxLoginsPerSource},
		"connections that stop after the version": {source: from("127.9.0.2"), say: "SSH-2.0-stops-here\r\n", wantOpen: maxLoginsPerSource},
		"silent connections of the same address":  {source: from("127.0.0.1"), wantOpen: maxLoginsPerSource},
		"silent connections of three addresses":   {source: func(i int) string { return fmt.Sprintf("127.9.0.%d", 2+i%3) }, wantOpen: maxLogins},
		"one silent connection of each of many":   {source: func(i int) string { return fmt.Sprintf("127.2.%d.%d", i/250, i%250+1) }, wantOpen: maxLogins},
		"an address with few beside one with many": {source: func(i int) string { return fmt.Sprintf("127.9.0.%d", 2+min(1, i%12)) },
			wantOpen: maxLoginsPerSource + count/12},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			worker := serveLocally(t, newKeys(t))
			var connections []net.Conn
			for i := range count {
				connection, err := worker.dialFrom(tc.source(i))
				if err != nil {
					t.Fatal(err)
				}
				defer connection.Close()
				_, _ = connection.Write([]byte(tc.say))
				connections = append(connections, connection)
			}
			worker.mustLogInFast(t)
			mustKeepTheNewest(t, connections, tc.wantOpen)
			worker.mustLogInFast(t)
		})
	}
}

// mustKeepTheNewest: of each source, those that are closed are older than the others.
func mustKeepTheNewest(t testing.TB, connections []net.Conn, wantOpen int) {
	t.Helper()
	// A login may be over before the last of those that are dropped is closed.
	eventually.HoldsWithin(t, patience, "the worker has dropped the others", func() bool {
		open := 0
		for _, connection := range connections {
			if !allClosed([]net.Conn{connection}) {
				open++
			}
		}
		return open <= wantOpen
	})
	open, openOf := 0, map[string]bool{}
	for i, connection := range connections {
		source := connection.LocalAddr().(*net.TCPAddr).IP.String()
		if !allClosed([]net.Conn{connection}) {
			open++
			openOf[source] = true
		} else if openOf[source] {
			t.Errorf("connection %d from %s was dropped before an older one", i, source)
		}
	}
	// The login that came before has needed room for itself, and has left it.
	if open > wantOpen || open < wantOpen-1 {
		t.Errorf("%d connections are open, want %d", open, wantOpen)
	}
}

// The dropped connection must not be one from another source that is about to log in.
func TestContinuousFloodDoesNotBlockLauncher(t *testing.T) {
	worker := serveLocally(t, newKeys(t))
	stop, stopped, full := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		worker.flood(stop, full)
	}()
	defer func() {
		close(stop)
		<-stopped
	}()
	select {
	case <-full:
	case <-time.After(patience):
		t.Fatal("there is no flood")
	}
	for range 3 {
		worker.mustLogInFast(t)
	}
}

// flood opens silent connections from three addresses until it is stopped. It keeps
// twice as many as a worker does.
func (lw *localWorker) flood(stop <-chan struct{}, full chan<- struct{}) {
	var open [2 * maxLogins]net.Conn
	for i := 0; ; i++ {
		select {
		case <-stop:
			for _, connection := range open {
				if connection != nil {
					_ = connection.Close()
				}
			}
			return
		default:
		}
		if i == len(open) {
			close(full)
		}
		oldest := &open[i%len(open)]
		if *oldest != nil {
			_ = (*oldest).Close()
		}
		if connection, err := lw.dialFrom(fmt.Sprintf("127.9.0.%d", 2+i%3)); err == nil {
			*oldest = connection
		}
	}
}
