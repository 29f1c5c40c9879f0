package preflight

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
)

// example is a pod of a role: one that is there, else one as it will be made. Nil
// if the job has none of that role, or is not known.
func (facts *Facts) example(role string) *corev1.Pod {
	if there := active(facts.podsOf(role)); len(there) > 0 {
		return there[0]
	}
	return facts.planned(role)
}

// planned is a pod of a role as it will be made, as far as checks look at it.
func (facts *Facts) planned(role string) *corev1.Pod {
	if facts.Job == nil || len(roleOf(facts.Job, role).Template.Spec.Containers) == 0 {
		return nil
	}
	made := roleOf(facts.Job, role)
	if made.Replicas == 0 {
		return nil
	}
	labels := maps.Clone(made.Template.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, plan.PodLabels(facts.Job, role))
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: facts.Namespace, Labels: labels, Annotations: made.Template.Annotations},
		Spec:       made.Template.Spec,
	}
}

func roleOf(made *job.Job, role string) *job.Role {
	if role == training.RoleWorker {
		return &made.Worker
	}
	return &made.Launcher
}
