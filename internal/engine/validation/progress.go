// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"regexp"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/trireme-mpi/trireme/api/training"
)

// minHang is the shortest time after which a job may be called stalled. Within less than
// that, the ranks cannot be examined twice.
const minHang = 10 * time.Second

// hang validates how hangs are detected. The schema has already checked the form of the
// duration.
func hang(findings *Findings, at *field.Path, settings *training.Hang) {
	if settings == nil || settings.After == nil {
		return
	}
	if after := settings.After.Duration; after < 0 || after > 0 && after < minHang {
		findings.refuse(field.Invalid(at.Child("after"), after.String(), fmt.Sprintf("must be at least %s, or 0s to disable the detection of hangs", minHang)))
	}
}

// progressPattern validates a pattern that finds the progress in a line of output.
func progressPattern(findings *Findings, at *field.Path, pattern string) {
	if pattern == "" {
		return
	}
	compiled, err := regexp.Compile(pattern)
	switch {
	case err != nil:
		findings.refuse(field.Invalid(at, pattern, fmt.Sprintf("must be a regular expression in the syntax of RE2: %v", err)))
	case compiled.NumSubexp() < 1 || compiled.NumSubexp() > 2:
		findings.refuse(field.Invalid(at, pattern, fmt.Sprintf(`must have one group for the step and at most one more for the number of steps, such as epoch (\d+) of (\d+); it has %d`, compiled.NumSubexp())))
	}
}
