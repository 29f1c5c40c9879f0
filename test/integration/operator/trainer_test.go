// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"fmt"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/testing/player"
)

// The tests play Kubeflow's Trainer: they create what it creates for a TrainJob, with its
// account. The real one is in test/kubeflow.

const trainerAccount = "system:serviceaccount:kubeflow-system:kubeflow-trainer-controller-manager"

// asTrainer is a place whose objects Trainer's account creates.
func asTrainer(t *testing.T) *place {
	t.Helper()
	place := parallel(t)
	user, err := place.environment.AddUser(envtest.User{Name: trainerAccount, Groups: []string{"system:masters", "system:authenticated"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	place.Client = player.Connect(t, user.Config())
	return place
}

func ofTrainer(name string) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: "trainer.kubeflow.org/v1alpha1", Kind: "TrainJob", Name: name, UID: "uid-of-the-trainjob", Controller: new(true)}}
}

// trainerJobSet is what Trainer creates for two nodes and a launcher.
func trainerJobSet(name string, changes ...func(*jobset.JobSet)) *jobset.JobSet {
	replicated := func(role string, pods int32, container corev1.Container) jobset.ReplicatedJob {
		return jobset.ReplicatedJob{Name: role, Replicas: 1, Template: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{
			Parallelism: &pods, Completions: &pods, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{container}}},
		}}}
	}
	launcher := replicated("launcher", 1, corev1.Container{
		Name: "node", Image: "registry.example/mpi:1", Command: []string{"mpirun", "train"},
		Env:          []corev1.EnvVar{{Name: "OMPI_MCA_orte_default_hostfile", Value: "/etc/mpi/hostfile"}},
		VolumeMounts: []corev1.VolumeMount{{Name: "mpi-hostfile", MountPath: "/etc/mpi"}},
	})
	launcher.DependsOn = []jobset.DependsOn{{Name: "node", Status: jobset.DependencyReady}}
	launcher.Template.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "mpi-hostfile", VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name + "-mpi-hostfile"}},
	}}}
	node := replicated("node", 2, corev1.Container{Name: "node", Image: "registry.example/mpi:1", Command: []string{"/usr/sbin/sshd"}, Args: []string{"-De"}})
	set := &jobset.JobSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: ofTrainer(name)},
		Spec: jobset.JobSetSpec{
			ManagedBy:      new(training.ManagedByTrireme),
			SuccessPolicy:  &jobset.SuccessPolicy{Operator: jobset.OperatorAll, TargetReplicatedJobs: []string{"launcher"}},
			ReplicatedJobs: []jobset.ReplicatedJob{node, launcher},
		},
	}
	for _, change := range changes {
		change(set)
	}
	return set
}

// createTrainerJob creates a JobSet and its hostfile, in the worse order.
func (place *place) createTrainerJob(set *jobset.JobSet) {
	place.Helper()
	place.Create(set)
	hosts := fmt.Sprintf("%[1]s-node-0-0.%[1]s slots=3\n%[1]s-node-0-1.%[1]s slots=3\n%[1]s-launcher-0-0.%[1]s slots=3\n", set.Name)
	place.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: set.Name + "-mpi-hostfile", OwnerReferences: ofTrainer(set.Name)}, Data: map[string]string{"hostfile": hosts}})
}

// wantJobSet waits for a condition of a JobSet, which Trainer copies.
func (place *place) wantJobSet(set *jobset.JobSet, kind jobset.JobSetConditionType, wants ...string) {
	place.Helper()
	place.Until(fmt.Sprintf("JobSet %s is %s", set.Name, kind), set, func() error {
		condition := meta.FindStatusCondition(set.Status.Conditions, string(kind))
		if condition == nil || condition.Status != metav1.ConditionTrue {
			return fmt.Errorf("its status is %+v, and its record %s", set.Status, set.Annotations[training.AnnotationRecord])
		}
		for _, want := range wants {
			if text := condition.Reason + ": " + condition.Message; !strings.Contains(text, want) {
				return fmt.Errorf("it says %q, want %q", text, want)
			}
		}
		return nil
	})
}

// untilRemoved waits until the operator deletes pods, and plays their kubelet.
func (place *place) untilRemoved(pods ...*corev1.Pod) {
	place.Helper()
	place.Eventually("the pods are deleted", func() error {
		place.RemoveDeleted(pods...)
		for _, pod := range pods {
			if err := place.Get(&corev1.Pod{}, pod.Name); !apierrors.IsNotFound(err) {
				return fmt.Errorf("pod %s: %v", pod.Name, err)
			}
		}
		return nil
	})
}

func TestJobSetOfTrainerRuns(t *testing.T) {
	place := asTrainer(t)
	set := trainerJobSet("bert")
	place.createTrainerJob(set)
	launcher, workers := place.runs(set)
	if launcher.Name != "bert-launcher-0-0-r0" || launcher.Spec.Hostname != "bert-launcher-0-0" || launcher.Spec.Subdomain != "bert" {
		t.Errorf("the launcher is %s with the host name %s.%s", launcher.Name, launcher.Spec.Hostname, launcher.Spec.Subdomain)
	}
	for _, pod := range append(workers, launcher) {
		role, owner := "node", metav1.GetControllerOf(pod)
		if pod == launcher {
			role = "launcher"
		}
		labels := pod.Labels
		if labels[jobset.JobSetNameKey] != "bert" || labels[jobset.ReplicatedJobNameKey] != role || labels[batchv1.JobCompletionIndexAnnotation] == "" || owner.UID != set.UID {
			t.Errorf("pod %s has the labels %v and the owner %v", pod.Name, labels, owner)
		}
		if container := pod.Spec.Containers[0]; container.Name != "node" || !strings.Contains(container.Command[0], "mpi-agent") {
			t.Errorf("pod %s runs %v in container %s, want the agent in container node", pod.Name, container.Command, container.Name)
		}
	}
	hostfile := mustGet(place, &corev1.ConfigMap{}, "bert-hostfile").Data["hostfile"]
	if want := "bert-launcher-0-0 slots=3\nbert-node-0-0 slots=3\nbert-node-0-1 slots=3\n"; hostfile != want {
		t.Errorf("the hostfile is\n%s, want\n%s", hostfile, want)
	}
	place.Until("the JobSet counts its Jobs", set, func() error {
		for _, status := range set.Status.ReplicatedJobsStatus {
			if status.Ready != 1 || status.Active != 1 {
				return fmt.Errorf("%s: %+v", status.Name, status)
			}
		}
		if len(set.Status.ReplicatedJobsStatus) != 2 || set.Status.ReplicatedJobsStatus[0].Name != "node" {
			return fmt.Errorf("it has %+v", set.Status.ReplicatedJobsStatus)
		}
		return nil
	})
	place.Exit(launcher, 0, report("", 2))
	place.wantJobSet(set, jobset.JobSetCompleted)
	if set.Status.TerminalState != string(jobset.JobSetCompleted) || set.Status.ReplicatedJobsStatus[1].Succeeded != 1 {
		t.Errorf("its status is %+v", set.Status)
	}
	place.Eventually("the workers are deleted", func() error {
		if left := place.PodsOf(set, training.RoleWorker); len(left) > 0 && left[0].DeletionTimestamp == nil {
			return fmt.Errorf("%d are left", len(left))
		}
		return nil
	})
}

func TestFailureOfJobSetOfTrainer(t *testing.T) {
	place := asTrainer(t)
	set := trainerJobSet("oom")
	place.createTrainerJob(set)
	_, workers := place.runs(set)
	place.SetStatus(workers[1], func(status *corev1.PodStatus) {
		status.Phase = corev1.PodFailed
		status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled", FinishedAt: metav1.Now()}}
	})
	place.wantJobSet(set, jobset.JobSetFailed, "WorkerFailed: Worker 1", "OOMKilled")
}

// A runtime may restart its jobs, and the JobSet counts the restarts.
func TestRestartOfJobSetOfTrainer(t *testing.T) {
	place := asTrainer(t)
	set := trainerJobSet("again", func(set *jobset.JobSet) { set.Spec.FailurePolicy = &jobset.FailurePolicy{MaxRestarts: 1} })
	place.createTrainerJob(set)
	launcher, workers := place.runs(set)
	place.Exit(launcher, 1, report("TrainingError", 2))
	place.Until("a restart is due", set, func() error {
		if set.Status.Restarts != 1 {
			return fmt.Errorf("its status is %+v", set.Status)
		}
		return nil
	})
	place.untilRemoved(append(workers, launcher)...)
	launcher, _ = place.runs(set)
	if launcher.Name != "again-launcher-0-0-r1" {
		t.Errorf("the second launcher is %s", launcher.Name)
	}
	place.Exit(launcher, 0, report("", 2))
	place.wantJobSet(set, jobset.JobSetCompleted)
}

// Kueue, or a user, suspends a TrainJob, and with it its JobSet.
func TestSuspendedJobSetOfTrainer(t *testing.T) {
	place := asTrainer(t)
	set := trainerJobSet("held", func(set *jobset.JobSet) { set.Spec.Suspend = new(true) })
	place.createTrainerJob(set)
	place.wantJobSet(set, jobset.JobSetSuspended)
	if pods := place.PodsOf(set, ""); len(pods) > 0 {
		t.Errorf("a suspended job has the pods %v", pods)
	}
	// Trainer applies the template that the queue has edited.
	place.Patch(set, `{"spec": {"suspend": false}}`)
	launcher, workers := place.runs(set)
	place.Patch(set, `{"spec": {"suspend": true}}`)
	place.untilRemoved(append(workers, launcher)...)
	place.Until("no Job is active", set, func() error {
		for _, status := range set.Status.ReplicatedJobsStatus {
			if status.Active != 0 || status.Suspended != 1 {
				return fmt.Errorf("%+v", status)
			}
		}
		return nil
	})
	place.Patch(set, `{"spec": {"suspend": false}}`)
	launcher, _ = place.runs(set)
	place.Exit(launcher, 0, report("", 2))
	place.wantJobSet(set, jobset.JobSetCompleted)
}

// Initializers run first, both at the same time, and nodes once both have succeeded.
func TestInitializersOfJobSetOfTrainer(t *testing.T) {
	place := asTrainer(t)
	set := trainerJobSet("data", func(set *jobset.JobSet) {
		steps := []jobset.ReplicatedJob{}
		for _, name := range []string{"dataset-initializer", "model-initializer"} {
			steps = append(steps, jobset.ReplicatedJob{Name: name, Replicas: 1, Template: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: name, Image: "registry.example/init:1", VolumeMounts: []corev1.VolumeMount{{Name: "initializer", MountPath: "/workspace"}}}},
			}}}}})
			set.Spec.ReplicatedJobs[0].DependsOn = append(set.Spec.ReplicatedJobs[0].DependsOn, jobset.DependsOn{Name: name, Status: jobset.DependencyComplete})
		}
		set.Spec.ReplicatedJobs = append(steps, set.Spec.ReplicatedJobs...)
		set.Spec.VolumeClaimPolicies = []jobset.VolumeClaimPolicy{{Templates: []corev1.PersistentVolumeClaim{{
			ObjectMeta: metav1.ObjectMeta{Name: "initializer"},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources:   corev1.VolumeResourceRequirements{Requests: player.Resources("storage", "1Gi")},
			},
		}}}}
	})
	place.createTrainerJob(set)
	var steps []*corev1.Pod
	place.Eventually("both initializers exist", func() error {
		if steps = place.PodsOf(set, training.RoleInitializer); len(steps) != 2 {
			return fmt.Errorf("%d exist; the job is %+v", len(steps), player.ProgressOf(set))
		}
		return nil
	})
	mustGet(place, &corev1.PersistentVolumeClaim{}, "initializer-data")
	for i, step := range steps {
		if others := len(place.PodsOf(set, training.RoleWorker)); others > 0 {
			t.Fatalf("%d workers exist before initializer %d has succeeded", others, i)
		}
		if step.Labels[jobset.ReplicatedJobNameKey] != step.Spec.Containers[0].Name {
			t.Errorf("initializer %s has the labels %v", step.Name, step.Labels)
		}
		place.Assign(step)
		place.StartContainers(step)
		place.Exit(step, 0, "")
	}
	launcher, _ := place.runs(set)
	place.Exit(launcher, 0, report("", 2))
	place.wantJobSet(set, jobset.JobSetCompleted)
	if status := set.Status.ReplicatedJobsStatus[0]; status.Name != "dataset-initializer" || status.Succeeded != 1 {
		t.Errorf("the status of the first is %+v", status)
	}
}

// What Trireme cannot do fails before it has pods, with the reason.
func TestRefusedJobSetsOfTrainer(t *testing.T) {
	place := asTrainer(t)
	torch := trainerJobSet("torch", func(set *jobset.JobSet) { set.Spec.ReplicatedJobs = set.Spec.ReplicatedJobs[:1] })
	torch.Spec.SuccessPolicy = nil
	rules := trainerJobSet("rules", func(set *jobset.JobSet) {
		set.Spec.FailurePolicy = &jobset.FailurePolicy{Rules: []jobset.FailurePolicyRule{{Name: "x", Action: jobset.FailJobSet}}}
	})
	place.Create(torch)
	place.createTrainerJob(rules)
	place.wantJobSet(torch, jobset.JobSetFailed, "Unsupported", "spec.managedBy: Trireme only runs JobSets of runtimes with mlPolicy.mpi")
	place.wantJobSet(rules, jobset.JobSetFailed, "Unsupported", "spec.failurePolicy.rules")
	for _, set := range []*jobset.JobSet{torch, rules} {
		if pods := place.PodsOf(set, ""); len(pods) > 0 {
			t.Errorf("%s was refused and has %d pods", set.Name, len(pods))
		}
	}
}

// Only Trainer may create JobSets that Trireme runs, and only for its own TrainJobs.
func TestJobSetsOfOthersAreRefused(t *testing.T) {
	place := asTrainer(t)
	for name, test := range map[string]struct {
		by  client.Client
		set *jobset.JobSet
	}{
		"another user": {sharedCluster.For(t).client, trainerJobSet("a")},
		"no TrainJob":  {place.Client, trainerJobSet("b", func(set *jobset.JobSet) { set.OwnerReferences = nil })},
	} {
		test.set.Namespace = place.Namespace
		err := test.by.Create(context.Background(), test.set, client.DryRunAll)
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "kubeflowTrainer.serviceAccount") {
			t.Errorf("%s: the answer is %v, want a refusal", name, err)
		}
	}
}
