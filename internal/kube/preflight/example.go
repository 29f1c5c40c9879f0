// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
)

// example returns a pod of a role: an existing one, or else one as the operator will
// create it. It is nil if the job has no pods of that role, or its model is unknown.
func (facts *Facts) example(role string) *corev1.Pod {
	if pods := active(facts.podsOf(role)); len(pods) > 0 {
		return pods[0]
	}
	return facts.planned(role)
}

// planned returns a pod of a role as the operator will create it, with the fields that
// checks read.
func (facts *Facts) planned(role string) *corev1.Pod {
	if facts.Job == nil || len(roleOf(facts.Job, role).Template.Spec.Containers) == 0 {
		return nil
	}
	roleSpec := roleOf(facts.Job, role)
	if roleSpec.Replicas == 0 {
		return nil
	}
	labels := maps.Clone(roleSpec.Template.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, plan.PodLabels(facts.Job, role))
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: facts.Namespace, Labels: labels, Annotations: roleSpec.Template.Annotations},
		Spec:       roleSpec.Template.Spec,
	}
}

func roleOf(model *job.Job, role string) *job.Role {
	if role == training.RoleWorker {
		return &model.Worker
	}
	return &model.Launcher
}
