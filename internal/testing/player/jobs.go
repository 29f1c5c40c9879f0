// SPDX-License-Identifier: Apache-2.0

package player

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/diagnosis"
)

// MPIJob is an MPIJob with two workers.
func MPIJob(name string, change ...func(*v2beta1.MPIJob)) *v2beta1.MPIJob {
	job := &v2beta1.MPIJob{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v2beta1.MPIJobSpec{MPIReplicaSpecs: map[v2beta1.MPIReplicaType]*v2beta1.ReplicaSpec{
			v2beta1.MPIReplicaTypeLauncher: {Template: Template("launcher", "mpirun", "hostname")},
			v2beta1.MPIReplicaTypeWorker:   {Replicas: new(int32(2)), Template: Template("worker")},
		}},
	}
	for _, change := range change {
		change(job)
	}
	return job
}

// TrainJob is a TrainJob with two nodes.
func TrainJob(namespace, name string, change ...func(*v2alpha1.TrainJob)) *v2alpha1.TrainJob {
	job := &v2alpha1.TrainJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v2alpha1.TrainJobSpec{
			RuntimeRef: v2alpha1.RuntimeRef{Kind: v2alpha1.RuntimeKindNamespaced, Name: "mpi"},
			Trainer: v2alpha1.Trainer{
				NumNodes: new(int32(2)), Image: "registry.example/train:1", Command: []string{"python", "train.py"},
				ResourcesPerNode: &corev1.ResourceRequirements{Limits: Resources("cpu", "1", "memory", "1Gi")},
			},
		},
	}
	for _, change := range change {
		change(job)
	}
	return job
}

// RuntimeSpec is what jobs of a runtime are made from.
func RuntimeSpec() v2alpha1.TrainingRuntimeSpec {
	return v2alpha1.TrainingRuntimeSpec{
		MLPolicy: v2alpha1.MLPolicy{MPIImplementation: v2alpha1.MPIImplementationOpenMPI},
		Template: v2alpha1.RuntimeTemplate{Spec: v2alpha1.RuntimeTemplateSpec{ReplicatedJobs: []v2alpha1.ReplicatedJob{
			{Name: v2alpha1.ReplicatedJobLauncher, Template: Template("launcher", "mpirun")},
			{Name: v2alpha1.ReplicatedJobWorker, Template: Template("worker")},
		}}},
	}
}

// Runtime is a runtime of a namespace.
func Runtime(name string, change ...func(*v2alpha1.TrainingRuntimeSpec)) *v2alpha1.TrainingRuntime {
	made := &v2alpha1.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: RuntimeSpec()}
	for _, change := range change {
		change(&made.Spec)
	}
	return made
}

// Template is that of a pod with one container.
func Template(name string, command ...string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{training.IstioInject: "false"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: name, Image: "registry.example/train:1", Command: command,
			Resources: corev1.ResourceRequirements{Limits: Resources("cpu", "1", "memory", "1Gi")},
		}}},
	}
}

// Resources takes pairs of name and quantity.
func Resources(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

// ProgressOf returns the progress of a job of any kind.
func ProgressOf(object client.Object) *training.Progress {
	switch object := object.(type) {
	case *v2beta1.MPIJob:
		return &object.Status.Progress
	case *jobset.JobSet:
		previous := diagnosis.FromJobSet(object)
		return &previous.Progress
	default:
		return &object.(*v2alpha1.TrainJob).Status.Progress
	}
}

// IsMPIJob tells the kinds apart.
func IsMPIJob(object client.Object) bool {
	_, is := object.(*v2beta1.MPIJob)
	return is
}
