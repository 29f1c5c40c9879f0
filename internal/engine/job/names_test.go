// SPDX-License-Identifier: Apache-2.0

package job

import (
	"strings"
	"testing"
)

func TestRetryName(t *testing.T) {
	const moment = 1789456789
	long := strings.Repeat("a", 54)
	tests := map[string]struct {
		kind    Kind
		name    string
		workers int32
		want    string
	}{
		"a short name":                {KindMPIJob, "train", 2, "train-retry-1789456789"},
		"retried before":              {KindMPIJob, "train-retry-1700000000", 2, "train-retry-1789456789"},
		"a name with retry":           {KindMPIJob, "train-retry-often", 2, "train-retry-often-retry-1789456789"},
		"an MPIJob's longest name":    {KindMPIJob, long, 2, strings.Repeat("a", 30) + "-8580bb-retry-1789456789"},
		"many workers":                {KindMPIJob, long[:50], 1000, strings.Repeat("a", 28) + "-394ba7-retry-1789456789"},
		"a TrainJob that fits":        {KindTrainJob, long[:27], 2, long[:27] + "-retry-1789456789"},
		"a TrainJob that is too long": {KindTrainJob, long[:28], 2, strings.Repeat("a", 20) + "-8a66b1-retry-1789456789"},
		"a dash at the cut":           {KindMPIJob, strings.Repeat("a", 29) + "-" + strings.Repeat("b", 16), 2, strings.Repeat("a", 29) + "-d51867-retry-1789456789"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := test.kind.RetryName(test.name, test.workers, moment); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

// Jobs whose names differ only at the end are often retried together.
func TestRetryNamesDiffer(t *testing.T) {
	name := strings.Repeat("a", 42)
	if one, other := KindTrainJob.RetryName(name+"-1", 2, 100), KindTrainJob.RetryName(name+"-2", 2, 100); one == other {
		t.Errorf("both are retried as %s", one)
	}
	once := KindTrainJob.RetryName(name+"-1", 2, 100)
	if again := KindTrainJob.RetryName(once, 2, 200); again != strings.TrimSuffix(once, "100")+"200" {
		t.Errorf("%s is retried as %s", once, again)
	}
}
