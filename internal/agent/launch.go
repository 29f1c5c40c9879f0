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

// Exit codes of a launch that failed by itself. The user's command keeps its own.
const (
	exitUsage    = 2
	exitSSH      = 70
	exitMPI      = 71
	exitNotFound = 127
	// exitNotExecutable is a shell's for a file that it may not run.
	exitNotExecutable = 126
)

// launch is the gate, the run and the report of one launcher.
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
		// The pod goes away; that is no worker's fault.
		return 128 + int(syscall.SIGTERM)
	}
	if err != nil {
		return launch.end(protocol.Report{Reason: protocol.ReasonLauncher, Message: err.Error(), ExitCode: exitUsage}, passed)
	}
	if len(passed.unreached) > 0 {
		return launch.end(unreachable(len(launch.hosts), passed), passed)
	}
	if len(passed.blocked) > 0 {
		return launch.end(blocked(len(launch.hosts), passed.blocked), passed)
	}
	fmt.Fprintf(os.Stderr, "trireme: %d workers reached in %.2f s\n", len(launch.hosts), time.Since(launch.started).Seconds())
	if gateOnly {
		return 0
	}
	return launch.end(launch.run(), passed)
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
		return nil, fmt.Errorf("make a directory for the run (is /tmp writable?): %w", err)
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
		// Ranks on the launcher itself need no login.
		if !sameHost(host.Name, launch.self) {
			launch.hosts = append(launch.hosts, host.Name)
		}
	}
	return launch, nil
}

// tagged makes mpirun put the rank in front of every line. A command that is not
// mpirun itself stays as it is.
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

// sameHost compares names with or without their domain.
func sameHost(name, other string) bool {
	if net.ParseIP(name) != nil || net.ParseIP(other) != nil {
		return name == other
	}
	short, _, _ := strings.Cut(name, ".")
	otherShort, _, _ := strings.Cut(other, ".")
	return short == otherShort
}

func (launch *launch) passGate(ctx context.Context) (passage, error) {
	timeout, err := durationVariable(protocol.GateTimeoutVariable, gateTimeout)
	if err != nil {
		return passage{}, err
	}
	var caller *client
	if launch.imageSSH {
		caller = bannerClient()
	} else if caller, err = newClient(launchUser + launch.id); err != nil {
		return passage{}, err
	}
	check, err := launch.portCheck()
	if err != nil {
		return passage{}, err
	}
	return (&gate{client: caller, clock: os.Getenv(protocol.ClockVariable), timeout: timeout, ports: check}).pass(ctx, launch.hosts), nil
}

// portCheck is nil where nothing is checked: only the agent opens ports for it.
func (launch *launch) portCheck() (*portCheck, error) {
	ports, err := parsePorts(os.Getenv(protocol.PortsVariable), os.Environ(), launch.command)
	if ports == nil || err != nil || launch.imageSSH {
		return nil, err
	}
	return newPortCheck(*ports, launch.self, len(launch.slots) > len(launch.hosts)), nil
}

// run runs the user's command and judges how it ended.
func (launch *launch) run() protocol.Report {
	listener := launch.showReadiness()
	if listener != nil {
		defer listener.Close()
	}
	command := exec.Command(launch.command[0], launch.command[1:]...)
	environment, err := launch.environment()
	if err != nil {
		return protocol.Report{Reason: protocol.ReasonLauncher, Message: err.Error(), ExitCode: exitUsage}
	}
	command.Env = environment
	// Open MPI's last words are on stderr, Hydra's on stdout.
	var lastErrors, lastOutput tail
	command.Stdin = os.Stdin
	command.Stdout = withoutNoise{io.MultiWriter(os.Stdout, &lastOutput)} // A script may send mpirun's stderr here.
	command.Stderr = withoutNoise{io.MultiWriter(os.Stderr, &lastErrors)}
	// A daemon of the user's may keep them open after the command has ended.
	command.WaitDelay = 2 * time.Second
	// The launcher is PID 1 of its container and inherits what mpirun leaves behind.
	children := newProcesses()
	done := make(chan struct{})
	defer close(done)
	go children.adoptOrphans(done)
	began := time.Now()
	started := make(chan struct{})
	// One that comes too early would end us, and leave the command behind.
	stop := forwardSignals(func(received syscall.Signal) {
		if <-started; command.Process != nil {
			_ = command.Process.Signal(received)
		}
	})
	err = children.start(command)
	close(started)
	if err != nil {
		stop()
		return launch.notStarted(err)
	}
	stuck := launch.watchStragglers(command.Process)
	children.wait(command)
	stop()
	if host := stuck(); host != "" {
		return launch.stuckReport(host)
	}
	judge := func() protocol.Report {
		return launch.judge(exitCode(command.ProcessState), lastErrors.String(), lastOutput.String(), launch.records.read(), began)
	}
	report := judge()
	// mpirun may notice a lost worker a moment before the login to it does, which knows
	// its name.
	for wait := time.Now().Add(lostPatience); !launch.imageSSH && report.Reason == protocol.ReasonWorker && report.Host == "" && time.Now().Before(wait); report = judge() {
		time.Sleep(20 * time.Millisecond)
	}
	return report
}

// lostPatience is how long the name of a lost worker is waited for.
const lostPatience = 2 * time.Second

// showReadiness opens the port that the launcher's readiness is asked at: it is
// ready when the gate has passed.
func (launch *launch) showReadiness() net.Listener {
	port, err := portVariable()
	if err != nil {
		return nil
	}
	listener, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		return nil // On the host's network somebody else may have it.
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

// likelyShell is what Open MPI 5 takes workers to have where neither passwd nor SHELL
// says it; it would print a warning into every log.
const likelyShell = "/bin/bash"

// environment is the container's, and what tells rsh to whom it belongs.
func (launch *launch) environment() ([]string, error) {
	environment := append(containerEnvironment(), recordsVariable+"="+string(launch.records), launchVariable+"="+launch.id)
	if _, err := os.Stat(likelyShell); err == nil && os.Getenv("SHELL") == "" {
		environment = append(environment, "SHELL="+likelyShell)
	}
	if launch.imageSSH {
		return environment, nil
	}
	// horovodrun calls ssh by its name.
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if err := os.Symlink(self, filepath.Join(launch.directory, "ssh")); err != nil {
		return nil, fmt.Errorf("stand in for ssh: %w", err)
	}
	return append(environment, "PATH="+launch.directory+":"+variable("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")), nil
}

func (launch *launch) notStarted(err error) protocol.Report {
	name := launch.command[0]
	// What follows the first word may be secret, and is not what is missing.
	if first, _, inOnePiece := strings.Cut(name, " "); inOnePiece {
		return protocol.Report{Reason: protocol.ReasonMPI, ExitCode: exitNotFound,
			Message: fmt.Sprintf("the command that begins with %s was written in one piece; give each of its words an item of its own, or have sh -c read it", first)}
	}
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		return protocol.Report{Reason: protocol.ReasonMPI, ExitCode: exitNotFound,
			Message: fmt.Sprintf("the image has no %s; use an image with MPI in it, or give the full path of the command", name)}
	}
	return protocol.Report{Reason: protocol.ReasonLauncher, Message: fmt.Sprintf("start %s: %v", name, plainCause(err)), ExitCode: exitNotFound - 1}
}

func exitCode(state *os.ProcessState) int {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return state.ExitCode()
}

// end completes the report, writes it, and is the exit code.
func (launch *launch) end(report protocol.Report, passed passage) int {
	report.Timings.DNS, report.Timings.Connect, report.Timings.Ports = seconds(passed.dns), seconds(passed.connect), seconds(passed.ports)
	report.Timings.Total = seconds(time.Since(launch.started))
	writeReport(&report, launch.report)
	return report.ExitCode
}

// withoutNoise drops harmless warnings of mpirun. It looks at each piece alone and
// holds nothing back: mpirun prints a line by one write, and a pipe keeps that whole.
type withoutNoise struct{ to io.Writer }

func (filter withoutNoise) Write(text []byte) (int, error) {
	if _, err := filter.to.Write(mpi.WithoutNoise(text)); err != nil {
		return 0, err
	}
	return len(text), nil
}

// tail keeps the end of what is written to it.
type tail struct {
	mutex sync.Mutex
	text  []byte
	cut   bool
}

const maxTail = 32 << 10

func (tail *tail) Write(text []byte) (int, error) {
	tail.mutex.Lock()
	defer tail.mutex.Unlock()
	tail.text = append(tail.text, text...)
	if excess := len(tail.text) - maxTail; excess > 0 {
		tail.text, tail.cut = slices.Delete(tail.text, 0, excess), true
	}
	return len(text), nil
}

// String is the end in whole lines: what is secret in a line is known by what is before
// it.
func (tail *tail) String() string {
	tail.mutex.Lock()
	defer tail.mutex.Unlock()
	if !tail.cut {
		return string(tail.text)
	}
	_, rest, _ := strings.Cut(string(tail.text), "\n")
	return rest
}
