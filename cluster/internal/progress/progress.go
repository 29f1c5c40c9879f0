// SPDX-License-Identifier: Apache-2.0

// Package progress prints steps and their durations: with a spinner on a terminal, as
// plain lines in a log.
package progress

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

// Reporter prints steps one after the other.
type Reporter struct {
	out      io.Writer
	terminal bool
	tick     time.Duration
	mutex    sync.Mutex
	note     string
}

// New prints to a file, with a spinner if that is a terminal.
func New(out *os.File) *Reporter {
	terminal := term.IsTerminal(int(out.Fd())) && os.Getenv("TERM") != "dumb" && os.Getenv("CI") == ""
	tick := 30 * time.Second
	if terminal {
		tick = 100 * time.Millisecond
	}
	return &Reporter{out: out, terminal: terminal, tick: tick}
}

// Step runs work and prints its name, result and duration. For long steps it also
// prints the elapsed time.
func (r *Reporter) Step(name string, work func() error) error {
	begin := time.Now()
	done := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() { r.watch(name, begin, done) })
	r.Note("")
	err := work()
	close(done)
	watcher.Wait()
	r.finish(name, time.Since(begin), err)
	return err
}

// Note sets a note that is printed with the current step.
func (r *Reporter) Note(format string, arguments ...any) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.note = fmt.Sprintf(format, arguments...)
}

// Line prints something that is not a step.
func (r *Reporter) Line(format string, arguments ...any) {
	fmt.Fprintf(r.out, format+"\n", arguments...)
}

func (r *Reporter) watch(name string, begin time.Time, done <-chan struct{}) {
	ticker := time.NewTicker(r.tick)
	defer ticker.Stop()
	frames := []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")
	for frame := 0; ; frame++ {
		select {
		case <-done:
			return
		case <-ticker.C:
		}
		elapsed := time.Since(begin)
		if r.terminal {
			fmt.Fprintf(r.out, "\r\x1b[K%c %s %s%s", frames[frame%len(frames)], name, seconds(elapsed), r.noted())
		} else {
			fmt.Fprintf(r.out, "...   %7s  %s%s\n", seconds(elapsed), name, r.noted())
		}
	}
}

func (r *Reporter) noted() string {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.note == "" {
		return ""
	}
	return " (" + r.note + ")"
}

func (r *Reporter) finish(name string, elapsed time.Duration, err error) {
	word := "ok"
	if err != nil {
		word = "FAIL"
	}
	clear := ""
	if r.terminal {
		clear = "\r\x1b[K"
	}
	fmt.Fprintf(r.out, "%s%-5s %7s  %s%s\n", clear, word, seconds(elapsed), name, r.noted())
}

func seconds(d time.Duration) string {
	return fmt.Sprintf("%.1fs", d.Seconds())
}
