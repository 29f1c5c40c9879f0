// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/training"
)

// shape is the part of a pod that these tests compare.
type shape struct {
	Hostname, Subdomain string
	Owner               metav1.OwnerReference
	Labels              map[string]string
	Annotations         map[string]string
	Finalizers          []string
	// Indexes are the values of JOB_COMPLETION_INDEX, by container.
	Indexes map[string]string
}

func shapesOf(t *testing.T, plan Plan) map[string]shape {
	t.Helper()
	shapes := map[string]shape{}
	for _, pod := range plan.Pods {
		if len(pod.OwnerReferences) != 1 || pod.Namespace != "team-a" {
			t.Fatalf("%s/%s has the owners %v", pod.Namespace, pod.Name, pod.OwnerReferences)
		}
		found := shape{
			Hostname: pod.Spec.Hostname, Subdomain: pod.Spec.Subdomain, Owner: pod.OwnerReferences[0],
			Labels: pod.Labels, Annotations: pod.Annotations, Finalizers: pod.Finalizers,
		}
		for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			if index, has := variables(&container)["JOB_COMPLETION_INDEX"]; has {
				if found.Indexes == nil {
					found.Indexes = map[string]string{}
				}
				found.Indexes[container.Name] = index
			}
		}
		shapes[pod.Name] = found
	}
	return shapes
}

// The JobSet owns every pod of a TrainJob, and the pods have the labels and annotations
// of JobSet and the Job controller, which tools and Kueue read.
func TestTrainJobPods(t *testing.T) {
	tc := whole{job: ofTrainJob(nodes(2)), method: InitContainer, state: State{Restart: 3}}
	owner := metav1.OwnerReference{
		APIVersion: "jobset.x-k8s.io/v1alpha2", Kind: "JobSet", Name: "bert", UID: workloadUID, Controller: new(true), BlockOwnerDeletion: new(true),
	}
	// pod is the shape of a pod; global is the index of its child Job.
	pod := func(role, index, global string, extra map[string]string) shape {
		contract := map[string]string{
			"jobset.sigs.k8s.io/jobset-name": "bert", "jobset.sigs.k8s.io/jobset-uid": string(workloadUID),
			"jobset.sigs.k8s.io/replicatedjob-name": role, "jobset.sigs.k8s.io/replicatedjob-replicas": "1",
			"jobset.sigs.k8s.io/global-replicas": "2", "jobset.sigs.k8s.io/job-index": "0", "jobset.sigs.k8s.io/job-global-index": global,
			"jobset.sigs.k8s.io/group-name": "default", "jobset.sigs.k8s.io/group-replicas": "2", "jobset.sigs.k8s.io/job-group-index": global,
			"jobset.sigs.k8s.io/restart-attempt": "3", "batch.kubernetes.io/job-completion-index": index,
			"sidecar.istio.io/inject": "false",
		}
		labels := maps.Clone(contract)
		maps.Copy(labels, map[string]string{
			"training.kubeflow.org/job-name": "bert", "training.kubeflow.org/job-type": "trainjob", "training.kubeflow.org/job-uid": "5678",
			"training.kubeflow.org/job-role": role, "training.kubeflow.org/replica-type": role, "training.kubeflow.org/restart": "3",
			"batch.kubernetes.io/job-name": "bert-" + role + "-0",
		})
		maps.Copy(labels, extra)
		return shape{
			Hostname: "bert-" + role + "-0-" + index, Subdomain: "bert-worker", Owner: owner, Labels: labels, Annotations: contract,
			// Containers that the plan adds have the variable too.
			Indexes: map[string]string{"trireme-install": index, role: index},
		}
	}
	number := func(index string) map[string]string {
		return map[string]string{"training.kubeflow.org/replica-index": index}
	}
	launcher := pod("launcher", "0", "0", nil)
	launcher.Finalizers = []string{"training.kubeflow.org/launcher"}
	want := map[string]shape{
		"bert-launcher-0-0-r3": launcher,
		"bert-worker-0-0-r3":   pod("worker", "0", "1", number("0")),
		"bert-worker-0-1-r3":   pod("worker", "1", "1", number("1")),
	}
	if diff := cmp.Diff(want, shapesOf(t, tc.plan(t))); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
}

// The MPIJob owns its workers, which are never restarted, and the launcher's Job
// owns the launcher.
func TestMPIJobPods(t *testing.T) {
	tc := whole{job: ofMPIJob(), state: State{Restart: 3}}
	job := metav1.OwnerReference{
		APIVersion: "kubeflow.org/v2beta1", Kind: "MPIJob", Name: "resnet", UID: "1234", Controller: new(true), BlockOwnerDeletion: new(true),
	}
	batch := metav1.OwnerReference{
		APIVersion: "batch/v1", Kind: "Job", Name: "resnet-launcher", UID: workloadUID, Controller: new(true), BlockOwnerDeletion: new(true),
	}
	pod := func(role string, extra map[string]string) map[string]string {
		labels := map[string]string{
			"training.kubeflow.org/job-name": "resnet", "training.kubeflow.org/job-type": "mpijob", "training.kubeflow.org/operator-name": "mpi-operator",
			"training.kubeflow.org/job-role": role, "training.kubeflow.org/replica-type": role, "training.kubeflow.org/restart": "3",
			"sidecar.istio.io/inject": "false",
		}
		maps.Copy(labels, extra)
		return labels
	}
	worker := func(index string) shape {
		return shape{
			Hostname: "resnet-worker-" + index, Subdomain: "resnet-worker", Owner: job,
			Labels: pod("worker", map[string]string{"training.kubeflow.org/replica-index": index}), Annotations: map[string]string{"sidecar.istio.io/inject": "false"},
		}
	}
	want := map[string]shape{
		"resnet-worker-0": worker("0"), "resnet-worker-1": worker("1"),
		"resnet-launcher-r3": {
			Hostname: "resnet-launcher", Subdomain: "resnet-worker", Owner: batch, Finalizers: []string{"training.kubeflow.org/launcher"},
			Labels: pod("launcher", map[string]string{
				"training.kubeflow.org/job-uid": "1234", "batch.kubernetes.io/job-name": "resnet-launcher", "batch.kubernetes.io/controller-uid": string(workloadUID),
			}),
			Annotations: map[string]string{"sidecar.istio.io/inject": "false"},
		},
	}
	if diff := cmp.Diff(want, shapesOf(t, tc.plan(t))); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
}

// Every container has the index, as in an Indexed Job, including the ones that the plan
// adds. A value of the user stays.
func TestCompletionIndexIsInEveryContainer(t *testing.T) {
	ownIndex := func(template *corev1.PodTemplateSpec) {
		ownContainers(template)
		template.Spec.Containers[1].Env = []corev1.EnvVar{{Name: "JOB_COMPLETION_INDEX", Value: "theirs"}}
	}
	plan := whole{job: ofTrainJob(nodes(2), runtimeDoes(ownIndex), withoutCommand), method: InitContainer}.plan(t)
	for name, pod := range podsOf(plan) {
		want := name[len(name)-len("0-r0"):][:1]
		for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			got := variables(&container)["JOB_COMPLETION_INDEX"]
			if container.Name == "metrics" && got == "theirs" {
				continue
			}
			if got != want {
				t.Errorf("%s of %s has the index %q, want %q", container.Name, name, got, want)
			}
		}
	}
	if len(plan.Pods) != 3 {
		t.Errorf("%d pods", len(plan.Pods))
	}
}

// Names are fixed: the API server refuses a second pod of the same role, index and
// restart.
func TestPodNamesAreUnique(t *testing.T) {
	for _, tc := range []whole{{job: ofMPIJob(replicas(12), launcherRunsRanks)}, {job: ofTrainJob(nodes(12))}} {
		seen := map[string]bool{}
		for _, tc.state.Restart = range []int32{0, 1, 2} {
			for name, pod := range podsOf(tc.plan(t)) {
				// Workers of an MPIJob stay when the launcher is restarted.
				if seen[name] && !strings.HasPrefix(name, "resnet-worker-") {
					t.Errorf("%s of restart %s exists already", name, pod.Labels[training.LabelRestart])
				}
				seen[name] = true
			}
		}
	}
}
