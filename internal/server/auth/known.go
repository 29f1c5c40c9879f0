// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// keepKnown is how long a valid token is remembered. It is longer than a review is
	// cached: a known token is not a guess when it is reviewed again.
	keepKnown      = time.Hour
	maxKnownTokens = 10_000
)

// knownTokens has the hashes of tokens that were valid at their last review.
type knownTokens struct {
	clock clock.PassiveClock

	mutex  sync.Mutex
	tokens *answerSet[struct{}]
}

func newKnownTokens(clock clock.PassiveClock) *knownTokens {
	return &knownTokens{clock: clock, tokens: &answerSet[struct{}]{max: maxKnownTokens, answers: map[fingerprint]cachedAnswer[struct{}]{}}}
}

func (k *knownTokens) has(token string) bool {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	entry, is := k.tokens.answers[fingerprintOf([]byte(token))]
	return is && k.clock.Now().Before(entry.until)
}

func (k *knownTokens) add(token string) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	now := k.clock.Now()
	k.tokens.put(fingerprintOf([]byte(token)), cachedAnswer[struct{}]{until: now.Add(keepKnown)}, now)
}

func (k *knownTokens) remove(token string) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	delete(k.tokens.answers, fingerprintOf([]byte(token)))
}
