// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"strconv"
	"testing"

	"github.com/trireme-mpi/trireme/internal/server/apierror"
)

// Idle users are evicted; users with streams are not, because their streams would no
// longer be counted.
func TestUsersAreForgotten(t *testing.T) {
	fair := newUserLimiter(Limits{Rate: 1, Burst: 1, Streams: 5}, 10)
	leave, err := fair.acquire("watcher", true)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		leave, err := fair.acquire(strconv.Itoa(i), false)
		if err != nil {
			t.Fatal(err)
		}
		leave()
		if len(fair.users) > 10 {
			t.Fatalf("%d users are remembered", len(fair.users))
		}
	}
	if fair.users["watcher"] == nil || fair.users["watcher"].streams != 1 {
		t.Error("the one with a stream was forgotten")
	}
	leave()
	leave()
	if fair.users["watcher"].streams != 0 {
		t.Errorf("%d streams after the only one has ended", fair.users["watcher"].streams)
	}
}

// Long requests are limited by the burst, and a finished request makes room for another.
func TestRequestsInProgress(t *testing.T) {
	fair := newUserLimiter(Limits{Rate: 1e9, Burst: 2, Streams: 1}, 10)
	enter := func(user string) (func(), error) {
		// The clock of the limiter may not advance for a moment.
		fair.usage(user).rate.SetBurst(1000)
		return fair.acquire(user, false)
	}
	first, err := enter("jane")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := enter("jane"); err != nil {
		t.Fatal(err)
	}
	if _, err := enter("jane"); apierror.From(err).Code != 429 {
		t.Errorf("a third call: %v", err)
	}
	if _, err := enter("max"); err != nil {
		t.Errorf("somebody else's: %v", err)
	}
	if _, err := fair.acquire("jane", true); err != nil {
		t.Errorf("a stream is no call: %v", err)
	}
	first()
	first()
	if _, err := enter("jane"); err != nil {
		t.Errorf("after one has ended: %v", err)
	}
	if _, err := enter("jane"); err == nil {
		t.Error("one that ended was counted twice")
	}
}
