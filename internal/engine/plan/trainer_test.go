// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/gang"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// trainerJob is a JobSet of Kubeflow's Trainer with an initializer, two nodes and a
// launcher.
func trainerJob() *job.Job {
	template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "node", Image: "registry.example/mpi:1", Command: []string{"mpirun", "train"}}}}}
	worker := *template.DeepCopy()
	worker.Spec.Containers[0].Command = nil
	step := *template.DeepCopy()
	step.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	return &job.Job{
		Kind: job.KindJobSet, Namespace: "team-a", Name: "bert", UID: workloadUID, MPI: job.OpenMPI, Slots: 2,
		Launcher: job.Role{Replicas: 1, Template: template}, Worker: job.Role{Replicas: 2, Template: worker},
		Steps:    []job.Step{{Name: "dataset-initializer", Template: step}},
		Claims:   []job.Claim{{Name: "initializer-bert"}, {Name: "cache-bert", Retained: true}},
		Lifetime: job.Lifetime{CleanPodPolicy: training.CleanPodPolicyAll},
		Set: &job.Set{Coordinator: "bert-launcher-0-0.mesh", Subdomain: "mesh", Jobs: []job.ReplicatedJob{
			{Name: "dataset-initializer", Role: training.RoleInitializer}, {Name: "node", Group: "mpi", Role: training.RoleWorker}, {Name: "launcher", Group: "mpi", Role: training.RoleLauncher},
		}},
	}
}

func trainerPlan(state State) Plan {
	backend, _, _ := gang.Choose(&job.Job{}, gang.Available{})
	return Of(trainerJob(), state, Environment{Gang: backend, ClusterDomain: "cluster.local", Delivery: Delivery{Method: ImageVolume, Image: agentImage}})
}

func TestPodsOfTrainer(t *testing.T) {
	plan := trainerPlan(State{Stage: Active, Workload: workloadUID})
	got := map[string]string{}
	for _, pod := range plan.Pods {
		got[pod.Name] = pod.Spec.Hostname + "." + pod.Spec.Subdomain + " " + pod.Labels[jobset.ReplicatedJobNameKey] + " " + pod.Labels[jobset.JobGlobalIndexKey] + "/" + pod.Labels[jobset.GlobalReplicasKey] +
			" " + pod.Labels[jobset.GroupNameKey] + " " + pod.Labels[jobset.JobGroupIndexKey] + "/" + pod.Labels[jobset.GroupReplicasKey] + " " + pod.Annotations[jobset.CoordinatorKey]
	}
	want := map[string]string{
		"bert-node-0-0-r0":     "bert-node-0-0.mesh node 1/3 mpi 0/2 bert-launcher-0-0.mesh",
		"bert-node-0-1-r0":     "bert-node-0-1.mesh node 1/3 mpi 0/2 bert-launcher-0-0.mesh",
		"bert-launcher-0-0-r0": "bert-launcher-0-0.mesh launcher 2/3 mpi 1/2 bert-launcher-0-0.mesh",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
}

// The JobSet is Trainer's: it is neither created nor deleted. Claims that are retained
// have no owner.
func TestObjectsOfTrainer(t *testing.T) {
	owned := map[string]bool{}
	for _, object := range trainerPlan(State{Stage: Active, Workload: workloadUID}).Ensure {
		owned[object.GetName()] = metav1.GetControllerOf(object) != nil
	}
	want := map[string]bool{"initializer-bert": true, "cache-bert": false, "mesh": true, "bert-hostfile": true, "bert-ssh": true}
	if diff := cmp.Diff(want, owned); diff != "" {
		t.Errorf("objects, and whether the job owns them (-want +got):\n%s", diff)
	}
	for _, stage := range []Stage{Suspended, Held, Restarting, Finished} {
		for _, object := range trainerPlan(State{Stage: stage, Workload: workloadUID}).Remove {
			if _, is := object.(*jobset.JobSet); is {
				t.Errorf("at the stage %s the JobSet of Trainer is deleted", stage)
			}
		}
	}
}

// A step that has succeeded is not repeated after a restart, and a job that its queue
// stops keeps only steps that have finished.
func TestStepsOfTrainer(t *testing.T) {
	first := trainerPlan(State{Stage: Initializing, Workload: workloadUID}).Pods
	if len(first) != 1 || first[0].Name != "bert-dataset-initializer-0-0-r0" || first[0].Spec.RestartPolicy != corev1.RestartPolicyOnFailure || len(first[0].Finalizers) > 0 {
		t.Fatalf("the pods are %v", first)
	}
	names := func(objects []gang.Object) (names []string) {
		for _, object := range objects {
			names = append(names, object.GetName())
		}
		return names
	}
	running := State{Stage: Held, Workload: workloadUID, Initializers: first}
	if removed := names(trainerPlan(running).Remove); !slices.Contains(removed, first[0].Name) {
		t.Errorf("a held job deletes %v, want its initializer", removed)
	}
	first[0].Status.Phase = corev1.PodSucceeded
	if removed := names(trainerPlan(running).Remove); len(removed) > 0 {
		t.Errorf("a held job deletes %v, want nothing", removed)
	}
	again := State{Stage: Initializing, Restart: 1, Workload: workloadUID, Initializers: first}
	if pods := trainerPlan(again).Pods; len(pods) > 0 || len(InitializerNames(trainerJob(), again)) > 0 {
		t.Errorf("a step that has succeeded is repeated: %v", pods)
	}
}
