// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Lock acquires the lock of a file. If it has to wait, it calls waiting with the
// process that holds the lock. The kernel releases the locks of a process that exits.
func Lock(ctx context.Context, file string, waiting func(holder string)) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return nil, fmt.Errorf("lock %s: %w", file, err)
	}
	for told := false; ; {
		unlock, err := TryLock(file)
		if unlock != nil || err != nil {
			return unlock, err
		}
		if !told {
			told = true
			waiting(holder(file))
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("lock %s: %w", file, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// TryLock returns neither a lock nor an error if another process holds the lock.
func TryLock(file string) (unlock func(), err error) {
	opened, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", file, err)
	}
	if err := unix.Flock(int(opened.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		opened.Close()
		if err == unix.EWOULDBLOCK {
			return nil, nil
		}
		return nil, fmt.Errorf("lock %s: %w", file, err)
	}
	// The previous holder may have removed the file in the meantime: then no other
	// process would use this lock.
	var mine, current unix.Stat_t
	if unix.Fstat(int(opened.Fd()), &mine) != nil || unix.Stat(file, &current) != nil || mine.Ino != current.Ino {
		opened.Close()
		return nil, nil
	}
	_ = opened.Truncate(0)
	_, _ = opened.WriteAt([]byte(strconv.Itoa(os.Getpid())), 0)
	return func() { opened.Close() }, nil
}

func holder(file string) string {
	content, err := os.ReadFile(file)
	if err != nil {
		return "another process"
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil {
		return "another process"
	}
	return Describe(pid)
}
