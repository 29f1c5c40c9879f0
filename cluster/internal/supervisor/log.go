// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
)

// largestLog is the size at which a log is rotated. There are two files for each
// component, so that a cluster that runs for weeks does not fill the disk.
const largestLog = 64 << 20

// openLog appends, because the cause of a restart is in the log before it.
func openLog(file string) (*os.File, error) {
	return os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
}

// keepLogsSmall rotates logs every minute.
func (s *Supervisor) keepLogsSmall(ctx context.Context) {
	for sleep(ctx, time.Minute) {
		for _, w := range s.workers {
			if err := rotate(s.layout.Log(w.component.Name)); err != nil {
				s.log.Error("rotate log", "name", w.component.Name, "error", err)
			}
		}
	}
}

// rotate copies and truncates the file, because the component keeps it open and
// continues to append to it.
func rotate(file string) error {
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() <= largestLog {
		return nil
	}
	if err != nil {
		return err
	}
	source, err := os.Open(file)
	if err != nil {
		return err
	}
	defer source.Close()
	previous, err := os.OpenFile(file+".1", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := io.Copy(previous, source); err != nil {
		return fmt.Errorf("copy: %w", errors.Join(err, previous.Close()))
	}
	return errors.Join(previous.Close(), os.Truncate(file, 0))
}
