// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// jobKind is a kind of job. A job of these tests has three pods: where there are
// roles, a launcher and two workers.
type jobKind struct {
	// kind is what people create.
	kind schema.GroupVersionKind
	// queued is what Kueue sees of it, under the same name.
	queued schema.GroupVersionKind
	// suspend is the field of queued that Kueue sets.
	suspend  []string
	manifest func(shape jobShape) string
	// podLabel is the label of the pods that has the job's name.
	podLabel string
	// says asks for what the job itself must say in a state.
	says func(place *place, name string, want jobState) error
}

// jobShape is what differs between jobs of a kind.
type jobShape struct {
	name   string
	labels map[string]string
	// priority is the name of a WorkloadPriorityClass of Kueue.
	priority string
	// runFor is how long the pods run, or the launcher where there is one; until
	// they are deleted if it is empty.
	runFor string
	// cpus of each pod; 1 if not set.
	cpus int
	// gang places the pods.
	gang gangScheduler
	// topology is the node label that must have the same value on the nodes of all
	// pods; any nodes if it is empty.
	topology string
}

// jobState is what becomes of a job.
type jobState string

const (
	stateWaiting  jobState = "waiting"
	stateRunning  jobState = "running"
	stateFinished jobState = "finished"
)

const jobPods = 3

func (kind jobKind) create(place *place, shape jobShape, change ...func(*unstructured.Unstructured)) {
	place.Helper()
	shape.cpus = max(shape.cpus, 1)
	place.create(kind.manifest(shape), change...)
}

func (kind jobKind) pods(name string) client.MatchingLabels {
	return client.MatchingLabels{kind.podLabel: name}
}

// saysNothing is of a kind that is not ours to judge.
func saysNothing(*place, string, jobState) error { return nil }

// pod is the template of the job's pods.
func (shape jobShape) pod() corev1.PodTemplateSpec {
	template := corev1.PodTemplateSpec{Spec: simulatedPodSpec(shape.cpus)}
	template.Spec.SchedulerName = shape.gang.name
	template.Annotations = map[string]string{}
	if shape.topology != "" {
		template.Annotations["kueue.x-k8s.io/podset-required-topology"] = shape.topology
		// Without a group, launcher and workers may get different domains.
		template.Annotations["kueue.x-k8s.io/podset-group-name"] = "ranks"
	}
	return template
}

// endingPod is the template of those pods that end by themselves.
func (shape jobShape) endingPod() corev1.PodTemplateSpec {
	template := shape.pod()
	if shape.runFor != "" {
		template.Annotations["trireme.local/simulated-run"] = shape.runFor
	}
	return template
}

var batchJob = jobKind{
	kind:     schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"},
	queued:   schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"},
	suspend:  []string{"spec", "suspend"},
	podLabel: "batch.kubernetes.io/job-name",
	says:     saysNothing,
	manifest: func(shape jobShape) string {
		return fmt.Sprintf(`{apiVersion: batch/v1, kind: Job, metadata: {name: %s, labels: %s}, spec: {parallelism: 3, completions: 3, template: %s}}`,
			shape.name, inline(shape.labels), inline(never(shape.endingPod())))
	},
}

// jobSet has the shape that a TrainJob gives its JobSet: one launcher, and one
// Job with all workers.
var jobSet = jobKind{
	kind:     schema.GroupVersionKind{Group: "jobset.x-k8s.io", Version: "v1alpha2", Kind: "JobSet"},
	queued:   schema.GroupVersionKind{Group: "jobset.x-k8s.io", Version: "v1alpha2", Kind: "JobSet"},
	suspend:  []string{"spec", "suspend"},
	podLabel: "jobset.sigs.k8s.io/jobset-name",
	says:     saysNothing,
	manifest: func(shape jobShape) string {
		return fmt.Sprintf(`
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: %s, labels: %s}
spec:
  successPolicy: {operator: All, targetReplicatedJobs: [launcher]}
  replicatedJobs:
  - {name: launcher, template: {spec: {template: %s}}}
  - {name: worker, template: {spec: {parallelism: 2, completions: 2, template: %s}}}
`, shape.name, inline(shape.labels), inline(never(shape.endingPod())), inline(never(shape.pod())))
	},
}

// never is restarted, which a Job has to say of its pods.
func never(template corev1.PodTemplateSpec) corev1.PodTemplateSpec {
	template.Spec.RestartPolicy = corev1.RestartPolicyNever
	return template
}

var (
	mpiJobKind   = schema.GroupVersionKind{Group: "kubeflow.org", Version: "v2beta1", Kind: "MPIJob"}
	trainJobKind = schema.GroupVersionKind{Group: "kubeflow.org", Version: "v2alpha1", Kind: "TrainJob"}
)

// mpiJob has fields that are Trireme's own, which Kueue does not know.
var mpiJob = jobKind{
	kind:     mpiJobKind,
	queued:   mpiJobKind,
	suspend:  []string{"spec", "runPolicy", "suspend"},
	podLabel: "training.kubeflow.org/job-name",
	says:     saysNothing,
	manifest: func(shape jobShape) string {
		launcher := shape.endingPod()
		launcher.Spec.Containers[0].Command = []string{"mpirun", "-np", "2", "train"}
		return fmt.Sprintf(`
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: %s, labels: %s}
spec:
  cleanPodPolicy: Running
  requireAllHosts: false
  networkPolicy: {template: Default}
  mpiReplicaSpecs:
    Launcher: {replicas: 1, template: %s}
    Worker: {replicas: 2, template: %s}
`, shape.name, inline(shape.labels), inline(launcher), inline(shape.pod()))
	},
}
