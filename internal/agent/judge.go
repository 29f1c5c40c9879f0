package agent

import (
	"fmt"
	"slices"
	"time"

	"github.com/trireme-mpi/trireme/internal/mpi"
)

// judge says how a run ended, from its exit code, mpirun's last words and what
// the rsh of each host has recorded.
func (launch *launch) judge(code int, last string, records []record, began time.Time) Report {
	report := Report{ExitCode: code, Hosts: launch.used(records)}
	report.Timings.Init = seconds(initTime(records, began))
	words, spoken := mpi.LastWords(last)
	lost := firstTrouble(records)
	// Intel's mpirun ends well even if a host was lost in the middle of the run.
	lostHost := spoken && words.Kind == mpi.DaemonLost || lost != nil && (lost.Trouble == Stopped || lost.Trouble == Broken)
	if code == 0 && !lostHost {
		return launch.judgeSuccess(report)
	}
	if code == 0 {
		report.ExitCode = exitMPI
	}
	switch {
	case lost != nil && lost.Trouble == Stopped:
		report.Reason, report.Host = ReasonWorker, lost.Host
		report.Message = fmt.Sprintf("lost worker %s in the middle of the run: it was told to end; its pod says why", lost.Host)
	case lost != nil && lost.Trouble == NotStarted:
		report.Reason, report.Host, report.Message = ReasonMPI, lost.Host, lost.Message
	case lost != nil && lost.Trouble != Broken:
		// The host could not be reached at all.
		report.Reason, report.Host, report.Message = ReasonSSH, lost.Host, lost.Message
	case spoken && words.Kind == mpi.DaemonLost, lost != nil && !(spoken && words.Kind == mpi.RankFailed):
		report.Reason, report.Host = ReasonWorker, words.Host
		if report.Host == "" && lost != nil {
			report.Host = lost.Host
		}
		report.Message = fmt.Sprintf("lost worker %s in the middle of the run; its pod says why", orUnknown(report.Host))
	case spoken && words.Kind == mpi.InitFailed:
		report.Reason, report.Host, report.Message = ReasonMPI, words.Host, words.Text
	case spoken:
		report.Reason, report.Host = ReasonTraining, words.Host
		report.Message = words.Text
		if words.Rank >= 0 {
			report.Rank = &words.Rank
		}
	default:
		report.Reason = ReasonTraining
		report.Message = fmt.Sprintf("the command ended with exit code %d", code)
	}
	return report
}

func orUnknown(host string) string {
	if host == "" {
		return "(unknown)"
	}
	return host
}

// judgeSuccess: a run that ends well on one of many hosts has computed something
// else than was asked for.
func (launch *launch) judgeSuccess(report Report) Report {
	// The image's own ssh keeps no records.
	if launch.imageSSH || len(report.Hosts.Missing) == 0 || !launch.requireAllHosts {
		return report
	}
	missing := report.Hosts.Expected - report.Hosts.Reached
	report.Reason, report.ExitCode = ReasonMPI, exitMPI
	report.Host = report.Hosts.Missing[0]
	report.Message = fmt.Sprintf("the command ended well but used only %d of %d hosts; not used: %s. mpirun may not have found the hostfile, or was told to start fewer processes",
		report.Hosts.Reached, report.Hosts.Expected, some(withMore(report.Hosts.Missing, missing)))
	return report
}

// withMore stands in for hosts that are counted and not kept.
func withMore(hosts []string, count int) []string {
	return append(slices.Clone(hosts), make([]string, max(count-len(hosts), 0))...)
}

// used compares the hostfile with the hosts that mpirun has logged in to.
func (launch *launch) used(records []record) Hosts {
	hosts := Hosts{Expected: len(launch.hosts)}
	for _, host := range launch.hosts {
		reached := slices.ContainsFunc(records, func(entry record) bool { return entry.reached() && sameHost(entry.Host, host) })
		if reached || launch.imageSSH {
			hosts.Reached++
		} else if len(hosts.Missing) < shownHosts {
			hosts.Missing = append(hosts.Missing, host)
		}
	}
	return hosts
}

// firstTrouble is the first host that was not reached or was lost.
func firstTrouble(records []record) *record {
	var first *record
	for i := range records {
		if records[i].Trouble != "" && (first == nil || records[i].At.Before(first.At)) {
			first = &records[i]
		}
	}
	return first
}

// initTime is from the start of the command until the last host was reached.
func initTime(records []record, began time.Time) time.Duration {
	var last time.Duration
	for _, entry := range records {
		if entry.reached() {
			last = max(last, entry.At.Sub(began))
		}
	}
	return last
}
