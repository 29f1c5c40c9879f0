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
const maxUsers = 10_000

// fair gives every user the same share, whatever the others do.
type userLimiter struct {
	limits   Limits
	maxUsers int

	mutex sync.Mutex
	users map[string]*userUsage
}

// share is what a user has left.
type userUsage struct {
	rate *rate.Limiter
	// underWay are calls that have not ended, without streams; large are bodies that are
	// not small.
	inProgress, streams, largeBodies int
}

func (s *userUsage) idle() bool { return s.inProgress == 0 && s.streams == 0 && s.largeBodies == 0 }

func newUserLimiter(limits Limits, most int) *userLimiter {
	return &userLimiter{limits: limits, maxUsers: most, users: map[string]*userUsage{}}
}

// tooMany is the error of a caller who asks for too much.
type limitError struct {
	apiErr *apierror.Error
	delay  time.Duration
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

func (t *limitError) Error() string { return t.apiErr.Message }

// Unwrap is what clients are told.
func (t *limitError) Unwrap() error { return t.apiErr }

// retryAfter is when to try again, in whole seconds.
func (t *limitError) retryAfter() string { return strconv.Itoa(int(math.Ceil(t.delay.Seconds()))) }

// enter lets a user's call in. What it returns is called when the call has ended.
func (f *userLimiter) acquire(user string, stream bool) (release func(), err error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	share := f.usage(user)
	if stream && share.streams >= f.limits.Streams {
		return nil, &limitError{cause: causeStreams, delay: 10 * time.Second, apiErr: apierror.New(http.StatusTooManyRequests, "TooManyRequests",
			fmt.Sprintf("User %q has %d open streams, which is the maximum", user, share.streams),
			"Close streams that you do not use; one stream can watch a whole namespace")}
	}
	if !stream && share.inProgress >= f.limits.Burst {
		return nil, &limitError{cause: causeCalls, delay: time.Second, apiErr: apierror.New(http.StatusTooManyRequests, "TooManyRequests",
			fmt.Sprintf("User %q has %d requests in progress, which is the maximum", user, share.inProgress),
			"Wait for the responses before you send more requests")}
	}
	if turn := share.rate.Reserve(); turn.Delay() > 0 {
		after := turn.Delay()
		turn.Cancel()
		return nil, &limitError{cause: causeRate, delay: after, apiErr: apierror.New(http.StatusTooManyRequests, "TooManyRequests",
			fmt.Sprintf("User %q sends more than %g requests per second", user, f.limits.Rate),
			"Wait as long as Retry-After says; use a watch instead of polling")}
	}
	count := &share.inProgress
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
func (f *userLimiter) usage(user string) *userUsage {
	if known, is := f.users[user]; is {
		return known
	}
	if len(f.users) >= f.maxUsers {
		f.evict()
	}
	fresh := &userUsage{rate: rate.NewLimiter(rate.Limit(f.limits.Rate), f.limits.Burst)}
	f.users[user] = fresh
	return fresh
}

// forget drops those who have their whole share left, and a tenth of all if nobody has,
// so that the next does not look through all of them again. Those with something under
// way stay: what they have is counted.
func (f *userLimiter) evict() {
	for user, share := range f.users {
		if share.idle() && share.rate.Tokens() >= float64(f.limits.Burst) {
			delete(f.users, user)
		}
	}
	for user, share := range f.users {
		if len(f.users) < f.maxUsers-f.maxUsers/10 {
			return
		}
		if share.idle() {
			delete(f.users, user)
		}
	}
}
