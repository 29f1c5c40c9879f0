// SPDX-License-Identifier: Apache-2.0

// Package eventually lets tests wait for what another process, or another goroutine,
// does in its own time.
package eventually

import (
	"errors"
	"testing"
	"time"
)

// patience is long enough for a machine that has much else to do: a test that passes
// never waits for so long.
const patience = 2 * time.Minute

// Holds ends the test unless something becomes true.
func Holds(t testing.TB, what string, holds func() bool) {
	t.Helper()
	HoldsWithin(t, patience, what, holds)
}

// HoldsWithin is Holds for something that has a time limit.
func HoldsWithin(t testing.TB, limit time.Duration, what string, holds func() bool) {
	t.Helper()
	SucceedsWithin(t, limit, what, func() error {
		if !holds() {
			return errNotYet
		}
		return nil
	})
}

var errNotYet = errors.New("it does not hold")

// Succeeds ends the test with the last error unless there is none at some time.
func Succeeds(t testing.TB, what string, try func() error) {
	t.Helper()
	SucceedsWithin(t, patience, what, try)
}

// SucceedsWithin is Succeeds for something that has a time limit.
func SucceedsWithin(t testing.TB, limit time.Duration, what string, try func() error) {
	t.Helper()
	for deadline := time.Now().Add(limit); ; {
		began := time.Now()
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s: %v", what, limit, err)
		}
		time.Sleep(pause(time.Since(began)))
	}
}

// pause lets a machine that is busy spend most of its time on what is waited for: the
// longer a try takes, the fewer there are.
func pause(tryTook time.Duration) time.Duration {
	return min(max(9*tryTook, 5*time.Millisecond), 200*time.Millisecond)
}
