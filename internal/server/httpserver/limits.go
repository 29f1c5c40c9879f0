// SPDX-License-Identifier: Apache-2.0

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

func (u *userUsage) idle() bool { return u.inProgress == 0 && u.streams == 0 && u.largeBodies == 0 }

func newUserLimiter(limits Limits, maxUsers int) *userLimiter {
	return &userLimiter{limits: limits, maxUsers: maxUsers, users: map[string]*userUsage{}}
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

func (l *limitError) Error() string { return l.apiErr.Message }

// Unwrap returns the error that clients get.
func (l *limitError) Unwrap() error { return l.apiErr }

// retryAfter returns the delay before a retry, in whole seconds.
func (l *limitError) retryAfter() string { return strconv.Itoa(int(math.Ceil(l.delay.Seconds()))) }

// acquire counts a request of a user, or refuses it. Call release when the request has
// finished.
func (u *userLimiter) acquire(user string, stream bool) (release func(), err error) {
	u.mutex.Lock()
	defer u.mutex.Unlock()
	usage := u.usage(user)
	if stream && usage.streams >= u.limits.Streams {
		return nil, &limitError{cause: causeStreams, delay: 10 * time.Second, apiErr: apierror.New(http.StatusTooManyRequests, "TooManyRequests",
			fmt.Sprintf("User %q has %d open streams, which is the maximum", user, usage.streams),
			"Close streams that you do not use; one stream can watch a whole namespace")}
	}
	if !stream && usage.inProgress >= u.limits.Burst {
		return nil, &limitError{cause: causeCalls, delay: time.Second, apiErr: apierror.New(http.StatusTooManyRequests, "TooManyRequests",
			fmt.Sprintf("User %q has %d requests in progress, which is the maximum", user, usage.inProgress),
			"Wait for the responses before you send more requests")}
	}
	if reservation := usage.rate.Reserve(); reservation.Delay() > 0 {
		delay := reservation.Delay()
		reservation.Cancel()
		return nil, &limitError{cause: causeRate, delay: delay, apiErr: apierror.New(http.StatusTooManyRequests, "TooManyRequests",
			fmt.Sprintf("User %q sends more than %g requests per second", user, u.limits.Rate),
			"Wait as long as Retry-After says; use a watch instead of polling")}
	}
	count := &usage.inProgress
	if stream {
		count = &usage.streams
	}
	*count++
	return sync.OnceFunc(func() {
		u.mutex.Lock()
		defer u.mutex.Unlock()
		*count--
	}), nil
}

// usage returns the usage of a user; a new or evicted user starts with full limits.
func (u *userLimiter) usage(user string) *userUsage {
	if known, is := u.users[user]; is {
		return known
	}
	if len(u.users) >= u.maxUsers {
		u.evict()
	}
	fresh := &userUsage{rate: rate.NewLimiter(rate.Limit(u.limits.Rate), u.limits.Burst)}
	u.users[user] = fresh
	return fresh
}

// evict removes users with full limits. If there are none, it removes a tenth of all
// users, so that the next call need not scan all of them again. Users with requests in
// progress stay, because these are counted.
func (u *userLimiter) evict() {
	for user, usage := range u.users {
		if usage.idle() && usage.rate.Tokens() >= float64(u.limits.Burst) {
			delete(u.users, user)
		}
	}
	for user, usage := range u.users {
		if len(u.users) < u.maxUsers-u.maxUsers/10 {
			return
		}
		if usage.idle() {
			delete(u.users, user)
		}
	}
}
