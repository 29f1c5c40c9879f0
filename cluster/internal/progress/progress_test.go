// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// screen is a writer that can be looked at while others write.
type screen struct {
	mutex   sync.Mutex
	content bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.content.Write(p)
}

func (s *screen) String() string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.content.String()
}

// await polls for a text on the screen.
func (s *screen) await(t *testing.T, pattern string) {
	t.Helper()
	expression := regexp.MustCompile(pattern)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if expression.MatchString(s.String()) {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("nothing on the screen matches %s:\n%q", pattern, s.String())
			return
		}
	}
}

func TestPlainLines(t *testing.T) {
	broken := errors.New("broken")
	tests := map[string]struct {
		work      func(*Reporter) error
		wantError error
		wantLine  string
	}{
		"success": {
			work:     func(*Reporter) error { return nil },
			wantLine: `^ok +0\.\ds  build kubernetes\n$`,
		},
		"success with a note": {
			work:     func(r *Reporter) error { r.Note("%d of %d", 2, 3); return nil },
			wantLine: `^ok +0\.\ds  build kubernetes \(2 of 3\)\n$`,
		},
		"only the last note is left": {
			work:     func(r *Reporter) error { r.Note("first"); r.Note("second"); return nil },
			wantLine: `^ok +0\.\ds  build kubernetes \(second\)\n$`,
		},
		"failure": {
			work:      func(*Reporter) error { return broken },
			wantError: broken,
			wantLine:  `^FAIL +0\.\ds  build kubernetes\n$`,
		},
		"failure with a note": {
			work:      func(r *Reporter) error { r.Note("linking"); return broken },
			wantError: broken,
			wantLine:  `^FAIL +0\.\ds  build kubernetes \(linking\)\n$`,
		},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			out := &screen{}
			r := &Reporter{out: out, tick: time.Hour}
			err := r.Step("build kubernetes", func() error { return test.work(r) })
			if !errors.Is(err, test.wantError) {
				t.Errorf("error %v, want the work's own %v", err, test.wantError)
			}
			if !regexp.MustCompile(test.wantLine).MatchString(out.String()) {
				t.Errorf("printed %q, want %s", out.String(), test.wantLine)
			}
		})
	}
}

func TestNoteEndsWithItsStep(t *testing.T) {
	out := &screen{}
	r := &Reporter{out: out, tick: time.Hour}
	_ = r.Step("first", func() error { r.Note("a note"); return nil })
	_ = r.Step("second", func() error { return nil })
	_, second, _ := strings.Cut(out.String(), "\n")
	if strings.Contains(second, "a note") {
		t.Errorf("the second step has the first one's note: %q", second)
	}
}

func TestDurationIsMeasured(t *testing.T) {
	if got, want := seconds(83*time.Second+460*time.Millisecond), "83.5s"; got != want {
		t.Errorf("seconds() = %s, want %s", got, want)
	}
}

func TestHeartbeatOfALongStep(t *testing.T) {
	out := &screen{}
	r := &Reporter{out: out, tick: time.Millisecond}
	err := r.Step("pull", func() error {
		out.await(t, `(?m)^\.\.\. +\d+\.\ds  pull$`)
		r.Note("half way")
		out.await(t, `(?m)^\.\.\. +\d+\.\ds  pull \(half way\)$`)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if last := lines[len(lines)-1]; !strings.HasPrefix(last, "ok ") {
		t.Errorf("the last line is %q, not the outcome: the heart beats on", last)
	}
	if strings.ContainsAny(out.String(), "\r\x1b") {
		t.Errorf("control characters in a log: %q", out.String())
	}
}

// slow is a writer whose heartbeats take longer than the step.
type slow struct {
	beating atomic.Bool
	begun   chan struct{}
	early   bool
}

func (s *slow) Write(p []byte) (int, error) {
	if !strings.HasPrefix(string(p), "...") {
		s.early = s.beating.Load()
		return len(p), nil
	}
	s.beating.Store(true)
	defer s.beating.Store(false)
	select {
	case s.begun <- struct{}{}:
	default:
	}
	time.Sleep(50 * time.Millisecond) // long after the step has ended
	return len(p), nil
}

func TestOutcomeIsTheLastWord(t *testing.T) {
	out := &slow{begun: make(chan struct{})}
	r := &Reporter{out: out, tick: time.Millisecond}
	_ = r.Step("pull", func() error { <-out.begun; return nil })
	if out.early {
		t.Error("the outcome was printed while a heartbeat was being written")
	}
}

func TestTerminalGetsASpinnerOnOneLine(t *testing.T) {
	out := &screen{}
	r := &Reporter{out: out, terminal: true, tick: time.Millisecond}
	_ = r.Step("pull", func() error {
		// Two different frames: it moves.
		out.await(t, "⠙ pull .*\r\x1b\\[K⠹ pull")
		return nil
	})
	if got := strings.Count(out.String(), "\n"); got != 1 {
		t.Errorf("%d lines, want the outcome alone: %q", got, out.String())
	}
	if !regexp.MustCompile("\r\x1b\\[Kok +\\d+\\.\\ds  pull\n$").MatchString(out.String()) {
		t.Errorf("the outcome does not replace the spinner: %q", out.String())
	}
}

func TestFileIsNoTerminal(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	r := New(file)
	if r.terminal || r.tick < time.Second {
		t.Errorf("terminal = %v, tick = %s: a log would fill with spinners", r.terminal, r.tick)
	}
	r.Line("%d nodes", 3)
	_ = r.Step("work", func() error { return nil })
	content, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	if want := regexp.MustCompile(`^3 nodes\nok +0\.\ds  work\n$`); !want.Match(content) {
		t.Errorf("wrote %q, want %s", content, want)
	}
}
