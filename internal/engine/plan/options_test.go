// SPDX-License-Identifier: Apache-2.0

package plan

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

func policyOf(mpiJob *v2beta1.MPIJob) *v2beta1.SchedulingPolicy {
	if mpiJob.Spec.RunPolicy.SchedulingPolicy == nil {
		mpiJob.Spec.RunPolicy.SchedulingPolicy = &v2beta1.SchedulingPolicy{}
	}
	return mpiJob.Spec.RunPolicy.SchedulingPolicy
}

func timeout(seconds int32) option {
	return func(mpiJob *v2beta1.MPIJob) { policyOf(mpiJob).ScheduleTimeoutSeconds = &seconds }
}

func priority(class string) option {
	return func(mpiJob *v2beta1.MPIJob) { policyOf(mpiJob).PriorityClass = class }
}

func volcanoQueue(queue string) option {
	return func(mpiJob *v2beta1.MPIJob) { policyOf(mpiJob).Queue = queue }
}

func replicas(count int32) option {
	return func(mpiJob *v2beta1.MPIJob) {
		mpiJob.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeWorker].Replicas = &count
	}
}

func noWorkers(mpiJob *v2beta1.MPIJob) {
	delete(mpiJob.Spec.MPIReplicaSpecs, v2beta1.MPIReplicaTypeWorker)
}

func named(name string) option { return func(mpiJob *v2beta1.MPIJob) { mpiJob.Name = name } }

func launcherRunsRanks(mpiJob *v2beta1.MPIJob) { mpiJob.Spec.RunLauncherAsWorker = new(true) }

func launcherWaits(mpiJob *v2beta1.MPIJob) {
	mpiJob.Spec.LauncherCreationPolicy = v2beta1.LauncherCreationPolicyWaitForWorkersReady
}

func backoffLimit(limit int32) option {
	return func(mpiJob *v2beta1.MPIJob) { mpiJob.Spec.RunPolicy.BackoffLimit = &limit }
}

func cleans(policy training.CleanPodPolicy) option {
	return func(mpiJob *v2beta1.MPIJob) { mpiJob.Spec.CleanPodPolicy = &policy }
}

func networkPolicy(template training.NetworkPolicyTemplate) option {
	return func(mpiJob *v2beta1.MPIJob) {
		mpiJob.Spec.NetworkPolicy = &training.NetworkPolicy{Template: template}
	}
}

func hostNetwork(template *corev1.PodTemplateSpec) { template.Spec.HostNetwork = true }

// ownNames sets labels and annotations of the user with the keys of the plan's.
func ownNames(template *corev1.PodTemplateSpec) {
	template.Labels = merged(template.Labels, map[string]string{training.LabelJobName: "another", training.IstioInject: "true", training.LabelReplicaIndex: "7"})
	template.Annotations = merged(template.Annotations, map[string]string{training.IstioInject: "true", "note": "ours"})
	template.Spec.DNSConfig = &corev1.PodDNSConfig{Nameservers: []string{"192.0.2.53"}, Searches: []string{"example.com"}}
	template.Spec.Hostname, template.Spec.Subdomain = "theirs", "theirs"
	template.Spec.AutomountServiceAccountToken = new(true)
	template.Spec.Containers[0].Env = append(template.Spec.Containers[0].Env,
		corev1.EnvVar{Name: "MPIJOB_WORLD_SIZE", Value: "1"},
		corev1.EnvVar{Name: "MPIJOB_WORKER_INDEX", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
		corev1.EnvVar{Name: "NVIDIA_VISIBLE_DEVICES", Value: "all"})
}

type trainOption = func(*v2alpha1.TrainJob, *v2alpha1.TrainingRuntimeSpec)

func ofTrainJob(options ...trainOption) func() *job.Job {
	return func() *job.Job { return trainJob(options...) }
}

func trainJobNamed(name string) trainOption {
	return func(trainJob *v2alpha1.TrainJob, _ *v2alpha1.TrainingRuntimeSpec) { trainJob.Name = name }
}

func nodes(count int32) trainOption {
	return func(trainJob *v2alpha1.TrainJob, _ *v2alpha1.TrainingRuntimeSpec) {
		trainJob.Spec.Trainer.NumNodes = &count
	}
}

// slots sets the job's slots; the runtime has others.
func slots(count int32) trainOption {
	return func(trainJob *v2alpha1.TrainJob, _ *v2alpha1.TrainingRuntimeSpec) {
		trainJob.Spec.Trainer.SlotsPerWorker = &count
	}
}

func restarts(limit int32) trainOption {
	return func(trainJob *v2alpha1.TrainJob, _ *v2alpha1.TrainingRuntimeSpec) {
		trainJob.Spec.BackoffLimit = &limit
	}
}

func trainJobCleans(policy training.CleanPodPolicy) trainOption {
	return func(trainJob *v2alpha1.TrainJob, _ *v2alpha1.TrainingRuntimeSpec) {
		trainJob.Spec.CleanPodPolicy = &policy
	}
}

func trainJobNetworkPolicy(template training.NetworkPolicyTemplate) trainOption {
	return func(trainJob *v2alpha1.TrainJob, _ *v2alpha1.TrainingRuntimeSpec) {
		trainJob.Spec.NetworkPolicy = &training.NetworkPolicy{Template: template}
	}
}

// inQueue sets all labels that Kueue reads, and others.
func inQueue(trainJob *v2alpha1.TrainJob, _ *v2alpha1.TrainingRuntimeSpec) {
	trainJob.Labels = map[string]string{
		"kueue.x-k8s.io/queue-name": "research", "kueue.x-k8s.io/priority-class": "urgent", "kueue.x-k8s.io/max-exec-time-seconds": "3600",
		"team": "a",
	}
}

func asksVolcano(queue, priorityClass string) trainOption {
	return func(_ *v2alpha1.TrainJob, runtime *v2alpha1.TrainingRuntimeSpec) {
		runtime.PodGroupPolicy = &v2alpha1.PodGroupPolicy{PriorityClass: priorityClass, Volcano: &v2alpha1.QueuedGangPolicy{Queue: queue}}
	}
}

// runtimeSaysMuch sets fields in the runtime's templates that could conflict with the
// plan's, and more in the job.
func runtimeSaysMuch(trainJob *v2alpha1.TrainJob, runtime *v2alpha1.TrainingRuntimeSpec) {
	for i := range runtime.Template.Spec.ReplicatedJobs {
		ownEverything(&runtime.Template.Spec.ReplicatedJobs[i].Template)
		ownNames(&runtime.Template.Spec.ReplicatedJobs[i].Template)
	}
	trainJob.Spec.Trainer.Env = append(trainJob.Spec.Trainer.Env,
		corev1.EnvVar{Name: "MPIJOB_ROLE", Value: "theirs"}, corev1.EnvVar{Name: "MPIJOB_WORLD_SIZE", Value: "2"})
}

// fetches sets a dataset and a model; empty is none.
func fetches(dataset, model string) trainOption {
	return func(trainJob *v2alpha1.TrainJob, _ *v2alpha1.TrainingRuntimeSpec) {
		trainJob.Spec.Initializer = &v2alpha1.Initializer{}
		if dataset != "" {
			trainJob.Spec.Initializer.Dataset = &v2alpha1.Source{StorageURI: dataset}
		}
		if model != "" {
			trainJob.Spec.Initializer.Model = &v2alpha1.Source{StorageURI: model}
		}
	}
}

func secrets(dataset, model string) trainOption {
	return func(trainJob *v2alpha1.TrainJob, _ *v2alpha1.TrainingRuntimeSpec) {
		trainJob.Spec.Initializer.Dataset.SecretRef = &v2alpha1.SecretRef{Name: dataset}
		trainJob.Spec.Initializer.Model.SecretRef = &v2alpha1.SecretRef{Name: model}
	}
}

func claim(name string) trainOption {
	return func(trainJob *v2alpha1.TrainJob, _ *v2alpha1.TrainingRuntimeSpec) {
		trainJob.Spec.Initializer.Storage = &v2alpha1.InitializerStorage{ClaimName: name}
	}
}

func newClaim(size, class string) trainOption {
	return func(trainJob *v2alpha1.TrainJob, _ *v2alpha1.TrainingRuntimeSpec) {
		trainJob.Spec.Initializer.Storage = &v2alpha1.InitializerStorage{Size: new(resource.MustParse(size))}
		if class != "" {
			trainJob.Spec.Initializer.Storage.StorageClassName = &class
		}
	}
}

// runtimeDoes changes the templates of both roles.
func runtimeDoes(change func(*corev1.PodTemplateSpec)) trainOption {
	return func(_ *v2alpha1.TrainJob, runtime *v2alpha1.TrainingRuntimeSpec) {
		for i := range runtime.Template.Spec.ReplicatedJobs {
			change(&runtime.Template.Spec.ReplicatedJobs[i].Template)
		}
	}
}

func runsSSHD(template *corev1.PodTemplateSpec) {
	if template.Spec.Containers[0].Name == "worker" {
		template.Spec.Containers[0].Command = []string{"/usr/sbin/sshd", "-De"}
	}
}

// withoutCommand lets the image's entrypoint start MPI.
func withoutCommand(trainJob *v2alpha1.TrainJob, runtime *v2alpha1.TrainingRuntimeSpec) {
	trainJob.Spec.Trainer.Command, trainJob.Spec.Trainer.Args = nil, nil
	runtime.Template.Spec.ReplicatedJobs[0].Template.Spec.Containers[0].Command = nil
}
