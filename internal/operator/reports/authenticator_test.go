// SPDX-License-Identifier: Apache-2.0

package reports

import (
	"encoding/base64"
	"errors"
	"fmt"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	testingclock "k8s.io/utils/clock/testing"
)

var now = time.Date(2026, 11, 18, 12, 0, 0, 0, time.UTC)

func tokenUntil(expiry time.Time) string {
	return "h." + base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"exp": %d}`, expiry.Unix())) + ".s"
}

// reviewer counts reviews, and accepts tokens of the given ones for their audience.
func reviewer(t *testing.T, accepted map[string]string) (*authenticator, *testingclock.FakePassiveClock, *int) {
	t.Helper()
	count, api, clock := 0, fake.NewClientset(), testingclock.NewFakePassiveClock(now)
	api.PrependReactor("create", "tokenreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		count++
		asked := action.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview).Spec
		audience, known := accepted[asked.Token]
		answer := &authenticationv1.TokenReview{}
		if known && audience == asked.Audiences[0] {
			answer.Status = authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: []string{audience}, User: authenticationv1.UserInfo{Username: "u"}}
		}
		return true, answer, nil
	})
	return newAuthenticator(api, clock), clock, &count
}

// A review is used again, but not after the token has expired.
func TestReviewsAreRemembered(t *testing.T) {
	long, short := tokenUntil(now.Add(time.Hour)), tokenUntil(now.Add(time.Minute))
	a, clock, reviews := reviewer(t, map[string]string{long: "job", short: "job"})
	for _, step := range []struct {
		after       time.Duration
		token       string
		audience    string
		wantUser    bool
		wantReviews int
	}{
		{0, long, "job", true, 1},
		{0, short, "job", true, 2},
		{0, long, "other", false, 3},
		{59 * time.Second, short, "job", true, 3},
		{59 * time.Second, long, "other", false, 3},
		{61 * time.Second, short, "job", true, 4},
		{61 * time.Second, long, "job", true, 4},
		{tokenAge + time.Second, long, "job", true, 5},
	} {
		clock.SetTime(now.Add(step.after))
		user, err := a.user(t.Context(), "10.0.0.1", step.token, step.audience)
		if err != nil || (user != nil) != step.wantUser || *reviews != step.wantReviews {
			t.Errorf("after %s for %s: user %v, error %v, %d reviews; want a user: %t, %d reviews", step.after, step.audience, user, err, *reviews, step.wantUser, step.wantReviews)
		}
	}
}

// A client that guesses tokens is stopped, and does not stop others.
func TestReviewsAreLimited(t *testing.T) {
	a, _, reviews := reviewer(t, nil)
	for i := range 100 {
		_, err := a.user(t.Context(), "10.0.0.1", fmt.Sprint("guess-", i), "job")
		if tooMany := errors.Is(err, errTooMany); tooMany != (i >= reviewsAtOnce) {
			t.Fatalf("guess %d: %v", i, err)
		}
	}
	if _, err := a.user(t.Context(), "10.0.0.2", "other", "job"); err != nil || *reviews != reviewsAtOnce+1 {
		t.Errorf("another client: %v, %d reviews", err, *reviews)
	}
}
