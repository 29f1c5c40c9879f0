// SPDX-License-Identifier: Apache-2.0

package mpi

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Output is the last output of the program itself, without lines of mpirun and MPI.
type Output struct {
	// Rank is the rank that wrote the error; -1 if lines are not tagged with ranks.
	Rank int
	// Error is the line that names the error; empty if there is none.
	Error string
	// SaysError means that Error is an exception or mentions an error, and is not merely
	// the last line of stderr.
	SaysError bool
	// Lines are the last lines. For a Python traceback they are the innermost frame and the
	// exception.
	Lines []string
}

const (
	maxLines     = 5
	maxLine      = 256
	maxLineBytes = 1024
	// maxBlock limits the help texts that Open MPI prints between two rulers.
	maxBlock = 60
)

// outputLine is a line of the program, without mpirun's prefix.
type outputLine struct {
	rank   int
	text   string
	errors bool // it was written to stderr
}

// LastOutput finds the last lines of the program in the tails of mpirun's output. If
// lines are tagged with ranks, only those of the given rank count; -1 is any rank.
func LastOutput(stderr, stdout string, rank int) Output {
	lines := append(programLines(stdout, false), programLines(stderr, true)...)
	if ofRank := slices.DeleteFunc(slices.Clone(lines), func(line outputLine) bool { return line.rank != rank }); rank >= 0 && len(ofRank) > 0 {
		lines = ofRank
	}
	shown, named := exception(lines)
	says := named != nil
	if named == nil {
		shown = lastDistinct(lines)
		named, says = errorLine(shown)
	}
	output := Output{Rank: -1, SaysError: says}
	if named != nil {
		output.Rank, output.Error = named.rank, SafeLine(named.text)
	}
	for _, line := range shown {
		output.Lines = append(output.Lines, line.text)
	}
	output.Lines = SafeLines(output.Lines)
	return output
}

// patterns match tags, and lines that are not the program's own.
type patterns struct {
	ruler, openMPITag, hydraTag, foreign, exception, error, harmless *regexp.Regexp
}

var linePatterns = sync.OnceValue(func() patterns {
	return patterns{
		ruler:      regexp.MustCompile(`^ *-{74}$`),
		openMPITag: regexp.MustCompile(`\[(?:\S*@)?\d+,(\d+)\]<std(?:err|out)>: ?`),
		hydraTag:   regexp.MustCompile(`^\[(\d+)\] `),
		foreign: regexp.MustCompile(`^ *(?:` + strings.Join([]string{
			`\[[\w.-]*[A-Za-z][\w.-]*:\d{5,}\] `,                                                      // Open MPI
			`\[[\w.-]*[A-Za-z][\w.-]*:\d+ *:\d+(?::\d+)?\] `,                                          // UCX, on a signal
			`\[\d+\.\d+\] \[\S+:\d+ *:\d+\] +\S+:\d+ +UCX `,                                           // UCX
			`\[(?:mpiexec|proxy:[\d:]*)@[^\]]*\] `,                                                    // Hydra
			`=   \S|={20,}$|==== backtrace `,                                                          // Hydra's and UCX's boxes
			`Abort\(-?\d+\) on node \d+ `,                                                             // MPICH
			`\w+\(\d+\)\.*: |\(unknown\)\(\): `,                                                       // MPICH's error stack
			`#\d+ +0x[[:xdigit:]]+|\d+ +\S.* \[0x[[:xdigit:]]+\]$`,                                    // frames of libgfortran and UCX
			`Error termination\. Backtrace:|Backtrace for this error`,                                 // libgfortran
			`(?:mpirun|orterun|prterun) (?:noticed that|detected that|has exited due|was unable to) `, // Open MPI, whose rulers may be lost
			`(?:mpi-agent|trireme): `,
			`Killed$`, // the shell
		}, "|") + `)`),
		exception: regexp.MustCompile(`^[A-Za-z_][\w.]*(?::|$)`),
		error:     regexp.MustCompile(`(?i)error|fatal|exception|fail|cannot|can't|unable|assert|abort|panic|denied|no such|not found|invalid`),
		harmless:  regexp.MustCompile(`(?i)^\W*(?:note|warning|info|debug)\b`),
	}
})

// programLines returns the lines of one stream that the program wrote.
func programLines(stream string, errors bool) []outputLine {
	patterns := linePatterns()
	stream = stream[max(0, len(stream)-maxTail):]
	var lines []outputLine
	for text := range strings.Lines(strings.ReplaceAll(stream, "\r\n", "\n")) {
		// Open MPI 5 ends some of its texts with a NUL.
		text = strings.TrimRightFunc(strings.ReplaceAll(text, "\x00", ""), unicode.IsSpace)
		// A progress bar rewrites its line.
		text = text[strings.LastIndexByte(text, '\r')+1:]
		line := outputLine{rank: -1, errors: errors}
		if tag := patterns.openMPITag.FindStringSubmatch(text); tag != nil {
			line.rank = number(tag[1], -1)
			// Open MPI 4 repeats the tag if the program wrote a line in pieces.
			text = patterns.openMPITag.ReplaceAllString(text, "")
		} else if tag := patterns.hydraTag.FindStringSubmatch(text); tag != nil {
			line.rank, text = number(tag[1], -1), text[len(tag[0]):]
		}
		line.text = text
		lines = append(lines, line)
	}
	lines = withoutHelp(lines)
	return slices.DeleteFunc(lines, func(line outputLine) bool {
		return strings.TrimSpace(line.text) == "" || patterns.foreign.MatchString(line.text)
	})
}

// CutTag returns the rank that mpirun printed in front of a line, and the rest of the line.
// Hydra's tag is only a number in brackets, which programs print, too: it counts only if
// the job's output is tagged. It is fast, because every line of a job passes it.
func CutTag(line []byte, isTagged bool) (rank int, rest []byte) {
	const maxTag = 80
	if len(line) == 0 || line[0] != '[' {
		return -1, line
	}
	end := bytes.IndexByte(line[:min(len(line), maxTag)], ']')
	if end < 0 {
		return -1, line
	}
	tag, rest := line[1:end], line[end+1:]
	if stream := []byte("<std"); bytes.HasPrefix(rest, stream) {
		comma := bytes.LastIndexByte(tag, ',')
		_, text, found := bytes.Cut(rest, []byte(">:"))
		if rank := number(string(tag[comma+1:]), -1); comma >= 0 && found && rank >= 0 {
			return rank, bytes.TrimPrefix(text, []byte(" "))
		}
		return -1, line
	}
	if rank := number(string(tag), -1); isTagged && rank >= 0 && len(rest) > 0 && rest[0] == ' ' {
		return rank, rest[1:]
	}
	return -1, line
}

// withoutHelp drops the help texts that Open MPI prints between two rulers. They come
// last, so rulers are paired from the end: a single ruler of the program stays.
func withoutHelp(lines []outputLine) []outputLine {
	ruler := linePatterns().ruler
	end := -1
	for i := len(lines) - 1; i >= 0; i-- {
		switch {
		case !ruler.MatchString(lines[i].text):
		case end < 0 || end-i > maxBlock:
			end = i
		default:
			lines = slices.Delete(lines, i, end+1)
			end = -1
		}
	}
	return lines
}

// traceback is a Python traceback, with the tracebacks that it was raised from.
type traceback struct {
	begin, end     int
	frame, message int
}

// maxBetween is how many lines may follow a traceback that ended the program: more of
// the exception's message, or of other ranks.
const maxBetween = 5

// exception finds the first of the tracebacks at the end of the output: ranks that fail
// because another rank failed come later. The program has handled a traceback that is
// followed by much other output.
func exception(lines []outputLine) (shown []outputLine, named *outputLine) {
	var first *traceback
	end := 0
	for at := 0; at < len(lines); at++ {
		if !strings.HasPrefix(lines[at].text, tracebackHeader) {
			continue
		}
		found, ok := tracebackAt(lines, at)
		if !ok {
			continue
		}
		if first == nil || found.begin-end > maxBetween {
			first = &found
		}
		at, end = found.end-1, found.end
	}
	if first == nil || len(lines)-end > maxBetween {
		return nil, nil
	}
	if first.frame >= 0 {
		shown = append(shown, lines[first.frame])
	}
	rest := lines[first.message:]
	for i, line := range rest {
		if i > 0 && (strings.HasPrefix(line.text, tracebackHeader) || line.rank != rest[0].rank) || len(shown) == maxLines {
			break
		}
		shown = append(shown, line)
	}
	return shown, &lines[first.message]
}

const tracebackHeader = "Traceback (most recent call last):"

// tracebackAt reads the traceback that begins at a line, and those that follow from it.
func tracebackAt(lines []outputLine, begin int) (traceback, bool) {
	found := traceback{begin: begin, frame: -1}
	rank, i := lines[begin].rank, begin+1
	for ; i < len(lines) && strings.HasPrefix(lines[i].text, " "); i++ {
		if strings.HasPrefix(strings.TrimLeft(lines[i].text, " "), "File ") && lines[i].rank == rank {
			found.frame = i
		}
	}
	if i == len(lines) || !linePatterns().exception.MatchString(lines[i].text) {
		return traceback{}, false
	}
	found.message, found.end = i, i+1
	for next := i + 1; next+1 < len(lines) && next <= i+maxBetween; next++ {
		isChained := strings.HasPrefix(lines[next].text, "The above exception was the direct cause") ||
			strings.HasPrefix(lines[next].text, "During handling of the above exception")
		if !isChained {
			continue
		}
		if last, ok := tracebackAt(lines, next+1); ok && strings.HasPrefix(lines[next+1].text, tracebackHeader) {
			last.begin = begin
			return last, true
		}
		break
	}
	return found, true
}

// lastDistinct returns the last lines without repetitions: ranks often print the same.
func lastDistinct(lines []outputLine) []outputLine {
	var last []outputLine
	for _, line := range slices.Backward(lines) {
		if len(last) == maxLines {
			break
		}
		if !slices.ContainsFunc(last, func(other outputLine) bool { return other.text == line.text }) {
			last = append(last, line)
		}
	}
	slices.Reverse(last)
	return last
}

// errorLine returns the last line that mentions an error, or else the last of stderr.
func errorLine(lines []outputLine) (last *outputLine, says bool) {
	patterns := linePatterns()
	for i := range lines {
		if line := &lines[i]; patterns.error.MatchString(line.text) && !patterns.harmless.MatchString(line.text) {
			last, says = line, true
		}
	}
	if last == nil && len(lines) > 0 && lines[len(lines)-1].errors {
		last = &lines[len(lines)-1]
	}
	return last, says
}

// SafeLines limits the lines of a program, and makes them safe to show.
func SafeLines(lines []string) []string {
	var safe []string
	left := maxLineBytes
	for _, line := range slices.Backward(lines) {
		line = SafeLine(line)
		if line == "" {
			continue
		}
		if len(line) > left || len(safe) == maxLines {
			break
		}
		left -= len(line)
		safe = append(safe, line)
	}
	slices.Reverse(safe)
	return safe
}

var terminalSequence = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)`)
})

// SafeLine returns one short line without control sequences of terminals.
func SafeLine(text string) string {
	text = terminalSequence().ReplaceAllString(strings.ToValidUTF8(text, "\uFFFD"), "")
	text = strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, text)
	text = strings.TrimSpace(text)
	const mark = "…"
	if len(text) <= maxLine {
		return text
	}
	cut := maxLine - len(mark)
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + mark
}
