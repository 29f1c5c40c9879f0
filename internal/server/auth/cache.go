// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"context"
	"crypto/sha256"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/utils/clock"

	"github.com/trireme-mpi/trireme/internal/server/apierror"
)

const (
	// keepGranted is how long a positive result is cached: a revoked token or permission
	// works no longer than that.
	keepGranted = 30 * time.Second
	// keepRefused is how long a negative result is cached. It is short, because users try
	// a permission right after they got it, but long enough to slow down a client that
	// retries.
	keepRefused = 3 * time.Second
	// reviewTimeout is the timeout of one review.
	reviewTimeout = 10 * time.Second
	// maxParallelReviews is the number of reviews at the same time. A client that sends
	// many invalid tokens makes others wait a little, but does not overload the API
	// server.
	maxParallelReviews = 50
)

// fingerprint is the hash of a review. Tokens are never stored.
type fingerprint [sha256.Size]byte

// reviewCache caches results of the API server for a short time, and sends only one
// request for all callers that wait for the same result.
type reviewCache[Answer any] struct {
	clock clock.PassiveClock

	mutex sync.Mutex
	// Refusals are separate: a client can cause any number of them, and must not evict
	// results of others.
	granted, refused *answerSet[Answer]
	asking           singleflight.Group
	slots            chan struct{}
}

// answerSet has at most max results.
type answerSet[Answer any] struct {
	max     int
	answers map[fingerprint]cachedAnswer[Answer]
	sweptAt time.Time
}

type cachedAnswer[Answer any] struct {
	answer Answer
	err    error
	until  time.Time
}

func newReviewCache[Answer any](clock clock.PassiveClock, max int) *reviewCache[Answer] {
	return &reviewCache[Answer]{
		clock: clock, slots: make(chan struct{}, maxParallelReviews),
		granted: &answerSet[Answer]{max: max, answers: map[fingerprint]cachedAnswer[Answer]{}}, refused: &answerSet[Answer]{max: max, answers: map[fingerprint]cachedAnswer[Answer]{}},
	}
}

// get returns the cached result, or requests it.
func (r *reviewCache[Answer]) get(ctx context.Context, question fingerprint, ask func(context.Context) (Answer, error)) (Answer, error) {
	if found, is := r.find(question); is {
		return found.answer, found.err
	}
	pending := r.asking.DoChan(string(question[:]), func() (any, error) {
		// The first caller may disconnect while others wait for the result.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reviewTimeout)
		defer cancel()
		select {
		case r.slots <- struct{}{}:
			defer func() { <-r.slots }()
		case <-ctx.Done():
			return nil, reviewFailed("wait for a free review slot", ctx.Err())
		}
		// A result is as old as its request.
		askedAt := r.clock.Now()
		answer, err := ask(ctx)
		r.store(question, answer, err, askedAt)
		return answer, err
	})
	var none Answer
	select {
	case <-ctx.Done():
		return none, ctx.Err()
	case result := <-pending:
		if result.Err != nil {
			return none, result.Err
		}
		return result.Val.(Answer), nil
	}
}

func (r *reviewCache[Answer]) find(question fingerprint) (cachedAnswer[Answer], bool) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	now := r.clock.Now()
	if entry, is := r.granted.answers[question]; is && now.Before(entry.until) {
		return entry, true
	}
	entry, is := r.refused.answers[question]
	return entry, is && now.Before(entry.until)
}

// store caches a result. Errors that are neither positive nor negative are not cached.
func (r *reviewCache[Answer]) store(question fingerprint, answer Answer, err error, askedAt time.Time) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if err == nil {
		r.granted.put(question, cachedAnswer[Answer]{answer: answer, until: askedAt.Add(keepGranted)}, askedAt)
		delete(r.refused.answers, question)
		return
	}
	if code := apierror.From(err).Code; code == http.StatusUnauthorized || code == http.StatusForbidden {
		r.refused.put(question, cachedAnswer[Answer]{err: err, until: askedAt.Add(keepRefused)}, askedAt)
		delete(r.granted.answers, question)
	}
}

// put adds a result. It removes old results and, if there are still too many, some others.
func (a *answerSet[Answer]) put(question fingerprint, entry cachedAnswer[Answer], now time.Time) {
	full := len(a.answers) >= a.max
	if full || now.Sub(a.sweptAt) >= keepGranted {
		a.sweptAt = now
		for question, old := range a.answers {
			if !now.Before(old.until) {
				delete(a.answers, question)
			}
		}
	}
	for question := range a.answers {
		// Removes a tenth at once, so that the next call need not scan all of them again.
		if !full || len(a.answers) < a.max-a.max/10 {
			break
		}
		delete(a.answers, question)
	}
	a.answers[question] = entry
}
