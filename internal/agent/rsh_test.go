// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

func TestRSHRunsCommands(t *testing.T) {
	worker := startWorker(t, newKeys(t))
	port := strconv.Itoa(worker.port)
	tests := map[string]struct {
		arguments []string
		stdin     string
		// calledAs is the name that the agent is called by.
		calledAs string
		want     outcome
	}{
		"in one argument":     {arguments: []string{"127.0.0.1", "echo out; echo err >&2; exit 3"}, want: outcome{Stdout: "out\n", Stderr: "err\n", Status: 3}},
		"in many":             {arguments: []string{"-x", "localhost", "echo", "a", "b"}, want: outcome{Stdout: "a b\n"}},
		"by its mode":         {arguments: []string{"rsh", "127.0.0.1", "echo", "x"}, want: outcome{Stdout: "x\n"}},
		"as ssh":              {calledAs: "ssh", arguments: []string{"-o", "StrictHostKeyChecking=no", "127.0.0.1", "-p", port, "echo x"}, want: outcome{Stdout: "x\n"}},
		"as ssh, with a user": {calledAs: "ssh", arguments: []string{"-l", "root", "-p", port, "127.0.0.1", "echo x"}, want: outcome{Stdout: "x\n"}},
		"with a user":         {arguments: []string{"mpiuser@127.0.0.1", "echo x"}, want: outcome{Stdout: "x\n"}},
		"with stdin":          {arguments: []string{"127.0.0.1", "cat"}, stdin: "in", want: outcome{Stdout: "in"}},
		"ended by a signal":   {arguments: []string{"127.0.0.1", "kill -KILL $$"}, want: outcome{Status: 137}},
		"no command, a shell": {arguments: []string{"127.0.0.1"}, stdin: "echo x; exit 4", want: outcome{Stdout: "x\n", Status: 4}},
		"a daemon is left":    {arguments: []string{"127.0.0.1", "setsid sleep 20 & echo x"}, want: outcome{Stdout: "x\n"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			binary := agentBinary(t)
			if tc.calledAs != "" {
				link := filepath.Join(t.TempDir(), tc.calledAs)
				if err := os.Symlink(binary, link); err != nil {
					t.Fatal(err)
				}
				binary = link
			}
			command := boundedCommand(t, binary, tc.arguments...)
			command.Env = agentEnvironment(worker.keys, worker.port)
			command.Stdin = strings.NewReader(tc.stdin)
			if diff := cmp.Diff(tc.want, finish(t, worker.keys, command)); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
		})
	}
}

// DNS may not know the launcher yet.
func TestHydraIsCalledBackByAddress(t *testing.T) {
	self, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		command string
		want    string
		from    net.Addr
	}{
		"MPICH":           {command: `"/usr/bin/hydra_pmi_proxy" --control-port ` + self + `:34025 --rmk user`, want: `"/usr/bin/hydra_pmi_proxy" --control-port 10.1.2.3:34025 --rmk user`},
		"Intel MPI":       {command: "/opt/hydra_bstrap_proxy --upstream-host " + self + " --upstream-port 38563", want: "/opt/hydra_bstrap_proxy --upstream-host 10.1.2.3 --upstream-port 38563"},
		"another's proxy": {command: "hydra_bstrap_proxy --upstream-host worker-1 --upstream-port 1", want: "hydra_bstrap_proxy --upstream-host worker-1 --upstream-port 1"},
		"IPv6":            {command: "p --control-port " + self + ":1", want: "p --control-port " + self + ":1", from: &net.TCPAddr{IP: net.ParseIP("fd00::1")}},
		"not Hydra":       {command: "echo " + self, want: "echo " + self},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if tc.from == nil {
				tc.from = &net.TCPAddr{IP: net.IPv4(10, 1, 2, 3)}
			}
			if got := callBackByAddress(tc.command, tc.from); got != tc.want {
				t.Errorf("command %q, want %q", got, tc.want)
			}
		})
	}
}

func TestRSHForwardsSignals(t *testing.T) {
	worker := startWorker(t, newKeys(t))
	command := boundedCommand(t, agentBinary(t), "127.0.0.1", "trap 'exit 7' TERM; echo ready; while :; do sleep 0.02; done")
	command.Env = agentEnvironment(worker.keys, worker.port)
	var stdout buffer
	command.Stdout = &stdout
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	eventually.HoldsWithin(t, patience, "the command runs", func() bool { return stdout.String() != "" })
	_ = command.Process.Signal(syscall.SIGTERM)
	_ = command.Wait()
	if code := command.ProcessState.ExitCode(); code != 7 {
		t.Errorf("exit code %d, want 7", code)
	}
}

func TestRSHRecordsAHostThatItReached(t *testing.T) {
	worker := startWorker(t, newKeys(t))
	records := recordsFile(filepath.Join(t.TempDir(), "records"))
	var calls sync.WaitGroup
	for range 20 {
		calls.Go(func() {
			_ = runAgent(t, worker.keys, worker.port, []string{recordsVariable + "=" + string(records), launchVariable + "=x"}, "localhost", "true")
		})
	}
	calls.Wait()
	got := records.read()
	if len(got) != 20 {
		t.Errorf("%d records of 20 calls at once", len(got))
	}
	for _, entry := range got {
		if entry.Host != "localhost" || entry.Trouble != "" || entry.Message != "" || entry.Connect <= 0 || time.Since(entry.At).Abs() > time.Minute {
			t.Errorf("record %+v", entry)
		}
	}
}

// trouble is a host that cannot be reached. connect_test.go and test/e2e test names that
// are not found: no DNS query leaves the machine.
type trouble struct {
	keys string
	host string
	port int
	// namespace: packets to the host are dropped.
	namespace bool
	want      protocol.Trouble
}

// troubles are those that can be provoked on this machine's loopback.
func troubles(t *testing.T, keys string) map[string]trouble {
	t.Helper()
	worker := startWorker(t, keys)
	return map[string]trouble{
		"nothing listens":      {keys: keys, host: "127.0.0.1", port: freePort(t), want: protocol.Refused},
		"it never speaks":      {keys: keys, host: "127.0.0.1", port: answerWith(t, func(net.Conn) {}), want: protocol.TimedOut},
		"it is no SSH server":  {keys: keys, host: "127.0.0.1", port: answerWith(t, func(connection net.Conn) { _ = connection.Close() }), want: protocol.Broken},
		"another's host key":   {keys: mixedKeys(t, keys, protocol.HostPublicKey), host: "127.0.0.1", port: worker.port, want: protocol.HostKeyWrong},
		"another's client key": {keys: mixedKeys(t, keys, protocol.ClientKey), host: "127.0.0.1", port: worker.port, want: protocol.KeyRefused},
	}
}

// Each of these takes until the deadline of rsh, so they run in parallel.
func TestRSHReportsUnreachedHost(t *testing.T) {
	t.Parallel()
	for name, tc := range troubles(t, newKeys(t)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			records := recordsFile(filepath.Join(t.TempDir(), "records"))
			got := runAgent(t, tc.keys, tc.port, []string{recordsVariable + "=" + string(records)}, tc.host, "echo planted-command-token")
			if got.Status != connectExit {
				t.Errorf("exit code %d, want %d", got.Status, connectExit)
			}
			mustContain(t, "stderr", got.Stderr, "trireme: ", tc.host, troubleText[tc.want])
			mustHoldNoSecret(t, tc.keys, "output", got.Stdout+got.Stderr, "planted-command-token")
			if entries := records.read(); len(entries) != 1 || entries[0].Host != tc.host || entries[0].Trouble != tc.want {
				t.Errorf("records %+v, want one of %s with %s", entries, tc.host, tc.want)
			} else {
				mustContain(t, "the record", entries[0].Message, tc.host, troubleText[tc.want], advice[tc.want])
				mustHoldNoSecret(t, tc.keys, "the record", entries[0].Message, "planted-command-token")
			}
		})
	}
}

func TestRSHWithoutAHostOrKeys(t *testing.T) {
	tests := map[string]struct {
		keys      string
		arguments []string
		want      string
	}{
		"no host":      {keys: newKeys(t), arguments: []string{"-x"}, want: "no host to connect to"},
		"a wrong port": {keys: newKeys(t), arguments: []string{"-p", "0", "train-worker-0"}, want: "is not a port"},
		"no keys":      {keys: t.TempDir(), arguments: []string{"train-worker-0", "true"}, want: "read the job's key"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := runAgent(t, tc.keys, protocol.Port, nil, tc.arguments...)
			if got.Status != connectExit {
				t.Errorf("exit code %d, want %d", got.Status, connectExit)
			}
			mustContain(t, "stderr", got.Stderr, tc.want)
		})
	}
}

func TestRSHNoticesThatAWorkerIsLost(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		signal     syscall.Signal
		wantWithin time.Duration
		want       protocol.Trouble
	}{
		"it was killed":       {signal: syscall.SIGKILL, wantWithin: patience, want: protocol.Broken},
		"it stops responding": {signal: syscall.SIGSTOP, wantWithin: 5*keepAlive + patience, want: protocol.Broken},
		"it terminates":       {signal: syscall.SIGTERM, wantWithin: patience, want: protocol.Stopped},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			worker := startWorker(t, newKeys(t))
			records := recordsFile(filepath.Join(t.TempDir(), "records"))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			command := exec.CommandContext(ctx, agentBinary(t), "127.0.0.1", "echo $$; exec sleep 60")
			command.WaitDelay = patience
			command.Env = agentEnvironment(worker.keys, worker.port, recordsVariable+"="+string(records))
			var stdout buffer
			command.Stdout = &stdout
			if err := command.Start(); err != nil {
				t.Fatal(err)
			}
			eventually.HoldsWithin(t, patience, "the command runs", func() bool { return strings.HasSuffix(stdout.String(), "\n") })
			_ = worker.command.Process.Signal(tc.signal)
			defer time.AfterFunc(tc.wantWithin, cancel).Stop()
			_ = command.Wait()
			if ctx.Err() != nil {
				t.Fatalf("it has not noticed within %s", tc.wantWithin)
			}
			if code := command.ProcessState.ExitCode(); code == 0 {
				t.Error("exit code 0")
			}
			if entries := records.read(); len(entries) < 2 || entries[1].Trouble != tc.want {
				t.Errorf("records %+v, want a second one with %s", entries, tc.want)
			}
			// A worker that was killed cannot end its command; in a pod, the kernel does.
			_ = syscall.Kill(mustAtoi(t, stdout.String()), syscall.SIGKILL)
		})
	}
}
