// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/engine/redact"
)

const (
	maxReport  = 4000
	maxMessage = 2000
	// shortMessage fits into a report even if JSON escapes every character.
	shortMessage = 200
	// shownHosts is the maximum number of hosts in a message.
	shownHosts = 5
)

// writeReport writes the report as the termination message, and logs it.
func writeReport(report *protocol.Report, path string) {
	// The message becomes part of the job's status and of an event.
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
			// The names are too long; no real host has such names.
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

// joinHosts joins the first few of many hosts.
func joinHosts(hosts []string) string {
	if len(hosts) <= shownHosts {
		return strings.Join(hosts, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(hosts[:shownHosts], ", "), len(hosts)-shownHosts)
}

// unreachable is the report of a gate that did not reach all workers.
func unreachable(expected int, passed gateResult) protocol.Report {
	slices.SortFunc(passed.unreached, func(a, b record) int { return strings.Compare(a.Host, b.Host) })
	var hosts []string
	for _, record := range passed.unreached {
		hosts = append(hosts, record.Host)
	}
	first := passed.unreached[0]
	message := first.Message
	if len(hosts) > 1 {
		message = fmt.Sprintf("cannot reach %d of %d workers: %s. The first: %s", len(hosts), expected, joinHosts(hosts), first.Message)
	}
	return protocol.Report{
		Reason: protocol.ReasonSSH, Trouble: first.Trouble, Message: message, Host: first.Host, ExitCode: exitSSH,
		Hosts: protocol.Hosts{Expected: expected, Reached: expected - len(hosts), Missing: hosts[:min(len(hosts), shownHosts)]},
	}
}

// blocked is the report of hosts that cannot connect to each other.
func blocked(hosts int, failures []*portFailure) protocol.Report {
	first := failures[0]
	message := fmt.Sprintf("%s; %s", first.Error(), advice[first.trouble])
	if len(failures) > 1 {
		message = fmt.Sprintf("%d connections between hosts fail. The first: %s", len(failures), message)
	}
	report := protocol.Report{Reason: protocol.ReasonMPI, Trouble: first.trouble, Message: message, Host: first.from, ExitCode: exitMPI, Hosts: protocol.Hosts{Expected: hosts, Reached: hosts}}
	if first.to != first.from {
		report.Peer = first.to
	}
	return report
}

func seconds(duration time.Duration) float64 { return float64(duration.Milliseconds()) / 1000 }
