// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

const (
	// cleanupGrace is how long a cancelled command may take to remove its
	// temporary files; mmdebstrap has a whole root file system to delete.
	cleanupGrace = 20 * time.Second
	// tailLines of a command's messages go into its error.
	tailLines = 15
)

// run executes a command in a process group of its own, which is ended as a
// whole when ctx is done: mmdebstrap leaves most of its work to children.
// Without a stdout of its own the output counts as messages.
func run(ctx context.Context, command []string, stdout, log io.Writer) error {
	messages := &tail{}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stderr = io.MultiWriter(log, messages)
	cmd.Stdout = stdout
	if stdout == nil {
		cmd.Stdout = cmd.Stderr // one writer, so that exec does not write to log from two goroutines
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return signalGroup(cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = cleanupGrace

	err := cmd.Run()
	if ctx.Err() != nil {
		if cmd.Process != nil {
			_ = signalGroup(cmd.Process.Pid, syscall.SIGKILL) // what ignored SIGTERM
		}
		return fmt.Errorf("%s: %w", command[0], ctx.Err())
	}
	if err != nil {
		return fmt.Errorf("%s: %w; its last output:\n%s", command[0], err, messages)
	}
	return nil
}

func signalGroup(leader int, signal syscall.Signal) error {
	err := syscall.Kill(-leader, signal)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// probeHostTools turns a missing tool into an error that says what to install,
// before minutes of work are lost to it.
func probeHostTools(ctx context.Context, def Definition) error {
	for _, tool := range def.HostTools() {
		err := exec.CommandContext(ctx, tool.Probe[0], tool.Probe[1:]...).Run()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("%q cannot be run on this machine (%w): install the Debian package %s",
				strings.Join(tool.Probe, " "), err, tool.Package)
		}
	}
	return nil
}

// tail keeps the last lines written to it.
type tail struct {
	lines   [][]byte
	partial []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.partial = append(t.partial, p...)
	for {
		// A carriage return begins a line of a progress bar anew.
		end := bytes.IndexAny(t.partial, "\r\n")
		if end < 0 {
			return len(p), nil
		}
		if end > 0 {
			t.lines = append(t.lines, bytes.Clone(t.partial[:end]))
			t.lines = t.lines[max(0, len(t.lines)-tailLines):]
		}
		t.partial = t.partial[end+1:]
	}
}

func (t *tail) String() string {
	lines := t.lines
	if len(t.partial) > 0 {
		lines = append(lines, t.partial)
	}
	return string(bytes.Join(lines, []byte("\n")))
}
