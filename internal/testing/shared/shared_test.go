// SPDX-License-Identifier: Apache-2.0

package shared

import (
	"os"
	"slices"
	"testing"
)

func TestAThingOutlivesTheTestThatNeededItFirst(t *testing.T) {
	made, folder := 0, ""
	var ended []string
	thing := Thing[string]{Make: func(t testing.TB) string {
		made++
		folder = t.TempDir()
		t.Cleanup(func() { ended = append(ended, "first") })
		t.Cleanup(func() { ended = append(ended, "second") })
		return "thing"
	}}
	for range 2 {
		t.Run("a test", func(t *testing.T) {
			if got := thing.For(t); got != "thing" || made != 1 {
				t.Errorf("%q, made %d times", got, made)
			}
		})
	}
	if _, err := os.Stat(folder); err != nil || len(ended) > 0 {
		t.Errorf("it ended with a test: %v %v", err, ended)
	}
	if code := thing.End(7); code != 7 || !slices.Equal(ended, []string{"second", "first"}) {
		t.Errorf("code %d, ended in the order %v", code, ended)
	}
	if _, err := os.Stat(folder); !os.IsNotExist(err) {
		t.Errorf("its folder is still there: %v", err)
	}
}

func TestWhatGoesWrongAtTheEnd(t *testing.T) {
	thing := Thing[int]{Make: func(t testing.TB) int {
		t.Cleanup(func() { t.Errorf("it did not end as %s", "it should") })
		return 0
	}}
	thing.For(t)
	if code := thing.End(0); code != 1 {
		t.Errorf("code %d", code)
	}
}
