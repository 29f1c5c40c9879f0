// SPDX-License-Identifier: Apache-2.0

package plan

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// batchJob is the launcher's Job of an MPIJob, for users and tools that watch it. Its
// managedBy keeps Kubernetes' Job controller away: Trireme creates the pod, restarts it
// and writes the status.
func batchJob(j *job.Job) *batchv1.Job {
	template := *j.Launcher.Template.DeepCopy()
	template.Spec.RestartPolicy = corev1.RestartPolicyNever
	return &batchv1.Job{
		ObjectMeta: objectMeta(j, NamesOf(j).Workload),
		Spec: batchv1.JobSpec{
			ManagedBy: new(training.ManagedByTrireme), BackoffLimit: new(j.Lifetime.BackoffLimit), Template: template,
		},
	}
}

// joinBatchJob makes the Job the pod's controller, and sets the labels that the Job's
// selector requires.
func (s start) joinBatchJob(pod *corev1.Pod) {
	name := NamesOf(s.job).Workload
	pod.Labels[batchv1.JobNameLabel], pod.Labels[batchv1.ControllerUidLabel] = name, string(s.state.Workload)
	pod.OwnerReferences = []metav1.OwnerReference{
		controllerRef(batchv1.SchemeGroupVersion.String(), string(job.WorkloadBatchJob), name, s.state.Workload),
	}
}
