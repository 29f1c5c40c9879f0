// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

func TestDisconnectStopsCommand(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		// command prints the process that must end. MARK is a file.
		command  string
		wantMark string
		// wantPatience: it is asked to end and has some time.
		wantPatience bool
	}{
		"it obeys SIGTERM":             {command: `trap 'echo asked >$MARK; exit' TERM; echo $$; while :; do sleep 0.02; done`, wantMark: "asked\n"},
		"it has no trap":               {command: `echo $$; exec sleep 60`},
		"it ignores SIGTERM":           {command: `trap '' TERM; echo $$; while :; do sleep 0.2; done`, wantPatience: true},
		"a child":                      {command: `sleep 60 & echo $!; wait`},
		"a child that ignores SIGTERM": {command: `sh -c 'trap "" TERM; echo $$; exec sleep 60' & wait`, wantPatience: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mark := filepath.Join(t.TempDir(), "mark")
			client := startWorker(t, newKeys(t), "MARK="+mark).login(t, "mpi")
			id := startedProcess(t, client, tc.command)
			left := time.Now()
			_ = client.Conn.Close()
			if tc.wantPatience {
				time.Sleep(abandonedPatience / 2)
				if !alive(id) && time.Since(left) < abandonedPatience {
					t.Error("it was not given time")
				}
			}
			eventually.HoldsWithin(t, abandonedPatience+patience, "the command is ended", func() bool { return !alive(id) })
			got, _ := os.ReadFile(mark)
			if string(got) != tc.wantMark {
				t.Errorf("it noted %q before its end, want %q", got, tc.wantMark)
			}
		})
	}
}

func TestClosedSessionStopsOnlyItsCommand(t *testing.T) {
	t.Parallel()
	client := startWorker(t, newKeys(t)).login(t, "mpi")
	line, session := firstLine(t, client, "echo $$; exec sleep 60")
	other := startedProcess(t, client, "echo $$; exec sleep 60")
	_ = session.Close()
	eventually.HoldsWithin(t, patience, "the command is ended", func() bool { return !alive(mustAtoi(t, line)) })
	if !alive(other) {
		t.Error("the command of another session was ended with it")
	}
}

func TestNewLaunchStopsOldProcesses(t *testing.T) {
	t.Parallel()
	worker := startWorker(t, newKeys(t))
	first := worker.login(t, launchUser+"A")
	// A daemon, its child, and one that holds no connection any more.
	daemon := startedProcess(t, first, "setsid sleep 60 >/dev/null 2>&1 & echo $!")
	child := startedProcess(t, first, `setsid sh -c 'trap "" TERM; sleep 60 & echo $!; wait'`)
	for _, user := range []string{launchUser + "A", "mpi", "root"} {
		_ = worker.login(t, user)
		time.Sleep(100 * time.Millisecond)
		if !alive(daemon) || !alive(child) {
			t.Fatalf("a login as %s has stopped processes of the current launch", user)
		}
	}
	second := worker.login(t, launchUser+"B")
	// The login completes after the old processes have exited, so that ranks of both
	// launches never run at the same time.
	own := startedProcess(t, second, "setsid sleep 60 >/dev/null 2>&1 & echo $!")
	if alive(daemon) || alive(child) {
		t.Error("processes of the last launch run beside those of the new one")
	}
	_ = worker.login(t, launchUser+"B")
	time.Sleep(100 * time.Millisecond)
	if !alive(own) {
		t.Error("the second login of the new launch has ended its own process")
	}
	eventually.HoldsWithin(t, patience, "the worker logs it", func() bool { return strings.Contains(worker.log.String(), "a new launcher has logged in") })
}

// Processes that start between the list and the signal are in no list.
func TestNewLaunchStopsForkingProcesses(t *testing.T) {
	t.Parallel()
	worker := startWorker(t, newKeys(t))
	client := worker.login(t, launchUser+"A")
	for range 4 {
		_ = execute(t, client, `setsid sh -c 'i=0; while [ $i -lt 20000 ]; do i=$((i+1)); sleep 0.5 & done' >/dev/null 2>&1 &`, "")
	}
	children := func() (count int) {
		for _, process := range processTable() {
			if process.parent == worker.command.Process.Pid && !process.zombie {
				count++
			}
		}
		return count
	}
	eventually.HoldsWithin(t, patience, "all run", func() bool { return children() >= 4 })
	// The login is answered before they are ended, the first command after.
	if got := execute(t, worker.login(t, launchUser+"B"), "exit 6", ""); got.Status != 6 {
		t.Errorf("exit status %d of the new launch, want 6", got.Status)
	}
	if left := children(); left > 0 {
		t.Errorf("%d processes of the last launch are left when a command of the new one has run", left)
	}
}

func TestWorkerStopsRanksFirst(t *testing.T) {
	t.Parallel()
	const slack = 20 * time.Second
	tests := map[string]struct {
		grace     string
		command   string
		wantMark  string
		wantAfter time.Duration
		wantUntil time.Duration
	}{
		"it obeys SIGTERM": {grace: "25s", command: `trap 'sleep 0.2; echo saved >$MARK; exit' TERM; echo $$; while :; do sleep 0.02; done`, wantMark: "saved\n", wantUntil: slack},
		"a daemon":         {grace: "25s", command: `setsid sleep 60 >/dev/null 2>&1 & echo $!`, wantUntil: slack},
		"one that refuses": {grace: "1s", command: `trap '' TERM; echo $$; while :; do sleep 0.1; done`, wantAfter: time.Second, wantUntil: time.Second + slack},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mark := filepath.Join(t.TempDir(), "mark")
			worker := startWorker(t, newKeys(t), protocol.GraceVariable+"="+tc.grace, "MARK="+mark)
			id := startedProcess(t, worker.login(t, "mpi"), tc.command)
			began := time.Now()
			_ = worker.command.Process.Signal(syscall.SIGTERM)
			select {
			case <-worker.ended:
			case <-time.After(tc.wantUntil):
				t.Fatalf("the worker has not ended after %s", tc.wantUntil)
			}
			if took := time.Since(began); took < tc.wantAfter {
				t.Errorf("the worker has ended after %s, before its grace of %s", took, tc.grace)
			}
			eventually.HoldsWithin(t, patience, "the rank has ended", func() bool { return !alive(id) })
			if got, _ := os.ReadFile(mark); string(got) != tc.wantMark {
				t.Errorf("the rank noted %q before its end, want %q", got, tc.wantMark)
			}
			if code := worker.command.ProcessState.ExitCode(); code != 0 {
				t.Errorf("the worker's exit code is %d", code)
			}
		})
	}
}

func TestOrphansAreReaped(t *testing.T) {
	t.Parallel()
	worker := startWorker(t, newKeys(t))
	client := worker.login(t, "mpi")
	for range 20 {
		// Each leaves two orphans: one that ends after its parent, one that is ended.
		_ = execute(t, client, "setsid sh -c 'sleep 0.1' >/dev/null 2>&1 & setsid sh -c 'kill -9 $$' >/dev/null 2>&1 &", "")
	}
	children := func() (all int) {
		for _, process := range processTable() {
			if process.parent == worker.command.Process.Pid {
				all++
			}
		}
		return all
	}
	eventually.HoldsWithin(t, patience, "no child of the worker is left, not even as a zombie", func() bool { return children() == 0 })
	if got := execute(t, client, "exit 5", ""); got.Status != 5 {
		t.Errorf("exit status %d, want 5: another caller has waited for the command", got.Status)
	}
}

func TestWorkerStartErrors(t *testing.T) {
	keys, port := newKeys(t), freePort(t)
	secret := "planted-key-material"
	broken := mixedKeys(t, keys)
	mustWrite(t, filepath.Join(broken, protocol.HostKey), "-----BEGIN OPENSSH PRIVATE KEY-----\n"+secret+"\n-----END OPENSSH PRIVATE KEY-----\n")
	unauthorized := mixedKeys(t, keys)
	mustWrite(t, filepath.Join(unauthorized, protocol.AuthorizedKeys), "# none\n")
	tests := map[string]struct {
		keys        string
		environment []string
		want        string
	}{
		"no keys":             {keys: t.TempDir(), want: "read the job's key"},
		"an invalid host key": {keys: broken, want: "is not a valid private key"},
		"no authorized key":   {keys: unauthorized, want: "has no public key"},
		"an invalid port":     {keys: keys, environment: []string{protocol.PortVariable + "=" + plantedValue}, want: protocol.PortVariable + " is not a port"},
		"an invalid grace":    {keys: keys, environment: []string{protocol.GraceVariable + "=" + plantedValue}, want: protocol.GraceVariable + " is not a duration"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := runAgent(t, tc.keys, port, tc.environment, "worker")
			if got.Status != 1 {
				t.Errorf("exit code %d, want 1", got.Status)
			}
			mustContain(t, "stderr", got.Stderr, tc.want)
			mustHoldNoSecret(t, tc.keys, "stderr", got.Stderr, secret)
		})
	}
	t.Run("a port that is taken", func(t *testing.T) {
		worker := startWorker(t, keys)
		got := runAgent(t, keys, worker.port, nil, "worker")
		mustContain(t, "stderr", got.Stderr, "address already in use")
	})
}

func mustContain(t testing.TB, where, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("%s has no %q:\n%.2000s", where, want, text)
		}
	}
}
