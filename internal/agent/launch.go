// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/engine/mpi"
	"github.com/trireme-mpi/trireme/internal/engine/redact"
)

// Exit codes of the agent itself. The exit codes of the user's command are passed on.
const (
	exitUsage    = 2
	exitSSH      = 70
	exitMPI      = 71
	exitNotFound = 127
	// exitNotExecutable is the exit code of shells for a file that is not executable.
	exitNotExecutable = 126
)

// launch holds the state of one launcher: its gate, its run and its report.
type launch struct {
	hosts           []string
	slots           []mpi.Host
	secrets         []string
	self            string
	command         []string
	records         recordsFile
	directory       string
	id              string
	imageSSH        bool
	requireAllHosts bool
	report          string
	started         time.Time
}

// Launch runs a user's command once every worker can be reached, and returns its
// exit code.
func Launch(ctx context.Context, command []string, gateOnly bool) int {
	launch, err := newLaunch(command)
	if err != nil {
		writeReport(&protocol.Report{Reason: protocol.ReasonLauncher, Message: err.Error(), ExitCode: exitUsage}, variable(protocol.ReportVariable, protocol.TerminationLog))
		return exitUsage
	}
	defer os.RemoveAll(launch.directory)
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	passed, err := launch.passGate(ctx)
	ended := ctx.Err() != nil
	stop()
	if ended {
		// The pod is being deleted; that is not the fault of a worker.
		return 128 + int(syscall.SIGTERM)
	}
	if err != nil {
		return launch.finish(protocol.Report{Reason: protocol.ReasonLauncher, Message: err.Error(), ExitCode: exitUsage}, passed)
	}
	if len(passed.unreached) > 0 {
		return launch.finish(unreachable(len(launch.hosts), passed), passed)
	}
	if len(passed.blocked) > 0 {
		return launch.finish(blocked(len(launch.hosts), passed.blocked), passed)
	}
	fmt.Fprintf(os.Stderr, "trireme: %d workers reached in %.2f s\n", len(launch.hosts), time.Since(launch.started).Seconds())
	if gateOnly {
		return 0
	}
	return launch.finish(launch.run(), passed)
}

func newLaunch(command []string) (*launch, error) {
	content, err := os.ReadFile(variable(protocol.HostfileVariable, "/etc/mpi/hostfile"))
	if err != nil {
		return nil, fmt.Errorf("read the hostfile: %w", err)
	}
	hosts, err := mpi.ParseHostfile(string(content))
	if err != nil {
		return nil, fmt.Errorf("read the hostfile: %w", err)
	}
	directory, err := os.MkdirTemp("", "trireme-launch-")
	if err != nil {
		return nil, fmt.Errorf("create a directory for the run (is /tmp writable?): %w", err)
	}
	launch := &launch{
		slots:           hosts,
		secrets:         redact.SecretValues(os.Environ()),
		command:         tagged(command, mpi.Implementation(os.Getenv(protocol.TagOutputVariable))),
		directory:       directory,
		records:         recordsFile(filepath.Join(directory, "records")),
		id:              rand.Text(),
		imageSSH:        isSet(protocol.ImageSSHVariable),
		requireAllHosts: isSet(protocol.RequireAllHostsVariable),
		report:          variable(protocol.ReportVariable, protocol.TerminationLog),
		started:         time.Now(),
	}
	launch.self, _ = os.Hostname()
	for _, host := range hosts {
		// mpirun starts ranks on the launcher itself without a login.
		if !sameHost(host.Name, launch.self) {
			launch.hosts = append(launch.hosts, host.Name)
		}
	}
	return launch, nil
}

// tagged adds the flags that make mpirun print the rank in front of every line. It does
// not change other commands.
func tagged(command []string, implementation mpi.Implementation) []string {
	flags := mpi.TagFlags(implementation)
	if len(flags) == 0 || !isMPIRun(command) {
		return command
	}
	return slices.Concat(command[:1], flags, command[1:])
}

func isMPIRun(command []string) bool {
	return len(command) > 0 && slices.Contains([]string{"mpirun", "mpiexec", "mpiexec.hydra"}, filepath.Base(command[0]))
}

func isSet(name string) bool {
	set, err := strconv.ParseBool(os.Getenv(name))
	return err == nil && set
}

// sameHost compares host names without their domains.
func sameHost(name, other string) bool {
	if net.ParseIP(name) != nil || net.ParseIP(other) != nil {
		return name == other
	}
	short, _, _ := strings.Cut(name, ".")
	otherShort, _, _ := strings.Cut(other, ".")
	return short == otherShort
}

func (l *launch) passGate(ctx context.Context) (gateResult, error) {
	timeout, err := durationVariable(protocol.GateTimeoutVariable, gateTimeout)
	if err != nil {
		return gateResult{}, err
	}
	var caller *client
	if l.imageSSH {
		caller = bannerClient()
	} else if caller, err = newClient(launchUser + l.id); err != nil {
		return gateResult{}, err
	}
	check, err := l.portCheck()
	if err != nil {
		return gateResult{}, err
	}
	return (&gate{client: caller, clock: os.Getenv(protocol.ClockVariable), timeout: timeout, ports: check}).pass(ctx, l.hosts), nil
}

// portCheck is nil if no ports are checked: only the agent can open ports for the check.
func (l *launch) portCheck() (*portCheck, error) {
	ports, err := parsePorts(os.Getenv(protocol.PortsVariable), os.Environ(), l.command)
	if ports == nil || err != nil || l.imageSSH {
		return nil, err
	}
	return newPortCheck(*ports, l.self, len(l.slots) > len(l.hosts)), nil
}

// run runs the user's command and returns its report.
func (l *launch) run() protocol.Report {
	listener := l.serveReadiness()
	if listener != nil {
		defer listener.Close()
	}
	command := exec.Command(l.command[0], l.command[1:]...)
	environment, err := l.environment()
	if err != nil {
		return protocol.Report{Reason: protocol.ReasonLauncher, Message: err.Error(), ExitCode: exitUsage}
	}
	command.Env = environment
	// Open MPI's error output is on stderr, Hydra's on stdout.
	var lastErrors, lastOutput tail
	command.Stdin = os.Stdin
	reporter := l.newReporter()
	command.Stdout = withoutNoise{io.MultiWriter(reporter.watch(os.Stdout, &lastOutput)...)} // A script may redirect mpirun's stderr to stdout.
	command.Stderr = withoutNoise{io.MultiWriter(reporter.watch(os.Stderr, &lastErrors)...)}
	// A daemon of the user may keep the pipes open after the command has exited.
	command.WaitDelay = 2 * time.Second
	// The launcher is PID 1 of its container, and becomes the parent of orphans.
	children := newProcesses()
	done := make(chan struct{})
	defer close(done)
	go children.reapOrphans(done)
	began := time.Now()
	started := make(chan struct{})
	// Before the command has started, a signal would terminate only the agent.
	stop := forwardSignals(func(received syscall.Signal) {
		if <-started; command.Process != nil {
			_ = command.Process.Signal(received)
		}
	})
	err = children.start(command)
	close(started)
	if err != nil {
		stop()
		return l.startFailure(err)
	}
	stuck := l.watchStragglers(command.Process)
	stopReports := reporter.start()
	children.wait(command)
	reported := stopReports()
	defer func() { <-reported }()
	stop()
	if host := stuck(); host != "" {
		return l.stuckReport(host)
	}
	judge := func() protocol.Report {
		return l.judge(exitCode(command.ProcessState), lastErrors.String(), lastOutput.String(), l.records.read(), began)
	}
	report := judge()
	// mpirun may notice a lost worker slightly before its rsh does, which records the name.
	for deadline := time.Now().Add(lostPatience); !l.imageSSH && report.Reason == protocol.ReasonWorker && report.Host == "" && time.Now().Before(deadline); report = judge() {
		time.Sleep(20 * time.Millisecond)
	}
	return report
}

// lostPatience is how long to wait for the name of a lost worker.
const lostPatience = 2 * time.Second

// serveReadiness opens the port of the launcher's readiness probe: the launcher is ready
// when it has passed the gate.
func (l *launch) serveReadiness() net.Listener {
	port, err := portVariable()
	if err != nil {
		return nil
	}
	listener, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		return nil // On the host network, the port may be in use.
	}
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			_ = connection.Close()
		}
	}()
	return listener
}

// defaultShell is the shell that Open MPI 5 assumes if neither passwd nor SHELL sets one.
// It would then print a warning into every log.
const defaultShell = "/bin/bash"

// environment is the container's, plus the variables for rsh.
func (l *launch) environment() ([]string, error) {
	environment := append(containerEnvironment(), recordsVariable+"="+string(l.records), launchVariable+"="+l.id)
	if _, err := os.Stat(defaultShell); err == nil && os.Getenv("SHELL") == "" {
		environment = append(environment, "SHELL="+defaultShell)
	}
	if l.imageSSH {
		return environment, nil
	}
	// horovodrun calls ssh by name.
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if err := os.Symlink(self, filepath.Join(l.directory, "ssh")); err != nil {
		return nil, fmt.Errorf("create the ssh link: %w", err)
	}
	return append(environment, "PATH="+l.directory+":"+variable("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")), nil
}

func (l *launch) startFailure(err error) protocol.Report {
	name := l.command[0]
	// The arguments may be secret.
	if first, _, hasSpace := strings.Cut(name, " "); hasSpace {
		return protocol.Report{Reason: protocol.ReasonMPI, ExitCode: exitNotFound,
			Message: fmt.Sprintf("the command that begins with %s is a single list item; write each argument as its own item, or use sh -c", first)}
	}
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		return protocol.Report{Reason: protocol.ReasonMPI, ExitCode: exitNotFound,
			Message: fmt.Sprintf("the image has no %s; use an image with MPI in it, or set the full path of the command", name)}
	}
	return protocol.Report{Reason: protocol.ReasonLauncher, Message: fmt.Sprintf("start %s: %v", name, plainCause(err)), ExitCode: exitNotFound - 1}
}

func exitCode(state *os.ProcessState) int {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return state.ExitCode()
}

// finish completes the report, writes it, and returns the exit code.
func (l *launch) finish(report protocol.Report, passed gateResult) int {
	report.Timings.DNS, report.Timings.Connect, report.Timings.Ports = seconds(passed.dns), seconds(passed.connect), seconds(passed.ports)
	report.Timings.Total = seconds(time.Since(l.started))
	writeReport(&report, l.report)
	return report.ExitCode
}

// withoutNoise drops harmless warnings of mpirun. It checks each write alone and buffers
// nothing: mpirun prints a line with one write, and pipes keep small writes whole.
type withoutNoise struct{ to io.Writer }

func (wn withoutNoise) Write(text []byte) (int, error) {
	if _, err := wn.to.Write(mpi.WithoutNoise(text)); err != nil {
		return 0, err
	}
	return len(text), nil
}

// tail keeps the end of the text that is written to it.
type tail struct {
	mutex sync.Mutex
	text  []byte
	cut   bool
}

const maxTail = 32 << 10

func (t *tail) Write(text []byte) (int, error) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.text = append(t.text, text...)
	if excess := len(t.text) - maxTail; excess > 0 {
		t.text, t.cut = slices.Delete(t.text, 0, excess), true
	}
	return len(text), nil
}

// String returns whole lines, because secrets are recognized by the text before them.
func (t *tail) String() string {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if !t.cut {
		return string(t.text)
	}
	_, rest, _ := strings.Cut(string(t.text), "\n")
	return rest
}
