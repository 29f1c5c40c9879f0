// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

// FuzzServer sends arbitrary data after the version, before a login.
func FuzzServer(f *testing.F) {
	worker := newLocalWorker(f, newKeys(f), io.Discard)
	f.Add([]byte{})
	f.Add([]byte{0, 0, 0, 12, 10, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 20})
	f.Add(append([]byte{0, 0, 1, 0, 4, 20}, make([]byte, 512)...))
	f.Add(recordedHandshake(f, worker))
	f.Fuzz(func(t *testing.T, said []byte) {
		ours, theirs := net.Pipe()
		done := make(chan struct{})
		worker.logins.add(theirs)
		go func() {
			defer close(done)
			worker.serveConnection(theirs)
		}()
		go func() { _, _ = io.Copy(io.Discard, ours) }()
		_ = ours.SetWriteDeadline(time.Now().Add(5 * time.Second))
		_, _ = ours.Write(append([]byte("SSH-2.0-fuzz\r\n"), said...))
		_ = ours.Close()
		select {
		case <-done:
		case <-time.After(handshakeTimeout + 5*time.Second):
			t.Error("the worker keeps a connection that is closed")
		}
	})
}

// recordedHandshake is what a real client sends after its version.
func recordedHandshake(f *testing.F, worker *Worker) []byte {
	f.Helper()
	// Not a pipe: both ends speak first, and a pipe has no buffer.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.Fatal(err)
	}
	defer listener.Close()
	go func() { _ = worker.Serve(f.Context(), listener) }()
	ours, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		f.Fatal(err)
	}
	recorder := &recordingConn{Conn: ours}
	connection, channels, requests, err := ssh.NewClientConn(recorder, "pipe", &ssh.ClientConfig{
		User: "mpi", HostKeyCallback: ssh.InsecureIgnoreHostKey(), Auth: []ssh.AuthMethod{ssh.Password("x")}, //nolint:gosec // Nothing is trusted here.
	})
	if err == nil {
		go ssh.DiscardRequests(requests)
		go func() {
			for range channels {
			}
		}()
		_ = connection.Close()
	}
	_ = ours.Close()
	_, said, _ := strings.Cut(recorder.said.String(), "\r\n")
	return []byte(said)
}

type recordingConn struct {
	net.Conn
	said buffer
}

func (rc *recordingConn) Write(text []byte) (int, error) {
	_, _ = rc.said.Write(text)
	return rc.Conn.Write(text)
}

// FuzzSessionRequest sends the requests that a client may send after its login, except for
// commands, which the shell parses.
func FuzzSessionRequest(f *testing.F) {
	worker := &Worker{log: slog.New(slog.DiscardHandler), processes: newProcesses()}
	f.Add("env", ssh.Marshal(struct{ Name, Value string }{"A", "b"}))
	f.Add("env", ssh.Marshal(struct{ Name, Value string }{"A=B", "\x00"}))
	f.Add("signal", ssh.Marshal(struct{ Name string }{"TERM"}))
	f.Add("pty-req", []byte{0, 0, 0, 5, 'x'})
	f.Add("env", []byte{0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, kind string, payload []byte) {
		if kind == "exec" || kind == "shell" {
			return
		}
		session := &session{worker: worker}
		ok := session.handle(&ssh.Request{Type: kind, Payload: payload}, make(chan struct{}))
		if ok != (len(session.environment) == 1) {
			t.Errorf("%q answered %v and the environment is %q", kind, ok, session.environment)
		}
		for _, variable := range session.environment {
			if name, _, found := strings.Cut(variable, "="); !found || name == "" || strings.Contains(variable, "\x00") {
				t.Errorf("the variable %q is none", variable)
			}
		}
	})
}
