// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

// commandToken is on the command line of every launch. The agent must never print it.
const commandToken = "planted-command-token"

// launched is the result of a launch, with its termination message.
type launched struct {
	outcome
	report protocol.Report
}

// prepareLaunch prepares a launcher's container: a hostfile and a termination log.
func prepareLaunch(t testing.TB, keys string, port int, hostfile string, environment []string, arguments ...string) (*exec.Cmd, string) {
	t.Helper()
	directory := t.TempDir()
	message := filepath.Join(directory, "termination-log")
	command := boundedCommand(t, agentBinary(t), arguments...)
	command.Env = agentEnvironment(keys, port, append([]string{
		protocol.HostfileVariable + "=" + mustWrite(t, filepath.Join(directory, "hostfile"), hostfile),
		"TRIREME_TERMINATION_LOG=" + message, protocol.GateTimeoutVariable + "=15s", "TMPDIR=" + t.TempDir(),
	}, environment...)...)
	return command, message
}

func runLaunch(t testing.TB, keys string, port int, hostfile string, environment []string, arguments ...string) launched {
	t.Helper()
	command, message := prepareLaunch(t, keys, port, hostfile, environment, arguments...)
	result := launched{outcome: finish(t, keys, command)}
	result.report = readReport(t, keys, message)
	mustHoldNoSecret(t, keys, "output", result.Stderr, commandToken)
	return result
}

func readReport(t testing.TB, keys, path string) protocol.Report {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		return protocol.Report{}
	}
	mustHoldNoSecret(t, keys, "the termination message", string(content), commandToken)
	if len(content) >= 4096 {
		t.Errorf("the termination message has %d bytes", len(content))
	}
	var report protocol.Report
	if err := json.Unmarshal(content, &report); err != nil {
		t.Errorf("the termination message is no JSON: %v", err)
	}
	return report
}

// sh is a user's command: a script, and a token that it does not use.
func sh(script string) []string {
	return []string{"launch", "--", "sh", "-c", script, commandToken}
}

func TestLaunch(t *testing.T) {
	worker := startWorker(t, newKeys(t))
	hostname, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	const both = "localhost slots=2\n127.0.0.2 slots=2\n"
	const onBoth = "ssh localhost true && ssh 127.0.0.2 true"
	allReached := protocol.Hosts{Expected: 2, Reached: 2}
	tests := map[string]struct {
		hostfile    string
		environment []string
		arguments   []string
		want        outcome
		wantReport  protocol.Report
		wantMessage string
	}{
		"success": {arguments: sh(onBoth + "; echo out; echo err >&2"), want: outcome{Stdout: "out\n"}, wantReport: protocol.Report{Hosts: allReached}},
		"the command's own exit code": {arguments: sh(onBoth + "; exit 3"), want: outcome{Status: 3}, wantMessage: "exit code 3",
			wantReport: protocol.Report{Reason: protocol.ReasonTraining, ExitCode: 3, Hosts: allReached}},
		"the command ends by a signal": {arguments: sh(onBoth + "; kill -KILL $$"), want: outcome{Status: 137}, wantMessage: "exit code 137",
			wantReport: protocol.Report{Reason: protocol.ReasonTraining, ExitCode: 137, Hosts: allReached}},
		"a missing command": {arguments: []string{"launch", "--", "mpirun-nonexistent", commandToken}, want: outcome{Status: 127}, wantMessage: "the image has no mpirun-nonexistent",
			wantReport: protocol.Report{Reason: protocol.ReasonMPI, ExitCode: 127}},
		"a missing command, by its path": {arguments: []string{"launch", "/nonexistent/mpirun", commandToken}, want: outcome{Status: 127}, wantMessage: "the image has no /nonexistent/mpirun",
			wantReport: protocol.Report{Reason: protocol.ReasonMPI, ExitCode: 127}},
		"a command as a single item, with a token": {arguments: []string{"launch", "mpirun -np 2 train --token " + commandToken}, want: outcome{Status: 127}, wantMessage: "the command that begins with mpirun is a single list item",
			wantReport: protocol.Report{Reason: protocol.ReasonMPI, ExitCode: 127}},
		"a command that cannot be executed": {arguments: []string{"launch", "/etc", commandToken}, want: outcome{Status: 126}, wantMessage: "permission denied",
			wantReport: protocol.Report{Reason: protocol.ReasonLauncher, ExitCode: 126}},
		"one host only": {arguments: sh("ssh localhost true"), wantReport: protocol.Report{Hosts: protocol.Hosts{Expected: 2, Reached: 1, Missing: []string{"127.0.0.2"}}}},
		"one host only, and all are required": {environment: []string{protocol.RequireAllHostsVariable + "=true"}, arguments: sh("ssh localhost true"), want: outcome{Status: exitMPI}, wantMessage: "only 1 of 2 hosts; not used: 127.0.0.2",
			wantReport: protocol.Report{Reason: protocol.ReasonMPI, Host: "127.0.0.2", ExitCode: exitMPI, Hosts: protocol.Hosts{Expected: 2, Reached: 1, Missing: []string{"127.0.0.2"}}}},
		"the launcher is in its own hostfile": {hostfile: hostname + ".train.svc slots=1\n" + both, environment: []string{protocol.RequireAllHostsVariable + "=1"}, arguments: sh(onBoth), wantReport: protocol.Report{Hosts: allReached}},
		"ssh is the agent": {arguments: sh(`ssh localhost 'echo "$OF_WORKER"'; readlink "$(command -v ssh)" | sed 's:.*/::'`), want: outcome{Stdout: "\nmpi-agent\n"},
			wantReport: protocol.Report{Hosts: protocol.Hosts{Expected: 2, Reached: 1, Missing: []string{"127.0.0.2"}}}},
		"stdin is the command's": {arguments: sh("cat"), wantReport: protocol.Report{Hosts: protocol.Hosts{Expected: 2, Missing: []string{"localhost", "127.0.0.2"}}}},
		"only the gate":          {arguments: []string{"gate"}},
		"no hostfile":            {environment: []string{protocol.HostfileVariable + "=/nonexistent/hostfile"}, arguments: sh("true"), want: outcome{Status: exitUsage}, wantMessage: "read the hostfile", wantReport: protocol.Report{Reason: protocol.ReasonLauncher, ExitCode: exitUsage}},
		"a hostfile that is none": {hostfile: "localhost slots=many\n", arguments: sh("true"), want: outcome{Status: exitUsage}, wantMessage: "hostfile line 1",
			wantReport: protocol.Report{Reason: protocol.ReasonLauncher, ExitCode: exitUsage}},
		"no directory for files": {environment: []string{"TMPDIR=/nonexistent"}, arguments: sh("true"), want: outcome{Status: exitUsage}, wantMessage: "is /tmp writable?",
			wantReport: protocol.Report{Reason: protocol.ReasonLauncher, ExitCode: exitUsage}},
		"no keys": {environment: []string{protocol.KeysVariable + "=/nonexistent"}, arguments: sh("true"), want: outcome{Status: exitUsage}, wantMessage: "read the job's key",
			wantReport: protocol.Report{Reason: protocol.ReasonLauncher, ExitCode: exitUsage}},
		"a timeout that is none": {environment: []string{protocol.GateTimeoutVariable + "=" + plantedValue}, arguments: sh("true"), want: outcome{Status: exitUsage}, wantMessage: "is not a duration",
			wantReport: protocol.Report{Reason: protocol.ReasonLauncher, ExitCode: exitUsage}},
		"mpirun reports a failed rank": {arguments: sh(onBoth + "; echo 'prterun noticed that process rank 1 with PID 681 on node train-worker-0 exited on signal 9 (Killed).' >&2; exit 137"),
			want: outcome{Status: 137}, wantMessage: "exited on signal 9 (Killed)", wantReport: protocol.Report{Reason: protocol.ReasonTraining, Host: "train-worker-0", Rank: new(int), Signal: 9, ExitCode: 137, Hosts: allReached}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if tc.hostfile == "" {
				tc.hostfile = both
			}
			got := runLaunch(t, worker.keys, worker.port, tc.hostfile, tc.environment, tc.arguments...)
			stderr := got.Stderr
			got.Stderr = ""
			if diff := cmp.Diff(tc.want, got.outcome); diff != "" {
				t.Errorf("outcome (-want +got):\n%s\n%s", diff, stderr)
			}
			if diff := cmp.Diff(tc.wantReport, got.report, cmpopts.IgnoreFields(protocol.Report{}, "Message", "Timings", "Rank")); diff != "" {
				t.Errorf("report (-want +got):\n%s", diff)
			}
			mustContain(t, "the message", got.report.Message, tc.wantMessage)
			mustContain(t, "stderr", stderr, tc.wantMessage)
			if (tc.wantReport.Rank == nil) != (got.report.Rank == nil) {
				t.Errorf("rank %v", got.report.Rank)
			}
		})
	}
}

func TestLaunchLeavesNoFiles(t *testing.T) {
	worker := startWorker(t, newKeys(t))
	directory := t.TempDir()
	_ = runLaunch(t, worker.keys, worker.port, "localhost\n", []string{"TMPDIR=" + directory}, sh("ssh localhost true")...)
	if left, err := os.ReadDir(directory); err != nil || len(left) > 0 {
		t.Errorf("%v was left (%v)", left, err)
	}
}

func TestLaunchForwardsSignals(t *testing.T) {
	worker := startWorker(t, newKeys(t))
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGUSR1} {
		t.Run(signal.String(), func(t *testing.T) {
			script := fmt.Sprintf("trap 'exit 9' %d; echo ready; while :; do sleep 0.02; done", int(signal))
			command, message := prepareLaunch(t, worker.keys, worker.port, "localhost\n", nil, sh(script)...)
			var stdout buffer
			command.Stdout = &stdout
			if err := command.Start(); err != nil {
				t.Fatal(err)
			}
			eventually.HoldsWithin(t, patience, "the command runs", func() bool { return stdout.String() != "" })
			_ = command.Process.Signal(signal)
			_ = command.Wait()
			if code := command.ProcessState.ExitCode(); code != 9 {
				t.Errorf("exit code %d, want 9", code)
			}
			if got := readReport(t, worker.keys, message); got.ExitCode != 9 || got.Reason != protocol.ReasonTraining {
				t.Errorf("report %+v", got)
			}
		})
	}
}

func TestLaunchStopsDuringGate(t *testing.T) {
	command, _ := prepareLaunch(t, newKeys(t), freePort(t), "127.0.0.1\n", []string{protocol.GateTimeoutVariable + "=5m"}, sh("true")...)
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond)
	began := time.Now()
	_ = command.Process.Signal(syscall.SIGTERM)
	_ = command.Wait()
	if took := time.Since(began); took > patience || command.ProcessState.Success() {
		t.Errorf("after %s: %s", took, command.ProcessState)
	}
}

// With the image's own sshd, mpirun uses the image's ssh.
func TestLaunchWithTheImagesOwnSSH(t *testing.T) {
	const host = "127.0.0.77"
	listener, err := net.Listen("tcp", fmt.Sprintf("%s:%d", host, protocol.Port))
	if err != nil {
		t.Skipf("the port of images' sshd is taken: %v", err)
	}
	defer listener.Close()
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(connection, "SSH-2.0-OpenSSH_9.9\r\n")
			_ = connection.Close()
		}
	}()
	// No keys: the agent needs none here.
	got := runLaunch(t, t.TempDir(), freePort(t), host+"\n", []string{protocol.ImageSSHVariable + "=true", protocol.RequireAllHostsVariable + "=true", "PATH=/usr/bin:/bin"}, sh("echo $PATH")...)
	got.Stderr = ""
	if diff := cmp.Diff(outcome{Stdout: "/usr/bin:/bin\n"}, got.outcome); diff != "" {
		t.Errorf("outcome (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(protocol.Report{Hosts: protocol.Hosts{Expected: 1, Reached: 1}}, got.report, cmpopts.IgnoreFields(protocol.Report{}, "Timings")); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
}

func TestLaunchReportsUnreachedWorker(t *testing.T) {
	t.Parallel()
	keys := newKeys(t)
	tests := troubles(t, keys)
	tests["packets are dropped"] = trouble{keys: keys, host: "10.9.9.2", port: protocol.Port, namespace: true, want: protocol.TimedOut}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// Shorter than a try, so that the first one is cut short where nothing answers.
			command, message := prepareLaunch(t, tc.keys, tc.port, tc.host+"\n", []string{protocol.GateTimeoutVariable + "=3s"}, sh("echo never")...)
			if tc.namespace {
				inNamespace(t, command, tc.host)
			}
			got := finish(t, tc.keys, command)
			if got.Status != exitSSH || got.Stdout != "" {
				t.Errorf("exit code %d, want %d; output %q", got.Status, exitSSH, got.Stdout)
			}
			report := readReport(t, tc.keys, message)
			if report.Reason != protocol.ReasonSSH || report.Host != tc.host || report.ExitCode != exitSSH {
				t.Errorf("report %+v", report)
			}
			mustContain(t, "the message", report.Message, tc.host, troubleText[tc.want], advice[tc.want])
			mustHoldNoSecret(t, tc.keys, "stderr", got.Stderr, commandToken)
		})
	}
}

// inNamespace runs a command in a network namespace where packets to a host are lost: they
// leave by the loopback device, and no interface has the address.
func inNamespace(t *testing.T, command *exec.Cmd, host string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("a network namespace needs root")
	}
	try := boundedCommand(t, "unshare", "-n", "sh", "-c", "ip link set lo up && ip route add "+host+"/32 dev lo")
	if output, err := try.CombinedOutput(); err != nil {
		t.Skipf("no network namespace on this machine: %v: %s", err, output)
	}
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		t.Skip("unshare is not on this machine (Debian: util-linux)")
	}
	script := "ip link set lo up && ip route add " + host + `/32 dev lo && exec "$@"`
	command.Args = append([]string{"unshare", "-n", "sh", "-c", script, "sh", command.Path}, command.Args[1:]...)
	command.Path = unshare
}

func TestLaunchNamesLostWorker(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			worker := startWorker(t, newKeys(t))
			command, message := prepareLaunch(t, worker.keys, worker.port, "localhost\n", nil, sh("ssh localhost 'echo $$; exec sleep 60'")...)
			var stdout buffer
			command.Stdout = &stdout
			if err := command.Start(); err != nil {
				t.Fatal(err)
			}
			eventually.HoldsWithin(t, patience, "the rank runs", func() bool { return strings.HasSuffix(stdout.String(), "\n") })
			_ = worker.command.Process.Signal(signal)
			_ = command.Wait()
			_ = syscall.Kill(mustAtoi(t, stdout.String()), syscall.SIGKILL)
			got := readReport(t, worker.keys, message)
			if got.Reason != protocol.ReasonWorker || got.Host != "localhost" || got.ExitCode == 0 {
				t.Errorf("report %+v", got)
			}
		})
	}
}

// Hydra may notice a lost host before rsh does.
func TestLaunchWaitsForLostWorkerName(t *testing.T) {
	t.Parallel()
	worker := startWorker(t, newKeys(t))
	script := fmt.Sprintf(`(sleep 0.3; echo '{"host":"localhost","trouble":"Broken"}' >> "$%s") > /dev/null 2>&1 &
		echo '[mpiexec@train-launcher] control_cb (mpiexec/pmiserv_cb.c:280): assert (!closed) failed'
		exit 255`, recordsVariable)
	got := runLaunch(t, worker.keys, worker.port, "localhost\n", nil, sh(script)...).report
	if got.Reason != protocol.ReasonWorker || got.Host != "localhost" {
		t.Errorf("report %+v", got)
	}
}

// Open MPI 5 needs the shell of a user that has no passwd entry.
func TestLaunchNamesAShell(t *testing.T) {
	worker := startWorker(t, newKeys(t))
	if got := runLaunch(t, worker.keys, worker.port, "127.0.0.1 slots=1\n", []string{"SHELL="}, "launch", "--", "printenv", "SHELL").Stdout; got != defaultShell+"\n" {
		t.Errorf("SHELL is %q, want %q", got, defaultShell)
	}
	if got := runLaunch(t, worker.keys, worker.port, "127.0.0.1 slots=1\n", []string{"SHELL=/bin/zsh"}, "launch", "--", "printenv", "SHELL").Stdout; got != "/bin/zsh\n" {
		t.Errorf("SHELL is %q, and the image's own is /bin/zsh", got)
	}
}

// Open MPI prints the warning if its child was faster than itself.
func TestLaunchDropsHarmlessWarning(t *testing.T) {
	worker := startWorker(t, newKeys(t))
	const script = `warning='plm:ssh: Warning: setpgid(382,382) failed in parent with errno='
echo before >&2
echo "[train-launcher:00378] ${warning}Permission denied(13)" >&2
echo "[train-launcher:00378] ${warning}No such process(3)" >&2
echo "[train-launcher:00378] ${warning}Permission denied(13)"
printf after >&2`
	got := runLaunch(t, worker.keys, worker.port, "localhost\n", nil, sh(script)...)
	mustContain(t, "stderr", got.Stderr, "before\n[train-launcher:00378] plm:ssh: Warning: setpgid(382,382) failed in parent with errno=No such process(3)\nafter")
	if strings.Contains(got.Stderr, "(13)") || got.Stdout != "" {
		t.Errorf("the warning is in the output: %q, %q", got.Stdout, got.Stderr)
	}
}
