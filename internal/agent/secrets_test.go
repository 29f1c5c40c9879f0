// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

// All other tests look for planted secrets in the agent's output, too. Here a client sends
// them in every possible way.
func TestWorkerLogsNoSecrets(t *testing.T) {
	const sent = "planted-by-client"
	worker := startWorker(t, newKeys(t))
	client := worker.login(t, launchUser+sent)
	requests := map[string]func(session *ssh.Session){
		"a command":                     func(session *ssh.Session) { _ = session.Run(": " + sent) },
		"a command that fails":          func(session *ssh.Session) { _ = session.Run("exit 3; " + sent) },
		"a command that is killed":      func(session *ssh.Session) { _ = session.Run("kill -9 $$; " + sent) },
		"a command that does not start": func(session *ssh.Session) { _ = session.Run(sent + strings.Repeat("x", 200<<10)) },
		"a shell": func(session *ssh.Session) {
			session.Stdin = strings.NewReader(": " + sent)
			_ = session.Shell()
			_ = session.Wait()
		},
		"a subsystem":                    func(session *ssh.Session) { _ = session.RequestSubsystem(sent) },
		"a terminal":                     func(session *ssh.Session) { _ = session.RequestPty(sent, 1, 1, nil) },
		"an unknown request":             func(session *ssh.Session) { _, _ = session.SendRequest(sent, true, []byte(sent)) },
		"an unknown signal":              func(session *ssh.Session) { _ = session.Signal(sent) },
		"an environment":                 func(session *ssh.Session) { _ = session.Setenv("TOKEN", sent); _ = session.Run("true") },
		"an environment that is refused": func(session *ssh.Session) { _ = session.Setenv("TOKEN=", sent); _ = session.Run("true") },
		"an environment that is too long": func(session *ssh.Session) {
			_ = session.Setenv("TOKEN", sent+strings.Repeat("x", 200<<10))
			_ = session.Run("true")
		},
	}
	for name, send := range requests {
		t.Run(name, func(*testing.T) { send(newSession(t, client)) })
	}
	_, _, _ = client.SendRequest(sent, true, []byte(sent))
	_, _, _ = client.OpenChannel(sent, []byte(sent))
	config := clientConfig(t, worker.keys, sent)
	config.Auth = []ssh.AuthMethod{ssh.Password(sent)}
	_, _ = ssh.Dial("tcp", worker.address(), config)
	_ = worker.login(t, launchUser+sent+"2")
	worker.stop(t)
	mustHoldNoSecret(t, worker.keys, "the worker's log", worker.log.String(), sent)
	mustContain(t, "the worker's log", worker.log.String(), "waits for its launcher", "start a command", "a new launcher has logged in")
}

func (wp *workerProcess) address() string {
	return (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: wp.port}).String()
}

// stuckConn is the connection of a client that has stopped, with all its buffers full.
type stuckConn struct {
	net.Conn
	mutex sync.Mutex
}

func (sc *stuckConn) Read(into []byte) (int, error) {
	count, err := sc.Conn.Read(into)
	sc.mutex.Lock()
	defer sc.mutex.Unlock()
	return count, err
}

func TestWorkerStopsWithStuckClient(t *testing.T) {
	t.Parallel()
	worker := startWorker(t, newKeys(t))
	dialled, err := net.Dial("tcp", worker.address())
	if err != nil {
		t.Fatal(err)
	}
	defer dialled.Close()
	stuck := &stuckConn{Conn: dialled}
	connection, channels, requests, err := ssh.NewClientConn(stuck, "worker", clientConfig(t, worker.keys, "mpi"))
	if err != nil {
		t.Fatal(err)
	}
	client := ssh.NewClient(connection, channels, requests)
	closeInTime(client)
	// Each may send 2 MB that are not read; together that exceeds the buffers of TCP.
	for range 20 {
		session := newSession(t, client)
		if _, err := session.StdoutPipe(); err != nil {
			t.Fatal(err)
		}
		if err := session.Start("sleep 1; exec timeout 120 yes"); err != nil {
			t.Fatal(err)
		}
	}
	stuck.mutex.Lock()
	defer stuck.mutex.Unlock()
	time.Sleep(2500 * time.Millisecond)
	_ = worker.command.Process.Signal(syscall.SIGTERM)
	select {
	case <-worker.ended:
	case <-time.After(patience):
		_ = worker.command.Process.Kill()
		t.Errorf("the worker has not ended %s after its grace of 1 s", patience-time.Second)
	}
}
