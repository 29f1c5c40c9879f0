package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/engine/mpi"
)

// defaultGrace is how long a worker's processes have to end: less than the 30
// seconds that Kubernetes gives a pod.
const defaultGrace = 20 * time.Second

// RunWorker serves a worker until it is told to end. Then the processes that it
// has started end before it does.
func RunWorker() error {
	port, err := portVariable()
	if err != nil {
		return err
	}
	grace, err := durationVariable(protocol.GraceVariable, defaultGrace)
	if err != nil {
		return err
	}
	hostKey, err := readKey(protocol.HostKey)
	if err != nil {
		return err
	}
	authorized, err := readPublicKeys(protocol.AuthorizedKeys)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	worker := NewWorker(hostKey, authorized, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	stopIgnoringSignals()
	adoptChildren()
	go worker.processes.adoptOrphans(ctx.Done())
	fmt.Fprintf(os.Stderr, "trireme: worker waits for its launcher on port %d\n", port)
	if err := worker.Serve(ctx, listener); err != nil {
		return err
	}
	worker.tellStopping()
	endDescendants(grace)
	return nil
}

// adoptChildren makes the agent the parent of orphans where it is not PID 1.
func adoptChildren() {
	const setChildSubreaper = 36
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, setChildSubreaper, 1, 0)
}

// Install copies the agent itself into a directory that the pod's containers
// share.
func Install(directory string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	from, err := os.Open(self)
	if err != nil {
		return err
	}
	defer from.Close()
	target := filepath.Join(directory, filepath.Base(protocol.Path))
	temporary, err := os.OpenFile(target+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(temporary, from)
	if err := errors.Join(err, temporary.Chmod(0o755), temporary.Close()); err != nil {
		return err
	}
	return os.Rename(target+".new", target)
}

// PrintHosts prints the workers that can be reached now, one a line: what
// elastic programs call discover_hosts.sh for.
func PrintHosts(to io.Writer) error {
	content, err := os.ReadFile(variable(protocol.HostfileVariable, "/etc/mpi/hostfile"))
	if err != nil {
		return err
	}
	hosts, err := mpi.ParseHostfile(string(content))
	if err != nil {
		return err
	}
	port, err := portVariable()
	if err != nil {
		return err
	}
	caller := &client{bannerPorts: []int{port}, resolver: net.DefaultResolver}
	if isSet(protocol.ImageSSHVariable) {
		caller = bannerClient()
	}
	reached := make([]bool, len(hosts))
	var tries sync.WaitGroup
	turns := make(chan struct{}, gateParallel)
	for i, host := range hosts {
		tries.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			_, _, err := caller.connect(context.Background(), host.Name, port)
			reached[i] = err == nil
		})
	}
	tries.Wait()
	for i, host := range hosts {
		if reached[i] {
			if _, err := fmt.Fprintf(to, "%s:%d\n", host.Name, host.Slots); err != nil {
				return err
			}
		}
	}
	return nil
}
