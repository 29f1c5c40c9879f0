// SPDX-License-Identifier: Apache-2.0

// Package supervisor keeps the cluster's components running: it starts them in order,
// restarts them when they exit, keeps their logs and reports their status.
package supervisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/trireme-mpi/trireme/cluster/internal/component"
	"github.com/trireme-mpi/trireme/cluster/internal/host"
	"github.com/trireme-mpi/trireme/cluster/internal/layout"
)

// Restart delays: short, so that the cluster recovers within seconds, and growing, so
// that a component that cannot start does not overload the machine.
const (
	firstDelay   = 200 * time.Millisecond
	longestDelay = 5 * time.Second
	// A component that ran this long is healthy: the delay starts again at the first.
	calmAfter = 30 * time.Second

	stopPatience = 2 * time.Second

	// How often the supervisor looks whether the program of an optional component exists.
	optionalInterval = 200 * time.Millisecond
)

// Supervisor runs the components of one cluster.
type Supervisor struct {
	layout      layout.Layout
	environment []string
	prober      *prober
	log         *slog.Logger
	workers     []*worker
	tasks       []*task
	milestones  map[string]chan struct{}
}

// Task is a step that runs once, between components.
type Task struct {
	Name  string
	After []string
	Do    func(context.Context) error
}

// New prepares a supervisor for the components and tasks.
func New(l layout.Layout, environment []string, components []component.Component, tasks []Task, log *slog.Logger) (*Supervisor, error) {
	prober, err := newProber(l)
	if err != nil {
		return nil, err
	}
	s := &Supervisor{layout: l, environment: environment, prober: prober, log: log, milestones: map[string]chan struct{}{}}
	for _, c := range components {
		s.milestones[c.Name] = make(chan struct{})
		s.workers = append(s.workers, &worker{component: c, status: Status{Name: c.Name, State: Waiting}})
	}
	for _, t := range tasks {
		s.milestones[t.Name] = make(chan struct{})
		s.tasks = append(s.tasks, &task{Task: t, status: Status{Name: t.Name, State: Waiting}})
	}
	return s, nil
}

// Run returns when the context has ended and every component has stopped. Pods continue
// to run: their processes belong to containerd's shims.
func (s *Supervisor) Run(ctx context.Context) error {
	unlock, err := host.TryLock(filepath.Join(s.layout.Run, "supervisor.lock"))
	if err != nil {
		return err
	}
	if unlock == nil {
		return errors.New("another supervisor is already running this cluster")
	}
	defer unlock()
	if err := s.endOrphans(); err != nil {
		return err
	}
	stopServing, err := s.serve()
	if err != nil {
		return err
	}
	defer stopServing()

	// Two contexts, because the stores must stop after the components that write to
	// them.
	writers, stopWriters := context.WithCancel(context.Background())
	defer stopWriters()
	stores, stopStores := context.WithCancel(context.Background())
	defer stopStores()
	var writersDone, storesDone sync.WaitGroup
	writersDone.Go(func() { s.keepLogsSmall(writers) })
	for _, t := range s.tasks {
		writersDone.Go(func() { s.perform(writers, t) })
	}
	for _, w := range s.workers {
		switch {
		case w.component.Optional:
			writersDone.Go(func() { s.keepOptional(writers, w) })
		case w.component.Store:
			storesDone.Go(func() { s.keepRunning(stores, w) })
		default:
			writersDone.Go(func() { s.keepRunning(writers, w) })
		}
	}
	s.log.Info("supervisor starts", "pid", os.Getpid())
	<-ctx.Done()
	s.log.Info("supervisor stopping its components")
	stopWriters()
	writersDone.Wait()
	stopStores()
	storesDone.Wait()
	return nil
}

// await blocks until all named components have been ready once.
func (s *Supervisor) await(ctx context.Context, names []string) bool {
	for _, name := range names {
		select {
		case <-ctx.Done():
			return false
		case <-s.milestones[name]:
		}
	}
	return true
}

type task struct {
	Task
	mutex  sync.Mutex
	status Status
}

func (t *task) set(state State, message string) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.status.State, t.status.Message, t.status.Since = state, message, time.Now()
}

// perform repeats a task until it succeeds.
func (s *Supervisor) perform(ctx context.Context, t *task) {
	if !s.await(ctx, t.After) {
		return
	}
	t.set(Starting, "")
	for delay := firstDelay; ; delay = min(2*delay, longestDelay) {
		err := t.Do(ctx)
		if err == nil {
			t.set(Ready, "")
			close(s.milestones[t.Name])
			return
		}
		s.log.Warn("task", "name", t.Name, "error", err)
		t.set(Starting, err.Error())
		if !sleep(ctx, delay) {
			return
		}
	}
}

// keepOptional runs a component while its program exists.
func (s *Supervisor) keepOptional(ctx context.Context, w *worker) {
	for sleep(ctx, optionalInterval) {
		if !w.component.IsWanted() {
			continue
		}
		wanted, stop := context.WithCancel(ctx)
		go func() {
			defer stop()
			for w.component.IsWanted() && sleep(wanted, optionalInterval) {
			}
		}()
		s.keepRunning(wanted, w)
		stop()
	}
}

// keepRunning runs one component and restarts it when it exits.
func (s *Supervisor) keepRunning(ctx context.Context, w *worker) {
	if !s.await(ctx, w.component.After) {
		return
	}
	defer w.set(Stopped, 0, "")
	delay := firstDelay
	for {
		begin := time.Now()
		err := s.runOnce(ctx, w)
		if ctx.Err() != nil {
			return
		}
		if time.Since(begin) > calmAfter {
			delay = firstDelay
		}
		s.log.Warn("component exited", "name", w.component.Name, "error", err, "restartIn", delay)
		w.died(fmt.Sprintf("exited (%v), restart in %s", err, delay))
		if !sleep(ctx, delay) {
			return
		}
		delay = min(2*delay, longestDelay)
	}
}

// runOnce starts the component and returns when its process has exited.
func (s *Supervisor) runOnce(ctx context.Context, w *worker) error {
	log, err := openLog(s.layout.Log(w.component.Name))
	if err != nil {
		return err
	}
	defer log.Close()
	command := exec.Command(w.component.Path, w.component.Args...)
	command.Env = s.environment
	command.Dir = "/"
	command.Stdout, command.Stderr = log, log
	// In its own process group: Ctrl-C at a terminal must stop only the user's command,
	// and signals to a component must reach only that component.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	fmt.Fprintf(log, "--- %s starts at %s ---\n", w.component.Name, time.Now().Format(time.RFC3339))
	if err := command.Start(); err != nil {
		return err
	}
	w.set(Starting, command.Process.Pid, "")
	if err := s.recordPid(w.component.Name, command.Process.Pid); err != nil {
		s.log.Error("record process", "name", w.component.Name, "error", err)
	}
	probing, stopProbing := context.WithCancel(ctx)
	var prober sync.WaitGroup
	prober.Go(func() { s.watchReadiness(probing, w) })
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	defer prober.Wait()
	defer stopProbing()
	select {
	case err = <-ended:
		return err
	case <-ctx.Done():
	}
	_ = command.Process.Signal(syscall.SIGTERM)
	select {
	case err = <-ended:
	case <-time.After(stopPatience):
		_ = command.Process.Kill()
		err = <-ended
	}
	return err
}

// watchReadiness probes every 100 ms until the component is ready, then every 2 s.
func (s *Supervisor) watchReadiness(ctx context.Context, w *worker) {
	interval := 100 * time.Millisecond
	for sleep(ctx, interval) {
		if err := s.prober.probe(ctx, w.component.Ready); err != nil {
			w.unready(err.Error())
			interval = 100 * time.Millisecond
			continue
		}
		interval = 2 * time.Second
		if w.ready() {
			s.log.Info("component ready", "name", w.component.Name)
			close(s.milestones[w.component.Name])
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
