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

// maxUsers is the maximum number of users to track.
const maxUsers = 10_000

// userLimiter gives every user the same limits, independent of other users.
type userLimiter struct {
	limits   Limits
	maxUsers int

	mutex sync.Mutex
	users map[string]*userUsage
}

// userUsage is the current usage of a user.
type userUsage struct {
	rate *rate.Limiter
	// inProgress counts requests without streams; largeBodies are bodies larger than
	// smallBody.
	inProgress, streams, largeBodies int
}

func (s *userUsage) idle() bool { return s.inProgress == 0 && s.streams == 0 && s.largeBodies == 0 }

func newUserLimiter(limits Limits, most int) *userLimiter {
	return &userLimiter{limits: limits, maxUsers: most, users: map[string]*userUsage{}}
}

// limitError is the error of a request over a limit.
type limitError struct {
	apiErr *apierror.Error
	delay  time.Duration
	// cause is the label in metrics.
	cause string
}

// Causes of refusals, in metrics.
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

// Unwrap returns the error that clients get.
func (t *limitError) Unwrap() error { return t.apiErr }

// retryAfter returns the delay before a retry, in whole seconds.
func (t *limitError) retryAfter() string { return strconv.Itoa(int(math.Ceil(t.delay.Seconds()))) }

// acquire counts a request of a user, or refuses it. Call release when the request has
// finished.
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

// usage returns the usage of a user; a new or evicted user starts with full limits.
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

// evict removes users with full limits. If there are none, it removes a tenth of all
// users, so that the next call need not scan all of them again. Users with requests in
// progress stay, because these are counted.
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
