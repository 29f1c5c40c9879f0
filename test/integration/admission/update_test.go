// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
)

const immutable = "field is immutable"

// placement is everything that Kueue changes in the templates of an MPIJob when
// it lets the job run, and takes back when it stops it.
func placement(job *v2beta1.MPIJob) {
	for _, replica := range job.Spec.MPIReplicaSpecs {
		replica.Template.Labels = map[string]string{"kueue.x-k8s.io/podset": "worker"}
		replica.Template.Annotations = map[string]string{"kueue.x-k8s.io/workload": "workload"}
		replica.Template.Spec.NodeSelector = map[string]string{"pool": "gpu"}
		replica.Template.Spec.Tolerations = []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}}
		replica.Template.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "kueue.x-k8s.io/topology"}}
	}
}

var mpiJobUpdates = map[string]struct {
	suspended bool
	change    func(*v2beta1.MPIJob)
	want      []wantCause
}{
	"Kueue lets it run": {
		suspended: true,
		change: func(job *v2beta1.MPIJob) {
			placement(job)
			job.Spec.RunPolicy.Suspend = new(false)
		},
	},
	"Kueue stops it": {
		change: func(job *v2beta1.MPIJob) {
			placement(job)
			job.Spec.RunPolicy.Suspend = new(true)
		},
	},
	"its placement changes while it runs": {
		change: placement,
		want: []wantCause{
			{workerAt + ".template.metadata.labels", immutable}, {workerAt + ".template.metadata.annotations", immutable},
			{workerAt + ".template.spec.nodeSelector", immutable}, {workerAt + ".template.spec.tolerations", immutable},
			{workerAt + ".template.spec.schedulingGates", immutable},
			{launcherAt + ".template.metadata.labels", immutable}, {launcherAt + ".template.metadata.annotations", immutable},
			{launcherAt + ".template.spec.nodeSelector", immutable}, {launcherAt + ".template.spec.tolerations", immutable},
			{launcherAt + ".template.spec.schedulingGates", immutable},
		},
	},
	"more than its placement changes while it is suspended": {
		suspended: true,
		change: func(job *v2beta1.MPIJob) {
			placement(job)
			worker(job).Image = "registry.example/other:1"
			job.Spec.MPIReplicaSpecs["Worker"].Replicas = new(int32(8))
			job.Spec.SlotsPerWorker = new(int32(1))
			job.Spec.RunPolicy.BackoffLimit = new(int32(1))
			job.Spec.RunPolicy.SchedulingPolicy = &v2beta1.SchedulingPolicy{Queue: "other"}
		},
		want: []wantCause{
			{workerAt + ".template.spec.containers[0].image", immutable}, {workerAt + ".replicas", immutable},
			{"spec.slotsPerWorker", immutable}, {"spec.runPolicy.backoffLimit", immutable}, {"spec.runPolicy.schedulingPolicy", immutable},
		},
	},
	"it gets another manager": {
		change: func(job *v2beta1.MPIJob) { job.Spec.RunPolicy.ManagedBy = new(training.ManagedByMultiKueue) },
		want:   []wantCause{{"spec.runPolicy.managedBy", immutable}},
	},
	"the same written otherwise": {
		change: func(job *v2beta1.MPIJob) { worker(job).Resources.Limits["cpu"] = resource.MustParse("4000m") },
	},
	"a label of the user's": {change: func(job *v2beta1.MPIJob) { job.Labels = map[string]string{"team": "vision"} }},
	"a label of the operator's": {
		change: func(job *v2beta1.MPIJob) { job.Labels = map[string]string{training.LabelJobName: "other"} },
		want:   []wantCause{{"metadata.labels[training.kubeflow.org/job-name]", `must be "train"`}},
	},
}

func TestMPIJobUpdates(t *testing.T) {
	cluster := sharedCluster.For(t)
	for name, tc := range mpiJobUpdates {
		t.Run(name, func(t *testing.T) {
			job := mpiJob(cluster.namespace(t, nil), "train")
			job.Spec.RunPolicy.Suspend = new(tc.suspended)
			cluster.create(t, job)
			tc.change(job)
			err := cluster.client.Update(t.Context(), job)
			if len(tc.want) > 0 {
				wantCauses(t, err, tc.want...)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

func TestTrainJobUpdates(t *testing.T) {
	cluster := sharedCluster.For(t)
	namespace := cluster.namespace(t, nil)
	cluster.create(t, runtime(namespace, "mpi"))
	job := trainJob(namespace, "train")
	cluster.create(t, job)

	for _, suspend := range []bool{true, false} {
		job.Spec.Suspend = new(suspend)
		if err := cluster.client.Update(t.Context(), job); err != nil {
			t.Errorf("suspend: %t is refused: %v", suspend, err)
		}
	}
	changed := job.DeepCopy()
	changed.Spec.Trainer.NumNodes = new(int32(8))
	changed.Spec.Trainer.Env = []corev1.EnvVar{{Name: "EPOCHS", Value: "4"}}
	changed.Spec.TTLSecondsAfterFinished = new(int32(5))
	wantCauses(t, cluster.client.Update(t.Context(), changed),
		wantCause{"spec.trainer.numNodes", immutable}, wantCause{"spec.trainer.env", immutable}, wantCause{"spec.ttlSecondsAfterFinished", immutable})

	// What is a single value cannot be changed even where the webhook is not asked.
	changed = job.DeepCopy()
	changed.Spec.RuntimeRef.Name = "other"
	err := cluster.client.Update(t.Context(), changed)
	wantCauses(t, err, wantCause{"spec.runtimeRef.name", immutable})
	if apierrors.IsInvalid(err) && contains(err, "admission webhook") {
		t.Errorf("the schema does not hold the name of the runtime: %v", err)
	}
}

// A job that is going away must be able to lose its finalizers, whatever is
// wrong with it by then.
func TestJobsThatAreBeingDeletedMayChange(t *testing.T) {
	cluster := sharedCluster.For(t)
	namespace := cluster.namespace(t, nil)
	cluster.create(t, runtime(namespace, "mpi"))
	for name, job := range map[string]client.Object{
		"MPIJob":   mpiJob(namespace, "train", func(job *v2beta1.MPIJob) { job.Finalizers = []string{"example.com/wait"} }),
		"TrainJob": trainJob(namespace, "train-too", func(job *v2alpha1.TrainJob) { job.Finalizers = []string{"example.com/wait"} }),
	} {
		cluster.create(t, job)
		if err := cluster.client.Delete(t.Context(), job); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := cluster.client.Get(t.Context(), client.ObjectKeyFromObject(job), job); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		job.SetFinalizers(nil)
		job.SetLabels(map[string]string{training.LabelJobName: "nonsense"})
		if err := cluster.client.Update(t.Context(), job); err != nil {
			t.Errorf("%s cannot lose its finalizer: %v", name, err)
		}
		if err := cluster.client.Get(t.Context(), client.ObjectKeyFromObject(job), job); !apierrors.IsNotFound(err) {
			t.Errorf("%s is still there: %v", name, err)
		}
	}
}

// The status is the operator's and is written without the webhook.
func TestStatusIsASubresource(t *testing.T) {
	cluster := sharedCluster.For(t)
	job := mpiJob(cluster.namespace(t, nil), "train")
	cluster.create(t, job)
	job.Status.Phase = training.PhaseRunning
	job.Status.ReadyWorkers, job.Status.ReadyWorkerCount, job.Status.WorkerCount = "3/4", 3, 4
	if err := cluster.client.Status().Update(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	job.Status.Phase = training.PhaseFailed
	job.Labels = map[string]string{"a": "b"}
	if err := cluster.client.Update(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	if job.Status.Phase != training.PhaseRunning {
		t.Errorf("an update of the job changed its status to %s", job.Status.Phase)
	}
}
