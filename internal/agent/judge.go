// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/engine/mpi"
	"github.com/trireme-mpi/trireme/internal/engine/redact"
)

// judge derives the report of a run from its exit code, the tails of its output and the
// records that the rsh of each host wrote.
func (l *launch) judge(code int, stderr, stdout string, records []record, began time.Time) protocol.Report {
	report := protocol.Report{ExitCode: code, Hosts: l.usedHosts(records)}
	report.Timings.Init = seconds(initTime(records, began))
	failure, found := mpi.ParseErrorOutput(stderr + stdout)
	if !found {
		failure.Rank = -1
	}
	lost := firstTrouble(records)
	// Intel's mpirun exits with 0 even if a host was lost during the run.
	lostHost := found && failure.Kind == mpi.DaemonLost || lost != nil && (lost.Trouble == protocol.Stopped || lost.Trouble == protocol.Broken)
	if code == 0 && !lostHost {
		return l.judgeSuccess(report)
	}
	if code == 0 {
		report.ExitCode = exitMPI
	}
	switch {
	case lost != nil && lost.Trouble == protocol.Stopped:
		report.Reason, report.Host = protocol.ReasonWorker, lost.Host
		report.Message = fmt.Sprintf("lost worker %s during the run: its pod was terminated; see the status of the pod", lost.Host)
	case lost != nil && lost.Trouble == protocol.NotStarted:
		report.Reason, report.Host, report.Message = protocol.ReasonMPI, lost.Host, lost.Message
	case lost != nil && lost.Trouble != protocol.Broken:
		// The host could not be reached at all.
		report.Reason, report.Host, report.Message = protocol.ReasonSSH, lost.Host, lost.Message
	case found && failure.Kind == mpi.DaemonLost, lost != nil && !(found && failure.Kind == mpi.RankFailed):
		report.Reason, report.Host = protocol.ReasonWorker, failure.Host
		if report.Host == "" && lost != nil {
			report.Host = lost.Host
		}
		report.Message = fmt.Sprintf("lost worker %s during the run; see the status of its pod", orUnknown(report.Host))
	case found && failure.Kind == mpi.InitFailed:
		report.Reason, report.Host, report.Message = protocol.ReasonMPI, failure.Host, failure.Text
	default:
		l.judgeProgram(&report, failure, mpi.LastOutput(l.redact(stderr), l.redact(stdout), failure.Rank))
	}
	return report
}

// judgeProgram completes the report of a program that failed.
func (l *launch) judgeProgram(report *protocol.Report, failure mpi.Failure, output mpi.Output) {
	report.Reason, report.Host = protocol.ReasonTraining, failure.Host
	report.Error, report.LastLines = output.Error, output.Lines
	switch {
	case !failure.Unsure:
		report.Signal, report.Message = failure.Signal, failure.Text
	case !output.SaysError:
		report.Message = failure.Text
	default:
		// The program exited by itself; mpirun killed the other ranks of its host.
	}
	rank := failure.Rank
	if rank < 0 {
		rank = output.Rank
	}
	if rank >= 0 {
		report.Rank = &rank
	}
	if rank >= 0 && report.Host == "" {
		report.Host = l.hostOfRank(rank)
	}
	if failure.ExitCode != 0 {
		report.RankExitCode = &failure.ExitCode
	}
	if report.Message == "" {
		report.Message = fmt.Sprintf("the command failed with exit code %d", report.ExitCode)
	}
	if output.Error != "" {
		report.Message += ": " + output.Error
	}
}

// redact removes secrets from the output of a program before lines are selected, because
// a secret may span several lines. It also removes the values of secret variables.
func (l *launch) redact(output string) string {
	return redact.Text(redact.Values(output, l.secrets))
}

// hostOfRank returns the host of a rank if mpirun does not report it. Every
// implementation fills one host of the hostfile after the other. If an option changes
// that, the host is unknown.
func (l *launch) hostOfRank(rank int) string {
	if !isMPIRun(l.command) || slices.ContainsFunc(l.command, changesMapping) || slices.ContainsFunc(os.Environ(), changesMapping) {
		return ""
	}
	for _, host := range l.slots {
		if rank < host.Slots {
			return host.Name
		}
		rank -= host.Slots
	}
	return ""
}

// changesMapping reports whether an argument of mpirun, or a variable, may change the
// mapping of ranks to hosts. Arguments of the program may match, too.
func changesMapping(text string) bool {
	if name, isOption := strings.CutPrefix(text, "-"); isOption {
		name, _, _ = strings.Cut(strings.TrimPrefix(name, "-"), "=")
		return slices.Contains([]string{
			"H", "host", "hosts", "hostfile", "machinefile", "machine", "f", "default-hostfile", "add-host", "add-hostfile", "configfile", "app",
			"map-by", "rank-by", "rankfile", "rf", "bynode", "byslot", "bycore", "bysocket", "npernode", "N", "npersocket", "pernode", "ppr",
			"ppn", "perhost", "grr", "rr", "nolocal", "cpus-per-proc", "cpus-per-rank", "tune", "am",
		}, name)
	}
	return text == ":" || strings.HasPrefix(text, "rmaps") || strings.HasPrefix(text, "OMPI_MCA_rmaps") || strings.HasPrefix(text, "PRTE_MCA_rmaps")
}

func orUnknown(host string) string {
	if host == "" {
		return "(unknown)"
	}
	return host
}

// judgeSuccess fails a run that succeeded without using every host, if the job requires
// all hosts: its result is not what the user expects.
func (l *launch) judgeSuccess(report protocol.Report) protocol.Report {
	// The image's own ssh writes no records.
	if l.imageSSH || len(report.Hosts.Missing) == 0 || !l.requireAllHosts {
		return report
	}
	missing := report.Hosts.Expected - report.Hosts.Reached
	report.Reason, report.ExitCode = protocol.ReasonMPI, exitMPI
	report.Host = report.Hosts.Missing[0]
	report.Message = fmt.Sprintf("the command succeeded but used only %d of %d hosts; not used: %s. Check that mpirun uses the job's hostfile and starts enough processes",
		report.Hosts.Reached, report.Hosts.Expected, joinHosts(padHosts(report.Hosts.Missing, missing)))
	return report
}

// padHosts appends empty names for hosts that are counted but not stored.
func padHosts(hosts []string, count int) []string {
	return append(slices.Clone(hosts), make([]string, max(count-len(hosts), 0))...)
}

// usedHosts compares the hostfile with the hosts that mpirun logged in to.
func (l *launch) usedHosts(records []record) protocol.Hosts {
	hosts := protocol.Hosts{Expected: len(l.hosts)}
	for _, host := range l.hosts {
		reached := slices.ContainsFunc(records, func(entry record) bool { return entry.reached() && sameHost(entry.Host, host) })
		if reached || l.imageSSH {
			hosts.Reached++
		} else if len(hosts.Missing) < shownHosts {
			hosts.Missing = append(hosts.Missing, host)
		}
	}
	return hosts
}

// firstTrouble returns the record of the first host that was not reached or was lost.
func firstTrouble(records []record) *record {
	var first *record
	for i := range records {
		if records[i].Trouble != "" && (first == nil || records[i].At.Before(first.At)) {
			first = &records[i]
		}
	}
	return first
}

// initTime is the time from the start of the command until the last host was reached.
func initTime(records []record, began time.Time) time.Duration {
	var last time.Duration
	for _, entry := range records {
		if entry.reached() {
			last = max(last, entry.At.Sub(began))
		}
	}
	return last
}
