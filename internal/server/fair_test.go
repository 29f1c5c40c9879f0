package server

import (
	"strconv"
	"testing"
)

// Users who come and go are forgotten; those with streams are not, because their
// streams would no longer be counted.
func TestUsersAreForgotten(t *testing.T) {
	fair := newFair(Limits{Rate: 1, Burst: 1, Streams: 5}, 10)
	leave, err := fair.enter("watcher", true)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		if _, err := fair.enter(strconv.Itoa(i), false); err != nil {
			t.Fatal(err)
		}
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
