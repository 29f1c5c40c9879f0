// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// An answer has all that the condition has, and no time where there is none.
func TestAnswersAreWhole(t *testing.T) {
	since := metav1.Time{Time: time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)}
	got := conditionsOf([]metav1.Condition{
		{Type: "WorkersReady", Status: "False", Reason: "Waiting", Message: "3 of 4 workers are ready", LastTransitionTime: since, ObservedGeneration: 2},
		{Type: "Failed", Status: "Unknown"},
	})
	want := []Answered{
		{Type: "WorkersReady", Status: "False", Reason: "Waiting", Message: "3 of 4 workers are ready", LastTransitionTime: &since, ObservedGeneration: 2},
		{Type: "Failed", Status: "Unknown"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("answers (-want +got):\n%s", diff)
	}
}
