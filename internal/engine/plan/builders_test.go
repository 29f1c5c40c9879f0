// SPDX-License-Identifier: Apache-2.0

package plan

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

const agentImage = "registry.example.com/trireme/mpi-agent:v0.1.0"

// parts are the parts of a job called resnet.
func parts(method Method) Parts {
	return Parts{Secret: "resnet-ssh", Hostfile: "resnet-hostfile", Delivery: Delivery{Method: method, Image: agentImage}}
}

// defaults are those of an operator on plain Kubernetes.
func defaults() job.Defaults {
	return job.Defaults{LauncherResources: resources("2", "4Gi").Limits, ScheduleTimeoutSeconds: 300, RunAsUser: new(int64(1000))}
}

func resources(cpu, memory string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}}
}

type option func(*v2beta1.MPIJob)

func mpiJob(options ...option) *job.Job { return job.FromMPIJob(mpiJobObject(options...), defaults()) }

// mpiJobObject has two workers that the agent runs, and a launcher with a command.
func mpiJobObject(options ...option) *v2beta1.MPIJob {
	j := &v2beta1.MPIJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "resnet", UID: "1234"},
		Spec: v2beta1.MPIJobSpec{
			SlotsPerWorker: new(int32(4)),
			MPIReplicaSpecs: map[v2beta1.MPIReplicaType]*v2beta1.ReplicaSpec{
				v2beta1.MPIReplicaTypeLauncher: {Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "launcher", Image: "registry.example.com/team-a/resnet:7", Resources: resources("1", "2Gi"),
					Command: []string{"mpirun", "-np", "8"}, Args: []string{"python", "train.py"},
				}}}}},
				v2beta1.MPIReplicaTypeWorker: {Replicas: new(int32(2)), Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "worker", Image: "registry.example.com/team-a/resnet:7", Resources: resources("16", "64Gi"),
				}}}}},
			},
		},
	}
	for _, option := range options {
		option(j)
	}
	return j
}

func launcherOf(mpiJob *v2beta1.MPIJob) *corev1.PodTemplateSpec {
	return &mpiJob.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeLauncher].Template
}

func workerOf(mpiJob *v2beta1.MPIJob) *corev1.PodTemplateSpec {
	return &mpiJob.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeWorker].Template
}

// both changes the templates of the launcher and the worker.
func both(change func(*corev1.PodTemplateSpec)) option {
	return func(mpiJob *v2beta1.MPIJob) {
		change(launcherOf(mpiJob))
		change(workerOf(mpiJob))
	}
}

func implementation(name v2beta1.MPIImplementation) option {
	return func(mpiJob *v2beta1.MPIJob) { mpiJob.Spec.MPIImplementation = name }
}

// imageSSH gives the workers' image its own sshd.
func imageSSH(mpiJob *v2beta1.MPIJob) {
	workerOf(mpiJob).Spec.Containers[0].Command = []string{"/usr/sbin/sshd", "-De"}
}

func asRoot(mpiJob *v2beta1.MPIJob) {
	both(func(template *corev1.PodTemplateSpec) {
		template.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(0))}
	})(mpiJob)
}

// asUser is an image for mpi-operator without root: its sshd has its own configuration,
// on an unprivileged port.
func asUser(mpiJob *v2beta1.MPIJob) {
	both(func(template *corev1.PodTemplateSpec) {
		template.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(1000)), FSGroup: new(int64(1000))}
	})(mpiJob)
	workerOf(mpiJob).Spec.Containers[0].Command = []string{"/usr/sbin/sshd", "-De", "-f", "/home/mpiuser/.sshd_config"}
}

func launcherCommand(command ...string) option {
	return func(mpiJob *v2beta1.MPIJob) {
		launcherOf(mpiJob).Spec.Containers[0].Command, launcherOf(mpiJob).Spec.Containers[0].Args = command, nil
	}
}

func launcherArgs(args ...string) option {
	return func(mpiJob *v2beta1.MPIJob) {
		launcherOf(mpiJob).Spec.Containers[0].Command, launcherOf(mpiJob).Spec.Containers[0].Args = nil, args
	}
}

func readOnlyRoot(template *corev1.PodTemplateSpec) {
	container := &template.Spec.Containers[0]
	if container.SecurityContext == nil {
		container.SecurityContext = &corev1.SecurityContext{}
	}
	container.SecurityContext.ReadOnlyRootFilesystem = new(true)
}

// ownScratch is a template that mounts everything itself. One of its paths is not clean.
func ownScratch(template *corev1.PodTemplateSpec) {
	template.Spec.Volumes = append(template.Spec.Volumes,
		corev1.Volume{Name: "shm", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{
			Medium: corev1.StorageMediumMemory, SizeLimit: new(resource.MustParse("8Gi")),
		}}},
		corev1.Volume{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	template.Spec.Containers[0].VolumeMounts = append(template.Spec.Containers[0].VolumeMounts,
		corev1.VolumeMount{Name: "shm", MountPath: "/dev/shm"}, corev1.VolumeMount{Name: "scratch", MountPath: "/tmp/"})
}

// ownVariables have the names of variables that the plan sets.
func ownVariables(template *corev1.PodTemplateSpec) {
	template.Spec.Containers[0].Env = append(template.Spec.Containers[0].Env,
		corev1.EnvVar{Name: "NCCL_DEBUG", Value: "INFO"},
		corev1.EnvVar{Name: "OMPI_MCA_orte_keep_fqdn_hostnames", Value: "false"},
		corev1.EnvVar{Name: "TRIREME_GRACE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['grace']"}}})
}

func ownProbe(template *corev1.PodTemplateSpec) {
	template.Spec.Containers[0].Ports = append(template.Spec.Containers[0].Ports, corev1.ContainerPort{Name: "metrics", ContainerPort: 9090})
	template.Spec.Containers[0].ReadinessProbe = &corev1.Probe{
		ProbeHandler:     corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/ready", Port: intstr.FromString("metrics")}},
		FailureThreshold: 5,
	}
}

// ownContainers has init containers, the last of which is a sidecar, and a second
// container.
func ownContainers(template *corev1.PodTemplateSpec) {
	template.Spec.InitContainers = append(template.Spec.InitContainers,
		corev1.Container{Name: "fetch", Image: "registry.example.com/fetch:1", Command: []string{"fetch"}},
		corev1.Container{Name: "unpack", Image: "registry.example.com/unpack:1", Args: []string{"--all"}},
		corev1.Container{Name: "logs", Image: "registry.example.com/logs:1", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)})
	template.Spec.Containers = append(template.Spec.Containers, corev1.Container{Name: "metrics", Image: "registry.example.com/metrics:1", Command: []string{"serve"}})
}

// ownEverything sets the other fields of a template, which the plan must not change.
func ownEverything(template *corev1.PodTemplateSpec) {
	template.Labels = map[string]string{"team": "a", "app": "resnet"}
	template.Annotations = map[string]string{"sidecar.istio.io/inject": "false"}
	pod := &template.Spec
	pod.NodeSelector = map[string]string{"gpu": "h100"}
	pod.Tolerations = []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}}
	pod.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
	pod.ServiceAccountName = "trainer"
	pod.TerminationGracePeriodSeconds = new(int64(90))
	pod.DNSConfig = &corev1.PodDNSConfig{Options: []corev1.PodDNSConfigOption{{Name: "ndots", Value: new("2")}}}
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "imagenet"},
	}})
	container := &pod.Containers[0]
	container.WorkingDir = "/src"
	container.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"sync"}}}}
	container.LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}}
	container.EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "resnet"}}}}
	container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: "data", MountPath: "/data", ReadOnly: true})
}

// restrictedContainers satisfies the Pod Security Standard "restricted" without a
// pod-level security context.
func restrictedContainers(template *corev1.PodTemplateSpec) {
	template.Spec.SecurityContext = nil
	for _, containers := range [][]corev1.Container{template.Spec.InitContainers, template.Spec.Containers} {
		for i := range containers {
			context := containers[i].SecurityContext
			if context == nil {
				context = &corev1.SecurityContext{}
			}
			context.RunAsNonRoot, context.RunAsUser, context.AllowPrivilegeEscalation = new(true), new(int64(1000)), new(false)
			context.Capabilities = &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}
			context.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
			containers[i].SecurityContext = context
		}
	}
}

func trainJob(options ...trainOption) *job.Job {
	j, runtime := trainJobObjects(options...)
	return job.FromTrainJob(j, runtime, defaults())
}

// trainJobObjects is a TrainJob that relies on its runtime and on defaults.
func trainJobObjects(options ...trainOption) (*v2alpha1.TrainJob, *v2alpha1.TrainingRuntimeSpec) {
	j := &v2alpha1.TrainJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "bert", UID: "5678"},
		Spec: v2alpha1.TrainJobSpec{
			RuntimeRef: v2alpha1.RuntimeRef{Kind: v2alpha1.RuntimeKindCluster, Name: "openmpi"},
			Trainer: v2alpha1.Trainer{
				Image: "registry.example.com/team-a/bert:2", NumNodes: new(int32(4)), Command: []string{"python", "train.py"}, Args: []string{"--epochs", "3"},
				Env: []corev1.EnvVar{{Name: "NCCL_DEBUG", Value: "INFO"}}, ResourcesPerNode: new(resources("32", "256Gi")),
			},
		},
	}
	runtime := &v2alpha1.TrainingRuntimeSpec{
		MLPolicy: v2alpha1.MLPolicy{MPIImplementation: v2alpha1.MPIImplementationOpenMPI, SlotsPerWorker: new(int32(8))},
		Template: v2alpha1.RuntimeTemplate{Spec: v2alpha1.RuntimeTemplateSpec{ReplicatedJobs: []v2alpha1.ReplicatedJob{
			{Name: v2alpha1.ReplicatedJobLauncher, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "launcher", Command: []string{"mpirun", "--bind-to", "none"},
			}}}}},
			{Name: v2alpha1.ReplicatedJobWorker, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "worker"}}}}},
		}}},
	}
	for _, option := range options {
		option(j, runtime)
	}
	return j, runtime
}
