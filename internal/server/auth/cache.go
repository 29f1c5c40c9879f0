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
	// keepGranted is how old a yes may be: a token that was revoked, or a right that
	// was taken away, works no longer than that.
	keepGranted = 30 * time.Second
	// keepRefused is how old a no may be. It is short, because people who were just
	// given a right try it at once, and long enough for a program that insists.
	keepRefused = 3 * time.Second
	// askTimeout is what one question to the API server may take.
	reviewTimeout = 10 * time.Second
	// mostAsked is how many questions are asked at a time. Whoever sends tokens that
	// nobody has makes others wait a little, and the API server not at all.
	maxParallelReviews = 50
)

// fingerprint stands for a question. Tokens are never kept as such.
type fingerprint [sha256.Size]byte

// kept remembers what the API server said for a short while, so that it is not asked
// anew for every call, and asks once for all who wait for the same answer.
type reviewCache[Answer any] struct {
	clock clock.PassiveClock

	mutex sync.Mutex
	// Refusals are kept apart: anybody can be refused as often as they like, and that
	// must not make others forgotten.
	granted, refused *answerSet[Answer]
	asking           singleflight.Group
	slots            chan struct{}
}

// shelf has answers, and no more than most of them.
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

// get is the answer that is kept, or else the one that is asked for now.
func (k *reviewCache[Answer]) get(ctx context.Context, question fingerprint, ask func(context.Context) (Answer, error)) (Answer, error) {
	if found, is := k.find(question); is {
		return found.answer, found.err
	}
	pending := k.asking.DoChan(string(question[:]), func() (any, error) {
		// Whoever asked first may go away while others wait.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reviewTimeout)
		defer cancel()
		select {
		case k.slots <- struct{}{}:
			defer func() { <-k.slots }()
		case <-ctx.Done():
			return nil, reviewFailed("wait for a free review slot", ctx.Err())
		}
		// An answer is as old as its question: it may have been true only then.
		pending := k.clock.Now()
		answer, err := ask(ctx)
		k.store(question, answer, err, pending)
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

func (k *reviewCache[Answer]) find(question fingerprint) (cachedAnswer[Answer], bool) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	now := k.clock.Now()
	if entry, is := k.granted.answers[question]; is && now.Before(entry.until) {
		return entry, true
	}
	entry, is := k.refused.answers[question]
	return entry, is && now.Before(entry.until)
}

// keep does so with what was answered. An error that is no answer is asked again.
func (k *reviewCache[Answer]) store(question fingerprint, answer Answer, err error, askedAt time.Time) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	if err == nil {
		k.granted.put(question, cachedAnswer[Answer]{answer: answer, until: askedAt.Add(keepGranted)}, askedAt)
		delete(k.refused.answers, question)
		return
	}
	if code := apierror.From(err).Code; code == http.StatusUnauthorized || code == http.StatusForbidden {
		k.refused.put(question, cachedAnswer[Answer]{err: err, until: askedAt.Add(keepRefused)}, askedAt)
		delete(k.granted.answers, question)
	}
}

// put forgets what is too old, and if that is not enough, some that is not.
func (s *answerSet[Answer]) put(question fingerprint, entry cachedAnswer[Answer], now time.Time) {
	full := len(s.answers) >= s.max
	if full || now.Sub(s.sweptAt) >= keepGranted {
		s.sweptAt = now
		for question, old := range s.answers {
			if !now.Before(old.until) {
				delete(s.answers, question)
			}
		}
	}
	for question := range s.answers {
		// Some more than one go, so that the next does not look through all of them again.
		if !full || len(s.answers) < s.max-s.max/10 {
			break
		}
		delete(s.answers, question)
	}
	s.answers[question] = entry
}
