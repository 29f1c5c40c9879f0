// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

func TestResultsAreCached(t *testing.T) {
	for name, test := range map[string]struct {
		err error
		// kept is when the result is still cached, again when it is requested again.
		kept, again time.Duration
	}{
		"a yes":           {kept: keepGranted - time.Millisecond, again: keepGranted},
		"a no":            {err: invalidToken(), kept: keepRefused - time.Millisecond, again: keepRefused},
		"no right":        {err: forbidden(&Caller{}, Permission{}), kept: keepRefused - time.Millisecond, again: keepRefused},
		"neither of both": {err: errors.New("connection refused"), kept: -1, again: 0},
	} {
		t.Run(name, func(t *testing.T) {
			begun := time.Now()
			clock := clocktesting.NewFakePassiveClock(begun)
			kept := newReviewCache[int](clock, 10)
			asked := 0
			get := func() {
				t.Helper()
				answer, err := kept.get(t.Context(), fingerprint{}, func(context.Context) (int, error) { asked++; return 7, test.err })
				if !errors.Is(err, test.err) || (err == nil && answer != 7) {
					t.Errorf("answer %d and %v", answer, err)
				}
			}
			get()
			if test.kept >= 0 {
				clock.SetTime(begun.Add(test.kept))
				if get(); asked != 1 {
					t.Errorf("asked %d times within %s", asked, test.kept)
				}
			}
			clock.SetTime(begun.Add(test.again))
			if get(); asked != 2 {
				t.Errorf("asked %d times after %s, want 2", asked, test.again)
			}
		})
	}
}

func TestWaitingCallersShareReview(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := newReviewCache[int](clocktesting.NewFakePassiveClock(time.Now()), 10)
		var asked atomic.Int32
		answer := make(chan struct{})
		ask := func(ctx context.Context) (int, error) {
			asked.Add(1)
			<-answer
			return 7, ctx.Err()
		}
		// The first caller disconnects while the others wait.
		impatient, leave := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		waiting.Go(func() {
			if _, err := kept.get(impatient, fingerprint{}, ask); !errors.Is(err, context.Canceled) {
				t.Errorf("the one who left got %v", err)
			}
		})
		synctest.Wait()
		for range 20 {
			waiting.Go(func() {
				if got, err := kept.get(t.Context(), fingerprint{}, ask); got != 7 || err != nil {
					t.Errorf("got %d and %v", got, err)
				}
			})
		}
		leave()
		synctest.Wait()
		close(answer)
		waiting.Wait()
		if asked.Load() != 1 {
			t.Errorf("asked %d times", asked.Load())
		}
	})
}

func TestCacheIsBounded(t *testing.T) {
	begun := time.Now()
	clock := clocktesting.NewFakePassiveClock(begun)
	kept := newReviewCache[int](clock, 20)
	ask := func(context.Context) (int, error) { return 0, nil }
	for i := range 200 {
		if _, err := kept.get(t.Context(), fingerprint{byte(i)}, ask); err != nil {
			t.Fatal(err)
		}
		if have := len(kept.granted.answers); have > 20 || have < min(i, 18) {
			t.Fatalf("%d are kept of %d", have, i)
		}
	}
	// Expired results are removed when a new one is added.
	clock.SetTime(begun.Add(keepGranted))
	if _, err := kept.get(t.Context(), fingerprint{200}, ask); err != nil || len(kept.granted.answers) != 1 {
		t.Errorf("%d are kept after all were too old (%v)", len(kept.granted.answers), err)
	}
}

// A client that sends many invalid tokens must not evict the results of others.
func TestRefusalsEvictNoGrants(t *testing.T) {
	kept := newReviewCache[int](clocktesting.NewFakePassiveClock(time.Now()), 10)
	asked := 0
	get := func() {
		t.Helper()
		if _, err := kept.get(t.Context(), fingerprint{1}, func(context.Context) (int, error) { asked++; return 7, nil }); err != nil {
			t.Fatal(err)
		}
	}
	get()
	for i := range 200 {
		if _, err := kept.get(t.Context(), fingerprint{2, byte(i)}, func(context.Context) (int, error) { return 0, invalidToken() }); err == nil {
			t.Fatal("let in")
		}
	}
	if get(); asked != 1 || len(kept.refused.answers) > 10 {
		t.Errorf("asked %d times; %d refusals are kept", asked, len(kept.refused.answers))
	}
}

// A result that took long is as old as its request.
func TestResultAgeStartsAtRequest(t *testing.T) {
	begun := time.Now()
	clock := clocktesting.NewFakePassiveClock(begun)
	kept := newReviewCache[int](clock, 10)
	asked := 0
	for range 2 {
		if _, err := kept.get(t.Context(), fingerprint{}, func(context.Context) (int, error) {
			asked++
			clock.SetTime(begun.Add(keepGranted))
			return 7, nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if asked != 2 {
		t.Errorf("asked %d times", asked)
	}
}

// The API server gets only a few reviews at the same time.
func TestParallelReviewsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := newReviewCache[int](clocktesting.NewFakePassiveClock(time.Now()), 1000)
		var asking, most atomic.Int32
		var waiting sync.WaitGroup
		for i := range 5 * maxParallelReviews {
			waiting.Go(func() {
				if _, err := kept.get(t.Context(), fingerprint{byte(i), byte(i >> 8)}, func(context.Context) (int, error) {
					now := asking.Add(1)
					defer asking.Add(-1)
					most.Store(max(most.Load(), now))
					time.Sleep(time.Second)
					return 7, nil
				}); err != nil {
					t.Error(err)
				}
			})
		}
		waiting.Wait()
		if most.Load() != maxParallelReviews {
			t.Errorf("%d at a time", most.Load())
		}
	})
}
