// SPDX-License-Identifier: Apache-2.0

// Package deployed runs the operator beside a test's API server as it is
// deployed: its program as a process, with the role and the webhooks of config/.
package deployed

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/trireme-mpi/trireme/internal/engine/config"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

// Namespace is where the operator runs.
const Namespace = "trireme-system"

// Settings are the defaults, for an operator that is not in a pod.
func Settings(t testing.TB, change ...func(*config.Config)) *config.Config {
	t.Helper()
	// Building takes a while, in which others could take the free ports.
	program(t)
	settings := config.Default()
	settings.Webhook.Port = int32(FreePort(t))
	settings.Webhook.Host = "localhost"
	settings.Webhook.CertificateDirectory = t.TempDir()
	settings.Metrics.BindAddress = config.MetricsOff
	settings.ClusterDomain = "cluster.local" // Nobody tells it, as it tells pods.
	for _, change := range change {
		change(settings)
	}
	return settings
}

// Operator is a process that runs the operator's program.
type Operator struct {
	// Audit is what it writes to stdout, Log what it writes to stderr: errors, and
	// nothing less.
	Audit, Log *Lines

	command *exec.Cmd
	probes  string
	end     sync.Once
	ended   chan error
	// stoppedAt is the length of its log when it received SIGTERM; nil before that.
	stoppedAt *int
}

// Start runs the operator's program with the role that it is deployed with. It
// ends with the test.
func Start(t testing.TB, environment *envtest.Environment, settings *config.Config) *Operator {
	t.Helper()
	operator := &Operator{Audit: &Lines{}, Log: &Lines{}, probes: fmt.Sprintf("localhost:%d", FreePort(t))}
	operator.command = exec.Command(program(t), "--config", Write(t, "config.yaml", marshal(t, settings)),
		"--namespace", Namespace, "--health-probe-bind-address", operator.probes, "--zap-log-level=error")
	operator.command.Env = append(os.Environ(), "KUBECONFIG="+Write(t, "kubeconfig", identity(t, environment)))
	operator.command.Stdout, operator.command.Stderr = operator.Audit, operator.Log
	if err := operator.command.Start(); err != nil {
		t.Fatal(err)
	}
	operator.ended = make(chan error, 1)
	go func() { operator.ended <- operator.command.Wait() }()
	t.Cleanup(func() { operator.Stop(t) })
	return operator
}

// WaitUntilReady waits until the operator says that it is.
func (operator *Operator) WaitUntilReady(t testing.TB) {
	t.Helper()
	eventually.Succeeds(t, "the operator is ready", func() error { return operator.Ready(t) })
}

// Ready is nil when the operator says that it is ready.
func (operator *Operator) Ready(t testing.TB) error {
	t.Helper()
	if len(operator.ended) > 0 {
		t.Fatalf("the operator ended while it was waited for:\n%s", operator.Log)
	}
	response, err := http.Get("http://" + operator.probes + "/readyz")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("it answers %s\n%s", response.Status, operator.Log)
	}
	return nil
}

// PID is the operator's process.
func (operator *Operator) PID() int { return operator.command.Process.Pid }

// Stop ends the operator as a kubelet does, and fails the test if it does not
// end well.
func (operator *Operator) Stop(t testing.TB) {
	t.Helper()
	operator.end.Do(func() {
		operator.stoppedAt = new(len(operator.Log.String()))
		_ = operator.command.Process.Signal(syscall.SIGTERM)
		if err := <-operator.ended; err != nil {
			t.Errorf("the operator ended with %v:\n%s", err, operator.Log)
		}
	})
}

// Errors are the lines of its log. An operator that receives SIGTERM cancels the requests
// that it has sent, and may say so.
func (operator *Operator) Errors() (lines []string) {
	position := 0
	for line := range strings.Lines(operator.Log.String()) {
		isStopping := operator.stoppedAt != nil && position >= *operator.stoppedAt
		position += len(line)
		if !isStopping || !strings.Contains(line, "context canceled") {
			lines = append(lines, line)
		}
	}
	return lines
}

// Kill ends the operator as a node does that loses its power.
func (operator *Operator) Kill() {
	operator.end.Do(func() {
		_ = operator.command.Process.Kill()
		<-operator.ended
	})
}

// build builds cmd/operator, once.
var build = sync.OnceValues(func() (string, error) {
	path := filepath.Join(os.TempDir(), fmt.Sprintf("trireme-operator-%d", os.Getpid()))
	build := exec.Command("go", "build", "-buildvcs=false", "-o", path, "./cmd/operator")
	build.Dir = Repository()
	output, err := build.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the operator: %w\n%s", err, output)
	}
	return path, nil
})

func program(t testing.TB) string {
	t.Helper()
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// RemoveProgram removes the program that was built, when all tests have ended.
func RemoveProgram() {
	if path, err := build(); err == nil {
		_ = os.Remove(path)
	}
}

// Write writes a file that is gone when the test has ended.
func Write(t testing.TB, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func marshal(t testing.TB, value any) []byte {
	t.Helper()
	text, err := yaml.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
