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
	patience = 10 * time.Second
)

// Budget is what all calls share.
type Budget struct {
	perUser  int64
	overall  *semaphore.Weighted
	patience time.Duration

	mutex sync.Mutex
	users map[string]*share
}

// share is what one user's calls share. It is forgotten when none of them needs it.
type share struct {
	*semaphore.Weighted
	calls int
}

// New is a budget of so many bytes. A single user has no more than all together.
func New(perUser, overall int64) *Budget {
	return &Budget{perUser: min(perUser, overall), overall: semaphore.NewWeighted(overall), patience: patience, users: map[string]*share{}}
}

// account is what one call has taken.
type account struct {
	budget *Budget
	mutex  sync.Mutex
	ended  bool
	give   []func()
}

type accountKey struct{}

// Handler gives every call an account. What a call has taken is given back when its
// answer has been written.
func (b *Budget) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		opened := &account{budget: b}
		defer opened.close()
		next.ServeHTTP(writer, request.WithContext(context.WithValue(request.Context(), accountKey{}, opened)))
	})
}

// Take waits until the call may hold so many bytes more. It is refused with code 429
// if that takes too long, because answers of the same user, or of all others, are still
// under way. Outside of a call it does nothing.
func Take(ctx context.Context, bytes int) error {
	opened, is := ctx.Value(accountKey{}).(*account)
	if !is {
		return nil
	}
	give, err := opened.budget.take(ctx, auth.CallerFrom(ctx).User, int64(bytes))
	if err != nil {
		return err
	}
	opened.add(give)
	return nil
}

// take waits for the user's own share first, so that whoever asks for much waits for
// themselves and holds nothing of others.
func (b *Budget) take(ctx context.Context, user string, bytes int64) (give func(), err error) {
	// What is larger than the budget gets all of it.
	bytes = min(bytes, b.perUser)
	own := b.enter(user)
	waiting, stop := context.WithTimeout(ctx, b.patience)
	defer stop()
	if err := own.Acquire(waiting, bytes); err != nil {
		b.leave(user)
		return nil, refusal(ctx, err, fmt.Sprintf("Responses of more than %d MiB for user %q are still being sent", b.perUser>>20, user))
	}
	if err := b.overall.Acquire(waiting, bytes); err != nil {
		own.Release(bytes)
		b.leave(user)
		return nil, refusal(ctx, err, "The server has no memory left for more large responses")
	}
	return func() {
		b.overall.Release(bytes)
		own.Release(bytes)
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

func (b *Budget) enter(user string) *share {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	own := b.users[user]
	if own == nil {
		own = &share{Weighted: semaphore.NewWeighted(b.perUser)}
		b.users[user] = own
	}
	own.calls++
	return own
}

func (b *Budget) leave(user string) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	own := b.users[user]
	if own.calls--; own.calls == 0 {
		delete(b.users, user)
	}
}

// add notes what the call has taken. The call may have ended while it waited.
func (a *account) add(give func()) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if a.ended {
		give()
		return
	}
	a.give = append(a.give, give)
}

func (a *account) close() {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.ended = true
	for _, give := range a.give {
		give()
	}
}
