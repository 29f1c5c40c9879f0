// SPDX-License-Identifier: Apache-2.0

package admission

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
)

// mpiJob is an MPIJob that nothing is wrong with: four workers with two GPUs.
func mpiJob(namespace, name string, change ...func(*v2beta1.MPIJob)) *v2beta1.MPIJob {
	job := &v2beta1.MPIJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v2beta1.MPIJobSpec{
			SlotsPerWorker: new(int32(2)),
			MPIReplicaSpecs: map[v2beta1.MPIReplicaType]*v2beta1.ReplicaSpec{
				v2beta1.MPIReplicaTypeLauncher: {Template: template("launcher", "mpirun", "hostname")},
				v2beta1.MPIReplicaTypeWorker:   {Replicas: new(int32(4)), Template: template("worker")},
			},
		},
	}
	worker(job).Resources.Limits = resources("cpu", "4", "memory", "16Gi", "nvidia.com/gpu", "2")
	for _, change := range change {
		change(job)
	}
	return job
}

func worker(job *v2beta1.MPIJob) *corev1.Container {
	return &job.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeWorker].Template.Spec.Containers[0]
}

func launcher(job *v2beta1.MPIJob) *corev1.Container {
	return &job.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeLauncher].Template.Spec.Containers[0]
}

// template is a pod that PodSecurity's level restricted is content with.
func template(name string, command ...string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: name, Image: "registry.example/train:1", Command: command,
	}}}}
}

// resources takes pairs of name and quantity.
func resources(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

// trainJob is a TrainJob that nothing is wrong with, if its runtime is there.
func trainJob(namespace, name string, change ...func(*v2alpha1.TrainJob)) *v2alpha1.TrainJob {
	job := &v2alpha1.TrainJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v2alpha1.TrainJobSpec{
			RuntimeRef: v2alpha1.RuntimeRef{Kind: v2alpha1.RuntimeKindNamespaced, Name: "mpi"},
			Trainer: v2alpha1.Trainer{
				NumNodes:         new(int32(4)),
				Image:            "registry.example/train:1",
				Command:          []string{"python", "train.py"},
				SlotsPerWorker:   new(int32(2)),
				ResourcesPerNode: &corev1.ResourceRequirements{Limits: resources("cpu", "4", "memory", "16Gi", "nvidia.com/gpu", "2")},
			},
		},
	}
	for _, change := range change {
		change(job)
	}
	return job
}

// runtime is a runtime that nothing is wrong with.
func runtime(namespace, name string, change ...func(*v2alpha1.TrainingRuntimeSpec)) *v2alpha1.TrainingRuntime {
	made := &v2alpha1.TrainingRuntime{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v2alpha1.TrainingRuntimeSpec{
			MLPolicy: v2alpha1.MLPolicy{MPIImplementation: v2alpha1.MPIImplementationOpenMPI},
			Template: v2alpha1.RuntimeTemplate{Spec: v2alpha1.RuntimeTemplateSpec{ReplicatedJobs: []v2alpha1.ReplicatedJob{
				{Name: v2alpha1.ReplicatedJobLauncher, Template: withoutIstio(template("launcher", "mpirun"))},
				{Name: v2alpha1.ReplicatedJobWorker, Template: withoutIstio(template("worker"))},
			}}},
		},
	}
	for _, change := range change {
		change(&made.Spec)
	}
	return made
}

func withoutIstio(template corev1.PodTemplateSpec) corev1.PodTemplateSpec {
	template.Annotations = map[string]string{training.IstioInject: "false"}
	return template
}

func resourceOf(text string) resource.Quantity { return resource.MustParse(text) }
