// SPDX-License-Identifier: Apache-2.0

package reports

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"github.com/trireme-mpi/trireme/internal/engine/reports"
	"github.com/trireme-mpi/trireme/internal/kube/review"
)

const (
	// maxTokens and maxSources limit the memory for tokens and for clients.
	maxTokens  = 8192
	maxSources = 4096
	// tokenAge is how long the review of a token is used, if the token is valid for so long.
	// That the token's pod still exists is checked for every report.
	tokenAge = 10 * time.Minute
	// refusalAge is how long a token stays refused.
	refusalAge = time.Minute
	// reviewsOfSource are the reviews for each client address: in a second, and at once.
	reviewsOfSource, reviewsAtOnce = 2, 20
)

// ReviewsPerSecond is how many tokens are reviewed in a second, and at once.
const ReviewsPerSecond = 50

const (
	podNameKey = "authentication.kubernetes.io/pod-name"
	podUIDKey  = "authentication.kubernetes.io/pod-uid"
)

// errTooMany is the error of a client that sends too many unknown tokens.
var errTooMany = errors.New("too many tokens to review; retry in a second")

// authenticator asks the API server for the users of tokens, and remembers the answers.
type authenticator struct {
	api     kubernetes.Interface
	clock   clock.PassiveClock
	tokens  *lru.Cache
	sources *lru.Cache
	all     *rate.Limiter
}

// reviewed is the answer for a token; user is nil if the token is refused.
type reviewed struct {
	user  *authenticationv1.UserInfo
	until time.Time
}

func newAuthenticator(api kubernetes.Interface, clock clock.PassiveClock) *authenticator {
	return &authenticator{
		api: api, clock: clock, tokens: lru.New(maxTokens), sources: lru.New(maxSources), all: rate.NewLimiter(ReviewsPerSecond, ReviewsPerSecond),
	}
}

// user returns the user of a token that was issued for an audience; nil if it is refused.
func (a *authenticator) user(ctx context.Context, source, token, audience string) (*authenticationv1.UserInfo, error) {
	now := a.clock.Now()
	// The token itself is not kept.
	key := sha256.Sum256([]byte(audience + "\n" + token))
	if known, found := a.tokens.Get(key); found && now.Before(known.(reviewed).until) {
		return known.(reviewed).user, nil
	}
	if !a.limiterOf(source).AllowN(now, 1) || !a.all.AllowN(now, 1) {
		return nil, errTooMany
	}
	user, err := review.TokenFor(ctx, a.api, token, audience)
	if err != nil {
		return nil, fmt.Errorf("review a token: %w", err)
	}
	answer := reviewed{user: user, until: now.Add(refusalAge)}
	if user != nil {
		answer.until = now.Add(tokenAge)
		if expiry := expiryOf(token); expiry.Before(answer.until) {
			answer.until = expiry
		}
	}
	a.tokens.Add(key, answer)
	return user, nil
}

func (a *authenticator) limiterOf(source string) *rate.Limiter {
	if known, found := a.sources.Get(source); found {
		return known.(*rate.Limiter)
	}
	limiter := rate.NewLimiter(reviewsOfSource, reviewsAtOnce)
	a.sources.Add(source, limiter)
	return limiter
}

// expiryOf reads when a token expires. The API server has checked its signature. A token
// that cannot be read is reviewed each time.
func expiryOf(token string) time.Time {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return time.Time{}
	}
	var claims struct {
		Expiry int64 `json:"exp"`
	}
	if err := json.Unmarshal(payload, &claims); err != nil {
		return time.Time{}
	}
	return time.Unix(claims.Expiry, 0)
}

// senderOf is the pod that a token is bound to.
func senderOf(user *authenticationv1.UserInfo) reports.Sender {
	sender := reports.Sender{ServiceAccount: user.Username}
	if parts := strings.Split(user.Username, ":"); len(parts) == 4 && slices.Equal(parts[:2], []string{"system", "serviceaccount"}) {
		sender.Namespace = parts[2]
	}
	if names := user.Extra[podNameKey]; len(names) == 1 {
		sender.Pod = names[0]
	}
	if uids := user.Extra[podUIDKey]; len(uids) == 1 {
		sender.PodUID = types.UID(uids[0])
	}
	return sender
}
