package httpserver

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/trireme-mpi/trireme/internal/server/apierror"
)

// mostUsers is how many users are remembered at a time.
const mostUsers = 10_000

// fair gives every user the same share, whatever the others do.
type fair struct {
	limits Limits
	most   int

	mutex sync.Mutex
	users map[string]*share
}

// share is what a user has left.
type share struct {
	calls *rate.Limiter
	// underWay are calls that have not ended, without streams; large are bodies that are
	// not small.
	underWay, streams, large int
}

func (s *share) idle() bool { return s.underWay == 0 && s.streams == 0 && s.large == 0 }

func newFair(limits Limits, most int) *fair {
	return &fair{limits: limits, most: most, users: map[string]*share{}}
}

// tooMany is the error of a caller who asks for too much.
type tooMany struct {
	told  *apierror.Error
	after time.Duration
	// cause is what it is counted by.
	cause string
}

// What refusals are counted by.
const (
	causeStreams              = "user-streams"
	causeCalls                = "user-calls"
	causeRate                 = "user-rate"
	causeBodies               = "user-bodies"
	causeUnauthenticated      = "unauthenticated"
	causeConnections          = "connections"
	causeConnectionsPerSource = "source-connections"
)

func (t *tooMany) Error() string { return t.told.Message }

// Unwrap is what clients are told.
func (t *tooMany) Unwrap() error { return t.told }

// retryAfter is when to try again, in whole seconds.
func (t *tooMany) retryAfter() string { return strconv.Itoa(int(math.Ceil(t.after.Seconds()))) }

// enter lets a user's call in. What it returns is called when the call has ended.
func (f *fair) enter(user string, stream bool) (leave func(), err error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	share := f.share(user)
	if stream && share.streams >= f.limits.Streams {
		return nil, &tooMany{cause: causeStreams, after: 10 * time.Second, told: apierror.New(http.StatusTooManyRequests, "TooManyRequests",
			fmt.Sprintf("User %q has %d open streams, which is the maximum", user, share.streams),
			"Close streams that you do not use; one stream can watch a whole namespace")}
	}
	if !stream && share.underWay >= f.limits.Burst {
		return nil, &tooMany{cause: causeCalls, after: time.Second, told: apierror.New(http.StatusTooManyRequests, "TooManyRequests",
			fmt.Sprintf("User %q has %d requests in progress, which is the maximum", user, share.underWay),
			"Wait for the responses before you send more requests")}
	}
	if turn := share.calls.Reserve(); turn.Delay() > 0 {
		after := turn.Delay()
		turn.Cancel()
		return nil, &tooMany{cause: causeRate, after: after, told: apierror.New(http.StatusTooManyRequests, "TooManyRequests",
			fmt.Sprintf("User %q sends more than %g requests per second", user, f.limits.Rate),
			"Wait as long as Retry-After says; use a watch instead of polling")}
	}
	count := &share.underWay
	if stream {
		count = &share.streams
	}
	*count++
	return sync.OnceFunc(func() {
		f.mutex.Lock()
		defer f.mutex.Unlock()
		*count--
	}), nil
}

// share is what a user has, which is all of it for one who was not here lately.
func (f *fair) share(user string) *share {
	if known, is := f.users[user]; is {
		return known
	}
	if len(f.users) >= f.most {
		f.forget()
	}
	fresh := &share{calls: rate.NewLimiter(rate.Limit(f.limits.Rate), f.limits.Burst)}
	f.users[user] = fresh
	return fresh
}

// forget drops those who have their whole share left, and a tenth of all if nobody has,
// so that the next does not look through all of them again. Those with something under
// way stay: what they have is counted.
func (f *fair) forget() {
	for user, share := range f.users {
		if share.idle() && share.calls.Tokens() >= float64(f.limits.Burst) {
			delete(f.users, user)
		}
	}
	for user, share := range f.users {
		if len(f.users) < f.most-f.most/10 {
			return
		}
		if share.idle() {
			delete(f.users, user)
		}
	}
}
