// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/config"
)

// Where things stand in an MPIJob and in a runtime.
const (
	launcherTemplate  = "spec.mpiReplicaSpecs.Launcher.template"
	workerTemplate    = "spec.mpiReplicaSpecs.Worker.template"
	launcherContainer = launcherTemplate + ".spec.containers[0]"
	workerContainer   = workerTemplate + ".spec.containers[0]"
	replicatedJobs    = "spec.template.spec.replicatedJobs"
)

// configured are the rules of a configuration that differs from the default.
func configured(changes ...func(*config.Config)) *Rules {
	configuration := config.Default()
	for _, change := range changes {
		change(configuration)
	}
	return NewRules(configuration, false)
}

// anywhere is a namespace that asks for nothing, in a cluster that has every
// priority class.
func anywhere(options ...func(*ClusterFacts)) *ClusterFacts {
	in := &ClusterFacts{HasPriorityClass: func(string) bool { return true }}
	for _, option := range options {
		option(in)
	}
	return in
}

// withRuntime adds a runtime to the surroundings.
func withRuntime(options ...func(*v2alpha1.TrainingRuntimeSpec)) func(*ClusterFacts) {
	return func(in *ClusterFacts) { in.Runtime = runtimeOf(options...) }
}

func podTemplate(name string, command ...string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: name, Image: "training:1", Command: command}}}}
}

func limitsOf(amounts ...string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Limits: list(amounts...)}
}

// mpiJob is an MPIJob that nothing is wrong with, and nothing worth a warning.
func mpiJob(options ...func(*v2beta1.MPIJob)) *v2beta1.MPIJob {
	mpiJob := &v2beta1.MPIJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "resnet"},
		Spec: v2beta1.MPIJobSpec{MPIReplicaSpecs: map[v2beta1.MPIReplicaType]*v2beta1.ReplicaSpec{
			v2beta1.MPIReplicaTypeLauncher: {Template: podTemplate("launcher", "mpirun", "hostname")},
			v2beta1.MPIReplicaTypeWorker:   {Replicas: new(int32(2)), Template: podTemplate("worker")},
		}},
	}
	workerOf(mpiJob).Resources = limitsOf("cpu", "1", "memory", "1Gi")
	for _, option := range options {
		option(mpiJob)
	}
	return mpiJob
}

func launcherPod(mpiJob *v2beta1.MPIJob) *corev1.PodSpec {
	return &mpiJob.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeLauncher].Template.Spec
}

func workerPod(mpiJob *v2beta1.MPIJob) *corev1.PodSpec {
	return &mpiJob.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeWorker].Template.Spec
}

func launcherOf(mpiJob *v2beta1.MPIJob) *corev1.Container { return &launcherPod(mpiJob).Containers[0] }

func workerOf(mpiJob *v2beta1.MPIJob) *corev1.Container { return &workerPod(mpiJob).Containers[0] }

func workers(count int32) func(*v2beta1.MPIJob) {
	return func(mpiJob *v2beta1.MPIJob) {
		mpiJob.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeWorker].Replicas = &count
	}
}

func noWorkers(mpiJob *v2beta1.MPIJob) {
	delete(mpiJob.Spec.MPIReplicaSpecs, v2beta1.MPIReplicaTypeWorker)
}

func launcherRunsRanks(mpiJob *v2beta1.MPIJob) { mpiJob.Spec.RunLauncherAsWorker = new(true) }

func runsSSHD(mpiJob *v2beta1.MPIJob) { workerOf(mpiJob).Command = []string{"/usr/sbin/sshd", "-De"} }

// trainJob is a TrainJob that nothing is wrong with, where there is its runtime.
func trainJob(options ...func(*v2alpha1.TrainJob)) *v2alpha1.TrainJob {
	trainJob := &v2alpha1.TrainJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "bert"},
		Spec: v2alpha1.TrainJobSpec{
			RuntimeRef: v2alpha1.RuntimeRef{Kind: v2alpha1.RuntimeKindCluster, Name: "openmpi"},
			Trainer: v2alpha1.Trainer{
				NumNodes: new(int32(2)), Image: "bert:2", Command: []string{"python", "train.py"},
				ResourcesPerNode: new(limitsOf("cpu", "1", "memory", "1Gi")),
			},
		},
	}
	for _, option := range options {
		option(trainJob)
	}
	return trainJob
}

// runtimeOf is a runtime that nothing is wrong with.
func runtimeOf(options ...func(*v2alpha1.TrainingRuntimeSpec)) *v2alpha1.TrainingRuntimeSpec {
	withoutIstio := func(template corev1.PodTemplateSpec) corev1.PodTemplateSpec {
		template.Annotations = map[string]string{training.IstioInject: "false"}
		return template
	}
	runtime := &v2alpha1.TrainingRuntimeSpec{
		MLPolicy: v2alpha1.MLPolicy{MPIImplementation: v2alpha1.MPIImplementationOpenMPI},
		Template: v2alpha1.RuntimeTemplate{Spec: v2alpha1.RuntimeTemplateSpec{ReplicatedJobs: []v2alpha1.ReplicatedJob{
			{Name: v2alpha1.ReplicatedJobLauncher, Template: withoutIstio(podTemplate("launcher"))},
			{Name: v2alpha1.ReplicatedJobWorker, Template: withoutIstio(podTemplate("worker"))},
		}}},
	}
	for _, option := range options {
		option(runtime)
	}
	return runtime
}

func runtimeLauncher(runtime *v2alpha1.TrainingRuntimeSpec) *corev1.PodTemplateSpec {
	return &runtime.Template.Spec.ReplicatedJobs[0].Template
}

func runtimeWorker(runtime *v2alpha1.TrainingRuntimeSpec) *corev1.PodTemplateSpec {
	return &runtime.Template.Spec.ReplicatedJobs[1].Template
}

// wantFindings compares everything that was found, in the order it was found.
func wantFindings(t *testing.T, got *Findings, wantFaults, wantWarnings []string) {
	t.Helper()
	var faults []string
	for _, fault := range got.Errors {
		faults = append(faults, fault.Error())
	}
	if diff := cmp.Diff(wantFaults, faults); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(wantWarnings, got.WarningTexts()); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

func wantLines(t *testing.T, want, got []string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
}
