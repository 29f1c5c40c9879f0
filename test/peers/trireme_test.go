// SPDX-License-Identifier: Apache-2.0

//go:build operator

package peers

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
)

// installTrireme comes after the peers: the operator looks at its start for the
// schedulers that there are.
var installTrireme = []string{"make install"}

// triremeMPIJob is an MPIJob that the operator runs: what it says counts too.
var triremeMPIJob = func() jobKind {
	kind := mpiJob
	kind.says = mpiJobSays
	return kind
}()

// trainJob waits as its JobSet. Its runtime is made with it.
var trainJob = jobKind{
	kind:     trainJobKind,
	queued:   jobSet.queued,
	suspend:  jobSet.suspend,
	podLabel: training.LabelJobName,
	says:     trainJobSays,
	manifest: func(shape jobShape) string {
		// The gang of a job in a queue of Kueue's is not Kubernetes' own, so the
		// runtime names one always.
		policy := coscheduling.policy
		if shape.gang.name != "" {
			policy = shape.gang.policy
		}
		// The scheduler of the pods follows from it.
		shape.gang.name = ""
		return fmt.Sprintf(`
apiVersion: kubeflow.org/v2alpha1
kind: TrainingRuntime
metadata: {name: %[1]s}
spec:
  mlPolicy: {numNodes: 2, mpiImplementation: OpenMPI}
  podGroupPolicy: {%[2]s: {scheduleTimeoutSeconds: 300}}
  template:
    spec:
      replicatedJobs:
      - {name: launcher, template: %[3]s}
      - {name: worker, template: %[4]s}
---
apiVersion: kubeflow.org/v2alpha1
kind: TrainJob
metadata: {name: %[1]s, labels: %[5]s}
spec:
  runtimeRef: {kind: TrainingRuntime, name: %[1]s}
  trainer: {image: trireme.local/simulated, command: [mpirun, train]}
`, shape.name, policy, inline(shape.endingPod()), inline(shape.pod()), inline(shape.labels))
	},
}

// mpiJobSays asks for the status that mpi-operator's users and Kueue go by.
func mpiJobSays(place *place, name string, want jobState) error {
	var job v2beta1.MPIJob
	if err := place.read(mpiJob.kind, name, &job); err != nil {
		return err
	}
	expected := map[jobState]struct {
		phase            training.Phase
		true, notTrue    v2beta1.JobConditionType
		launcher, worker int32
	}{
		stateWaiting:  {phase: training.PhasePending, true: v2beta1.JobSuspended, notTrue: v2beta1.JobRunning},
		stateRunning:  {phase: training.PhaseRunning, true: v2beta1.JobRunning, notTrue: v2beta1.JobSuspended, launcher: 1, worker: 2},
		stateFinished: {phase: training.PhaseSucceeded, true: v2beta1.JobSucceeded, notTrue: v2beta1.JobFailed},
	}[want]
	if job.Status.Phase != expected.phase {
		return fmt.Errorf("the MPIJob's phase is %q, want %q", job.Status.Phase, expected.phase)
	}
	for _, condition := range job.Status.Conditions {
		if condition.Type == expected.notTrue && condition.Status == corev1.ConditionTrue {
			return fmt.Errorf("the MPIJob is %s: %s", condition.Type, condition.Message)
		}
	}
	if !hasTrue(job.Status.Conditions, expected.true) {
		return fmt.Errorf("the MPIJob is not %s: %+v", expected.true, job.Status.Conditions)
	}
	for role, active := range map[v2beta1.MPIReplicaType]int32{v2beta1.MPIReplicaTypeLauncher: expected.launcher, v2beta1.MPIReplicaTypeWorker: expected.worker} {
		if status := job.Status.ReplicaStatuses[role]; (status == nil && active > 0) || (status != nil && status.Active != active) {
			return fmt.Errorf("replicaStatuses of %s are %+v, want %d active", role, status, active)
		}
	}
	if want == stateWaiting {
		return place.hasNoJob(name + "-launcher")
	}
	return nil
}

func hasTrue(conditions []v2beta1.JobCondition, kind v2beta1.JobConditionType) bool {
	for _, condition := range conditions {
		if condition.Type == kind {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// hasNoJob asks that a launcher's Job is gone, and not only suspended.
func (place *place) hasNoJob(name string) error {
	err := place.client.Get(place.Context(), types.NamespacedName{Namespace: place.namespace, Name: name}, &batchv1.Job{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("Job %s is still there (%v)", name, err)
}

func trainJobSays(place *place, name string, want jobState) error {
	var job v2alpha1.TrainJob
	if err := place.read(trainJobKind, name, &job); err != nil {
		return err
	}
	expected := map[jobState]struct {
		phase     training.Phase
		condition string
		status    metav1.ConditionStatus
	}{
		stateWaiting:  {training.PhasePending, v2alpha1.ConditionSuspended, metav1.ConditionTrue},
		stateRunning:  {training.PhaseRunning, v2alpha1.ConditionSuspended, metav1.ConditionFalse},
		stateFinished: {training.PhaseSucceeded, v2alpha1.ConditionTrainingComplete, metav1.ConditionTrue},
	}[want]
	if job.Status.Phase != expected.phase {
		return fmt.Errorf("the TrainJob's phase is %q, want %q", job.Status.Phase, expected.phase)
	}
	if !meta.IsStatusConditionPresentAndEqual(job.Status.Conditions, expected.condition, expected.status) {
		return fmt.Errorf("%s of the TrainJob is not %s: %+v", expected.condition, expected.status, job.Status.Conditions)
	}
	return nil
}

// read fills in an object of ours.
func (place *place) read(kind schema.GroupVersionKind, name string, into any) error {
	object, err := place.find(kind, name)
	if err != nil {
		return err
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, into)
}
