// SPDX-License-Identifier: Apache-2.0

// Package budget limits how many bytes of responses are in memory, per user and in total.
// Rate limits do not: 200 requests of one user at once, each for a page of large jobs,
// would take gigabytes.
package budget

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/trireme-mpi/trireme/internal/server/apierror"
	"github.com/trireme-mpi/trireme/internal/server/auth"
)

const (
	// PerUser and Overall are the bytes of objects in responses at a time. A response
	// takes about five times as much memory: the data read, its objects, its JSON. A user
	// who does not read responses holds at most a sixth of it.
	PerUser = 8 << 20
	Overall = 48 << 20
	// LargestObject is the size to assume for an object of unknown size: etcd does not
	// store larger ones.
	LargestObject = 3 << 19
	// maxWait is how long a call waits for other calls to finish.
	maxWait = 10 * time.Second
)

// Budget is shared by all calls.
type Budget struct {
	perUser int64
	overall *semaphore.Weighted
	maxWait time.Duration

	mutex sync.Mutex
	users map[string]*userShare
}

// userShare is shared by the calls of one user. It is removed when no call uses it.
type userShare struct {
	*semaphore.Weighted
	calls int
}

// New returns a budget of a number of bytes. One user never has more than the total.
func New(perUser, overall int64) *Budget {
	return &Budget{perUser: min(perUser, overall), overall: semaphore.NewWeighted(overall), maxWait: maxWait, users: map[string]*userShare{}}
}

// account is what one call has taken.
type account struct {
	budget  *Budget
	mutex   sync.Mutex
	ended   bool
	release []func()
}

type accountKey struct{}

// Handler gives every call an account. What a call has taken is released when its response
// has been written.
func (b *Budget) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		a := &account{budget: b}
		defer a.close()
		next.ServeHTTP(writer, request.WithContext(context.WithValue(request.Context(), accountKey{}, a)))
	})
}

// Take waits until the call may hold more bytes. It fails with code 429 if that takes too
// long, because other responses are still being sent. Outside of a call it does nothing.
func Take(ctx context.Context, bytes int) error {
	a, is := ctx.Value(accountKey{}).(*account)
	if !is {
		return nil
	}
	release, err := a.budget.take(ctx, auth.CallerFrom(ctx).User, int64(bytes))
	if err != nil {
		return err
	}
	a.add(release)
	return nil
}

// take waits for the user's own share first, so that a user with large requests holds
// nothing of the total while waiting.
func (b *Budget) take(ctx context.Context, user string, bytes int64) (release func(), err error) {
	// A request that is larger than the share gets all of it.
	bytes = min(bytes, b.perUser)
	share := b.ref(user)
	waiting, stop := context.WithTimeout(ctx, b.maxWait)
	defer stop()
	if err := share.Acquire(waiting, bytes); err != nil {
		b.unref(user)
		return nil, refusal(ctx, err, fmt.Sprintf("Responses of more than %d MiB for user %q are still being sent", b.perUser>>20, user))
	}
	if err := b.overall.Acquire(waiting, bytes); err != nil {
		share.Release(bytes)
		b.unref(user)
		return nil, refusal(ctx, err, "The server has no memory left for more large responses")
	}
	return func() {
		b.overall.Release(bytes)
		share.Release(bytes)
		b.unref(user)
	}, nil
}

// refusal returns the error of a call: the client disconnected, or the wait took too long.
func refusal(ctx context.Context, err error, message string) error {
	if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return apierror.New(http.StatusTooManyRequests, "TooManyRequests", message,
		"Read the responses that are being sent", "Request smaller pages (limit)", "Retry in a few seconds")
}

func (b *Budget) ref(user string) *userShare {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	share := b.users[user]
	if share == nil {
		share = &userShare{Weighted: semaphore.NewWeighted(b.perUser)}
		b.users[user] = share
	}
	share.calls++
	return share
}

func (b *Budget) unref(user string) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	share := b.users[user]
	if share.calls--; share.calls == 0 {
		delete(b.users, user)
	}
}

// add records what the call has taken. The call may have finished while it waited.
func (a *account) add(release func()) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if a.ended {
		release()
		return
	}
	a.release = append(a.release, release)
}

func (a *account) close() {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.ended = true
	for _, release := range a.release {
		release()
	}
}
