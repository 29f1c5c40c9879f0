// SPDX-License-Identifier: Apache-2.0

package reports

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/training"
)

func TestRefused(t *testing.T) {
	pod := func(role, restart string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "1", Labels: map[string]string{training.LabelReplicaType: role, training.LabelRestart: restart}}}
	}
	tests := map[string]struct {
		change func(*Sender, *Target)
		forAll bool
		want   Refusal
	}{
		"the launcher":             {},
		"the launcher, for all":    {forAll: true},
		"a worker":                 {change: func(_ *Sender, t *Target) { t.Pod = pod(training.RoleWorker, "2") }},
		"a worker, for all":        {change: func(_ *Sender, t *Target) { t.Pod = pod(training.RoleWorker, "2") }, forAll: true, want: RefusedRole},
		"a token of no pod":        {change: func(s *Sender, _ *Target) { s.Pod = "" }, want: RefusedUnbound},
		"a token without a UID":    {change: func(s *Sender, _ *Target) { s.PodUID = "" }, want: RefusedUnbound},
		"another namespace":        {change: func(s *Sender, _ *Target) { s.Namespace = "other" }, want: RefusedOtherNamespace},
		"a deleted pod":            {change: func(_ *Sender, t *Target) { t.Pod = nil }, want: RefusedUnknownPod},
		"a newer pod of that name": {change: func(s *Sender, _ *Target) { s.PodUID = "2" }, want: RefusedUnknownPod},
		"a pod of another job":     {change: func(_ *Sender, t *Target) { t.Owned = false }, want: RefusedOtherJob},
		"an earlier launcher":      {change: func(_ *Sender, t *Target) { t.Pod = pod(training.RoleLauncher, "1") }, want: RefusedOldPod},
		"an earlier worker":        {change: func(_ *Sender, t *Target) { t.Pod = pod(training.RoleWorker, "1") }, want: RefusedOldPod},
		"a worker that was not restarted": {change: func(_ *Sender, t *Target) {
			t.Pod, t.RestartsAsWhole = pod(training.RoleWorker, "0"), false
		}},
		"a finished job": {change: func(_ *Sender, t *Target) { t.Finished = true }, want: RefusedFinished},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			sender := Sender{Namespace: "team", Pod: "bert-launcher", PodUID: "1"}
			target := Target{Namespace: "team", Name: "bert", Restart: 2, Pod: pod(training.RoleLauncher, "2"), Owned: true, RestartsAsWhole: true}
			if tc.change != nil {
				tc.change(&sender, &target)
			}
			got := Refused(sender, target, tc.forAll)
			if got != tc.want {
				t.Errorf("refused %q, want %q", got, tc.want)
			}
			if got != "" && got != RefusedUnbound && !strings.Contains(got.Message(sender, target), "bert") {
				t.Errorf("the message names neither job nor pod: %s", got.Message(sender, target))
			}
		})
	}
}
