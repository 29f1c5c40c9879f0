// SPDX-License-Identifier: Apache-2.0

package job

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
)

// FromTrainJob is the job that a TrainJob and its runtime describe together.
func FromTrainJob(trainJob *v2alpha1.TrainJob, runtime *v2alpha1.TrainingRuntimeSpec, defaults Defaults) *Job {
	spec := &trainJob.Spec
	job := &Job{
		Kind:        KindTrainJob,
		Namespace:   trainJob.Namespace,
		Name:        trainJob.Name,
		UID:         trainJob.UID,
		Suspended:   orElse(spec.Suspend, false),
		Queue:       trainJob.Labels[training.LabelQueue],
		QueueLabels: queueLabels(trainJob.Labels),
		TagOutput:   trainJob.Annotations[training.AnnotationTagOutput] == "true",
		MPI:         MPI(runtime.MLPolicy.MPIImplementation),
		Slots:       orElse(spec.Trainer.SlotsPerWorker, orElse(runtime.MLPolicy.SlotsPerWorker, 1)),
		Launcher:    runtimeRole(runtime, v2alpha1.ReplicatedJobLauncher),
		Worker:      runtimeRole(runtime, v2alpha1.ReplicatedJobWorker),
		Initializer: initializer(spec.Initializer),
		Lifetime: Lifetime{
			CleanPodPolicy:          orElse(spec.CleanPodPolicy, training.CleanPodPolicyRunning),
			BackoffLimit:            orElse(spec.BackoffLimit, 0),
			ActiveDeadlineSeconds:   spec.ActiveDeadlineSeconds,
			TTLSecondsAfterFinished: spec.TTLSecondsAfterFinished,
		},
	}
	job.Hang = newHang(defaults.Hang, spec.Hang, runtime.Hang)
	job.ProgressPattern = cmp.Or(spec.Trainer.ProgressPattern, runtime.ProgressPattern)
	if managedBy := orElse(spec.ManagedBy, ""); managedBy != v2alpha1.ManagedByTrainJobController {
		job.ManagedBy = managedBy
	}
	job.NetworkPolicy = defaults.NetworkPolicy
	if spec.NetworkPolicy != nil {
		job.NetworkPolicy = spec.NetworkPolicy.Template
	}
	job.Launcher.Replicas = 1
	job.Worker.Replicas = orElse(spec.Trainer.NumNodes, orElse(runtime.MLPolicy.NumNodes, job.Worker.Replicas))
	job.Gang = runtimeGang(runtime.PodGroupPolicy, job.Pods(), defaults)
	setPriorityClass(job)
	applyTrainer(job, &spec.Trainer)
	applyResources(job, spec, defaults)
	job.RequireAllHosts = orElse(spec.RequireAllHosts, applyCommand(job, &spec.Trainer))
	requireNodeLabels(&job.Worker.Template.Spec, runtime.Constraints)
	for _, role := range []*Role{&job.Launcher, &job.Worker} {
		pod := &role.Template.Spec
		pod.RestartPolicy = corev1.RestartPolicyNever
		// An sshd that runs as root needs root's capabilities. Only the author of the runtime
		// can request that.
		if job.WorkersRunAgent() || !MainRunsAsRoot(pod) {
			restrictByDefault(pod, defaults.RunAsUser)
		}
	}
	job.SSHDirectory = sshDirectory(&job.Worker.Template.Spec)
	return job
}

func runtimeRole(runtime *v2alpha1.TrainingRuntimeSpec, name string) Role {
	for i := range runtime.Template.Spec.ReplicatedJobs {
		if replicated := &runtime.Template.Spec.ReplicatedJobs[i]; replicated.Name == name {
			return newRole(replicated.Replicas, &replicated.Template)
		}
	}
	return Role{Replicas: 1}
}

func runtimeGang(policy *v2alpha1.PodGroupPolicy, pods int32, defaults Defaults) Gang {
	gang := Gang{MinMember: pods, TimeoutSeconds: defaults.ScheduleTimeoutSeconds}
	if policy == nil {
		return gang
	}
	gang.PriorityClass = policy.PriorityClass
	if gang.PriorityClass == "" {
		gang.PriorityClass = policy.PriorityClassName
	}
	var chosen *v2alpha1.GangPolicy
	switch {
	case policy.Coscheduling != nil:
		gang.Scheduler, chosen = Coscheduling, policy.Coscheduling
	case policy.Volcano != nil:
		gang.Scheduler, chosen, gang.Queue = Volcano, &policy.Volcano.GangPolicy, policy.Volcano.Queue
	case policy.Native != nil:
		gang.Scheduler, chosen = Native, policy.Native
	case policy.KAI != nil:
		gang.Scheduler, chosen, gang.Queue = KAI, &policy.KAI.GangPolicy, policy.KAI.Queue
	default:
		return gang
	}
	gang.TimeoutSeconds = orElse(chosen.ScheduleTimeoutSeconds, defaults.ScheduleTimeoutSeconds)
	return gang
}

func initializer(spec *v2alpha1.Initializer) *Initializer {
	if spec == nil || spec.Dataset == nil && spec.Model == nil {
		return nil
	}
	initializer := &Initializer{Dataset: source(spec.Dataset), Model: source(spec.Model)}
	if storage := spec.Storage; storage != nil {
		initializer.ClaimName = storage.ClaimName
		initializer.StorageClassName = storage.StorageClassName
		if storage.Size != nil {
			initializer.Size = storage.Size.DeepCopy()
		}
	}
	return initializer
}

func source(spec *v2alpha1.Source) *Source {
	if spec == nil {
		return nil
	}
	source := &Source{URI: spec.StorageURI}
	if spec.SecretRef != nil {
		source.Secret = spec.SecretRef.Name
	}
	return source
}

// applyTrainer applies the trainer's image, variables and volumes to the first container
// of both templates.
func applyTrainer(job *Job, trainer *v2alpha1.Trainer) {
	for _, role := range []*Role{&job.Launcher, &job.Worker} {
		pod := &role.Template.Spec
		if len(pod.Containers) == 0 {
			continue
		}
		container := &pod.Containers[0]
		container.Image = trainer.Image
		container.Env = mergeEnv(container.Env, trainer.Env)
		for i := range trainer.Volumes {
			pod.Volumes = append(pod.Volumes, *trainer.Volumes[i].DeepCopy())
		}
		for i := range trainer.VolumeMounts {
			container.VolumeMounts = append(container.VolumeMounts, *trainer.VolumeMounts[i].DeepCopy())
		}
	}
}

// mergeEnv keeps the order, because variables can refer to earlier ones.
func mergeEnv(base, overrides []corev1.EnvVar) []corev1.EnvVar {
	merged := slices.Clone(base)
	indexes := make(map[string]int, len(base))
	for i := range base {
		indexes[base[i].Name] = i
	}
	for i := range overrides {
		variable := *overrides[i].DeepCopy()
		if index, found := indexes[variable.Name]; found {
			merged[index] = variable
			continue
		}
		indexes[variable.Name] = len(merged)
		merged = append(merged, variable)
	}
	return merged
}

// applyResources replaces the runtime's resources of a pod by those that the job sets,
// including the pod-level ones: the API server refuses a container that requests more
// than its pod.
func applyResources(job *Job, spec *v2alpha1.TrainJobSpec, defaults Defaults) {
	if pod := &job.Worker.Template.Spec; len(pod.Containers) > 0 && spec.Trainer.ResourcesPerNode != nil {
		pod.Containers[0].Resources, pod.Resources = *spec.Trainer.ResourcesPerNode.DeepCopy(), nil
	}
	pod := &job.Launcher.Template.Spec
	if len(pod.Containers) == 0 {
		return
	}
	resources := &pod.Containers[0].Resources
	if spec.Launcher != nil && spec.Launcher.Resources != nil {
		*resources, pod.Resources = *spec.Launcher.Resources.DeepCopy(), nil
	}
	if isUnset(resources) && isUnset(pod.Resources) {
		resources.Requests = defaults.LauncherResources.DeepCopy()
		resources.Limits = defaults.LauncherResources.DeepCopy()
	}
}

func isUnset(resources *corev1.ResourceRequirements) bool {
	return resources == nil || len(resources.Requests) == 0 && len(resources.Limits) == 0
}

func requireNodeLabels(pod *corev1.PodSpec, constraints *v2alpha1.Constraints) {
	if constraints == nil || len(constraints.RequiredNodeLabels) == 0 {
		return
	}
	if pod.NodeSelector == nil {
		pod.NodeSelector = map[string]string{}
	}
	maps.Copy(pod.NodeSelector, constraints.RequiredNodeLabels)
}
