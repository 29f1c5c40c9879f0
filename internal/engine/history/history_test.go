// SPDX-License-Identifier: Apache-2.0

package history

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trireme-mpi/trireme/internal/engine/job"
)

var now = time.Date(2026, 11, 19, 12, 0, 0, 0, time.UTC)

func keyOf(uid types.UID) Key { return Key{NamespaceUID: "aa", Kind: job.KindTrainJob, UID: uid} }

func TestRemovals(t *testing.T) {
	stored := func(uid types.UID, age time.Duration, bytes int64) Stored {
		return Stored{Key: keyOf(uid), FinishTime: now.Add(-age), Bytes: bytes}
	}
	three := []Stored{stored("2", 2*time.Hour, 10), stored("3", 3*time.Hour, 10), stored("1", time.Hour, 10)}
	for name, tc := range map[string]struct {
		retention Retention
		stored    []Stored
		incoming  int64
		want      []Removal
	}{
		"no limits":            {stored: three, incoming: 1000},
		"nothing is stored":    {retention: Retention{MaxAge: time.Hour, MaxBytes: 5}, incoming: 5},
		"young enough":         {retention: Retention{MaxAge: 3 * time.Hour}, stored: three},
		"too old":              {retention: Retention{MaxAge: 90 * time.Minute}, stored: three, want: []Removal{{keyOf("3"), CauseAge}, {keyOf("2"), CauseAge}}},
		"exactly full":         {retention: Retention{MaxBytes: 40}, stored: three, incoming: 10},
		"one byte too many":    {retention: Retention{MaxBytes: 40}, stored: three, incoming: 11, want: []Removal{{keyOf("3"), CauseSize}}},
		"all must go":          {retention: Retention{MaxBytes: 30}, stored: three, incoming: 30, want: []Removal{{keyOf("3"), CauseSize}, {keyOf("2"), CauseSize}, {keyOf("1"), CauseSize}}},
		"larger than the rest": {retention: Retention{MaxBytes: 30}, stored: three, incoming: 31},
		"a smaller limit":      {retention: Retention{MaxBytes: 15}, stored: three, want: []Removal{{keyOf("3"), CauseSize}, {keyOf("2"), CauseSize}}},
		"age makes room":       {retention: Retention{MaxAge: 150 * time.Minute, MaxBytes: 30}, stored: three, incoming: 10, want: []Removal{{keyOf("3"), CauseAge}}},
		"age and size": {
			retention: Retention{MaxAge: 150 * time.Minute, MaxBytes: 30}, stored: three, incoming: 11, want: []Removal{{keyOf("3"), CauseAge}, {keyOf("2"), CauseSize}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.retention.Removals(tc.stored, tc.incoming, now)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestKeyIsASafeName(t *testing.T) {
	for name, tc := range map[string]struct {
		key  Key
		want bool
	}{
		"UIDs":         {Key{"6a1c3c0e-ffff-4e0c-8000-0123456789ab", job.KindMPIJob, "0"}, true},
		"no UID":       {Key{"a", job.KindMPIJob, ""}, false},
		"no namespace": {Key{"", job.KindMPIJob, "a"}, false},
		"another kind": {Key{"a", "Pod", "a"}, false},
		"a path":       {Key{"a", job.KindMPIJob, "../a"}, false},
		"a dot":        {Key{"..", job.KindMPIJob, "a"}, false},
	} {
		if got := tc.key.Valid(); got != tc.want {
			t.Errorf("%s: %t, want %t", name, got, tc.want)
		}
	}
	if path := keyOf("b").Path(); path != "aa/trainjobs/b" {
		t.Error(path)
	}
}

func TestFind(t *testing.T) {
	all := []Summary{
		{Key: keyOf("a"), Name: "bert", FinishTime: now.Add(-2 * time.Hour)},
		{Key: keyOf("b"), Name: "bert", FinishTime: now.Add(-time.Hour)},
		{Key: keyOf("c"), Name: "a", FinishTime: now},
	}
	for asked, want := range map[string]types.UID{"bert": "b", "a": "a", "b": "b", "c": "c", "none": ""} {
		found, exists := Find(all, asked)
		if found.UID != want || exists != (want != "") {
			t.Errorf("%s: found %q, want %q", asked, found.UID, want)
		}
	}
}
