// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLockIsForOneAtATime(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locks", "one")
	unlock, err := Lock(t.Context(), file, func(string) { t.Error("nobody else has it") })
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan string, 1)
	taken := make(chan error, 1)
	go func() {
		second, err := Lock(t.Context(), file, func(holder string) { told <- holder })
		if err == nil {
			second()
		}
		taken <- err
	}()
	if holder := <-told; holder != Describe(os.Getpid()) {
		t.Errorf("the one who waits is told of %s, the lock is held by %s", holder, Describe(os.Getpid()))
	}
	select {
	case <-taken:
		t.Fatal("two have the lock")
	default:
	}
	unlock()
	if err := <-taken; err != nil {
		t.Error(err)
	}
}

func TestWaitingForALockCanBeInterrupted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "one")
	unlock, err := Lock(t.Context(), file, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithCancel(t.Context())
	_, err = Lock(ctx, file, func(string) { cancel() })
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), file) {
		t.Errorf("error is %v", err)
	}
}

// TestLockOfARemovedFile: the last cluster removes the file together with the
// record; whoever waited must not be alone with a file that has no name.
func TestLockOfARemovedFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "one")
	unlock, err := Lock(t.Context(), file, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	locked := make(chan error, 1)
	waiting := make(chan struct{})
	go func() {
		second, err := Lock(t.Context(), file, func(string) { close(waiting) })
		if err == nil {
			defer second()
			_, err = os.Stat(file)
		}
		locked <- err
	}()
	<-waiting
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	unlock()
	if err := <-locked; err != nil {
		t.Error(err)
	}
}
