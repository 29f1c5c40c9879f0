// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"maps"
	"slices"
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
	if role == training.RoleInitializer {
		// Each step is a Job of its own, with one pod.
		index = 0
	}
	completionIndex := strconv.Itoa(int(index))
	metadata := map[string]string{
		jobset.JobSetNameKey: names.Workload, jobset.JobSetUIDKey: string(s.state.Workload),
		jobset.ReplicatedJobReplicas: "1", jobset.JobIndexKey: "0",
		restartAttempt: strconv.Itoa(int(s.state.Restart)), batchv1.JobCompletionIndexAnnotation: completionIndex,
	}
	replicated := replicatedJobLabels(replicatedJobsOf(s.job), role, StepOf(pod))
	maps.Copy(metadata, replicated)
	if s.job.Set != nil && s.job.Set.Coordinator != "" {
		metadata[jobset.CoordinatorKey] = s.job.Set.Coordinator
	}
	maps.Copy(pod.Labels, metadata)
	pod.Annotations = merged(pod.Annotations, metadata)
	pod.Labels[batchv1.JobNameLabel] = names.Workload + "-" + replicated[jobset.ReplicatedJobNameKey] + "-0"
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			setVariable(&containers[i], completionIndexVariable, completionIndex)
		}
	}
	pod.OwnerReferences = []metav1.OwnerReference{
		controllerRef(jobset.GroupVersion.String(), string(job.WorkloadJobSet), names.Workload, s.state.Workload),
	}
}

// replicatedJobsOf are the replicated jobs of a job's JobSet, in their order.
func replicatedJobsOf(j *job.Job) []job.ReplicatedJob {
	if j.Set != nil {
		return j.Set.Jobs
	}
	return []job.ReplicatedJob{{Name: training.RoleLauncher, Role: training.RoleLauncher}, {Name: training.RoleWorker, Role: training.RoleWorker}}
}

// replicatedJobLabels are the labels about the replicated job of a pod. Each has one
// child Job, so its index among all child Jobs is its position.
func replicatedJobLabels(all []job.ReplicatedJob, role string, step int) map[string]string {
	position := slices.IndexFunc(all, func(one job.ReplicatedJob) bool {
		return one.Role == role && (role != training.RoleInitializer || one.Step == step)
	})
	if position < 0 {
		return nil
	}
	own, inGroup, ofGroup := all[position], 0, 0
	group := cmp.Or(own.Group, groupName)
	for i, other := range all {
		if cmp.Or(other.Group, groupName) != group {
			continue
		}
		if i < position {
			inGroup++
		}
		ofGroup++
	}
	return map[string]string{
		jobset.ReplicatedJobNameKey: own.Name, jobset.GlobalReplicasKey: strconv.Itoa(len(all)), jobset.JobGlobalIndexKey: strconv.Itoa(position),
		jobset.GroupNameKey: group, jobset.GroupReplicasKey: strconv.Itoa(ofGroup), jobset.JobGroupIndexKey: strconv.Itoa(inGroup),
	}
}
