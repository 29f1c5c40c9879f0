package auth

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// keepKnown is how long a token that was valid is remembered as such. It is longer
	// than a review is kept: a token that is reviewed again is not one that somebody
	// guesses.
	keepKnown = time.Hour
	mostKnown = 10_000
)

// known remembers which tokens were valid when they were last reviewed, by their hash.
type known struct {
	clock clock.PassiveClock

	mutex  sync.Mutex
	tokens *shelf[struct{}]
}

func newKnown(clock clock.PassiveClock) *known {
	return &known{clock: clock, tokens: &shelf[struct{}]{most: mostKnown, answers: map[fingerprint]answered[struct{}]{}}}
}

func (known *known) has(token string) bool {
	known.mutex.Lock()
	defer known.mutex.Unlock()
	found, is := known.tokens.answers[fingerprintOf([]byte(token))]
	return is && known.clock.Now().Before(found.until)
}

func (known *known) add(token string) {
	known.mutex.Lock()
	defer known.mutex.Unlock()
	now := known.clock.Now()
	known.tokens.put(fingerprintOf([]byte(token)), answered[struct{}]{until: now.Add(keepKnown)}, now)
}

func (known *known) remove(token string) {
	known.mutex.Lock()
	defer known.mutex.Unlock()
	delete(known.tokens.answers, fingerprintOf([]byte(token)))
}
