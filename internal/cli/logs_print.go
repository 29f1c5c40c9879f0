// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/kube/joblog"
)

// logColours distinguish pods. Red is reserved for errors.
var logColours = []colour{cyan, green, yellow, purple, blue}

// logPrinter writes lines, with the name of their pod if prefix is set.
type logPrinter struct {
	out        *bufio.Writer
	terminal   terminal
	timestamps bool
	prefix     bool
	// width of the widest prefix so far.
	width int
	// openLine is the pod whose last line has no end yet.
	openLine string
	// started is set once a line was printed.
	started atomic.Bool
}

func newLogPrinter(out io.Writer, terminal terminal, timestamps, prefix bool) *logPrinter {
	return &logPrinter{out: bufio.NewWriterSize(out, 64<<10), terminal: terminal, timestamps: timestamps, prefix: prefix, width: len(training.RoleLauncher)}
}

// print writes a line and, if atOnce is set, flushes it.
func (p *logPrinter) print(line joblog.Line, atOnce bool) error {
	p.started.Store(true)
	source := line.Pod + "/" + line.Container
	if p.openLine != source {
		if p.openLine != "" {
			p.out.WriteByte('\n')
		}
		p.writeBeginning(line)
	}
	p.openLine = source
	_, err := p.out.WriteString(line.Text)
	if !line.Continues {
		p.openLine = ""
		err = p.out.WriteByte('\n')
	}
	if atOnce {
		err = p.out.Flush()
	}
	return err
}

// writeBeginning writes the prefix and the time of a line. The writer keeps its error
// for the next call.
func (p *logPrinter) writeBeginning(line joblog.Line) {
	if p.prefix {
		name := prefixOf(line)
		p.width = max(p.width, len(name))
		p.out.WriteString(p.terminal.paint(prefixColour(line), name+strings.Repeat(" ", p.width-len(name))+" |"))
		p.out.WriteByte(' ')
	}
	if p.timestamps {
		p.out.WriteString(line.Time.UTC().Format(time.RFC3339Nano))
		p.out.WriteByte(' ')
	}
}

// prefixOf returns the pod of a line, without the job's name.
func prefixOf(line joblog.Line) string {
	switch line.Role {
	case training.RoleWorker:
		return fmt.Sprintf("worker-%d", line.Worker)
	case training.RoleInitializer:
		return line.Container
	default:
		return line.Role
	}
}

// prefixColour is the same for a pod and its replacement.
func prefixColour(line joblog.Line) colour {
	if line.Role != training.RoleWorker {
		return bold
	}
	return logColours[int(line.Worker)%len(logColours)]
}

func (p *logPrinter) flush() {
	if p.openLine != "" {
		p.out.WriteByte('\n')
		p.openLine = ""
	}
	p.out.Flush()
}

// upperFirst capitalizes the first letter.
func upperFirst(text string) string {
	first, size := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(first)) + text[size:]
}
