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
	// stragglerTimeout is how long some hosts may go on after others have ended.
	// MPI_Finalize makes all ranks wait for each other, so hosts end together,
	// unless something went wrong.
	stragglerTimeout = 2 * time.Minute
	// lostTimeout is the same where a host was lost: then there is nothing to wait for.
	lostTimeout = 20 * time.Second
	// stragglerPatience is how long mpirun may take to end when it is told to.
	stragglerPatience = 10 * time.Second
)

// watchStragglers ends mpirun when the ranks of one host have ended and those of
// others wait for them for ever. MPICH's mpiexec does not notice when a rank
// ends without MPI_Finalize, and the run would hold its GPUs for nothing. What it
// returns stops the watch, and names the host that ended first if it was so.
func (launch *launch) watchStragglers(mpirun *os.Process) (stuck func() string) {
	timeout, err := durationVariable(protocol.StragglerTimeoutVariable, stragglerTimeout)
	if err != nil || launch.imageSSH {
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
			records := launch.records.read()
			host, since := straggling(records)
			patience := timeout
			if lostHost(records) != nil {
				patience = min(timeout, lostTimeout)
			}
			if host == "" || time.Since(since) < patience {
				continue
			}
			first = host
			fmt.Fprintf(os.Stderr, "trireme: the ranks on %s ended %s ago and others still wait; the run is ended\n", host, patience)
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

// straggling is the host whose ranks ended first, and when, while others go on.
// It is empty if all go on, or none does.
func straggling(records []record) (host string, since time.Time) {
	running := map[string]bool{}
	for _, entry := range records {
		switch {
		case entry.Ended:
			delete(running, entry.Host)
			if host == "" {
				host, since = entry.Host, entry.At
			}
		case entry.reached():
			// A new run of the same launcher begins.
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

// lostHost is the first host that was there and then was not.
func lostHost(records []record) *record {
	if lost := firstTrouble(records); lost != nil && (lost.Trouble == protocol.Stopped || lost.Trouble == protocol.Broken) {
		return lost
	}
	return nil
}

func (launch *launch) stuckReport(host string) protocol.Report {
	records := launch.records.read()
	report := protocol.Report{Reason: protocol.ReasonTraining, Host: host, ExitCode: exitMPI, Hosts: launch.used(records)}
	if lost := lostHost(records); lost != nil {
		report.Reason, report.Host = protocol.ReasonWorker, lost.Host
		report.Message = fmt.Sprintf("lost worker %s in the middle of the run, and mpirun did not notice; its pod says why", lost.Host)
		return report
	}
	report.Message = fmt.Sprintf("the ranks on %s ended without MPI_Finalize and the others waited for them; the log of the launcher has their last words", host)
	return report
}
