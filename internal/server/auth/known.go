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

func (k *known) has(token string) bool {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	found, is := k.tokens.answers[fingerprintOf([]byte(token))]
	return is && k.clock.Now().Before(found.until)
}

func (k *known) add(token string) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	now := k.clock.Now()
	k.tokens.put(fingerprintOf([]byte(token)), answered[struct{}]{until: now.Add(keepKnown)}, now)
}

func (k *known) remove(token string) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	delete(k.tokens.answers, fingerprintOf([]byte(token)))
}
