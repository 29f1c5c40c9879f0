// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trireme-mpi/trireme/cluster/internal/component"
	"github.com/trireme-mpi/trireme/cluster/internal/host"
	"github.com/trireme-mpi/trireme/cluster/internal/layout"
	"github.com/trireme-mpi/trireme/cluster/internal/pki"
)

// newLayout is a cluster's directories, with the authorities that probes trust.
func newLayout(t *testing.T) layout.Layout {
	t.Helper()
	network, err := layout.ParseNetwork(layout.DefaultNetwork)
	if err != nil {
		t.Fatal(err)
	}
	// Not t.TempDir, whose names are too long for a socket.
	directory, err := os.MkdirTemp("", "ut")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(directory) })
	l := layout.Layout{Name: "ut", Data: filepath.Join(directory, "data"), Run: filepath.Join(directory, "run"), Network: network}
	for _, needed := range []string{l.Logs(), l.Run} {
		if err := os.MkdirAll(needed, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, authority := range []string{component.ClusterAuthority, component.EtcdAuthority} {
		if _, err := pki.Open(l.PKI(), authority, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// script is a component that a shell plays. Its commands find the test's
// directory in $1.
func script(l layout.Layout, name, commands string, after ...string) component.Component {
	return component.Component{Name: name, Path: "/bin/sh", Args: []string{"-c", commands, name, filepath.Dir(l.Run)}, After: after}
}

// forever is a component that does nothing, without end.
const forever = "exec sleep 600"

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

var environment = []string{"PATH=/usr/bin:/bin"}

func newSupervisor(t *testing.T, l layout.Layout, components []component.Component, tasks ...Task) *Supervisor {
	t.Helper()
	s, err := New(l, environment, components, tasks, quiet)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// run keeps a supervisor running until stop is called or the test ends.
func run(t *testing.T, s *Supervisor) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stopped := false
	stop = func() {
		t.Helper()
		if stopped {
			return
		}
		stopped = true
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("supervisor: %v", err)
			}
		case <-time.After(time.Minute):
			t.Error("the supervisor does not end")
		}
	}
	t.Cleanup(stop)
	return stop
}

func await(t *testing.T, what string, reached func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !reached(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// status asks as `cluster status` does.
func status(t *testing.T, l layout.Layout, name string) Status {
	t.Helper()
	report, err := Ask(context.Background(), l)
	if err != nil {
		return Status{} // not yet there
	}
	for _, c := range report.Components {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("no component %s in %+v", name, report)
	return Status{}
}

func awaitState(t *testing.T, l layout.Layout, name string, want State) Status {
	t.Helper()
	var last Status
	await(t, fmt.Sprintf("%s is %s", name, want), func() bool {
		last = status(t, l, name)
		return last.State == want
	})
	return last
}

// listen makes the component ready whose probe is this socket.
func listen(t *testing.T, socket string) (silence func()) {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return func() { listener.Close() }
}

func logOf(t *testing.T, l layout.Layout, name string) string {
	t.Helper()
	content, err := os.ReadFile(l.Log(name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return string(content)
}

func TestComponentsStartInOrder(t *testing.T) {
	t.Parallel()
	l := newLayout(t)
	socket, marker := filepath.Join(l.Run, "first.sock"), filepath.Join(filepath.Dir(l.Run), "marker")
	first := script(l, "first", forever)
	first.Ready.URL = "unix://" + socket
	// Listed first and started last.
	second := script(l, "second", `[ -e "$1/marker" ] && echo in order || echo too early; `+forever, "first")
	run(t, newSupervisor(t, l, []component.Component{second, first}))

	starting := awaitState(t, l, "first", Starting)
	if starting.PID == 0 {
		t.Error("a component that runs has no process")
	}
	// The probe's complaint tells a person why it takes so long.
	await(t, "the status says why", func() bool { return strings.Contains(status(t, l, "first").Message, socket) })
	if got := status(t, l, "second"); got.State != Waiting || got.PID != 0 {
		t.Errorf("second is %s with process %d while it should wait", got.State, got.PID)
	}
	if err := os.WriteFile(marker, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	listen(t, socket)
	ready := awaitState(t, l, "first", Ready)
	if ready.Message != "" || ready.PID != starting.PID || ready.Restarts != 0 || ready.Since.IsZero() {
		t.Errorf("status of a ready component is %+v", ready)
	}
	awaitState(t, l, "second", Ready)
	await(t, "second has written", func() bool { return strings.Count(logOf(t, l, "second"), "\n") == 2 })
	if log := logOf(t, l, "second"); !strings.Contains(log, "in order") {
		t.Errorf("second started before first was ready:\n%s", log)
	}
}

func TestDeadComponentIsStartedAgain(t *testing.T) {
	t.Parallel()
	l := newLayout(t)
	run(t, newSupervisor(t, l, []component.Component{
		script(l, "mortal", `echo "out $$"; echo "err $$" >&2; [ -e "$1/once" ] && exec sleep 600; : > "$1/once"; exit 3`),
	}))
	restarting := awaitState(t, l, "mortal", Restarting)
	if !strings.Contains(restarting.Message, "exit status 3") || restarting.PID != 0 {
		t.Errorf("status after a death is %+v", restarting)
	}
	ready := awaitState(t, l, "mortal", Ready)
	if ready.Restarts != 1 {
		t.Errorf("%d restarts, want 1", ready.Restarts)
	}
	log := logOf(t, l, "mortal")
	for text, want := range map[string]int{"out ": 2, "err ": 2, "--- mortal starts at ": 2, fmt.Sprintf("out %d\n", ready.PID): 1} {
		if got := strings.Count(log, text); got != want {
			t.Errorf("%q is %d times in the log, want %d:\n%s", text, got, want, log)
		}
	}
	if info, err := os.Stat(l.Log("mortal")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("log of mode %v (%v)", info.Mode(), err)
	}

	// Also when somebody kills it.
	if err := syscall.Kill(ready.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await(t, "it runs a third time", func() bool {
		now := status(t, l, "mortal")
		return now.State == Ready && now.Restarts == 2 && now.PID != ready.PID
	})
}

func TestOptionalComponentRunsWhileItsProgramExists(t *testing.T) {
	t.Parallel()
	l := newLayout(t)
	program := filepath.Join(filepath.Dir(l.Run), "program")
	optional := component.Component{Name: "optional", Optional: true, Path: program, Args: []string{"600"}}
	run(t, newSupervisor(t, l, []component.Component{script(l, "other", forever), optional}))
	awaitState(t, l, "other", Ready)
	isOff := func() bool {
		report, err := Ask(context.Background(), l)
		return err == nil && len(report.Components) == 1 && report.Ready()
	}
	if !isOff() {
		t.Fatal("a component without program is reported")
	}
	for range 2 {
		if err := os.Symlink("/bin/sleep", program); err != nil {
			t.Fatal(err)
		}
		await(t, "it is started", func() bool { return !isOff() })
		pid := awaitState(t, l, "optional", Ready).PID
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		await(t, "it is started again", func() bool {
			now := status(t, l, "optional")
			return now.State == Ready && now.PID != pid
		})
		pid = status(t, l, "optional").PID
		if err := os.Remove(program); err != nil {
			t.Fatal(err)
		}
		await(t, "it is off", isOff)
		if host.Alive(pid) {
			t.Errorf("process %d is still running", pid)
		}
	}
}

func TestProgramThatCannotBeStarted(t *testing.T) {
	t.Parallel()
	l := newLayout(t)
	run(t, newSupervisor(t, l, []component.Component{{Name: "missing", Path: "/nonexistent/program"}}))
	await(t, "it is tried again", func() bool { return status(t, l, "missing").Restarts >= 2 })
	if got := awaitState(t, l, "missing", Restarting); !strings.Contains(got.Message, "/nonexistent/program") {
		t.Errorf("message %q does not name the program", got.Message)
	}
}

func TestComponentRunsInAWorldOfItsOwn(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://proxy.example:3128")
	l := newLayout(t)
	run(t, newSupervisor(t, l, []component.Component{script(l, "tell", `/usr/bin/env; pwd; echo end; `+forever)}))
	pid := awaitState(t, l, "tell", Ready).PID
	await(t, "all is told", func() bool { return strings.Contains(logOf(t, l, "tell"), "end\n") })
	log := logOf(t, l, "tell")
	if strings.Contains(log, "HTTPS_PROXY") {
		t.Errorf("the caller's environment is passed on:\n%s", log)
	}
	if !strings.Contains(log, environment[0]+"\n") || !strings.Contains(log, "\n/\nend\n") {
		t.Errorf("not in the given environment and the root directory:\n%s", log)
	}
	// Ctrl-C at the terminal of the supervisor must not reach it.
	if group, err := syscall.Getpgid(pid); err != nil || group != pid {
		t.Errorf("process group %d (%v), want its own %d", group, err, pid)
	}
}

func TestTaskIsRepeatedUntilItWorks(t *testing.T) {
	t.Parallel()
	l := newLayout(t)
	var calls atomic.Int32
	release := make(chan struct{})
	addons := Task{Name: "addons", After: []string{"first"}, Do: func(context.Context) error {
		if report, err := Ask(context.Background(), l); err != nil || report.Components[0].State != Ready {
			t.Error("the task began before the component it comes after was ready")
		}
		if calls.Add(1) < 3 {
			return fmt.Errorf("failure %d", calls.Load())
		}
		<-release
		return nil
	}}
	run(t, newSupervisor(t, l, []component.Component{
		script(l, "first", forever), script(l, "dependent", forever, "addons"),
	}, addons))
	await(t, "the status says why the task takes so long", func() bool {
		got := status(t, l, "addons")
		return got.State == Starting && strings.HasPrefix(got.Message, "failure ")
	})
	await(t, "the third try", func() bool { return calls.Load() == 3 })
	if got := status(t, l, "dependent"); got.State != Waiting {
		t.Errorf("what depends on the task is %s before it has worked", got.State)
	}
	close(release)
	awaitState(t, l, "dependent", Ready)
	if got := status(t, l, "addons"); got.State != Ready || got.Message != "" {
		t.Errorf("the task is %+v", got)
	}
	if got := calls.Load(); got != 3 {
		t.Errorf("%d calls, want it to end with the one that worked", got)
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	l := newLayout(t)
	if _, err := Ask(context.Background(), l); err == nil || !strings.Contains(err.Error(), "get the status of the supervisor") {
		t.Errorf("error %v where nobody answers", err)
	}
	stop := run(t, newSupervisor(t, l,
		[]component.Component{script(l, "b", forever), script(l, "a", forever)},
		Task{Name: "task", Do: func(context.Context) error { return nil }}))
	var report Report
	await(t, "everything is ready", func() bool {
		var err error
		report, err = Ask(context.Background(), l)
		return err == nil && report.Ready()
	})
	var names []string
	for _, c := range report.Components {
		names = append(names, c.Name)
	}
	if diff := cmp.Diff([]string{"b", "a", "task"}, names); diff != "" {
		t.Errorf("components (-want +got):\n%s", diff)
	}
	if report.PID != os.Getpid() || report.Network != layout.DefaultNetwork || report.Data != l.Data {
		t.Errorf("report is %+v", report)
	}
	// Root alone may ask: the answer tells how to end every component.
	if info, err := os.Stat(l.SupervisorSocket()); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket of mode %v (%v)", info.Mode(), err)
	}
	stop()
	if _, err := Ask(context.Background(), l); err == nil {
		t.Error("it still answers after its end")
	}
}

func TestReadyMeansEveryComponent(t *testing.T) {
	for _, state := range []State{Waiting, Starting, NotReady, Restarting, Stopped} {
		if (Report{Components: []Status{{State: Ready}, {State: state}}}).Ready() {
			t.Errorf("ready while one is %s", state)
		}
	}
	if !(Report{Components: []Status{{State: Ready}, {State: Ready}}}).Ready() {
		t.Error("not ready while all are")
	}
}

func TestStopEndsEveryProcess(t *testing.T) {
	t.Parallel()
	l := newLayout(t)
	s := newSupervisor(t, l, []component.Component{
		script(l, "polite", `trap 'echo goodbye; exit 0' TERM; echo hello; while :; do sleep 0.02; done`),
		script(l, "deaf", "trap '' TERM; echo hello; exec sleep 600"),
		script(l, "waiting", forever, "never"),
		script(l, "dying", "exit 1"),
		{Name: "never", Path: "/bin/sh", Args: []string{"-c", forever}, Ready: component.Probe{URL: "unix://" + filepath.Join(l.Run, "none.sock")}},
	}, Task{Name: "hopeless", Do: func(context.Context) error { return errors.New("no") }})
	stop := run(t, s)
	for _, name := range []string{"polite", "deaf"} {
		awaitState(t, l, name, Ready)
		// Only now has it said what it does about signals.
		await(t, name+" is prepared", func() bool { return strings.Contains(logOf(t, l, name), "hello\n") })
	}
	awaitState(t, l, "never", Starting)
	await(t, "the task fails", func() bool { return status(t, l, "hopeless").Message == "no" })
	processes := map[string]int{}
	for _, name := range []string{"polite", "deaf", "never"} {
		processes[name] = status(t, l, name).PID
		if !host.Alive(processes[name]) {
			t.Errorf("%s does not run", name)
		}
	}
	stop()
	for name, pid := range processes {
		if host.Alive(pid) {
			t.Errorf("%s still runs", name)
		}
	}
	if log := logOf(t, l, "polite"); !strings.Contains(log, "goodbye\n") {
		t.Errorf("it was not asked to end but killed:\n%s", log)
	}
	if log := logOf(t, l, "waiting"); log != "" {
		t.Errorf("what it waited for never came, and it ran:\n%s", log)
	}
	states := map[string]State{}
	for _, c := range s.report().Components {
		states[c.Name] = c.State
	}
	for _, name := range []string{"polite", "deaf", "never"} {
		if states[name] != Stopped {
			t.Errorf("%s is %s after the end", name, states[name])
		}
	}
}

func TestStoresOutliveTheirWriters(t *testing.T) {
	t.Parallel()
	l := newLayout(t)
	// The writer needs its time; a store that was told at the same moment
	// would be gone long before.
	store := `trap 'echo NAME >> "$1/order"; exit 0' TERM; echo hello; while :; do sleep 0.02; done`
	writer := `trap 'sleep 0.4; echo writer >> "$1/order"; exit 0' TERM; echo hello; while :; do sleep 0.02; done`
	names := []string{"etcd", "containerd", "writer"}
	components := []component.Component{
		script(l, "etcd", strings.ReplaceAll(store, "NAME", "store")),
		script(l, "containerd", strings.ReplaceAll(store, "NAME", "store")),
		script(l, "writer", writer),
	}
	components[0].Store, components[1].Store = true, true
	stop := run(t, newSupervisor(t, l, components))
	for _, name := range names {
		await(t, name+" is prepared", func() bool { return strings.Contains(logOf(t, l, name), "hello\n") })
	}
	stop()
	order, err := os.ReadFile(filepath.Join(filepath.Dir(l.Run), "order"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("writer\nstore\nstore\n", string(order)); diff != "" {
		t.Errorf("order of the ends (-want +got):\n%s", diff)
	}
}

func TestSecondSupervisorIsRefused(t *testing.T) {
	t.Parallel()
	l := newLayout(t)
	stop := run(t, newSupervisor(t, l, []component.Component{script(l, "only", forever)}))
	first := awaitState(t, l, "only", Ready)

	other := newSupervisor(t, l, []component.Component{script(l, "only", forever)})
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := other.Run(ctx); err == nil || !strings.Contains(err.Error(), "another supervisor") {
		t.Fatalf("error %v, want the second refused", err)
	}
	if now := status(t, l, "only"); now.PID != first.PID || now.Restarts != 0 || !host.Alive(first.PID) {
		t.Errorf("the second disturbed the first: %+v", now)
	}
	stop()
	// When it has gone there is room for the next.
	run(t, newSupervisor(t, l, []component.Component{script(l, "only", forever)}))
	awaitState(t, l, "only", Ready)
}

// sleeper is a process that this test's supervisor has nothing to do with.
func sleeper(t *testing.T) int {
	t.Helper()
	command := exec.Command("sleep", "600")
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	return command.Process.Pid
}

func TestOrphansAreEnded(t *testing.T) {
	t.Parallel()
	l := newLayout(t)
	orphan, stranger, unknown := sleeper(t), sleeper(t), sleeper(t)
	dead := newSupervisor(t, l, nil)
	if err := dead.recordPid("orphan", orphan); err != nil {
		t.Fatal(err)
	}
	// The number of a component that ended, which the kernel gave to another.
	for name, content := range map[string]string{
		"stranger": fmt.Sprintf("%d %s0", stranger, host.StartTime(stranger)),
		"unknown":  fmt.Sprintf("%d ", unknown),
		"garbage":  "not a number",
		"empty":    "",
	} {
		if err := os.WriteFile(filepath.Join(l.Pids(), name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for pid, want := range map[int]bool{orphan: true, stranger: false, unknown: false, 0: false} {
		if got := IsComponent(l, pid); got != want {
			t.Errorf("process %d is a component = %v, want %v", pid, got, want)
		}
	}
	run(t, newSupervisor(t, l, []component.Component{script(l, "next", forever)}))
	next := awaitState(t, l, "next", Ready)
	if host.Alive(orphan) {
		t.Error("a component of a dead supervisor still runs, beside its successor")
	}
	for what, pid := range map[string]int{"a stranger": stranger, "a process without start time": unknown} {
		if !host.Alive(pid) {
			t.Errorf("%s was ended", what)
		}
	}
	if !IsComponent(l, next.PID) {
		t.Error("its own component is unknown: should it die, nobody would end it")
	}
}

func TestSilentComponentIsNotReady(t *testing.T) {
	t.Parallel()
	l := newLayout(t)
	socket := filepath.Join(l.Run, "moody.sock")
	c := script(l, "moody", forever)
	c.Ready.URL = "unix://" + socket
	silence := listen(t, socket)
	run(t, newSupervisor(t, l, []component.Component{c}))
	ready := awaitState(t, l, "moody", Ready)
	silence()
	silent := awaitState(t, l, "moody", NotReady)
	if silent.PID != ready.PID || silent.Restarts != 0 || !strings.Contains(silent.Message, socket) {
		t.Errorf("status of a silent component is %+v", silent)
	}
	if !silent.Since.After(ready.Since) {
		t.Errorf("not ready since %s, ready since %s", silent.Since, ready.Since)
	}
	listen(t, socket)
	if again := awaitState(t, l, "moody", Ready); again.Message != "" || again.PID != ready.PID {
		t.Errorf("status of a component that answers again is %+v", again)
	}
}

func TestLogRotates(t *testing.T) {
	const limit = 64 << 20
	tests := map[string]struct {
		size       int64
		wantRotate bool
	}{
		"up to the limit it grows":     {size: limit},
		"above the limit it is put by": {size: limit + 1, wantRotate: true},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "component.log")
			for name, content := range map[string]string{file: "old\n", file + ".1": "older\n"} {
				if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			// Sparse: it takes no room.
			if err := os.Truncate(file, test.size); err != nil {
				t.Fatal(err)
			}
			// It is open all the time, as a running component has it.
			log, err := openLog(file)
			if err != nil {
				t.Fatal(err)
			}
			defer log.Close()
			if err := rotate(file); err != nil {
				t.Fatal(err)
			}
			if _, err := log.WriteString("new\n"); err != nil {
				t.Fatal(err)
			}
			sizes := map[string]int64{}
			for _, name := range []string{file, file + ".1"} {
				info, err := os.Stat(name)
				if err != nil {
					t.Fatal(err)
				}
				sizes[filepath.Base(name)] = info.Size()
			}
			want := map[string]int64{"component.log": test.size + 4, "component.log.1": 6}
			if test.wantRotate {
				want = map[string]int64{"component.log": 4, "component.log.1": test.size}
			}
			if diff := cmp.Diff(want, sizes); diff != "" {
				t.Errorf("sizes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSupervisorNeedsCertificates(t *testing.T) {
	l := newLayout(t)
	if err := os.Remove(filepath.Join(l.PKI(), component.EtcdAuthority+".crt")); err != nil {
		t.Fatal(err)
	}
	if _, err := New(l, nil, nil, nil, quiet); err == nil || !strings.Contains(err.Error(), component.EtcdAuthority) {
		t.Errorf("error %v does not name the missing certificate", err)
	}
}
