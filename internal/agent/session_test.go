// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/ssh"

	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

func TestWorkerRunsCommands(t *testing.T) {
	worker := startWorker(t, newKeys(t), "OF_CONTAINER=yes")
	client := worker.login(t, "mpi")
	tests := map[string]struct {
		command, stdin string
		want           outcome
	}{
		"success":                              {command: "true"},
		"an exit status":                       {command: "exit 3", want: outcome{Status: 3}},
		"the highest exit status":              {command: "exit 255", want: outcome{Status: 255}},
		"a missing command":                    {command: "nonexistent-command 2>/dev/null", want: outcome{Status: 127}},
		"stdout and stderr apart":              {command: "echo out; echo err >&2", want: outcome{Stdout: "out\n", Stderr: "err\n"}},
		"stdin, to its end":                    {command: "cat; echo end", stdin: "in", want: outcome{Stdout: "inend\n"}},
		"no stdin":                             {command: "cat", want: outcome{}},
		"one that leaves its stdin":            {command: "echo early", stdin: strings.Repeat("x", 1<<20), want: outcome{Stdout: "early\n"}},
		"the shell's quotes":                   {command: `printf '%s|' "a b" 'c"d'`, want: outcome{Stdout: `a b|c"d|`}},
		"an end by SIGSEGV":                    {command: "kill -SEGV $$", want: outcome{Signal: "SEGV"}},
		"an end by SIGKILL":                    {command: "kill -KILL $$", want: outcome{Signal: "KILL"}},
		"the container's environment":          {command: "echo $OF_CONTAINER", want: outcome{Stdout: "yes\n"}},
		"the container's directory":            {command: "pwd -P", want: outcome{Stdout: worker.command.Dir + "\n"}},
		"bytes that are no text":               {command: `printf '\000\377\r\n'`, want: outcome{Stdout: "\x00\xff\r\n"}},
		"output that follows its parent's end": {command: "(sleep 0.05; echo late) & wait", want: outcome{Stdout: "late\n"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, execute(t, client, tc.command, tc.stdin)); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWorkerTakesEnvironment(t *testing.T) {
	client := startWorker(t, newKeys(t), "SAME=container").login(t, "mpi")
	session := newSession(t, client)
	for name, value := range map[string]string{"NEW": "a b=c\n$d", "SAME": "session", "EMPTY": ""} {
		if err := session.Setenv(name, value); err != nil {
			t.Errorf("set %s: %v", name, err)
		}
	}
	for name, value := range map[string]string{"": "x", "A=B": "x", "NUL\x00": "x", "NULVALUE": "\x00"} {
		if err := session.Setenv(name, value); err == nil {
			t.Errorf("the name %q with the value %q was taken", name, value)
		}
	}
	got, err := session.Output(`printf '%s|%s|%s' "$NEW" "$SAME" "${EMPTY-unset}"`)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("a b=c\n$d|session|", string(got)); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
}

func TestWorkerForwardsSignals(t *testing.T) {
	client := startWorker(t, newKeys(t)).login(t, "mpi")
	for _, signal := range []ssh.Signal{ssh.SIGTERM, ssh.SIGINT, ssh.SIGHUP, ssh.SIGUSR1, ssh.SIGUSR2} {
		t.Run(string(signal), func(t *testing.T) {
			_, session := firstLine(t, client, fmt.Sprintf("trap 'exit 7' %s; echo ready; while :; do sleep 0.02; done", signal))
			if err := session.Signal(signal); err != nil {
				t.Fatal(err)
			}
			var exit *ssh.ExitError
			if err := session.Wait(); !errors.As(err, &exit) || exit.ExitStatus() != 7 {
				t.Errorf("ended with %v, want exit status 7", err)
			}
		})
	}
	t.Run("all of what the command has started", func(t *testing.T) {
		child, session := firstLine(t, client, "sleep 30 & echo $!; wait")
		if err := session.Signal(ssh.SIGKILL); err != nil {
			t.Fatal(err)
		}
		eventually.HoldsWithin(t, patience, "the child has ended", func() bool { return !alive(mustAtoi(t, child)) })
		_ = session.Wait()
	})
}

// ignoringSignals is a command that is started as by nohup, or in the background by a
// shell: it inherits that signals are ignored.
func ignoringSignals(command ...string) []string {
	return append([]string{"sh", "-c", `trap "" HUP INT QUIT TERM PIPE USR1 USR2; exec "$@"`, "sh"}, command...)
}

// A shell cannot trap signals that were ignored when it started, and ranks would not exit.
func TestChildrenIgnoreNoSignals(t *testing.T) {
	// Signals from 32 on belong to the C library.
	const ignored = "echo $((0x$(sed -n 's/^SigIgn:.//p' /proc/self/status) & 0x7fffffff))"
	want := outcome{Stdout: "0\n"}
	worker := startWorkerBy(t, ignoringSignals(agentBinary(t), "worker"), newKeys(t))
	t.Run("of a worker", func(t *testing.T) {
		if diff := cmp.Diff(want, execute(t, worker.login(t, "mpi"), ignored, "")); diff != "" {
			t.Errorf("ignored signals (-want +got):\n%s", diff)
		}
	})
	t.Run("of a launcher", func(t *testing.T) {
		command, _ := prepareLaunch(t, worker.keys, worker.port, "localhost\n", nil, sh(ignored)...)
		command.Args = ignoringSignals(append([]string{command.Path}, command.Args[1:]...)...)
		command.Path = shell
		if got := finish(t, worker.keys, command).Stdout; got != want.Stdout {
			t.Errorf("ignored signals: %q, want %q", got, want.Stdout)
		}
	})
	t.Run("and SIGHUP ends a command", func(t *testing.T) {
		line, session := firstLine(t, worker.login(t, "mpi"), "echo $$; exec sleep 60")
		if err := session.Signal(ssh.SIGHUP); err != nil {
			t.Fatal(err)
		}
		eventually.HoldsWithin(t, patience, "the command has ended", func() bool { return !alive(mustAtoi(t, line)) })
	})
}

func TestWorkerOpensAShell(t *testing.T) {
	session := newSession(t, startWorker(t, newKeys(t)).login(t, "mpi"))
	var stdout bytes.Buffer
	session.Stdout, session.Stdin = &stdout, strings.NewReader("echo hello\nexit 4\n")
	if err := session.Shell(); err != nil {
		t.Fatal(err)
	}
	var exit *ssh.ExitError
	if err := session.Wait(); !errors.As(err, &exit) || exit.ExitStatus() != 4 {
		t.Errorf("ended with %v, want exit status 4", err)
	}
	if diff := cmp.Diff("hello\n", stdout.String()); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
}

func TestWorkerRefuses(t *testing.T) {
	worker := startWorker(t, newKeys(t))
	client := worker.login(t, "mpi")
	request := func(session *ssh.Session, name string, payload []byte) error {
		ok, err := session.SendRequest(name, true, payload)
		if err == nil && !ok {
			err = errors.New("refused")
		}
		return err
	}
	line := func(text string) []byte { return ssh.Marshal(struct{ Text string }{text}) }
	tests := map[string]func(session *ssh.Session) error{
		"a terminal":                func(session *ssh.Session) error { return session.RequestPty("xterm", 24, 80, nil) },
		"a subsystem":               func(session *ssh.Session) error { return session.RequestSubsystem("sftp") },
		"an agent's forwarding":     func(session *ssh.Session) error { return request(session, "auth-agent-req@openssh.com", nil) },
		"a signal to nothing":       func(session *ssh.Session) error { return request(session, "signal", line("TERM")) },
		"an exec without a payload": func(session *ssh.Session) error { return request(session, "exec", nil) },
		"X11": func(session *ssh.Session) error {
			return request(session, "x11-req", ssh.Marshal(struct {
				One              bool
				Protocol, Cookie string
				Screen           uint32
			}{}))
		},
		"a connection to elsewhere": func(*ssh.Session) error {
			_, err := client.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", worker.port))
			return err
		},
		"a connection to a socket": func(*ssh.Session) error { _, err := client.Dial("unix", "/run/x"); return err },
		"a forwarded port":         func(*ssh.Session) error { _, err := client.Listen("tcp", "127.0.0.1:0"); return err },
		"a forwarded socket":       func(*ssh.Session) error { _, err := client.Listen("unix", "/tmp/trireme-x"); return err },
		"a second command": func(session *ssh.Session) error {
			if err := request(session, "exec", line("cat")); err != nil {
				t.Fatal(err)
			}
			return request(session, "exec", line("true"))
		},
		"a variable after the start": func(session *ssh.Session) error {
			if err := request(session, "exec", line("cat")); err != nil {
				t.Fatal(err)
			}
			return session.Setenv("LATE", "x")
		},
		"a signal without a name that is known": func(session *ssh.Session) error {
			if err := request(session, "exec", line("cat")); err != nil {
				t.Fatal(err)
			}
			return request(session, "signal", line("WINCH"))
		},
	}
	for name, ask := range tests {
		t.Run(name, func(t *testing.T) {
			if ask(newSession(t, client)) == nil {
				t.Error("it was granted")
			}
		})
	}
	if diff := cmp.Diff(outcome{Stdout: "still here\n"}, execute(t, client, "echo still here", "")); diff != "" {
		t.Errorf("after all that (-want +got):\n%s", diff)
	}
}

// MPI's daemons detach from their parent and keep its pipes open.
func TestSessionEndsWithItsCommand(t *testing.T) {
	client := startWorker(t, newKeys(t)).login(t, "mpi")
	tests := map[string]struct {
		command    string
		wantStdout int
	}{
		"a daemon is left":                    {command: "setsid sleep 120 & printf before", wantStdout: 6},
		"a daemon of the same group is left":  {command: "sleep 120 & printf before", wantStdout: 6},
		"much was printed at the end":         {command: "setsid sleep 120 & head -c 60000 /dev/zero", wantStdout: 60000},
		"10 MB were printed":                  {command: "setsid sleep 120 & head -c 10485760 /dev/zero", wantStdout: 10 << 20},
		"nothing was printed":                 {command: "setsid sleep 120 &"},
		"a daemon is left that keeps writing": {command: "for i in 1 2 3 4; do setsid timeout 120 yes & done; sleep 0.3", wantStdout: -1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			session := newSession(t, client)
			stdout, err := session.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := session.Start(tc.command); err != nil {
				t.Fatal(err)
			}
			count := make(chan int, 1)
			go func() { count <- readSlowly(stdout, tc.wantStdout > 1<<20 || tc.wantStdout < 0) }()
			ended := make(chan error, 1)
			go func() { ended <- session.Wait() }()
			select {
			case err := <-ended:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(patience):
				_ = session.Close()
				t.Fatal("the session does not end")
			}
			got := <-count
			if tc.wantStdout >= 0 && got != tc.wantStdout {
				t.Errorf("%d bytes have arrived, want %d", got, tc.wantStdout)
			}
		})
	}
}

// readSlowly counts what can be read, with rests in which all buffers fill.
func readSlowly(from io.Reader, slowly bool) int {
	count := 0
	for chunk := make([]byte, 16<<10); ; {
		read, err := io.ReadFull(from, chunk)
		count += read
		if err != nil {
			return count
		}
		if slowly {
			time.Sleep(time.Millisecond)
		}
	}
}

func newSession(t testing.TB, client *ssh.Client) *ssh.Session {
	t.Helper()
	session, err := client.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	return session
}

func mustAtoi(t testing.TB, text string) int {
	t.Helper()
	var number int
	if _, err := fmt.Sscan(text, &number); err != nil {
		t.Fatal(err)
	}
	return number
}

func mustWrite(t testing.TB, path, content string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
