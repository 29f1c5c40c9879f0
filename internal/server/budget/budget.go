// Package budget bounds how many bytes of answers are in memory at a time, for each
// user and for all of them. Rates alone do not: two hundred calls that a user may make
// at once, each for a page of large jobs, would be gigabytes.
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
	// PerUser and Overall are how many bytes of objects answers may be made of at a time.
	// An answer takes about five times as much: what was read, its objects, its JSON. A
	// user who does not read answers holds no more than a sixth of it.
	PerUser = 8 << 20
	Overall = 48 << 20
	// LargestObject is the weight of an object whose size is not known: etcd stores no
	// larger ones.
	LargestObject = 3 << 19
	// patience is how long a call waits for others to end.
	maxWait = 10 * time.Second
)

// Budget is what all calls share.
type Budget struct {
	perUser int64
	overall *semaphore.Weighted
	maxWait time.Duration

	mutex sync.Mutex
	users map[string]*userShare
}

// share is what one user's calls share. It is forgotten when none of them needs it.
type userShare struct {
	*semaphore.Weighted
	calls int
}

// New is a budget of so many bytes. A single user has no more than all together.
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

// Handler gives every call an account. What a call has taken is given back when its
// answer has been written.
func (b *Budget) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		a := &account{budget: b}
		defer a.close()
		next.ServeHTTP(writer, request.WithContext(context.WithValue(request.Context(), accountKey{}, a)))
	})
}

// Take waits until the call may hold so many bytes more. It is refused with code 429
// if that takes too long, because answers of the same user, or of all others, are still
// under way. Outside of a call it does nothing.
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

// take waits for the user's own share first, so that whoever asks for much waits for
// themselves and holds nothing of others.
func (b *Budget) take(ctx context.Context, user string, bytes int64) (release func(), err error) {
	// What is larger than the budget gets all of it.
	bytes = min(bytes, b.perUser)
	share := b.enter(user)
	waiting, stop := context.WithTimeout(ctx, b.maxWait)
	defer stop()
	if err := share.Acquire(waiting, bytes); err != nil {
		b.leave(user)
		return nil, refusal(ctx, err, fmt.Sprintf("Responses of more than %d MiB for user %q are still being sent", b.perUser>>20, user))
	}
	if err := b.overall.Acquire(waiting, bytes); err != nil {
		share.Release(bytes)
		b.leave(user)
		return nil, refusal(ctx, err, "The server has no memory left for more large responses")
	}
	return func() {
		b.overall.Release(bytes)
		share.Release(bytes)
		b.leave(user)
	}, nil
}

// refusal is why a call gets nothing: the caller has gone, or has waited long enough.
func refusal(ctx context.Context, err error, message string) error {
	if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return apierror.New(http.StatusTooManyRequests, "TooManyRequests", message,
		"Read the responses that are being sent", "Request smaller pages (limit)", "Retry in a few seconds")
}

func (b *Budget) enter(user string) *userShare {
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

func (b *Budget) leave(user string) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	share := b.users[user]
	if share.calls--; share.calls == 0 {
		delete(b.users, user)
	}
}

// add notes what the call has taken. The call may have ended while it waited.
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
