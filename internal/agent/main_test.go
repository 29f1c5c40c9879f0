// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/operator/sshkey"
)

const (
	// runMark is in the environment of every process of these tests, so that those
	// that are left can be found.
	runMark = "TRIREME_TEST_RUN"
	// plantedValue is in the environment of every agent, and must be in nothing that
	// one says by itself.
	plantedValue = "planted-environment-value"
)

// scratch holds what is built once for all tests.
var scratch string

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		playRole(role)
	}
	flag.Parse()
	// Most of these tests wait; two cores are no reason to wait in turn.
	_ = flag.Set("test.parallel", "12")
	directory, err := os.MkdirTemp("", "trireme-agent-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	scratch = directory
	mark := rand.Text()
	_ = os.Setenv(runMark, mark)
	code := m.Run()
	if left := endLeft(runMark + "=" + mark); len(left) > 0 {
		fmt.Fprintf(os.Stderr, "processes were left running: %v\n", left)
		code = max(code, 1)
	}
	_ = os.RemoveAll(directory)
	os.Exit(code)
}

// endLeft kills the processes with a mark in their environment, and returns them.
// Processes that got a signal may need a little time to exit.
func endLeft(mark string) []string {
	for deadline := time.Now().Add(10 * time.Second); len(marked(mark)) > 0 && time.Now().Before(deadline); {
		time.Sleep(50 * time.Millisecond)
	}
	left := marked(mark)
	for id := range left {
		_ = syscall.Kill(id, syscall.SIGKILL)
	}
	return slices.Collect(maps.Values(left))
}

// marked are the processes with a mark in their environment.
func marked(mark string) map[int]string {
	found := map[int]string{}
	for _, process := range processTable() {
		directory := filepath.Join("/proc", strconv.Itoa(process.id))
		environment, err := os.ReadFile(filepath.Join(directory, "environ"))
		if err != nil || process.zombie || process.id == os.Getpid() || !strings.Contains(string(environment), mark) {
			continue
		}
		command, _ := os.ReadFile(filepath.Join(directory, "cmdline"))
		found[process.id] = fmt.Sprintf("%d %q", process.id, command)
	}
	return found
}

var buildAgent = sync.OnceValues(func() (string, error) {
	binary := filepath.Join(scratch, "mpi-agent")
	build := exec.Command("go", "build", "-o", binary, "github.com/trireme-mpi/trireme/cmd/mpi-agent")
	// Without the mark: the go command may leave helper processes behind.
	build.Env = append(without(os.Environ(), runMark), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the agent: %w: %s", err, output)
	}
	return binary, nil
})

func agentBinary(t testing.TB) string {
	t.Helper()
	binary, err := buildAgent()
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

func without(environment []string, prefix string) []string {
	var rest []string
	for _, variable := range environment {
		if !strings.HasPrefix(variable, prefix) {
			rest = append(rest, variable)
		}
	}
	return rest
}

// agentEnvironment is that of a container with the job's keys.
func agentEnvironment(keys string, port int, more ...string) []string {
	environment := without(without(os.Environ(), "TRIREME_"), "SSH_")
	environment = append(environment, runMark+"="+os.Getenv(runMark), "PLANTED="+plantedValue,
		protocol.KeysVariable+"="+keys, protocol.PortVariable+"="+strconv.Itoa(port))
	return append(environment, more...)
}

// newKeys is a directory with the halves of both pairs, as both roles together have them.
func newKeys(t testing.TB) string {
	t.Helper()
	directory := t.TempDir()
	client, err := sshkey.New(rand.Reader, sshkey.Default())
	if err != nil {
		t.Fatal(err)
	}
	host, err := sshkey.New(rand.Reader, sshkey.Default())
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		protocol.ClientKey: client.Private, protocol.ClientPublicKey: client.Public, protocol.AuthorizedKeys: client.Public,
		protocol.HostKey: host.Private, protocol.HostPublicKey: host.Public,
	} {
		if err := os.WriteFile(filepath.Join(directory, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return directory
}

// mixedKeys is a copy of keys in which some files are another job's.
func mixedKeys(t testing.TB, keys string, foreign ...string) string {
	t.Helper()
	mixed := newKeys(t)
	for _, name := range []string{protocol.ClientKey, protocol.ClientPublicKey, protocol.AuthorizedKeys, protocol.HostKey, protocol.HostPublicKey} {
		content, err := os.ReadFile(filepath.Join(keys, name))
		if err != nil {
			t.Fatal(err)
		}
		isForeign := false
		for _, each := range foreign {
			isForeign = isForeign || each == name
		}
		if isForeign {
			continue
		}
		if err := os.WriteFile(filepath.Join(mixed, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return mixed
}

func signerOf(t testing.TB, keys, name string) ssh.Signer {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(keys, name))
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.ParsePrivateKey(content)
	if err != nil {
		t.Fatal(err)
	}
	return signer
}

// freePort is a free port. Another process may take it before it is used: startWorker then
// retries.
func freePort(t testing.TB) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

// deafPort is a port that refuses connections and stays reserved until the end of the
// test: its socket is bound but does not listen.
func deafPort(t testing.TB) int {
	t.Helper()
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(socket) })
	if err := syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	bound, err := syscall.Getsockname(socket)
	if err != nil {
		t.Fatal(err)
	}
	return bound.(*syscall.SockaddrInet4).Port
}

// buffer is written by one process's pipes and read by a test.
type buffer struct {
	mutex sync.Mutex
	text  bytes.Buffer
}

func (b *buffer) Write(text []byte) (int, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.text.Write(text)
}

func (b *buffer) String() string {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.text.String()
}

// patience is generous, because many tests share the machine.
const patience = 30 * time.Second

// bound limits one command or connection of a test, so that a test that hangs fails and
// does not block the others.
const bound = 2 * time.Minute

// boundedCommand is a command that is killed after bound.
func boundedCommand(t testing.TB, name string, arguments ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	t.Cleanup(cancel)
	command := exec.CommandContext(ctx, name, arguments...)
	// What it has started may keep its pipes.
	command.WaitDelay = patience
	return command
}

// closeInTime closes a connection after bound, which interrupts every read from it.
func closeInTime(connection ssh.Conn) {
	timer := time.AfterFunc(bound, func() { _ = connection.Close() })
	go func() {
		_ = connection.Wait()
		// Some tests measure the heap, and the timer would keep the connection there.
		timer.Stop()
	}()
}

func alive(id int) bool {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", id))
	if err != nil {
		return false
	}
	process, err := parseStat(content)
	return err == nil && !process.zombie
}

// mustHoldNoSecret checks that output of the agent contains no secret.
func mustHoldNoSecret(t testing.TB, keys, where, text string, more ...string) {
	t.Helper()
	secrets := append([]string{plantedValue, "PRIVATE KEY"}, more...)
	for _, name := range []string{protocol.ClientKey, protocol.HostKey} {
		content, _ := os.ReadFile(filepath.Join(keys, name))
		for line := range strings.Lines(string(content)) {
			// The first line of every such key is the same.
			if line = strings.TrimSpace(line); len(line) > 20 && !strings.HasPrefix(line, "-----") {
				secrets = append(secrets, line)
			}
		}
	}
	for _, secret := range secrets {
		if strings.Contains(text, secret) {
			t.Errorf("%s holds a secret, %.12s...", where, secret)
		}
	}
}

// workerProcess is `mpi-agent worker` in its own process.
type workerProcess struct {
	command *exec.Cmd
	keys    string
	port    int
	log     *buffer
	ended   chan struct{}
}

func startWorker(t testing.TB, keys string, environment ...string) *workerProcess {
	t.Helper()
	return startWorkerBy(t, []string{agentBinary(t), "worker"}, keys, environment...)
}

// startWorkerBy starts a worker by a command that becomes it.
func startWorkerBy(t testing.TB, command []string, keys string, environment ...string) *workerProcess {
	t.Helper()
	for range 5 {
		worker := &workerProcess{keys: keys, port: freePort(t), log: &buffer{}, ended: make(chan struct{})}
		worker.command = exec.Command(command[0], command[1:]...)
		worker.command.Env = agentEnvironment(keys, worker.port, append([]string{protocol.GraceVariable + "=1s"}, environment...)...)
		worker.command.Dir = t.TempDir()
		worker.command.Stderr = worker.log
		// Processes that outlive the worker may keep its stderr.
		worker.command.WaitDelay = time.Second
		if err := worker.command.Start(); err != nil {
			t.Fatal(err)
		}
		go func() {
			defer close(worker.ended)
			_ = worker.command.Wait()
		}()
		t.Cleanup(func() { worker.stop(t) })
		if worker.listens() {
			return worker
		}
	}
	t.Fatal("no worker comes up")
	return nil
}

// listens waits for the line that the worker prints when its port is open.
func (wp *workerProcess) listens() bool {
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		select {
		case <-wp.ended:
			return false
		default:
		}
		if strings.Contains(wp.log.String(), "waits for its launcher") {
			return true
		}
	}
	return false
}

func (wp *workerProcess) stop(t testing.TB) {
	t.Helper()
	_ = wp.command.Process.Signal(syscall.SIGCONT)
	_ = wp.command.Process.Signal(syscall.SIGTERM)
	select {
	case <-wp.ended:
	case <-time.After(patience):
		t.Error("the worker does not end")
		_ = wp.command.Process.Kill()
	}
	mustHoldNoSecret(t, wp.keys, "the worker's log", wp.log.String())
	if strings.Contains(wp.log.String(), "goroutine ") {
		t.Errorf("the worker panicked:\n%s", wp.log)
	}
}

func clientConfig(t testing.TB, keys, user string) *ssh.ClientConfig {
	t.Helper()
	return &ssh.ClientConfig{
		User:            user,
		Auth:            []ssh.AuthMethod{ssh.PublicKeys(signerOf(t, keys, protocol.ClientKey))},
		HostKeyCallback: ssh.FixedHostKey(signerOf(t, keys, protocol.HostKey).PublicKey()),
		Timeout:         20 * time.Second,
	}
}

func (wp *workerProcess) login(t testing.TB, user string) *ssh.Client {
	t.Helper()
	client, err := ssh.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", wp.port), clientConfig(t, wp.keys, user))
	if err != nil {
		t.Fatalf("log in: %v\n%s", err, wp.log)
	}
	t.Cleanup(func() { _ = client.Close() })
	closeInTime(client)
	return client
}

// outcome is the result of a command.
type outcome struct {
	Stdout, Stderr string
	Status         int
	Signal         string
}

// execute runs a command over a connection.
func execute(t testing.TB, client *ssh.Client, command, stdin string) outcome {
	t.Helper()
	session, err := client.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	var stdout, stderr bytes.Buffer
	session.Stdout, session.Stderr = &stdout, &stderr
	// Not session.Stdin: a command that does not read it to its end would be an error.
	input, err := session.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _ = io.WriteString(input, stdin)
		_ = input.Close()
	}()
	err = session.Run(command)
	result := outcome{Stdout: stdout.String(), Stderr: stderr.String()}
	var exit *ssh.ExitError
	if errors.As(err, &exit) {
		result.Signal = exit.Signal()
		if result.Signal == "" {
			result.Status = exit.ExitStatus()
		}
	} else if err != nil {
		t.Fatalf("run %.60q: %v", command, err)
	}
	return result
}

// runAgent runs the agent in one of its other modes, until it exits.
func runAgent(t testing.TB, keys string, port int, environment []string, arguments ...string) outcome {
	t.Helper()
	command := boundedCommand(t, agentBinary(t), arguments...)
	command.Env = agentEnvironment(keys, port, environment...)
	return finish(t, keys, command)
}

func finish(t testing.TB, keys string, command *exec.Cmd) outcome {
	t.Helper()
	var stdout, stderr buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	err := command.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	result := outcome{Stdout: stdout.String(), Stderr: stderr.String(), Status: command.ProcessState.ExitCode()}
	mustHoldNoSecret(t, keys, "output", result.Stdout+result.Stderr)
	return result
}

// firstLine starts a command and returns the first line that it prints; a command
// of the tests prints its process id or that it is ready.
func firstLine(t testing.TB, client *ssh.Client, command string) (string, *ssh.Session) {
	t.Helper()
	session, err := client.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := session.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := session.Start(command); err != nil {
		t.Fatal(err)
	}
	var line []byte
	for one := make([]byte, 1); len(line) < 100; {
		if _, err := io.ReadFull(stdout, one); err != nil {
			t.Fatalf("read the first line: %v", err)
		}
		if one[0] == '\n' {
			break
		}
		line = append(line, one[0])
	}
	return string(line), session
}

func startedProcess(t testing.TB, client *ssh.Client, command string) int {
	t.Helper()
	line, _ := firstLine(t, client, command)
	id, err := strconv.Atoi(line)
	if err != nil {
		t.Fatal(err)
	}
	if !alive(id) {
		t.Fatalf("process %d has not started", id)
	}
	return id
}
