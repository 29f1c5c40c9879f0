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
	askTimeout = 10 * time.Second
	// mostAsked is how many questions are asked at a time. Whoever sends tokens that
	// nobody has makes others wait a little, and the API server not at all.
	mostAsked = 50
)

// fingerprint stands for a question. Tokens are never kept as such.
type fingerprint [sha256.Size]byte

// kept remembers what the API server said for a short while, so that it is not asked
// anew for every call, and asks once for all who wait for the same answer.
type kept[Answer any] struct {
	clock clock.PassiveClock

	mutex sync.Mutex
	// Refusals are kept apart: anybody can be refused as often as they like, and that
	// must not make others forgotten.
	granted, refused *shelf[Answer]
	asking           singleflight.Group
	turns            chan struct{}
}

// shelf has answers, and no more than most of them.
type shelf[Answer any] struct {
	most    int
	answers map[fingerprint]answered[Answer]
	swept   time.Time
}

type answered[Answer any] struct {
	answer Answer
	err    error
	until  time.Time
}

func newKept[Answer any](clock clock.PassiveClock, most int) *kept[Answer] {
	return &kept[Answer]{
		clock: clock, turns: make(chan struct{}, mostAsked),
		granted: &shelf[Answer]{most: most, answers: map[fingerprint]answered[Answer]{}}, refused: &shelf[Answer]{most: most, answers: map[fingerprint]answered[Answer]{}},
	}
}

// get is the answer that is kept, or else the one that is asked for now.
func (k *kept[Answer]) get(ctx context.Context, question fingerprint, ask func(context.Context) (Answer, error)) (Answer, error) {
	if found, is := k.find(question); is {
		return found.answer, found.err
	}
	asked := k.asking.DoChan(string(question[:]), func() (any, error) {
		// Whoever asked first may go away while others wait.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
		defer cancel()
		select {
		case k.turns <- struct{}{}:
			defer func() { <-k.turns }()
		case <-ctx.Done():
			return nil, cannotAsk("wait for a free review slot", ctx.Err())
		}
		// An answer is as old as its question: it may have been true only then.
		asked := k.clock.Now()
		answer, err := ask(ctx)
		k.keep(question, answer, err, asked)
		return answer, err
	})
	var none Answer
	select {
	case <-ctx.Done():
		return none, ctx.Err()
	case result := <-asked:
		if result.Err != nil {
			return none, result.Err
		}
		return result.Val.(Answer), nil
	}
}

func (k *kept[Answer]) find(question fingerprint) (answered[Answer], bool) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	now := k.clock.Now()
	if found, is := k.granted.answers[question]; is && now.Before(found.until) {
		return found, true
	}
	found, is := k.refused.answers[question]
	return found, is && now.Before(found.until)
}

// keep does so with what was answered. An error that is no answer is asked again.
func (k *kept[Answer]) keep(question fingerprint, answer Answer, err error, asked time.Time) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	if err == nil {
		k.granted.put(question, answered[Answer]{answer: answer, until: asked.Add(keepGranted)}, asked)
		delete(k.refused.answers, question)
		return
	}
	if code := apierror.From(err).Code; code == http.StatusUnauthorized || code == http.StatusForbidden {
		k.refused.put(question, answered[Answer]{err: err, until: asked.Add(keepRefused)}, asked)
		delete(k.granted.answers, question)
	}
}

// put forgets what is too old, and if that is not enough, some that is not.
func (s *shelf[Answer]) put(question fingerprint, put answered[Answer], now time.Time) {
	full := len(s.answers) >= s.most
	if full || now.Sub(s.swept) >= keepGranted {
		s.swept = now
		for question, found := range s.answers {
			if !now.Before(found.until) {
				delete(s.answers, question)
			}
		}
	}
	for question := range s.answers {
		// Some more than one go, so that the next does not look through all of them again.
		if !full || len(s.answers) < s.most-s.most/10 {
			break
		}
		delete(s.answers, question)
	}
	s.answers[question] = put
}
