// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

const (
	// groupName is JobSet's default group for replicated jobs that set none.
	groupName = "default"
	// restartAttempt is JobSet's label for the number of restarts.
	restartAttempt = "jobset.sigs.k8s.io/restart-attempt"
	// completionIndexVariable holds the index in pods of an Indexed Job.
	completionIndexVariable = "JOB_COMPLETION_INDEX"
)

// jobSet is the JobSet of a TrainJob's launcher and workers, for Kueue, tools and
// users. Its managedBy keeps JobSet's own controller away: Trireme creates the pods.
func jobSet(j *job.Job) *jobset.JobSet {
	names := NamesOf(j)
	metadata := objectMeta(j, names.Workload)
	metadata.Labels = merged(metadata.Labels, j.QueueLabels)
	if j.RuntimeDigest != "" {
		metadata.Annotations = map[string]string{training.AnnotationRuntimeDigest: j.RuntimeDigest}
	}
	return &jobset.JobSet{
		ObjectMeta: metadata,
		Spec: jobset.JobSetSpec{
			ManagedBy: new(training.ManagedByTrireme),
			Network:   &jobset.Network{EnableDNSHostnames: new(true), Subdomain: names.Service, PublishNotReadyAddresses: new(true)},
			SuccessPolicy: &jobset.SuccessPolicy{
				Operator: jobset.OperatorAll, TargetReplicatedJobs: []string{training.RoleLauncher},
			},
			FailurePolicy: &jobset.FailurePolicy{MaxRestarts: j.Lifetime.BackoffLimit, RestartStrategy: jobset.BlockingRecreate},
			ReplicatedJobs: []jobset.ReplicatedJob{
				replicatedJob(training.RoleLauncher, &j.Launcher),
				replicatedJob(training.RoleWorker, &j.Worker),
			},
		},
	}
}

func replicatedJob(name string, role *job.Role) jobset.ReplicatedJob {
	return jobset.ReplicatedJob{
		Name: name, GroupName: groupName, Replicas: 1,
		Template: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{
			Parallelism: new(role.Replicas), Completions: new(role.Replicas), CompletionMode: new(batchv1.IndexedCompletion),
			BackoffLimit: new(int32(0)), Template: *role.Template.DeepCopy(),
		}},
	}
}

// joinJobSet sets the labels, annotations and variables that JobSet and the Job
// controller would set: tools find pods by these labels, and Kueue's topology-aware
// scheduling orders pods by the index.
func (s start) joinJobSet(pod *corev1.Pod, role string, index int32) {
	names := NamesOf(s.job)
	completionIndex := strconv.Itoa(int(index))
	metadata := map[string]string{
		jobset.JobSetNameKey: names.Workload, jobset.JobSetUIDKey: string(s.state.Workload),
		jobset.ReplicatedJobNameKey: role, jobset.ReplicatedJobReplicas: "1", jobset.GlobalReplicasKey: "2",
		jobset.JobIndexKey: "0", jobset.JobGlobalIndexKey: globalIndex(role),
		jobset.GroupNameKey: groupName, jobset.GroupReplicasKey: "2", jobset.JobGroupIndexKey: globalIndex(role),
		restartAttempt: strconv.Itoa(int(s.state.Restart)), batchv1.JobCompletionIndexAnnotation: completionIndex,
	}
	maps.Copy(pod.Labels, metadata)
	pod.Annotations = merged(pod.Annotations, metadata)
	pod.Labels[batchv1.JobNameLabel] = names.Workload + "-" + role + "-0"
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			setVariable(&containers[i], completionIndexVariable, completionIndex)
		}
	}
	pod.OwnerReferences = []metav1.OwnerReference{
		controllerRef(jobset.GroupVersion.String(), string(job.WorkloadJobSet), names.Workload, s.state.Workload),
	}
}

// globalIndex is the index of a role's child Job among all child Jobs of the JobSet.
func globalIndex(role string) string {
	if role == training.RoleLauncher {
		return "0"
	}
	return "1"
}
