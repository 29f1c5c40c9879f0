// SPDX-License-Identifier: Apache-2.0

package mpi

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Kind is the kind of failure that mpirun reports.
type Kind string

const (
	// RankFailed means that a rank exited with a non-zero code, or on a signal.
	RankFailed Kind = "RankFailed"
	// DaemonLost means that mpirun lost its daemon on a host, and so the host.
	DaemonLost Kind = "DaemonLost"
	// InitFailed means that the daemons, MPI or the program did not start.
	InitFailed Kind = "InitFailed"
)

// Failure is what mpirun's error output says about a failure. What it does not say is
// zero, and -1 for the rank.
type Failure struct {
	Kind     Kind
	Rank     int
	Host     string
	ExitCode int
	Signal   int
	// Unsure means that mpirun itself may have sent the signal, after another rank failed.
	Unsure bool
	// Text is one short line of mpirun's output, safe to show: never output of the program
	// itself. It is empty if mpirun does not report the cause.
	Text string
}

const (
	// maxTail limits the work: messages about failures are near the end.
	maxTail = 64 << 10
	maxText = 160
	maxHost = 253
)

// cause matches one of mpirun's error messages. The groups rank, host, code, signal, text
// and detail of the pattern, as far as it has them, become the Failure.
type cause struct {
	kind    Kind
	pattern string
	// text replaces mpirun's own.
	text string
	// vague messages name a consequence or say little: any other cause is preferred.
	vague bool
}

type compiledCause struct {
	cause
	regexp *regexp.Regexp
}

// compiledCauses is built when it is first needed: the agent starts once for each host of
// a job, and mostly has no error output to parse.
var compiledCauses = sync.OnceValue(func() []compiledCause {
	var causes []cause
	for _, each := range implementations {
		if each.causes != nil {
			causes = append(causes, each.causes()...)
		}
	}
	var compiled []compiledCause
	for _, each := range append(causes, programCauses()...) {
		compiled = append(compiled, compiledCause{each, regexp.MustCompile(each.pattern)})
	}
	return compiled
})

// programCauses are printed by the ranks themselves, with any implementation.
func programCauses() []cause {
	return []cause{
		// UCX, which Open MPI and MPICH use, reports signals by itself.
		{kind: RankFailed, vague: true, pattern: `\[(?P<host>[^\s:\]]+):\d+ *:\d+:\d+\] (?P<text>Caught signal (?P<signal>\d+))`},
		// LastOutput returns the exception.
		{kind: RankFailed, vague: true, pattern: `(?:\[(?:\d+,)?(?P<rank>\d+)\](?:<stderr>:)? ?)?Traceback \(most recent call last\):\n` +
			`(?:(?:\[[\d,]+\](?:<stderr>:)? ?)?[ \t][^\n]*\n)+(?:\[[\d,]+\](?:<stderr>:)? ?)?[A-Za-z_][\w.]*(?::|\n|$)`},
	}
}

// ParseErrorOutput finds the root cause in the tail of mpirun's output: the tail of
// stderr followed by the tail of stdout, because Intel MPI and MPICH report failed ranks
// on stdout. With exit code 0 only DaemonLost counts: Intel MPI exits with 0 when it has
// lost a host and the other ranks succeeded.
func ParseErrorOutput(tail string) (Failure, bool) {
	tail = tail[max(0, len(tail)-maxTail):]
	tail = strings.ReplaceAll(tail, "\r\n", "\n")
	var (
		failure Failure
		first   = -1
		vague   bool
	)
	for _, each := range compiledCauses() {
		match := each.regexp.FindStringSubmatchIndex(tail)
		if match == nil {
			continue
		}
		if first < 0 || vague && !each.vague || vague == each.vague && match[0] < first {
			failure, first, vague = each.failure(tail, match), match[0], each.vague
		}
	}
	banner, at, found := hydraBanner(tail)
	if found && (first < 0 || vague || at < first) {
		return banner, true
	}
	return failure, first >= 0
}

func (c compiledCause) failure(tail string, match []int) Failure {
	group := func(name string) string {
		index := c.regexp.SubexpIndex(name)
		if index < 0 || match[2*index] < 0 {
			return ""
		}
		return tail[match[2*index]:match[2*index+1]]
	}
	text := c.text
	if text == "" {
		text = group("text")
	}
	if detail := group("detail"); detail != "" {
		text += ": " + detail
	}
	rank, code := number(group("rank"), -1), number(group("code"), 0)
	if text == "" && rank >= 0 && code != 0 {
		text = fmt.Sprintf("rank %d exited with code %d", rank, code)
	}
	return Failure{
		Kind:     c.kind,
		Rank:     rank,
		Host:     hostName(group("host")),
		ExitCode: code,
		Signal:   number(group("signal"), 0),
		Text:     safeText(text),
	}
}

func number(digits string, unknown int) int {
	value, err := strconv.Atoi(digits)
	if err != nil {
		return unknown
	}
	return value
}

// hostName returns a valid host name, or nothing.
func hostName(name string) string {
	unfit := func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '.')
	}
	if len(name) > maxHost || strings.ContainsFunc(name, unfit) {
		return ""
	}
	return name
}

// safeText returns one line without control characters, values of variables and paths of
// keys. It also drops process IDs, which would make every message different.
func safeText(text string) string {
	fields := strings.FieldsFunc(text, func(r rune) bool { return r <= ' ' || r >= 0x7f })
	if i := slices.Index(fields, "PID"); i > 0 && i+2 <= len(fields) && fields[i-1] == "with" {
		fields = slices.Delete(fields, i-1, i+2)
	}
	for i, field := range fields {
		name, _, assigned := strings.Cut(field, "=")
		switch {
		case assigned:
			fields[i] = name + "=..."
		case leadsToKey(field):
			fields[i] = "..."
		}
	}
	line := strings.Join(fields, " ")
	if len(line) > maxText {
		line = line[:maxText-3] + "..."
	}
	return line
}

func leadsToKey(field string) bool {
	path := strings.ToLower(field)
	return strings.Contains(path, "/") &&
		slices.ContainsFunc([]string{"ssh", "key", "id_", "secret"}, func(part string) bool { return strings.Contains(path, part) })
}
