package operator

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
)

// mpiJob is an MPIJob with two workers.
func mpiJob(name string, change ...func(*v2beta1.MPIJob)) *v2beta1.MPIJob {
	job := &v2beta1.MPIJob{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v2beta1.MPIJobSpec{MPIReplicaSpecs: map[v2beta1.MPIReplicaType]*v2beta1.ReplicaSpec{
			v2beta1.MPIReplicaTypeLauncher: {Template: template("launcher", "mpirun", "hostname")},
			v2beta1.MPIReplicaTypeWorker:   {Replicas: new(int32(2)), Template: template("worker")},
		}},
	}
	for _, change := range change {
		change(job)
	}
	return job
}

// suspended creates an MPIJob as Kueue's webhook leaves it.
func suspended(job *v2beta1.MPIJob) {
	job.Labels = map[string]string{training.LabelQueue: "team"}
	job.Spec.RunPolicy.Suspend = new(true)
}

// trainJob is a TrainJob with two nodes.
func trainJob(namespace, name string, change ...func(*v2alpha1.TrainJob)) *v2alpha1.TrainJob {
	job := &v2alpha1.TrainJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v2alpha1.TrainJobSpec{
			RuntimeRef: v2alpha1.RuntimeRef{Kind: v2alpha1.RuntimeKindNamespaced, Name: "mpi"},
			Trainer: v2alpha1.Trainer{
				NumNodes: new(int32(2)), Image: "registry.example/train:1", Command: []string{"python", "train.py"},
				ResourcesPerNode: &corev1.ResourceRequirements{Limits: resources("cpu", "1", "memory", "1Gi")},
			},
		},
	}
	for _, change := range change {
		change(job)
	}
	return job
}

// runtimeSpec is what jobs of a runtime are made from.
func runtimeSpec() v2alpha1.TrainingRuntimeSpec {
	return v2alpha1.TrainingRuntimeSpec{
		MLPolicy: v2alpha1.MLPolicy{MPIImplementation: v2alpha1.MPIImplementationOpenMPI},
		Template: v2alpha1.RuntimeTemplate{Spec: v2alpha1.RuntimeTemplateSpec{ReplicatedJobs: []v2alpha1.ReplicatedJob{
			{Name: v2alpha1.ReplicatedJobLauncher, Template: template("launcher", "mpirun")},
			{Name: v2alpha1.ReplicatedJobWorker, Template: template("worker")},
		}}},
	}
}

func runtime(name string, change ...func(*v2alpha1.TrainingRuntimeSpec)) *v2alpha1.TrainingRuntime {
	made := &v2alpha1.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: runtimeSpec()}
	for _, change := range change {
		change(&made.Spec)
	}
	return made
}

func template(name string, command ...string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{training.IstioInject: "false"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: name, Image: "registry.example/train:1", Command: command,
			Resources: corev1.ResourceRequirements{Limits: resources("cpu", "1", "memory", "1Gi")},
		}}},
	}
}

// resources takes pairs of name and quantity.
func resources(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

// progressOf is how far a job of either kind has come.
func progressOf(object client.Object) *training.Progress {
	if mpiJob, is := object.(*v2beta1.MPIJob); is {
		return &mpiJob.Status.Progress
	}
	return &object.(*v2alpha1.TrainJob).Status.Progress
}

// conditionOf is a condition of a job of either kind, as "True Reason", and its
// message.
func conditionOf(object client.Object, kind string) (answer, message string) {
	if mpiJob, is := object.(*v2beta1.MPIJob); is {
		for _, condition := range mpiJob.Status.Conditions {
			if string(condition.Type) == kind {
				return string(condition.Status) + " " + condition.Reason, condition.Message
			}
		}
		return "", ""
	}
	condition := meta.FindStatusCondition(object.(*v2alpha1.TrainJob).Status.Conditions, kind)
	if condition == nil {
		return "", ""
	}
	return string(condition.Status) + " " + condition.Reason, condition.Message
}

// wantConditions are pairs of a condition and its answer.
func wantConditions(object client.Object, pairs ...string) error {
	for i := 0; i < len(pairs); i += 2 {
		if answer, message := conditionOf(object, pairs[i]); answer != pairs[i+1] {
			return fmt.Errorf("the condition %s is %q (%s), want %q", pairs[i], answer, message, pairs[i+1])
		}
	}
	return nil
}

// untilPhase waits until a job has come so far.
func (place *place) untilPhase(object client.Object, phase training.Phase) {
	place.Helper()
	place.until(fmt.Sprintf("%s is %s", object.GetName(), phase), object, func() error {
		if progress := progressOf(object); progress.Phase != phase {
			return fmt.Errorf("it is %s: %+v", progress.Phase, progress)
		}
		return nil
	})
}

func stepsOf(progress *training.Progress) (steps []training.TimelineStep) {
	for _, entry := range progress.Timeline {
		steps = append(steps, entry.Step)
	}
	return steps
}

func wantSteps(progress *training.Progress, want ...training.TimelineStep) error {
	if got := stepsOf(progress); !slices.Equal(got, want) {
		return fmt.Errorf("the timeline has %v, want %v", got, want)
	}
	return nil
}

func isMPIJob(object client.Object) bool {
	_, is := object.(*v2beta1.MPIJob)
	return is
}
