// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/trireme-mpi/trireme/internal/agent/protocol"
)

const (
	// stragglerTimeout is how long ranks may continue after those of another host have
	// exited. MPI_Finalize makes all ranks wait for each other, so they exit together
	// unless something went wrong.
	stragglerTimeout = 2 * time.Minute
	// lostTimeout is the same after a host was lost: then there is nothing to wait for.
	lostTimeout = 20 * time.Second
	// stragglerPatience is how long mpirun may take to exit after SIGTERM.
	stragglerPatience = 10 * time.Second
)

// watchStragglers terminates mpirun when the ranks of one host have exited and those of
// other hosts wait for them forever. MPICH's mpiexec does not notice when a rank exits
// without MPI_Finalize, and the run would keep its GPUs for nothing. The returned function
// stops the watch; it returns the first host whose ranks exited if mpirun was terminated.
func (l *launch) watchStragglers(mpirun *os.Process) (stuck func() string) {
	timeout, err := durationVariable(protocol.StragglerTimeoutVariable, stragglerTimeout)
	if err != nil || l.imageSSH {
		return func() string { return "" }
	}
	done := make(chan struct{})
	var watch sync.WaitGroup
	var first string
	watch.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(min(timeout/4, 5*time.Second)):
			}
			records := l.records.read()
			host, since := firstFinished(records)
			patience := timeout
			if lostHost(records) != nil {
				patience = min(timeout, lostTimeout)
			}
			if host == "" || time.Since(since) < patience {
				continue
			}
			first = host
			fmt.Fprintf(os.Stderr, "trireme: the ranks on %s exited %s ago and other ranks still wait for them; stopping the run\n", host, patience)
			_ = mpirun.Signal(syscall.SIGTERM)
			select {
			case <-done:
			case <-time.After(stragglerPatience):
				_ = mpirun.Kill()
			}
			return
		}
	})
	return func() string {
		close(done)
		watch.Wait()
		return first
	}
}

// firstFinished returns the host whose ranks exited first, and when, while others are
// running. It is empty if all are running, or none.
func firstFinished(records []record) (host string, since time.Time) {
	running := map[string]bool{}
	for _, entry := range records {
		switch {
		case entry.Ended:
			delete(running, entry.Host)
			if host == "" {
				host, since = entry.Host, entry.At
			}
		case entry.reached():
			// A new run of the same launcher starts.
			if len(running) == 0 {
				host = ""
			}
			running[entry.Host] = true
		}
	}
	if len(running) == 0 {
		return "", time.Time{}
	}
	return host, since
}

// lostHost returns the record of the first host that was lost after it was reached.
func lostHost(records []record) *record {
	if lost := firstTrouble(records); lost != nil && (lost.Trouble == protocol.Stopped || lost.Trouble == protocol.Broken) {
		return lost
	}
	return nil
}

func (l *launch) stuckReport(host string) protocol.Report {
	records := l.records.read()
	report := protocol.Report{Reason: protocol.ReasonTraining, Host: host, ExitCode: exitMPI, Hosts: l.usedHosts(records)}
	if lost := lostHost(records); lost != nil {
		report.Reason, report.Host = protocol.ReasonWorker, lost.Host
		report.Message = fmt.Sprintf("lost worker %s during the run, and mpirun did not notice; see the status of its pod", lost.Host)
		return report
	}
	report.Message = fmt.Sprintf("the ranks on %s exited without MPI_Finalize and the other ranks waited for them; see the launcher's log for their error output", host)
	return report
}
