// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trireme-mpi/trireme/internal/server/apierror"
	"github.com/trireme-mpi/trireme/internal/server/auth"
)

// call runs a function within a call of a user.
func call(budget *Budget, user string, run func(context.Context)) {
	budget.Handler(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		run(auth.WithCaller(request.Context(), &auth.Caller{User: user}))
	})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
}

func TestUsersWaitForTheirOwnAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := New(10, 100)
		var first, second, other time.Duration
		begun := time.Now()
		var calls sync.WaitGroup
		calls.Go(func() {
			call(budget, "ada", func(ctx context.Context) {
				if err := Take(ctx, 8); err != nil {
					t.Error(err)
				}
				time.Sleep(3 * time.Second)
				first = time.Since(begun)
			})
		})
		synctest.Wait()
		calls.Go(func() {
			call(budget, "ada", func(ctx context.Context) {
				if err := Take(ctx, 8); err != nil {
					t.Error(err)
				}
				second = time.Since(begun)
			})
		})
		calls.Go(func() {
			call(budget, "bob", func(ctx context.Context) {
				if err := Take(ctx, 8); err != nil {
					t.Error(err)
				}
				other = time.Since(begun)
			})
		})
		calls.Wait()
		if second < first || other != 0 {
			t.Errorf("the second answer begins after %s, the first ends after %s, another user's begins after %s", second, first, other)
		}
		if len(budget.users) != 0 {
			t.Errorf("%d users are remembered", len(budget.users))
		}
	})
}

// TestWhoWaitsTooLongIsRefused checks the user's own limit, then the total.
func TestWhoWaitsTooLongIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := New(10, 15)
		release := make(chan struct{})
		var calls sync.WaitGroup
		calls.Go(func() {
			call(budget, "ada", func(ctx context.Context) {
				if err := Take(ctx, 10); err != nil {
					t.Error(err)
				}
				<-release
			})
		})
		synctest.Wait()
		for _, user := range []string{"ada", "bob"} {
			call(budget, user, func(ctx context.Context) {
				begun := time.Now()
				err := Take(ctx, 10)
				if err == nil || apierror.From(err).Code != http.StatusTooManyRequests || time.Since(begun) != maxWait {
					t.Errorf("%s: %v after %s", user, err, time.Since(begun))
				}
			})
		}
		call(budget, "bob", func(ctx context.Context) {
			if err := Take(ctx, 5); err != nil {
				t.Errorf("what fits is refused: %v", err)
			}
		})
		close(release)
		calls.Wait()
		call(budget, "bob", func(ctx context.Context) {
			if err := Take(ctx, 1000); err != nil {
				t.Errorf("what is larger than the budget is refused: %v", err)
			}
		})
	})
}

func TestDisconnectedClientTakesNothing(t *testing.T) {
	budget := New(10, 10)
	call(budget, "ada", func(ctx context.Context) {
		if err := Take(ctx, 10); err != nil {
			t.Fatal(err)
		}
		gone, cancel := context.WithCancel(ctx)
		cancel()
		if err := Take(gone, 10); err == nil || apierror.From(err).Code == http.StatusTooManyRequests {
			t.Errorf("%v", err)
		}
	})
}

func TestNoLimitOutsideOfCalls(t *testing.T) {
	if err := Take(t.Context(), 1<<40); err != nil {
		t.Error(err)
	}
}
