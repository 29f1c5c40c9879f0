package access

import (
	"context"
	"crypto/sha256"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/utils/clock"

	"github.com/trireme-mpi/trireme/internal/problem"
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
)

// fingerprint stands for a question. Tokens are never kept as such.
type fingerprint [sha256.Size]byte

// kept remembers what the API server said for a short while, so that it is not asked
// anew for every call, and asks once for all who wait for the same answer.
type kept[Answer any] struct {
	clock clock.PassiveClock
	// most is how many answers are kept.
	most int

	mutex   sync.Mutex
	answers map[fingerprint]answered[Answer]
	swept   time.Time
	asking  singleflight.Group
}

type answered[Answer any] struct {
	answer Answer
	err    error
	until  time.Time
}

func newKept[Answer any](clock clock.PassiveClock, most int) *kept[Answer] {
	return &kept[Answer]{clock: clock, most: most, answers: map[fingerprint]answered[Answer]{}}
}

// get is the answer that is kept, or else the one that is asked for now.
func (kept *kept[Answer]) get(ctx context.Context, question fingerprint, ask func(context.Context) (Answer, error)) (Answer, error) {
	if found, is := kept.find(question); is {
		return found.answer, found.err
	}
	asked := kept.asking.DoChan(string(question[:]), func() (any, error) {
		// Whoever asked first may go away while others wait.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
		defer cancel()
		answer, err := ask(ctx)
		kept.keep(question, answer, err)
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

func (kept *kept[Answer]) find(question fingerprint) (answered[Answer], bool) {
	kept.mutex.Lock()
	defer kept.mutex.Unlock()
	found, is := kept.answers[question]
	return found, is && kept.clock.Now().Before(found.until)
}

// keep does so with what was answered. An error that is no answer is asked again.
func (kept *kept[Answer]) keep(question fingerprint, answer Answer, err error) {
	now := kept.clock.Now()
	until := now.Add(keepGranted)
	if err != nil {
		if code := problem.From(err).Code; code != http.StatusUnauthorized && code != http.StatusForbidden {
			return
		}
		until = now.Add(keepRefused)
	}
	kept.mutex.Lock()
	defer kept.mutex.Unlock()
	kept.makeRoom(now)
	kept.answers[question] = answered[Answer]{answer: answer, err: err, until: until}
}

// makeRoom forgets what is too old, and if that is not enough, some that is not.
func (kept *kept[Answer]) makeRoom(now time.Time) {
	full := len(kept.answers) >= kept.most
	if full || now.Sub(kept.swept) >= keepGranted {
		kept.swept = now
		for question, found := range kept.answers {
			if !now.Before(found.until) {
				delete(kept.answers, question)
			}
		}
	}
	for question := range kept.answers {
		if len(kept.answers) < kept.most {
			return
		}
		delete(kept.answers, question)
	}
}
