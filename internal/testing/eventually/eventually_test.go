// SPDX-License-Identifier: Apache-2.0

package eventually_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

// recorder keeps what a test ended with.
type recorder struct {
	testing.TB
	ended string
}

func (r *recorder) Helper() {}

func (r *recorder) Fatalf(format string, arguments ...any) {
	r.ended = fmt.Sprintf(format, arguments...)
	panic(r)
}

// endOf is what waiting ends a test with.
func endOf(wait func(testing.TB)) (ended string) {
	r := &recorder{}
	defer func() { _, ended = recover(), r.ended }()
	wait(r)
	return ""
}

func TestWaitsUntilItHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		eventually.Holds(t, "a minute has passed", func() bool { return time.Since(began) >= time.Minute })
		if took := time.Since(began); took > time.Minute+200*time.Millisecond {
			t.Errorf("it took %s", took)
		}
	})
}

func TestEndsTheTestWithTheLastError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, tries := time.Now(), 0
		ended := endOf(func(tb testing.TB) {
			eventually.SucceedsWithin(tb, time.Second, "the pod runs", func() error {
				tries++
				return errors.New("it is Pending")
			})
		})
		if took := time.Since(began); ended != "the pod runs: not within 1s: it is Pending" || took < time.Second || took > 2*time.Second {
			t.Errorf("after %d tries and %s the test ends with %q", tries, took, ended)
		}
		ended = endOf(func(tb testing.TB) { eventually.Holds(tb, "nothing", func() bool { return false }) })
		if !strings.HasPrefix(ended, "nothing: not within 2m") {
			t.Errorf("it ends with %q", ended)
		}
	})
}

// Slow questions are asked less often than quick ones.
func TestLeavesTimeForOthers(t *testing.T) {
	for took, wantTries := range map[time.Duration]int{0: 200, 20 * time.Millisecond: 5, time.Second: 1} {
		synctest.Test(t, func(t *testing.T) {
			tries := 0
			endOf(func(tb testing.TB) {
				eventually.HoldsWithin(tb, time.Second, "never", func() bool {
					tries++
					time.Sleep(took)
					return false
				})
			})
			if tries < wantTries || tries > wantTries+2 {
				t.Errorf("%d tries of %s within a second, want %d", tries, took, wantTries)
			}
		})
	}
}
