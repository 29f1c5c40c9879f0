package access

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

func TestAnswersAreKeptForAWhile(t *testing.T) {
	for name, test := range map[string]struct {
		err error
		// kept and asked again after these.
		kept, again time.Duration
	}{
		"a yes":           {kept: keepGranted - time.Millisecond, again: keepGranted},
		"a no":            {err: invalidToken(), kept: keepRefused - time.Millisecond, again: keepRefused},
		"no right":        {err: forbidden(&Caller{}, Rights{}), kept: keepRefused - time.Millisecond, again: keepRefused},
		"neither of both": {err: errors.New("connection refused"), kept: -1, again: 0},
	} {
		t.Run(name, func(t *testing.T) {
			begun := time.Now()
			clock := clocktesting.NewFakePassiveClock(begun)
			kept := newKept[int](clock, 10)
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

func TestManyWhoWaitAskOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := newKept[int](clocktesting.NewFakePassiveClock(time.Now()), 10)
		var asked atomic.Int32
		answer := make(chan struct{})
		ask := func(ctx context.Context) (int, error) {
			asked.Add(1)
			<-answer
			return 7, ctx.Err()
		}
		// The first one goes away while the others wait.
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

func TestWhatIsKeptIsBounded(t *testing.T) {
	begun := time.Now()
	clock := clocktesting.NewFakePassiveClock(begun)
	kept := newKept[int](clock, 10)
	ask := func(context.Context) (int, error) { return 0, nil }
	for i := range 100 {
		if _, err := kept.get(t.Context(), fingerprint{byte(i)}, ask); err != nil {
			t.Fatal(err)
		}
		if len(kept.answers) > 10 {
			t.Fatalf("%d are kept", len(kept.answers))
		}
	}
	if len(kept.answers) != 10 {
		t.Errorf("%d are kept, want 10", len(kept.answers))
	}
	// What is too old goes as soon as something new comes.
	clock.SetTime(begun.Add(keepGranted))
	if _, err := kept.get(t.Context(), fingerprint{200}, ask); err != nil || len(kept.answers) != 1 {
		t.Errorf("%d are kept after all were too old (%v)", len(kept.answers), err)
	}
}
