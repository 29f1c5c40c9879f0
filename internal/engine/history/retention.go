// SPDX-License-Identifier: Apache-2.0

package history

import (
	"slices"
	"strings"
	"time"
)

// Retention is how long records are kept.
type Retention struct {
	// MaxAge of a record after its job has finished; 0 has no limit.
	MaxAge time.Duration
	// MaxBytes of all records with their logs; 0 has no limit.
	MaxBytes int64
}

// Stored is a record in a store.
type Stored struct {
	Key        Key
	FinishTime time.Time
	Bytes      int64
}

// Cause is why a record is deleted. It is a label of a metric.
type Cause string

// The causes.
const (
	CauseAge     Cause = "age"
	CauseSize    Cause = "size"
	CauseRequest Cause = "request"
)

// Removal is a record that must be deleted.
type Removal struct {
	Key   Key
	Cause Cause
}

// Removals returns what to delete before a record of some bytes is written: all that are too
// old, and then the oldest until the record fits. If it is larger than all that may be
// stored, nothing is deleted for it.
func (r Retention) Removals(stored []Stored, incoming int64, now time.Time) (removals []Removal) {
	oldestFirst := slices.Clone(stored)
	slices.SortFunc(oldestFirst, func(a, b Stored) int {
		if order := a.FinishTime.Compare(b.FinishTime); order != 0 {
			return order
		}
		return strings.Compare(a.Key.Path(), b.Key.Path())
	})
	total := incoming
	for _, one := range oldestFirst {
		total += one.Bytes
	}
	for _, one := range oldestFirst {
		var cause Cause
		switch {
		case r.Expired(one.FinishTime, now):
			cause = CauseAge
		case r.MaxBytes > 0 && total > r.MaxBytes && r.Fits(incoming):
			cause = CauseSize
		default:
			continue
		}
		total -= one.Bytes
		removals = append(removals, Removal{Key: one.Key, Cause: cause})
	}
	return removals
}

// Fits reports whether a record may be stored at all.
func (r Retention) Fits(bytes int64) bool { return r.MaxBytes == 0 || bytes <= r.MaxBytes }

// Expired reports whether the record of a job that finished at a time is too old.
func (r Retention) Expired(finished, now time.Time) bool {
	return r.MaxAge > 0 && now.Sub(finished) > r.MaxAge
}
