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

// largestLog is when a log becomes the previous one. There are two of each, so
// that a cluster which runs for weeks does not fill the disk.
const largestLog = 64 << 20

// openLog appends, because the reason of a restart is in what was written
// before it.
func openLog(file string) (*os.File, error) {
	return os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
}

// keepLogsSmall looks at every log now and then.
func (s *Supervisor) keepLogsSmall(ctx context.Context) {
	for sleep(ctx, time.Minute) {
		for _, w := range s.workers {
			if err := rotate(s.layout.Log(w.component.Name)); err != nil {
				s.log.Error("rotate log", "name", w.component.Name, "error", err)
			}
		}
	}
}

// rotate copies and empties, because the component goes on writing to the file
// that it has open; as it appends, it then writes at the new end.
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
