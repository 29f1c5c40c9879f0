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

// judge says how a run ended, from its exit code, the end of what it printed and what
// the rsh of each host has recorded.
func (launch *launch) judge(code int, stderr, stdout string, records []record, began time.Time) protocol.Report {
	report := protocol.Report{ExitCode: code, Hosts: launch.used(records)}
	report.Timings.Init = seconds(initTime(records, began))
	words, spoken := mpi.ParseErrorOutput(stderr + stdout)
	if !spoken {
		words.Rank = -1
	}
	lost := firstTrouble(records)
	// Intel's mpirun ends well even if a host was lost in the middle of the run.
	lostHost := spoken && words.Kind == mpi.DaemonLost || lost != nil && (lost.Trouble == protocol.Stopped || lost.Trouble == protocol.Broken)
	if code == 0 && !lostHost {
		return launch.judgeSuccess(report)
	}
	if code == 0 {
		report.ExitCode = exitMPI
	}
	switch {
	case lost != nil && lost.Trouble == protocol.Stopped:
		report.Reason, report.Host = protocol.ReasonWorker, lost.Host
		report.Message = fmt.Sprintf("lost worker %s in the middle of the run: it was told to end; its pod says why", lost.Host)
	case lost != nil && lost.Trouble == protocol.NotStarted:
		report.Reason, report.Host, report.Message = protocol.ReasonMPI, lost.Host, lost.Message
	case lost != nil && lost.Trouble != protocol.Broken:
		// The host could not be reached at all.
		report.Reason, report.Host, report.Message = protocol.ReasonSSH, lost.Host, lost.Message
	case spoken && words.Kind == mpi.DaemonLost, lost != nil && !(spoken && words.Kind == mpi.RankFailed):
		report.Reason, report.Host = protocol.ReasonWorker, words.Host
		if report.Host == "" && lost != nil {
			report.Host = lost.Host
		}
		report.Message = fmt.Sprintf("lost worker %s in the middle of the run; its pod says why", orUnknown(report.Host))
	case spoken && words.Kind == mpi.InitFailed:
		report.Reason, report.Host, report.Message = protocol.ReasonMPI, words.Host, words.Text
	default:
		launch.judgeProgram(&report, words, mpi.LastOutput(launch.redact(stderr), launch.redact(stdout), words.Rank))
	}
	return report
}

// judgeProgram: the program failed, and says why in its own words.
func (launch *launch) judgeProgram(report *protocol.Report, words mpi.Failure, output mpi.Output) {
	report.Reason, report.Host = protocol.ReasonTraining, words.Host
	report.Error, report.LastLines = output.Error, output.Lines
	switch {
	case !words.Unsure:
		report.Signal, report.Message = words.Signal, words.Text
	case !output.SaysError:
		report.Message = words.Text
	default:
		// The program ended by itself; mpirun has killed the other ranks of its host.
	}
	rank := words.Rank
	if rank < 0 {
		rank = output.Rank
	}
	if rank >= 0 {
		report.Rank = &rank
	}
	if rank >= 0 && report.Host == "" {
		report.Host = launch.hostOfRank(rank)
	}
	if words.ExitCode != 0 {
		report.RankExitCode = &words.ExitCode
	}
	if report.Message == "" {
		report.Message = fmt.Sprintf("the command ended with exit code %d", report.ExitCode)
	}
	if output.Error != "" {
		report.Message += ": " + output.Error
	}
}

// redact takes secrets out of what a program printed, before lines are picked: a
// secret may go on over several. Those of the environment are known by their values.
func (launch *launch) redact(output string) string {
	return redact.Text(redact.Values(output, launch.secrets))
}

// hostOfRank is the host that a rank runs on, where mpirun does not say it. Every
// implementation fills one host of the hostfile after the other. If an option places
// ranks in another way, the host is unknown.
func (launch *launch) hostOfRank(rank int) string {
	if !isMPIRun(launch.command) || slices.ContainsFunc(launch.command, placesRanks) || slices.ContainsFunc(os.Environ(), placesRanks) {
		return ""
	}
	for _, host := range launch.slots {
		if rank < host.Slots {
			return host.Name
		}
		rank -= host.Slots
	}
	return ""
}

// placesRanks tells whether an argument of mpirun, or a variable, may change which
// hosts ranks run on. It is also true for arguments of the program that look like it.
func placesRanks(text string) bool {
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

// judgeSuccess: a run that ends well on one of many hosts has computed something
// else than was asked for.
func (launch *launch) judgeSuccess(report protocol.Report) protocol.Report {
	// The image's own ssh keeps no records.
	if launch.imageSSH || len(report.Hosts.Missing) == 0 || !launch.requireAllHosts {
		return report
	}
	missing := report.Hosts.Expected - report.Hosts.Reached
	report.Reason, report.ExitCode = protocol.ReasonMPI, exitMPI
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
func (launch *launch) used(records []record) protocol.Hosts {
	hosts := protocol.Hosts{Expected: len(launch.hosts)}
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
