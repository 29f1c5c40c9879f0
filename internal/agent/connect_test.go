// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/trireme-mpi/trireme/internal/agent/protocol"
)

// newTestClient is newClient without the environment.
func newTestClient(t testing.TB, keys string) *client {
	t.Helper()
	public, err := os.ReadFile(filepath.Join(keys, protocol.HostPublicKey))
	if err != nil {
		t.Fatal(err)
	}
	known, _, _, _, err := ssh.ParseAuthorizedKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return &client{resolver: net.DefaultResolver, config: &ssh.ClientConfig{
		User: "mpi", Auth: []ssh.AuthMethod{ssh.PublicKeys(signerOf(t, keys, protocol.ClientKey))},
		HostKeyCallback: func(_ string, _ net.Addr, offered ssh.PublicKey) error {
			if !bytes.Equal(known.Marshal(), offered.Marshal()) {
				return errHostKey
			}
			return nil
		},
	}}
}

// answerWith is a listener that does one thing with each connection.
func answerWith(t testing.TB, answer func(net.Conn)) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
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
			t.Cleanup(func() { _ = connection.Close() })
			go answer(connection)
		}
	}()
	return listener.Addr().(*net.TCPAddr).Port
}

func portOf(address string) int {
	resolved, _ := net.ResolveTCPAddr("tcp", address)
	return resolved.Port
}

// answerNames is a resolver whose server on this machine gives every question the
// same answer; below 0 it gives none.
func answerNames(t testing.TB, code int) *net.Resolver {
	t.Helper()
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	go func() {
		for packet := make([]byte, 512); ; {
			count, from, err := server.ReadFrom(packet)
			if err != nil {
				return
			}
			if code >= 0 {
				_, _ = server.WriteTo(nameAnswer(packet[:count], byte(code)), from)
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, "udp", server.LocalAddr().String())
	}}
}

// nameAnswer repeats the question and has no other section (RFC 1035, 4.1).
func nameAnswer(question []byte, code byte) []byte {
	end := 12
	for end < len(question) && question[end] != 0 {
		end += int(question[end]) + 1
	}
	answer := bytes.Clone(question[:min(end+5, len(question))])
	answer[2], answer[3] = 0x81, 0x80|code
	copy(answer[4:12], []byte{0, 1, 0, 0, 0, 0, 0, 0})
	return answer
}

func TestTroubles(t *testing.T) {
	keys := newKeys(t)
	worker := serveLocally(t, keys)
	say := func(text string) int {
		return answerWith(t, func(connection net.Conn) { _, _ = io.WriteString(connection, text); _ = connection.Close() })
	}
	silent := answerWith(t, func(net.Conn) {})
	stuck := answerWith(t, func(connection net.Conn) { _, _ = io.WriteString(connection, "SSH-2.0-stuck\r\n") })
	tests := map[string]struct {
		host       string
		port       int
		keys       string
		resolver   *net.Resolver
		bannerOnly bool
		want       protocol.Trouble
		// answered: where an answer came there is nothing to wait for.
		answered bool
	}{
		"the name does not exist":       {host: "worker.invalid", resolver: answerNames(t, 3), want: protocol.NameNotFound, answered: true},
		"the name has no address":       {host: "worker.invalid", resolver: answerNames(t, 0), want: protocol.NameNotFound, answered: true},
		"DNS fails":                     {host: "worker.invalid", resolver: answerNames(t, 2), want: protocol.TimedOut},
		"DNS does not answer":           {host: "worker.invalid", resolver: answerNames(t, -1), want: protocol.TimedOut},
		"nothing listens":               {port: deafPort(t), want: protocol.Refused, answered: true},
		"it sends nothing":              {port: silent, want: protocol.TimedOut},
		"it stops in the handshake":     {port: stuck, want: protocol.TimedOut},
		"another's host key":            {port: portOf(worker.address), keys: mixedKeys(t, keys, protocol.HostPublicKey), want: protocol.HostKeyWrong, answered: true},
		"another's client key":          {port: portOf(worker.address), keys: mixedKeys(t, keys, protocol.ClientKey), want: protocol.KeyRefused, answered: true},
		"it closes at once":             {port: say(""), want: protocol.Broken, answered: true},
		"it speaks HTTP":                {port: say("HTTP/1.1 400 Bad Request\r\n\r\n"), want: protocol.Broken, answered: true},
		"it breaks after its version":   {port: say("SSH-2.0-x\r\n"), want: protocol.Broken, answered: true},
		"an image's: nothing listens":   {bannerOnly: true, port: deafPort(t), want: protocol.Refused, answered: true},
		"an image's: it speaks HTTP":    {bannerOnly: true, port: say("HTTP/1.1 400 Bad Request\r\n\r\n"), want: protocol.Broken, answered: true},
		"an image's: it closes at once": {bannerOnly: true, port: say("SS"), want: protocol.Broken, answered: true},
		"an image's: it sends nothing":  {bannerOnly: true, port: silent, want: protocol.TimedOut},
		"an image's: success":           {bannerOnly: true, port: say("SSH-2.0-OpenSSH_9.9\r\n"), answered: true},
		"success":                       {port: portOf(worker.address), answered: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.keys == "" {
				tc.keys = keys
			}
			if tc.host == "" {
				tc.host = "127.0.0.1"
			}
			caller := newTestClient(t, tc.keys)
			if tc.bannerOnly {
				caller.bannerPorts = []int{tc.port}
				if tc.want == "" {
					caller.bannerPorts = []int{freePort(t), tc.port}
				}
			}
			if tc.resolver != nil {
				caller.resolver = tc.resolver
			}
			wait := 2 * time.Second
			if tc.answered {
				wait = 2 * patience
			}
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			defer cancel()
			began := time.Now()
			session, _, err := caller.connect(ctx, tc.host, tc.port)
			if session != nil {
				defer session.Close()
			}
			mustBeTrouble(t, err, tc.want, tc.host)
			if took := time.Since(began); tc.answered && took > attemptTimeout {
				t.Errorf("it took %s", took)
			}
		})
	}
}

func mustBeTrouble(t testing.TB, err error, want protocol.Trouble, host string) {
	t.Helper()
	var failure *connectError
	if !errors.As(err, &failure) {
		if want != "" || err != nil {
			t.Errorf("error %v, want trouble %q", err, want)
		}
		return
	}
	if failure.trouble != want {
		t.Errorf("trouble %s (%v), want %q", failure.trouble, err, want)
	}
	mustContain(t, "the error", err.Error(), host, troubleText[want])
	mustContain(t, "the record", failureRecord(host, err).Message, host, troubleText[want], advice[want])
}

func TestEveryTroubleHasTextAndAdvice(t *testing.T) {
	for _, trouble := range []protocol.Trouble{protocol.NameNotFound, protocol.Refused, protocol.TimedOut, protocol.HostKeyWrong, protocol.KeyRefused, protocol.Broken} {
		if troubleText[trouble] == "" || advice[trouble] == "" {
			t.Errorf("%s has text %q and advice %q", trouble, troubleText[trouble], advice[trouble])
		}
	}
}

func TestDialTrouble(t *testing.T) {
	tests := map[string]struct {
		err  error
		want protocol.Trouble
	}{
		"nothing listens":                        {err: syscall.ECONNREFUSED, want: protocol.Refused},
		"no answer in time":                      {err: context.DeadlineExceeded, want: protocol.TimedOut},
		"no answer in the kernel's time":         {err: syscall.ETIMEDOUT, want: protocol.TimedOut},
		"no route to the host":                   {err: syscall.EHOSTUNREACH, want: protocol.TimedOut},
		"no route to the network":                {err: syscall.ENETUNREACH, want: protocol.TimedOut},
		"the gate gave up before an answer came": {err: context.Canceled, want: protocol.TimedOut},
		"something else":                         {err: syscall.EMFILE, want: protocol.Broken},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := dialTrouble(&net.OpError{Op: "dial", Err: tc.err}); got != tc.want {
				t.Errorf("trouble %s, want %s", got, tc.want)
			}
		})
	}
}

func TestReachRetries(t *testing.T) {
	t.Parallel()
	keys, port := newKeys(t), freePort(t)
	caller := newTestClient(t, keys)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	serve := func() {
		listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
		if err != nil {
			t.Error(err)
			return
		}
		go func() { _ = newLocalWorker(t, keys, io.Discard).Serve(ctx, listener) }()
	}
	var tries []time.Time
	session, took, err := caller.reach(ctx, "127.0.0.1", port, func() func() {
		if tries = append(tries, time.Now()); len(tries) == 4 {
			serve()
		}
		return func() {}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	last := tries[len(tries)-1]
	if len(tries) != 4 || last.Sub(tries[0]) < 250*time.Millisecond {
		t.Errorf("%d tries within %s: it does not rest between them", len(tries), last.Sub(tries[0]))
	}
	if took.connect <= 0 || took.connect > time.Since(last) {
		t.Errorf("the connection took %s: the tries before it do not count", took.connect)
	}
}

func TestReachReportsLastTrouble(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	began := time.Now()
	_, _, err := newTestClient(t, newKeys(t)).reach(ctx, "127.0.0.1", freePort(t), func() func() { return func() {} })
	mustBeTrouble(t, err, protocol.Refused, "127.0.0.1")
	if took := time.Since(began); took > patience {
		t.Errorf("it gave up after %s", took)
	}
}

// A connection reaches its deadline slightly before its context is done.
func TestReachIgnoresCutAttempt(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	port := answerWith(t, func(connection net.Conn) {
		if calls.Add(1) == 1 {
			_ = connection.Close()
		}
	})
	for range 20 {
		calls.Store(0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, _, err := newTestClient(t, newKeys(t)).reach(ctx, "127.0.0.1", port, func() func() { return func() {} })
		cancel()
		mustBeTrouble(t, err, protocol.Broken, "127.0.0.1")
	}
}

func TestNoSecretInErrorsOfKeys(t *testing.T) {
	secret := "planted-key-material"
	keys := newKeys(t)
	mustWrite(t, filepath.Join(keys, protocol.ClientKey), "-----BEGIN OPENSSH PRIVATE KEY-----\n"+secret+"\n-----END OPENSSH PRIVATE KEY-----\n")
	t.Setenv(protocol.KeysVariable, keys)
	_, err := newClient("mpi")
	if err == nil || strings.Contains(err.Error(), secret) {
		t.Errorf("error %v", err)
	}
}

// Attempts are frequent at first, and later once a second.
func TestPauses(t *testing.T) {
	var waited time.Duration
	pauses := 0
	for pause := 50 * time.Millisecond; waited < time.Minute; pause = nextPause(pause, waited) {
		if waited < 5*time.Second && pause > 100*time.Millisecond || pause > time.Second {
			t.Errorf("after %s it pauses for %s", waited, pause)
		}
		waited += pause
		pauses++
	}
	if pauses > 110 {
		t.Errorf("%d tries in a minute", pauses)
	}
}
