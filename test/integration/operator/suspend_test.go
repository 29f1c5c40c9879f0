// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"errors"
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
)

// admission is the one patch by which Kueue starts an MPIJob: it is unsuspended,
// and its templates say where the pods go.
const admission = `{"spec":{"runPolicy":{"suspend":false},"mpiReplicaSpecs":{
	"Launcher":{"template":{
		"metadata":{"labels":{"kueue.x-k8s.io/podset":"launcher"},"annotations":{"kueue.x-k8s.io/workload":"mpijob-train-1234"}},
		"spec":{"nodeSelector":{"flavor":"cpu"}}}},
	"Worker":{"template":{
		"metadata":{"labels":{"kueue.x-k8s.io/podset":"worker"},"annotations":{"kueue.x-k8s.io/workload":"mpijob-train-1234"}},
		"spec":{"nodeSelector":{"flavor":"spot"},"tolerations":[{"key":"spot","operator":"Exists","effect":"NoSchedule"}]}}}}}}`

// eviction is the one patch by which Kueue stops it: suspended, and the templates
// as they were.
const eviction = `{"spec":{"runPolicy":{"suspend":true},"mpiReplicaSpecs":{
	"Launcher":{"template":{"metadata":{"labels":null,"annotations":{"kueue.x-k8s.io/workload":null}},"spec":{"nodeSelector":null}}},
	"Worker":{"template":{"metadata":{"labels":null,"annotations":{"kueue.x-k8s.io/workload":null}},"spec":{"nodeSelector":null,"tolerations":null}}}}}}`

// Kueue and an MPIJob: admitted, evicted, admitted again.
func TestKueueRunsAnMPIJob(t *testing.T) {
	place := parallel(t)
	job := mpiJob("train", suspended)
	place.Create(job)
	place.untilSuspended(job)
	if objects := place.objects(); len(objects) != 0 {
		t.Errorf("a job that was never started has %v", objects)
	}

	place.Patch(job, admission)
	launcher, workers := place.runs(job)
	place.isWhereKueueWants(launcher, workers)
	place.Until("it runs", job, func() error {
		return errors.Join(wantConditions(job, "Suspended", "False MPIJobResumed", "Running", "True MPIJobRunning"), wantReplicas(job, 1, 2, 0))
	})
	first := map[string]bool{}
	for _, pod := range append(workers, launcher) {
		first[string(pod.UID)] = true
	}

	place.evict(job, launcher, workers)
	place.Patch(job, admission)
	launcher, workers = place.runs(job)
	for _, pod := range append(workers, launcher) {
		if first[string(pod.UID)] {
			t.Errorf("pod %s is that of before", pod.Name)
		}
	}
	place.isWhereKueueWants(launcher, workers)
	place.Exit(launcher, 0, report("", 2))
	place.untilPhase(job, training.PhaseSucceeded)
	place.Eventually("keys and group are gone", func() error {
		place.RemoveDeleted(workers...)
		return place.wantObjects("ConfigMap/train-hostfile", "Job/train-launcher", "Service/train-worker", "Pod/"+launcher.Name)
	})
	place.untilEvents(job, "JobSubmitted", "JobSuspended", "JobResumed", "GangSchedulingStarted", "GangScheduled", "PodsReady", "TrainingStarted", "JobSucceeded")
}

// untilSuspended waits until a job says that it is suspended, and has no pods.
func (place *place) untilSuspended(job *v2beta1.MPIJob) {
	place.Helper()
	place.Until("it is suspended", job, func() error {
		if job.Status.StartTime != nil || job.Status.Phase != training.PhasePending {
			return fmt.Errorf("it is %s, started at %s", job.Status.Phase, job.Status.StartTime)
		}
		return errors.Join(wantConditions(job, "Suspended", "True MPIJobSuspended", "Running", "False Pending"), wantReplicas(job, 0, 0, 0),
			wantSteps(progressOf(job), training.StepSubmitted))
	})
}

func (place *place) isWhereKueueWants(launcher *corev1.Pod, workers []*corev1.Pod) {
	place.Helper()
	for role, pods := range map[string][]*corev1.Pod{"launcher": {launcher}, "worker": workers} {
		for _, pod := range pods {
			if pod.Labels["kueue.x-k8s.io/podset"] != role || pod.Annotations["kueue.x-k8s.io/workload"] != "mpijob-train-1234" {
				place.Errorf("pod %s has the labels %v and annotations %v", pod.Name, pod.Labels, pod.Annotations)
			}
			flavor := map[string]string{"launcher": "cpu", "worker": "spot"}[role]
			if pod.Spec.NodeSelector["flavor"] != flavor || role == "worker" && len(pod.Spec.Tolerations) == 0 {
				place.Errorf("pod %s goes to %v, tolerates %v", pod.Name, pod.Spec.NodeSelector, pod.Spec.Tolerations)
			}
		}
	}
}

// evict suspends a job that runs. Its pods are active until they are gone: that
// is when Kueue gives their places away.
func (place *place) evict(job *v2beta1.MPIJob, launcher *corev1.Pod, workers []*corev1.Pod) {
	place.Helper()
	// Somebody, such as a monitor, wants to look at one of them first.
	place.Patch(workers[1], `{"metadata":{"finalizers":["example.com/look"]}}`)
	// Kueue also holds back the Job of a job that it evicts, in a step of its own.
	place.Patch(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "train-launcher"}}, `{"spec":{"suspend":true}}`)
	place.stays("it has not failed", func() error {
		if err := place.Get(job, job.Name); err != nil || job.Status.Phase == training.PhaseFailed {
			return fmt.Errorf("it is %+v (%v)", job.Status.Progress, err)
		}
		return nil
	})
	place.Patch(job, eviction)
	place.Eventually("the launcher's Job is gone, the workers are ending", func() error {
		if err := place.Get(&batchv1.Job{}, "train-launcher"); err == nil {
			return errors.New("the Job is there")
		}
		for _, pod := range workers {
			if err := place.Get(pod, pod.Name); err != nil || pod.DeletionTimestamp == nil {
				return fmt.Errorf("pod %s is not being deleted (%v)", pod.Name, err)
			}
		}
		return nil
	})
	place.Until("it is suspended, with pods that are ending", job, func() error {
		return errors.Join(wantConditions(job, "Suspended", "True MPIJobSuspended", "Running", "False Pending"), wantReplicas(job, 1, 2, 0))
	})
	place.Remove(launcher, workers[0], workers[1])
	place.Until("one pod is left", job, func() error { return wantReplicas(job, 0, 1, 0) })
	place.stays("it is active while the pod is there", func() error {
		if err := place.Get(job, job.Name); err != nil {
			return err
		}
		return wantReplicas(job, 0, 1, 0)
	})
	place.Patch(workers[1], `{"metadata":{"finalizers":null}}`)
	place.untilSuspended(job)
}

// A job that is resumed while its old pods are still ending waits for them.
func TestResumedTooEarly(t *testing.T) {
	place := parallel(t)
	job := mpiJob("train")
	place.Create(job)
	launcher, workers := place.runs(job)
	place.Patch(workers[0], `{"metadata":{"finalizers":["example.com/look"]}}`)
	place.Patch(job, `{"spec":{"runPolicy":{"suspend":true}}}`)
	place.Until("it is suspended", job, func() error { return wantConditions(job, "Suspended", "True MPIJobSuspended") })
	place.Patch(job, `{"spec":{"runPolicy":{"suspend":false}}}`)
	place.Remove(launcher, workers[0], workers[1])
	place.stays("nothing is made while an old pod is there", func() error {
		for _, pod := range place.PodsOf(job, training.RoleWorker) {
			if pod.UID != workers[0].UID {
				return fmt.Errorf("there is a new pod %s", pod.Name)
			}
		}
		return nil
	})
	place.Patch(workers[0], `{"metadata":{"finalizers":null}}`)
	place.runs(job)
}

// queueing suspends the JobSet of a TrainJob, or unsuspends it with templates that say
// where the pods go, as Kueue does.
func (place *place) queueing(set *jobset.JobSet, suspend bool, flavor string) {
	place.Helper()
	place.MustGet(set, set.Name)
	changed := set.DeepCopy()
	changed.Spec.Suspend = &suspend
	for i := range changed.Spec.ReplicatedJobs {
		template := &changed.Spec.ReplicatedJobs[i].Template.Spec.Template
		template.Spec.NodeSelector = map[string]string{"flavor": flavor}
		template.Labels = map[string]string{"kueue.x-k8s.io/podset": changed.Spec.ReplicatedJobs[i].Name}
	}
	if err := place.client.Patch(place.Context(), changed, client.MergeFrom(set)); err != nil {
		place.Fatal(err)
	}
}

// wantFlavor: pods are as Kueue's templates say.
func (place *place) wantFlavor(flavor string, pods ...*corev1.Pod) {
	place.Helper()
	for _, pod := range pods {
		if pod.Spec.NodeSelector["flavor"] != flavor || pod.Labels["kueue.x-k8s.io/podset"] != pod.Labels[training.LabelReplicaType] {
			place.Errorf("pod %s goes to %v, with the labels %v", pod.Name, pod.Spec.NodeSelector, pod.Labels)
		}
	}
}

// untilJobSet waits until a JobSet says what Kueue reads: which roles are ready and
// active, whether it is suspended, and how it ended.
func (place *place) untilJobSet(set *jobset.JobSet, what string, ready, active int32, suspended metav1.ConditionStatus, end jobset.JobSetConditionType) {
	place.Helper()
	place.Until("the JobSet says "+what, set, func() error {
		conditions := set.Status.Conditions
		if len(set.Status.ReplicatedJobsStatus) != 2 || set.Status.TerminalState != string(end) || end != "" && !meta.IsStatusConditionTrue(conditions, string(end)) {
			return fmt.Errorf("it says %+v", set.Status)
		}
		for _, child := range set.Status.ReplicatedJobsStatus {
			if child.Ready != ready || child.Active != active {
				return fmt.Errorf("it says %+v", child)
			}
		}
		if suspended != "" && !meta.IsStatusConditionPresentAndEqual(conditions, string(jobset.JobSetSuspended), suspended) {
			return fmt.Errorf("it says %+v", conditions)
		}
		return nil
	})
}

// Kueue and a TrainJob: it is the JobSet that waits in the queue.
func TestKueueRunsATrainJob(t *testing.T) {
	place := parallel(t)
	place.Create(runtime("mpi"))
	job := trainJob("", "train", func(job *v2alpha1.TrainJob) {
		job.Labels = map[string]string{training.LabelQueue: "team", "kueue.x-k8s.io/priority-class": "high", "team": "vision"}
	})
	place.createEventually(job)
	set := &jobset.JobSet{ObjectMeta: metav1.ObjectMeta{Name: "train"}}
	place.Until("there is a JobSet", set, func() error { return nil })
	if set.Labels[training.LabelQueue] != "team" || set.Labels["kueue.x-k8s.io/priority-class"] != "high" || set.Labels["team"] != "" || set.Spec.Suspend != nil {
		t.Errorf("the JobSet has the labels %v and suspend %v", set.Labels, set.Spec.Suspend)
	}
	uid := set.UID

	place.queueing(set, true, "none")
	place.Until("it waits in the queue", job, func() error {
		return errors.Join(wantConditions(job, "Suspended", "True Queued"), wantSteps(progressOf(job), training.StepSubmitted))
	})
	place.Eventually("it has no pods", func() error {
		if pods := place.PodsOf(job, ""); len(pods) > 0 {
			return fmt.Errorf("there are %d", len(pods))
		}
		return nil
	})
	place.untilJobSet(set, "that it is suspended", 0, 0, metav1.ConditionTrue, "")
	admitted := time.Now()
	place.queueing(set, false, "spot")
	launcher, workers := place.runs(job)
	t.Logf("it ran %s after it was admitted", time.Since(admitted).Round(10*time.Millisecond))
	place.wantFlavor("spot", append(workers, launcher)...)
	if err := wantConditions(job, "Suspended", "False NotSuspended"); err != nil {
		t.Error(err)
	}
	place.untilJobSet(set, "that all pods are ready", 1, 1, metav1.ConditionFalse, "")

	// Evicted: the pods are active until they are gone.
	place.queueing(set, true, "none")
	place.Eventually("its pods are being deleted", func() error {
		for _, pod := range append(workers, launcher) {
			if err := place.Get(pod, pod.Name); err != nil || pod.DeletionTimestamp == nil {
				return fmt.Errorf("pod %s is not (%v)", pod.Name, err)
			}
		}
		return nil
	})
	place.untilJobSet(set, "that pods are active", 0, 1, metav1.ConditionTrue, "")
	place.Remove(append(workers, launcher)...)
	place.untilJobSet(set, "that no pod is active", 0, 0, metav1.ConditionTrue, "")
	place.Until("it waits in the queue again", job, func() error {
		if startOf(job) != nil || progressOf(job).Phase != training.PhasePending {
			return fmt.Errorf("it is %s, started at %s", progressOf(job).Phase, startOf(job))
		}
		return wantConditions(job, "Suspended", "True Queued")
	})
	if mustGet(place, set, "train").UID != uid {
		t.Error("the JobSet is another")
	}

	// The user has had enough.
	place.Patch(job, `{"spec":{"suspend":true}}`)
	place.Until("it is suspended", job, func() error { return wantConditions(job, "Suspended", "True Suspended") })
	place.untilObjects("ConfigMap/train-hostfile", "ControllerRevision/trireme-runtime", "Secret/train-ssh", "Service/train-worker")
	place.Patch(job, `{"spec":{"suspend":false}}`)
	place.Until("there is another JobSet", set, func() error {
		if set.UID == uid {
			return errors.New("it is that of before")
		}
		return nil
	})
	launcher, _ = place.runs(job)
	place.Exit(launcher, 0, report("", 2))
	place.untilPhase(job, training.PhaseSucceeded)
	place.Until("the JobSet is completed", set, func() error {
		if !meta.IsStatusConditionTrue(set.Status.Conditions, string(jobset.JobSetCompleted)) || set.Status.TerminalState != "Completed" {
			return fmt.Errorf("it says %+v", set.Status)
		}
		return nil
	})
}
