// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/operator"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

// jobClient is a client that knows the job APIs.
var jobClient = sync.OnceValues(func() (client.WithWatch, error) {
	config, err := connection()
	if err != nil {
		return nil, err
	}
	return client.NewWithWatch(config, client.Options{Scheme: operator.Scheme()})
})

// theJob is a job of either kind under the operator's care, in a namespace of
// its own.
type theJob struct {
	t         *testing.T
	client    client.WithWatch
	namespace string
	object    client.Object
}

// newNamespace is one in which PodSecurity's level is restricted.
func newNamespace(t *testing.T) (client.WithWatch, string) {
	t.Helper()
	return newNamespaceOf(t, "restricted")
}

// newNamespaceOf has its level from the start: who judges pods learns of a change a
// moment later.
func newNamespaceOf(t *testing.T, level string) (client.WithWatch, string) {
	t.Helper()
	api, err := jobClient()
	if err != nil {
		t.Fatal(err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "job-", Labels: map[string]string{"pod-security.kubernetes.io/enforce": level},
	}}
	if err := api.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Delete(context.Background(), namespace) })
	eventually.Succeeds(t, "service account", func() error {
		return api.Get(t.Context(), client.ObjectKey{Namespace: namespace.Name, Name: "default"}, &corev1.ServiceAccount{})
	})
	return api, namespace.Name
}

// submit creates a job in a namespace of its own.
func submit(t *testing.T, object client.Object) *theJob {
	t.Helper()
	api, namespace := newNamespace(t)
	return submitTo(t, api, namespace, object)
}

func submitTo(t *testing.T, api client.WithWatch, namespace string, object client.Object) *theJob {
	t.Helper()
	object.SetNamespace(namespace)
	if object.GetName() == "" {
		object.SetName("train")
	}
	if trainJob, isTrainJob := object.(*v2alpha1.TrainJob); isTrainJob && trainJob.Spec.RuntimeRef.Name == "" {
		trainJob.Spec.RuntimeRef = v2alpha1.RuntimeRef{Kind: v2alpha1.RuntimeKindNamespaced, Name: "runtime"}
		if err := client.IgnoreAlreadyExists(api.Create(t.Context(), runtimeFor(namespace, v2alpha1.MPIImplementationOpenMPI))); err != nil {
			t.Fatal(err)
		}
	}
	if err := api.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	job := &theJob{t: t, client: api, namespace: namespace, object: object}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(job.describe())
		}
	})
	return job
}

// runtimeFor is a runtime that says nothing but which MPI it is for.
func runtimeFor(namespace string, mpi v2alpha1.MPIImplementation) *v2alpha1.TrainingRuntime {
	pod := corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		TerminationGracePeriodSeconds: new(int64(2)),
		Containers:                    []corev1.Container{{Name: "trainer", Image: "overwritten"}},
	}}
	return &v2alpha1.TrainingRuntime{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "runtime"},
		Spec: v2alpha1.TrainingRuntimeSpec{
			MLPolicy: v2alpha1.MLPolicy{MPIImplementation: mpi},
			Template: v2alpha1.RuntimeTemplate{Spec: v2alpha1.RuntimeTemplateSpec{ReplicatedJobs: []v2alpha1.ReplicatedJob{
				{Name: v2alpha1.ReplicatedJobLauncher, Template: *pod.DeepCopy()}, {Name: v2alpha1.ReplicatedJobWorker, Template: *pod.DeepCopy()},
			}}},
		},
	}
}

// small is a map of its own for each job: what the API server answers is written into it.
func small() corev1.ResourceList {
	return corev1.ResourceList{"cpu": resource.MustParse("10m"), "memory": resource.MustParse("64Mi")}
}

// trainJob is a TrainJob that runs a Python program on workers with two slots.
func (of implementation) trainJob(workers int32, program string) *v2alpha1.TrainJob {
	return &v2alpha1.TrainJob{Spec: v2alpha1.TrainJobSpec{
		Trainer: v2alpha1.Trainer{
			NumNodes: &workers, SlotsPerWorker: new(int32(2)), Image: of.image, Command: []string{"python3", "-c", program},
			ResourcesPerNode: &corev1.ResourceRequirements{Requests: small()},
		},
		Launcher: &v2alpha1.Launcher{Resources: &corev1.ResourceRequirements{Requests: small()}},
	}}
}

// both are jobs of either kind that run the same program.
func both(workers int32, program string) map[string]client.Object {
	return map[string]client.Object{
		"TrainJob": implementations[1].trainJob(workers, program), "MPIJob": failFast(implementations[1].job(workers, program)),
	}
}

// failFast has a launcher tried once.
func failFast(mpiJob *v2beta1.MPIJob) *v2beta1.MPIJob {
	mpiJob.Spec.RunPolicy.BackoffLimit = new(int32(0))
	return mpiJob
}

// refresh reads the job.
func (job *theJob) refresh() training.Progress {
	job.t.Helper()
	if err := job.client.Get(job.t.Context(), client.ObjectKeyFromObject(job.object), job.object); err != nil {
		job.t.Fatal(err)
	}
	return progressOf(job.object)
}

func progressOf(object client.Object) training.Progress {
	switch object := object.(type) {
	case *v2alpha1.TrainJob:
		return object.Status.Progress
	case *v2beta1.MPIJob:
		return object.Status.Progress
	}
	panic(fmt.Sprintf("%T is no job", object))
}

// conditionsOf are the conditions that are true, with their messages.
func conditionsOf(object client.Object) map[string]string {
	found := map[string]string{}
	switch object := object.(type) {
	case *v2alpha1.TrainJob:
		for _, condition := range object.Status.Conditions {
			if condition.Status == metav1.ConditionTrue {
				found[condition.Type] = condition.Message
			}
		}
	case *v2beta1.MPIJob:
		for _, condition := range object.Status.Conditions {
			if condition.Status == corev1.ConditionTrue {
				found[string(condition.Type)] = condition.Message
			}
		}
	}
	return found
}

// until waits until the job's progress is as wanted.
func (job *theJob) until(what string, patience time.Duration, holds func(training.Progress) bool) training.Progress {
	job.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		progress := job.refresh()
		if holds(progress) {
			return progress
		}
		if time.Now().After(deadline) {
			job.t.Fatalf("%s: not after %s", what, patience)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func isFinished(progress training.Progress) bool {
	return progress.Phase == training.PhaseSucceeded || progress.Phase == training.PhaseFailed
}

func (job *theJob) end(patience time.Duration) training.Progress {
	job.t.Helper()
	return job.until("the job ends", patience, isFinished)
}

func (job *theJob) succeeds() training.Progress {
	job.t.Helper()
	ended := job.end(2 * time.Minute)
	if ended.Phase != training.PhaseSucceeded {
		job.t.Fatalf("%s: %s", ended.FailureReason, ended.FailureMessage)
	}
	return ended
}

// fails waits for a failure, and fails the test unless it is explained as wanted.
func (job *theJob) fails(reason training.FailureReason, words ...string) training.Progress {
	job.t.Helper()
	ended := job.end(2 * time.Minute)
	if ended.Phase != training.PhaseFailed || ended.FailureReason != reason {
		job.t.Errorf("the job is %s with %q: %s; want %s", ended.Phase, ended.FailureReason, ended.FailureMessage, reason)
	}
	for _, word := range words {
		if !strings.Contains(ended.FailureMessage, word) {
			job.t.Errorf("no word of %q in %q", word, ended.FailureMessage)
		}
	}
	if message, failed := conditionsOf(job.object)["Failed"]; !failed || message != ended.FailureMessage {
		job.t.Errorf("the condition Failed says %q, the status %q", message, ended.FailureMessage)
	}
	return ended
}

// pods of a role, or of all roles.
func (job *theJob) pods(role string) []corev1.Pod {
	job.t.Helper()
	selector := client.MatchingLabels{training.LabelJobName: job.object.GetName()}
	if role != "" {
		selector[training.LabelReplicaType] = role
	}
	var list corev1.PodList
	if err := job.client.List(job.t.Context(), &list, client.InNamespace(job.namespace), selector); err != nil {
		job.t.Fatal(err)
	}
	return list.Items
}

// worker is a pod of the job's workers.
func (job *theJob) worker(index int) *corev1.Pod {
	job.t.Helper()
	workers := job.pods(training.RoleWorker)
	if len(workers) <= index {
		job.t.Fatalf("the job has %d workers, want more than %d", len(workers), index)
	}
	return &workers[index]
}

// log of the launcher.
func (job *theJob) log() string {
	output, _ := shell(fmt.Sprintf("bin/cluster kubectl logs -n %s -l %s=%s,%s=launcher --tail=-1", job.namespace, training.LabelJobName, job.object.GetName(), training.LabelReplicaType))
	return output
}

func (job *theJob) waitForLog(text string) {
	job.t.Helper()
	eventually.Succeeds(job.t, "the launcher says "+text, func() error {
		if log := job.log(); !strings.Contains(log, text) {
			return fmt.Errorf("it says: %s", log)
		}
		return nil
	})
}

func (job *theJob) describe() string {
	output, _ := shell(fmt.Sprintf("bin/cluster kubectl get -n %[1]s trainjobs,mpijobs -o yaml | sed -n '/status:/,$p'; bin/cluster kubectl get -n %[1]s pods,jobs,jobsets -o wide; bin/cluster kubectl get events -n %[1]s | tail -25; bin/cluster kubectl logs -n trireme-system deployment/trireme-operator --all-pods --tail=2000 | grep -i error | tail -10", job.namespace))
	return output + job.log()
}

// change changes the job and writes it back.
func (job *theJob) change(change func(client.Object)) {
	job.t.Helper()
	eventually.Succeeds(job.t, "the job is changed", func() error {
		job.refresh()
		change(job.object)
		return job.client.Update(job.t.Context(), job.object)
	})
}

func setSuspend(suspend bool) func(client.Object) {
	return func(object client.Object) {
		switch object := object.(type) {
		case *v2alpha1.TrainJob:
			object.Spec.Suspend = &suspend
		case *v2beta1.MPIJob:
			object.Spec.RunPolicy.Suspend = &suspend
		}
	}
}
