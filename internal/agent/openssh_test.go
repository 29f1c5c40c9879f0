// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

// openSSH is a call of OpenSSH's client, with nothing of the machine's configuration.
func openSSH(t testing.TB, worker *workerProcess, hostKey string, arguments ...string) *exec.Cmd {
	t.Helper()
	ssh, err := exec.LookPath("ssh")
	if err != nil {
		t.Skip("ssh is not on this machine (Debian: openssh-client)")
	}
	if _, err := user.Current(); err != nil {
		t.Skipf("OpenSSH's client needs an entry in passwd: %v", err)
	}
	public, err := os.ReadFile(filepath.Join(hostKey, protocol.HostPublicKey))
	if err != nil {
		t.Fatal(err)
	}
	known := mustWrite(t, filepath.Join(t.TempDir(), "known_hosts"), fmt.Sprintf("[127.0.0.1]:%d %s", worker.port, public))
	options := []string{
		"-F", "/dev/null", "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes", "-o", "GlobalKnownHostsFile=/dev/null",
		"-o", "UserKnownHostsFile=" + known, "-o", "StrictHostKeyChecking=yes", "-o", "LogLevel=ERROR",
		"-i", filepath.Join(worker.keys, protocol.ClientKey), "-p", fmt.Sprint(worker.port), "mpiuser@127.0.0.1",
	}
	command := boundedCommand(t, ssh, append(options, arguments...)...)
	command.Env = append(without(os.Environ(), "SSH_AUTH_SOCK"), "FROM_CLIENT=sent")
	return command
}

func TestOpenSSHLogsIn(t *testing.T) {
	worker := startWorker(t, newKeys(t))
	tests := map[string]struct {
		arguments []string
		stdin     string
		want      outcome
	}{
		"a command":               {arguments: []string{"echo out; echo err >&2; exit 3"}, want: outcome{Stdout: "out\n", Stderr: "err\n", Status: 3}},
		"stdin":                   {arguments: []string{"cat"}, stdin: strings.Repeat("in", 1<<20), want: outcome{Stdout: strings.Repeat("in", 1<<20)}},
		"a shell":                 {arguments: []string{"-T"}, stdin: "echo hello; exit 4\n", want: outcome{Stdout: "hello\n", Status: 4}},
		"an environment":          {arguments: []string{"-o", "SendEnv=FROM_CLIENT", "echo $FROM_CLIENT"}, want: outcome{Stdout: "sent\n"}},
		"a daemon is left":        {arguments: []string{"setsid sleep 20 & echo before"}, want: outcome{Stdout: "before\n"}},
		"much output":             {arguments: []string{"head -c 3000000 /dev/zero | tr '\\0' x"}, want: outcome{Stdout: strings.Repeat("x", 3000000)}},
		"keep-alive":              {arguments: []string{"-o", "ServerAliveInterval=1", "sleep 2.5; echo here"}, want: outcome{Stdout: "here\n"}},
		"an end by a signal":      {arguments: []string{"kill -KILL $$"}, want: outcome{Status: 255}},
		"a forward, which is not": {arguments: []string{"-o", "ExitOnForwardFailure=yes", "-R", "0:127.0.0.1:1", "echo never"}, want: outcome{Stderr: "Error: remote port forwarding failed for listen port 0\r\n", Status: 255}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			command := openSSH(t, worker, worker.keys, tc.arguments...)
			command.Stdin = strings.NewReader(tc.stdin)
			if diff := cmp.Diff(tc.want, finish(t, worker.keys, command)); diff != "" {
				t.Errorf("outcome (-want +got):\n%.1000s", diff)
			}
		})
	}
}

func TestOpenSSHRefusesAnothersHostKey(t *testing.T) {
	worker := startWorker(t, newKeys(t))
	got := finish(t, worker.keys, openSSH(t, worker, newKeys(t), "echo never"))
	if got.Status != 255 || got.Stdout != "" {
		t.Errorf("outcome %+v", got)
	}
}

func TestKilledOpenSSHLeavesNothing(t *testing.T) {
	worker := startWorker(t, newKeys(t))
	command := openSSH(t, worker, worker.keys, "echo $$; exec sleep 60")
	var stdout buffer
	command.Stdout = &stdout
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	eventually.HoldsWithin(t, patience, "the command runs", func() bool { return strings.HasSuffix(stdout.String(), "\n") })
	_ = command.Process.Kill()
	_ = command.Wait()
	eventually.HoldsWithin(t, patience, "the command is ended", func() bool { return !alive(mustAtoi(t, stdout.String())) })
}
