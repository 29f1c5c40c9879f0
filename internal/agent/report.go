package agent

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/trireme-mpi/trireme/internal/redact"
)

// Report is what the launcher's termination message says, as JSON of less than
// 4 KiB. It holds no key and nothing of an environment.
type Report struct {
	// Reason is one of the failure reasons of a job, or empty if the run ended well.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Trouble is what kept the hosts from each other, if the gate was not passed.
	Trouble Trouble `json:"trouble,omitempty"`
	// Host and Rank are where it went wrong, if that is known. Peer is the host that
	// Host cannot connect to.
	Host string `json:"host,omitempty"`
	Peer string `json:"peer,omitempty"`
	Rank *int   `json:"rank,omitempty"`
	// RankExitCode is what the rank exited with, Signal what ended it, as far as mpirun
	// says so.
	RankExitCode *int `json:"rankExitCode,omitempty"`
	Signal       int  `json:"signal,omitempty"`
	// Error is the line of the program's output that names the error, LastLines are the
	// last lines of it.
	Error     string   `json:"error,omitempty"`
	LastLines []string `json:"lastLines,omitempty"`
	// ExitCode is the launcher's own.
	ExitCode int     `json:"exitCode"`
	Timings  Timings `json:"timings"`
	Hosts    Hosts   `json:"hosts"`
}

// Timings are in seconds.
type Timings struct {
	// DNS and Connect are what the slowest worker took in the gate.
	DNS     float64 `json:"dns"`
	Connect float64 `json:"connect"`
	// Ports is the check of the ports between all hosts.
	Ports float64 `json:"ports"`
	// Init is from the start of the command until the last host was asked to
	// start its part.
	Init float64 `json:"init"`
	// Total is from the start of the launch to its end.
	Total float64 `json:"total"`
}

// Hosts compares the hostfile with the run.
type Hosts struct {
	Expected int `json:"expected"`
	Reached  int `json:"reached"`
	// Missing are some of the hosts that were not used.
	Missing []string `json:"missing,omitempty"`
}

// Reasons of a report: those failure reasons of a job that a launcher can know.
const (
	ReasonSSH      = "SSHConnectionFailed"
	ReasonMPI      = "MPIInitializationFailed"
	ReasonWorker   = "WorkerFailed"
	ReasonTraining = "TrainingError"
	ReasonLauncher = "LauncherFailed"
)

const (
	maxReport  = 4000
	maxMessage = 2000
	// shortMessage fits into a report however JSON writes it.
	shortMessage = 200
	// shownHosts is how many hosts are named.
	shownHosts = 5
)

// TerminationLog is where Kubernetes reads a container's last message.
const TerminationLog = "/dev/termination-log"

// write leaves the report where Kubernetes finds it, and in the log.
func (report *Report) write(path string) {
	// It becomes the job's status, and an event.
	report.Message = shorten(redact.Text(report.Message), maxMessage)
	report.Error = redact.Text(report.Error)
	report.LastLines = strings.FieldsFunc(redact.Text(strings.Join(report.LastLines, "\n")), func(r rune) bool { return r == '\n' })
	text, err := json.Marshal(report)
	for ; err == nil && len(text) > maxReport; text, err = json.Marshal(report) {
		if len(report.Message) <= shortMessage && len(report.LastLines) > 0 {
			report.LastLines = report.LastLines[1:]
			continue
		}
		if len(report.Message) <= shortMessage {
			report.Error = shorten(report.Error, shortMessage/2)
			// It is the names that are too long: no real host has such.
			report.Host, report.Peer, report.Hosts.Missing = shorten(report.Host, shortMessage), shorten(report.Peer, shortMessage), nil
		}
		report.Message = shorten(report.Message, max(len(report.Message)/2, shortMessage/2))
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "trireme: write the report: %v\n", err)
		return
	}
	if report.Reason != "" {
		fmt.Fprintf(os.Stderr, "trireme: %s: %s\n", report.Reason, report.Message)
	}
	if path == "" {
		return
	}
	if err := os.WriteFile(path, text, 0o644); err != nil && !os.IsNotExist(err) && !os.IsPermission(err) {
		fmt.Fprintf(os.Stderr, "trireme: write the report: %v\n", err)
	}
}

// shorten cuts a text between characters.
func shorten(text string, most int) string {
	if len(text) <= most {
		return text
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}

// some names the first few of many hosts.
func some(hosts []string) string {
	if len(hosts) <= shownHosts {
		return strings.Join(hosts, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(hosts[:shownHosts], ", "), len(hosts)-shownHosts)
}

// unreachable is the report of a gate that was not passed.
func unreachable(expected int, passed passage) Report {
	slices.SortFunc(passed.unreached, func(a, b record) int { return strings.Compare(a.Host, b.Host) })
	var hosts []string
	for _, record := range passed.unreached {
		hosts = append(hosts, record.Host)
	}
	first := passed.unreached[0]
	message := first.Message
	if len(hosts) > 1 {
		message = fmt.Sprintf("cannot reach %d of %d workers: %s. The first: %s", len(hosts), expected, some(hosts), first.Message)
	}
	return Report{
		Reason: ReasonSSH, Trouble: first.Trouble, Message: message, Host: first.Host, ExitCode: exitSSH,
		Hosts: Hosts{Expected: expected, Reached: expected - len(hosts), Missing: hosts[:min(len(hosts), shownHosts)]},
	}
}

// blocked is the report of hosts that cannot connect to each other.
func blocked(hosts int, failures []*portFailure) Report {
	first := failures[0]
	message := fmt.Sprintf("%s; %s", first.Error(), advice[first.trouble])
	if len(failures) > 1 {
		message = fmt.Sprintf("%d connections between hosts fail. The first: %s", len(failures), message)
	}
	report := Report{Reason: ReasonMPI, Trouble: first.trouble, Message: message, Host: first.from, ExitCode: exitMPI, Hosts: Hosts{Expected: hosts, Reached: hosts}}
	if first.to != first.from {
		report.Peer = first.to
	}
	return report
}

func seconds(duration time.Duration) float64 { return float64(duration.Milliseconds()) / 1000 }
