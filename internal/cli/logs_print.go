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

// logColours tell pods apart. Red is for what went wrong.
var logColours = []colour{cyan, green, yellow, purple, blue}

// logPrinter writes lines, each with where it is from if that is wanted.
type logPrinter struct {
	out        *bufio.Writer
	terminal   terminal
	timestamps bool
	prefix     bool
	// width of the widest prefix so far.
	width int
	// unended is the pod whose last line was only a piece of one.
	unended string
	// begun: something was printed.
	begun atomic.Bool
}

func newLogPrinter(out io.Writer, terminal terminal, timestamps, prefix bool) *logPrinter {
	return &logPrinter{out: bufio.NewWriterSize(out, 64<<10), terminal: terminal, timestamps: timestamps, prefix: prefix, width: len(training.RoleLauncher)}
}

// print writes a line. At once is for who looks at it while it is written.
func (printer *logPrinter) print(line joblog.Line, atOnce bool) error {
	printer.begun.Store(true)
	from := line.Pod + "/" + line.Container
	if printer.unended != from {
		if printer.unended != "" {
			printer.out.WriteByte('\n')
		}
		printer.writeBeginning(line)
	}
	printer.unended = from
	_, err := printer.out.WriteString(line.Text)
	if !line.Continues {
		printer.unended = ""
		err = printer.out.WriteByte('\n')
	}
	if atOnce {
		err = printer.out.Flush()
	}
	return err
}

// writeBeginning writes what stands in front of a line. Errors of the writer stay
// with it.
func (printer *logPrinter) writeBeginning(line joblog.Line) {
	if printer.prefix {
		name := prefixOf(line)
		printer.width = max(printer.width, len(name))
		printer.out.WriteString(printer.terminal.paint(prefixColour(line), name+strings.Repeat(" ", printer.width-len(name))+" |"))
		printer.out.WriteByte(' ')
	}
	if printer.timestamps {
		printer.out.WriteString(line.Time.UTC().Format(time.RFC3339Nano))
		printer.out.WriteByte(' ')
	}
}

// prefixOf names the pod of a line as short as can be: the job is known.
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

// prefixColour is the same for a pod and for what takes its place.
func prefixColour(line joblog.Line) colour {
	if line.Role != training.RoleWorker {
		return bold
	}
	return logColours[int(line.Worker)%len(logColours)]
}

func (printer *logPrinter) flush() {
	if printer.unended != "" {
		printer.out.WriteByte('\n')
		printer.unended = ""
	}
	printer.out.Flush()
}

// upperFirst makes a sentence of words.
func upperFirst(text string) string {
	first, size := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(first)) + text[size:]
}
