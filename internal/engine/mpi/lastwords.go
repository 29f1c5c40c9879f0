package mpi

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Kind is a cause that mpirun gives for its end.
type Kind string

const (
	// RankFailed: a rank exited with a code other than zero, or on a signal.
	RankFailed Kind = "RankFailed"
	// DaemonLost: mpirun lost its daemon on a host, and so the host.
	DaemonLost Kind = "DaemonLost"
	// InitFailed: the daemons, MPI or the program did not start.
	InitFailed Kind = "InitFailed"
)

// Words are what mpirun said last. What it did not say is zero, and -1 for the
// rank.
type Words struct {
	Kind     Kind
	Rank     int
	Host     string
	ExitCode int
	Signal   int
	// Unsure: the signal may be mpirun's own, sent after another rank had failed.
	Unsure bool
	// Text is one short line of mpirun's own, safe to show: never what the program
	// itself printed. It is empty where mpirun says nothing of the cause.
	Text string
}

const (
	// maxTail bounds the work: nothing that matters is further from the end.
	maxTail = 64 << 10
	maxText = 160
	maxHost = 253
)

// cause is a form of mpirun's error message. The pattern's groups rank, host, code, signal, text
// and detail, as far as it has them, become the Words.
type cause struct {
	kind    Kind
	pattern string
	// text is said in place of mpirun's own.
	text string
	// vague: the words name a consequence or say little; any other cause goes first.
	vague bool
}

type compiledCause struct {
	cause
	regexp *regexp.Regexp
}

// compiledCauses is built when it is first needed: the agent starts once for each
// host of a job and mostly has no last words to read.
var compiledCauses = sync.OnceValue(func() []compiledCause {
	var compiled []compiledCause
	for _, each := range slices.Concat(openMPICauses(), hydraCauses(), programCauses()) {
		compiled = append(compiled, compiledCause{each, regexp.MustCompile(each.pattern)})
	}
	return compiled
})

// programCauses come from the ranks themselves, whichever the implementation.
func programCauses() []cause {
	return []cause{
		// UCX, which Open MPI and MPICH use, reports signals by itself.
		{kind: RankFailed, vague: true, pattern: `\[(?P<host>[^\s:\]]+):\d+ *:\d+:\d+\] (?P<text>Caught signal (?P<signal>\d+))`},
		// LastOutput says which exception it was.
		{kind: RankFailed, vague: true, pattern: `(?:\[(?:\d+,)?(?P<rank>\d+)\](?:<stderr>:)? ?)?Traceback \(most recent call last\):\n` +
			`(?:(?:\[[\d,]+\](?:<stderr>:)? ?)?[ \t][^\n]*\n)+(?:\[[\d,]+\](?:<stderr>:)? ?)?[A-Za-z_][\w.]*(?::|\n|$)`},
	}
}

// LastWords finds the first cause in the tail of what mpirun printed. Give it the
// tail of stderr followed by that of stdout: Intel MPI and MPICH tell of a rank's
// death on stdout. After exit code 0 only DaemonLost means anything: Intel MPI
// exits 0 when it has lost a host and the other ranks ended well.
func LastWords(tail string) (Words, bool) {
	tail = tail[max(0, len(tail)-maxTail):]
	tail = strings.ReplaceAll(tail, "\r\n", "\n")
	var (
		words Words
		first = -1
		vague bool
	)
	for _, each := range compiledCauses() {
		match := each.regexp.FindStringSubmatchIndex(tail)
		if match == nil {
			continue
		}
		if first < 0 || vague && !each.vague || vague == each.vague && match[0] < first {
			words, first, vague = each.words(tail, match), match[0], each.vague
		}
	}
	banner, at, found := hydraBanner(tail)
	if found && (first < 0 || vague || at < first) {
		return banner, true
	}
	return words, first >= 0
}

func (c compiledCause) words(tail string, match []int) Words {
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
	return Words{
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

// hostName is a host's name, or nothing where the text has something else.
func hostName(name string) string {
	unfit := func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '.')
	}
	if len(name) > maxHost || strings.ContainsFunc(name, unfit) {
		return ""
	}
	return name
}

// safeText is one line without control characters, values of variables, paths that
// lead to keys, and process ids: those would make every failure a different message.
func safeText(text string) string {
	words := strings.FieldsFunc(text, func(r rune) bool { return r <= ' ' || r >= 0x7f })
	if i := slices.Index(words, "PID"); i > 0 && i+2 <= len(words) && words[i-1] == "with" {
		words = slices.Delete(words, i-1, i+2)
	}
	for i, word := range words {
		name, _, assigned := strings.Cut(word, "=")
		switch {
		case assigned:
			words[i] = name + "=..."
		case leadsToKey(word):
			words[i] = "..."
		}
	}
	line := strings.Join(words, " ")
	if len(line) > maxText {
		line = line[:maxText-3] + "..."
	}
	return line
}

func leadsToKey(word string) bool {
	path := strings.ToLower(word)
	return strings.Contains(path, "/") &&
		slices.ContainsFunc([]string{"ssh", "key", "id_", "secret"}, func(part string) bool { return strings.Contains(path, part) })
}
