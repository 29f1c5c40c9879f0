// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/trireme-mpi/trireme/api/training"
)

func errorsOf(findings *Findings) (texts []string) {
	for _, err := range findings.Errors {
		texts = append(texts, err.Error())
	}
	return texts
}

func TestHang(t *testing.T) {
	for name, tc := range map[string]struct {
		settings *training.Hang
		want     []string
	}{
		"none":           {},
		"only an action": {settings: &training.Hang{Action: new(training.HangFail)}},
		"off":            {settings: &training.Hang{After: &metav1.Duration{}}},
		"the shortest":   {settings: &training.Hang{After: &metav1.Duration{Duration: 10 * time.Second}}},
		"too short": {settings: &training.Hang{After: &metav1.Duration{Duration: 9 * time.Second}},
			want: []string{`spec.hang.after: Invalid value: "9s": must be at least 10s, or 0s to disable the detection of hangs`}},
	} {
		t.Run(name, func(t *testing.T) {
			findings := &Findings{}
			hang(findings, field.NewPath("spec", "hang"), tc.settings)
			if diff := cmp.Diff(tc.want, errorsOf(findings)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestProgressPattern(t *testing.T) {
	for pattern, want := range map[string][]string{
		"":                        nil,
		`epoch (\d+)`:             nil,
		`epoch (\d+) of (\d+)`:    nil,
		`(?:step|epoch) (\d+)/.*`: nil,
		`epoch (\d+`:              {"spec.progressPattern: Invalid value: \"epoch (\\\\d+\": must be a regular expression in the syntax of RE2: error parsing regexp: missing closing ): `epoch (\\d+`"},
		`epoch`:                   {`spec.progressPattern: Invalid value: "epoch": must have one group for the step and at most one more for the number of steps, such as epoch (\d+) of (\d+); it has 0`},
		`(a)(b)(c)`:               {`spec.progressPattern: Invalid value: "(a)(b)(c)": must have one group for the step and at most one more for the number of steps, such as epoch (\d+) of (\d+); it has 3`},
	} {
		t.Run(pattern, func(t *testing.T) {
			findings := &Findings{}
			progressPattern(findings, field.NewPath("spec", "progressPattern"), pattern)
			if diff := cmp.Diff(want, errorsOf(findings)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
