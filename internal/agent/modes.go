// SPDX-License-Identifier: Apache-2.0

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

// defaultGrace is how long a worker's processes have to exit: less than the default grace
// period of 30 seconds.
const defaultGrace = 20 * time.Second

// RunWorker serves a worker until it gets SIGTERM. It then terminates the processes that
// it has started before it exits.
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
	becomeSubreaper()
	go worker.processes.reapOrphans(ctx.Done())
	fmt.Fprintf(os.Stderr, "trireme: worker waits for its launcher on port %d\n", port)
	if err := worker.Serve(ctx, listener); err != nil {
		return err
	}
	worker.announceStop()
	stopDescendants(grace)
	return nil
}

// becomeSubreaper makes the agent the parent of orphans, also if it is not PID 1.
func becomeSubreaper() {
	const setChildSubreaper = 36
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, setChildSubreaper, 1, 0)
}

// Install copies the agent into a directory that the pod's containers share.
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

// PrintHosts prints the workers that can be reached now, one per line, for the
// discover_hosts.sh of elastic programs.
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
