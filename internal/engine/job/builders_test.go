// SPDX-License-Identifier: Apache-2.0

package job

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
)

// list is a list of resources, from alternating names and amounts.
func list(amounts ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(amounts); i += 2 {
		list[corev1.ResourceName(amounts[i])] = resource.MustParse(amounts[i+1])
	}
	return list
}

func resources(amounts ...string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Limits: list(amounts...)}
}

// defaults are those of an operator on plain Kubernetes.
func defaults() Defaults {
	return Defaults{LauncherResources: list("cpu", "2", "memory", "4Gi"), ScheduleTimeoutSeconds: 300, MinScheduleTimeoutSeconds: 60, RunAsUser: new(int64(1000))}
}

// podTemplate has one container with an optional command.
func podTemplate(command ...string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "training:1", Command: command}}}}
}

type podOption func(*corev1.PodSpec)

func runAs(user int64) podOption {
	return func(pod *corev1.PodSpec) { pod.SecurityContext = &corev1.PodSecurityContext{RunAsUser: &user} }
}

func containerSecurity(context corev1.SecurityContext) podOption {
	return func(pod *corev1.PodSpec) { pod.Containers[0].SecurityContext = &context }
}

func initSecurity(context corev1.SecurityContext) podOption {
	return func(pod *corev1.PodSpec) {
		pod.InitContainers = append(pod.InitContainers, corev1.Container{Name: "init", SecurityContext: &context})
	}
}

// mpiJob is a minimal MPIJob.
func mpiJob(options ...func(*v2beta1.MPIJob)) *v2beta1.MPIJob {
	mpiJob := &v2beta1.MPIJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "resnet", UID: "1234"},
		Spec: v2beta1.MPIJobSpec{MPIReplicaSpecs: map[v2beta1.MPIReplicaType]*v2beta1.ReplicaSpec{
			v2beta1.MPIReplicaTypeLauncher: {Template: podTemplate("mpirun", "python", "train.py")},
			v2beta1.MPIReplicaTypeWorker:   {Replicas: new(int32(2)), Template: podTemplate()},
		}},
	}
	for _, option := range options {
		option(mpiJob)
	}
	return mpiJob
}

func launcherOf(mpiJob *v2beta1.MPIJob) *v2beta1.ReplicaSpec {
	return mpiJob.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeLauncher]
}

func workerOf(mpiJob *v2beta1.MPIJob) *v2beta1.ReplicaSpec {
	return mpiJob.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeWorker]
}

func workerPod(options ...podOption) func(*v2beta1.MPIJob) {
	return func(mpiJob *v2beta1.MPIJob) {
		for _, option := range options {
			option(&workerOf(mpiJob).Template.Spec)
		}
	}
}

// workerRunsSSHD gives the worker its own sshd.
func workerRunsSSHD(mpiJob *v2beta1.MPIJob) {
	workerOf(mpiJob).Template.Spec.Containers[0].Command = []string{"/usr/sbin/sshd", "-De"}
}

// trainJob is a minimal TrainJob.
func trainJob(options ...func(*v2alpha1.TrainJob)) *v2alpha1.TrainJob {
	trainJob := &v2alpha1.TrainJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "bert", UID: "5678"},
		Spec: v2alpha1.TrainJobSpec{
			RuntimeRef: v2alpha1.RuntimeRef{Kind: v2alpha1.RuntimeKindCluster, Name: "openmpi"},
			Trainer:    v2alpha1.Trainer{Image: "bert:2"},
		},
	}
	for _, option := range options {
		option(trainJob)
	}
	return trainJob
}

// runtimeOf is a minimal runtime.
func runtimeOf(options ...func(*v2alpha1.TrainingRuntimeSpec)) *v2alpha1.TrainingRuntimeSpec {
	runtime := &v2alpha1.TrainingRuntimeSpec{
		MLPolicy: v2alpha1.MLPolicy{MPIImplementation: v2alpha1.MPIImplementationOpenMPI},
		Template: v2alpha1.RuntimeTemplate{Spec: v2alpha1.RuntimeTemplateSpec{ReplicatedJobs: []v2alpha1.ReplicatedJob{
			{Name: v2alpha1.ReplicatedJobLauncher, Template: podTemplate()},
			{Name: v2alpha1.ReplicatedJobWorker, Template: podTemplate()},
		}}},
	}
	for _, option := range options {
		option(runtime)
	}
	return runtime
}

func runtimeLauncher(runtime *v2alpha1.TrainingRuntimeSpec) *corev1.Container {
	return &runtime.Template.Spec.ReplicatedJobs[0].Template.Spec.Containers[0]
}

func runtimeWorker(runtime *v2alpha1.TrainingRuntimeSpec) *corev1.Container {
	return &runtime.Template.Spec.ReplicatedJobs[1].Template.Spec.Containers[0]
}

// restricted is a template that satisfies the Pod Security Standard "restricted".
func restricted(template corev1.PodTemplateSpec) corev1.PodTemplateSpec {
	template = *template.DeepCopy()
	template.Spec.SecurityContext = &corev1.PodSecurityContext{
		RunAsNonRoot: new(true), RunAsUser: new(int64(1000)),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	for i := range template.Spec.Containers {
		template.Spec.Containers[i].SecurityContext = &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}
	}
	return template
}

func restarting(policy corev1.RestartPolicy, template corev1.PodTemplateSpec) corev1.PodTemplateSpec {
	template.Spec.RestartPolicy = policy
	return template
}
