// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	clocktesting "k8s.io/utils/clock/testing"
)

// A token is known once it was valid, longer than its review is cached, until it is
// invalid.
func TestKnowsTokensThatWereValid(t *testing.T) {
	for name, newGuard := range map[string]func(*testing.T, *apiServer) (Guard, *clocktesting.FakePassiveClock){
		"in a cluster": func(t *testing.T, server *apiServer) (Guard, *clocktesting.FakePassiveClock) {
			return newInCluster(t, server, nil)
		},
		"on one's own machine": func(t *testing.T, server *apiServer) (Guard, *clocktesting.FakePassiveClock) {
			clock := clocktesting.NewFakePassiveClock(time.Now())
			return NewPassThrough(server.start(t), clock), clock
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := &apiServer{users: map[string]authenticationv1.UserInfo{"abc": jane}}
			guard, clock := newGuard(t, server)
			knows := func(token string) bool { return guard.Knows(withBearer(token)) }
			identify := func(token string) error {
				_, err := guard.Identify(t.Context(), withBearer(token))
				return err
			}
			if knows("abc") || len(server.asked) > 0 {
				t.Errorf("a token is known before it was reviewed, by asking %v", server.asked)
			}
			if err := identify("abc"); err != nil || !knows("abc") {
				t.Errorf("a valid token is not known (%v)", err)
			}
			if err := identify("guess"); err == nil || knows("guess") || knows("") {
				t.Errorf("an invalid token is known (%v)", err)
			}
			clock.SetTime(clock.Now().Add(2 * keepGranted))
			if !knows("abc") {
				t.Error("a token is forgotten with its review")
			}
			server.change(func() { delete(server.users, "abc") })
			if err := identify("abc"); err == nil || knows("abc") {
				t.Errorf("a revoked token is known (%v)", err)
			}
		})
	}
}

func TestKnownTokensAreForgotten(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	known := newKnownTokens(clock)
	for i := range maxKnownTokens + 10 {
		known.add(strconv.Itoa(i))
	}
	if len(known.tokens.answers) > maxKnownTokens {
		t.Errorf("%d tokens are remembered", len(known.tokens.answers))
	}
	known.add("abc")
	clock.SetTime(clock.Now().Add(keepKnown))
	if known.has("abc") {
		t.Error("a token is remembered for ever")
	}
}

// The token that odh server prints is known immediately.
func TestSessionTokenIsKnown(t *testing.T) {
	guard := NewPassThrough((&apiServer{}).start(t), clocktesting.NewFakePassiveClock(time.Now()))
	if !guard.Knows(withBearer(guard.SessionToken())) || guard.Knows(httptest.NewRequest("GET", "/", nil)) {
		t.Error("the session token is not known, or every request is")
	}
}
