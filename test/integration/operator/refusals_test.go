// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2beta1"
)

// limitPods is a quota, with what the quota controller does for it until the test
// ends.
func (place *place) limitPods(pods string) {
	place.Helper()
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "few"}, Spec: corev1.ResourceQuotaSpec{Hard: resources("pods", pods)}}
	place.Create(quota)
	quota.Status = corev1.ResourceQuotaStatus{Hard: resources("pods", pods), Used: resources("pods", "0")}
	if err := place.client.Status().Update(context.Background(), quota); err != nil {
		place.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var counting sync.WaitGroup
	counting.Go(func() { place.countPods(ctx) })
	place.Cleanup(func() {
		stop()
		counting.Wait()
	})
}

// countPods lowers what a quota counts when pods are deleted or finish. What is
// created is counted by the API server itself, a moment before it exists.
func (place *place) countPods(ctx context.Context) {
	before := ""
	for ; ctx.Err() == nil; time.Sleep(200 * time.Millisecond) {
		quota, pods := &corev1.ResourceQuota{}, &corev1.PodList{}
		if place.Get(quota, "few") != nil || place.client.List(ctx, pods, client.InNamespace(place.Namespace)) != nil {
			continue
		}
		active := int64(0)
		for _, pod := range pods.Items {
			if pod.Status.Phase != corev1.PodFailed && pod.Status.Phase != corev1.PodSucceeded {
				active++
			}
		}
		now := fmt.Sprint(quota.ResourceVersion, active)
		if now == before && active < quota.Status.Used.Pods().Value() {
			quota.Status.Used = resources("pods", fmt.Sprint(active))
			_ = place.client.Status().Update(ctx, quota)
		}
		before = now
	}
}

// conditionOfWaiting is the condition that says what a job waits for.
func conditionOfWaiting(job client.Object) (condition, answer string) {
	if isMPIJob(job) {
		return "Pending", "True "
	}
	return "TrainingComplete", "False "
}

func (place *place) untilWaitsForQuota(job client.Object) {
	place.Helper()
	place.Until(job.GetName()+" waits for the quota", job, func() error {
		if wait := progressOf(job).QuotaWait; wait == nil || wait.Name != "few" || !strings.Contains(wait.Message, "exceeded quota: few") {
			return fmt.Errorf("it is %+v", progressOf(job))
		}
		condition, answer := conditionOfWaiting(job)
		return wantConditions(job, condition, answer+"WaitingForQuota")
	})
}

// several are jobs of both kinds, each older than the next.
func (place *place) several() (jobs []client.Object) {
	place.Helper()
	place.Create(runtime("mpi"))
	for i, job := range []client.Object{mpiJob("a"), trainJob("", "b"), mpiJob("c"), trainJob("", "d")} {
		if i > 0 {
			// Ages are told in seconds.
			time.Sleep(1100 * time.Millisecond)
		}
		place.Create(job)
		jobs = append(jobs, job)
	}
	return jobs
}

// Jobs that share a quota run one after the other: the oldest gets its pods, the
// others hold none, and whoever waits for longer than it may fails.
func TestJobsShareAQuota(t *testing.T) {
	t.Parallel()
	place := sharedCluster.For(t).newPlace(t, withoutAdmission)
	place.limitPods("4")
	jobs := place.several()
	launcher, workers := place.runs(jobs[0])
	for _, job := range jobs[1:] {
		place.untilWaitsForQuota(job)
	}
	place.Eventually("the younger ones hold no pods", func() error {
		for _, job := range jobs[2:] {
			if pods := place.PodsOf(job, ""); len(pods) > 0 {
				return fmt.Errorf("%s has %d", job.GetName(), len(pods))
			}
		}
		return nil
	})
	place.Exit(launcher, 0, report("", 2))
	place.untilPhase(jobs[0], training.PhaseSucceeded)
	place.Eventually("the workers are deleted", func() error {
		place.RemoveDeleted(workers...)
		if left := place.PodsOf(jobs[0], training.RoleWorker); len(left) > 0 {
			return fmt.Errorf("there are %d", len(left))
		}
		return nil
	})
	place.runs(jobs[1])
	if wait := progressOf(jobs[1]).QuotaWait; wait != nil {
		t.Errorf("the job runs and waits for %+v", wait)
	}
	for _, job := range jobs[2:] {
		place.untilPhase(job, training.PhaseFailed)
		progress := progressOf(job)
		if progress.FailureReason != training.FailureResourceQuota {
			t.Errorf("%s failed with %s: %s", job.GetName(), progress.FailureReason, progress.FailureMessage)
		}
		for _, want := range []string{"could not be created: ", "exceeded quota: few", fmt.Sprintf("The quota was exceeded for %ds.", quotaSeconds), "kubectl describe quota -n " + place.Namespace} {
			if !strings.Contains(progress.FailureMessage, want) {
				t.Errorf("%s says %q, which lacks %q", job.GetName(), progress.FailureMessage, want)
			}
		}
	}
	place.untilMetric("training_operator_mpijob_failed_total", fmt.Sprintf("{failure_reason=\"ResourceQuotaExceeded\",namespace=%q}", place.Namespace), 1)
	place.untilPhase(jobs[1], training.PhaseRunning)
}

// A quota that is full by the time that the pods are created, because of pods that
// are no job's.
func TestAQuotaRefusesAPod(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]func(*place) client.Object{
		"MPIJob": func(*place) client.Object { return mpiJob("train") },
		"TrainJob": func(place *place) client.Object {
			place.Create(runtime("mpi"))
			return trainJob("", "train")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			place := sharedCluster.For(t).newPlace(t, withoutAdmission)
			place.limitPods("3")
			theirs := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "theirs", Image: "registry.example/theirs:1"}}}}
			place.Create(theirs)
			job := kind(place)
			place.Create(job)
			place.untilWaitsForQuota(job)
			place.untilPhase(job, training.PhaseFailed)
			if reason := progressOf(job).FailureReason; reason != training.FailureResourceQuota {
				t.Errorf("it failed with %s", reason)
			}
			place.Eventually("what was created so far is deleted", func() error { return place.wantNoWork(theirs) })
			place.untilEvents(job, "JobSubmitted", "GangSchedulingStarted", "ResourceQuotaExceeded")
		})
	}
}

// A job waits for a quota that is freed in time, and keeps the pods that it has.
func TestAQuotaIsFreed(t *testing.T) {
	t.Parallel()
	place := sharedCluster.For(t).newPlace(t, withoutAdmission)
	place.limitPods("3")
	theirs := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "theirs", Image: "registry.example/theirs:1"}}}}
	place.Create(theirs)
	job := mpiJob("train")
	place.Create(job)
	place.untilWaitsForQuota(job)
	kept := place.PodsOf(job, "")
	place.Delete(theirs)
	place.runs(job)
	for _, pod := range kept {
		if uid := pod.UID; mustGet(place, pod, pod.Name).UID != uid {
			t.Errorf("pod %s was created again", pod.Name)
		}
	}
	if wait := progressOf(job).QuotaWait; wait != nil {
		t.Errorf("it still waits: %+v", wait)
	}
}

// A job that is resumed when the quota has become too small: what was deleted when
// it was suspended must go once more.
func TestAQuotaRefusesAWorkerOnResume(t *testing.T) {
	t.Parallel()
	place := sharedCluster.For(t).newPlace(t, withoutAdmission)
	job := mpiJob("train")
	place.Create(job)
	place.untilObjects(mpiJobObjects...)
	place.Patch(job, `{"spec":{"runPolicy":{"suspend":true}}}`)
	place.untilObjects("ConfigMap/train-hostfile", "Secret/train-ssh-key", "Service/train-worker")
	place.limitPods("1")
	place.Patch(job, `{"spec":{"runPolicy":{"suspend":false}}}`)
	place.untilPhase(job, training.PhaseFailed)
	if reason := progressOf(job).FailureReason; reason != training.FailureResourceQuota {
		t.Errorf("it failed with %s: %s", reason, progressOf(job).FailureMessage)
	}
	place.Eventually("what was created so far is deleted", func() error { return place.wantNoWork(job) })
}

// What the namespace's PodSecurity level does not allow is refused for good.
func TestPodSecurityRefusesAWorker(t *testing.T) {
	t.Parallel()
	labels := map[string]string{"pod-security.kubernetes.io/enforce": "baseline"}
	for key, value := range withoutAdmission {
		labels[key] = value
	}
	place := sharedCluster.For(t).newPlace(t, labels)
	job := mpiJob("train", func(job *v2beta1.MPIJob) {
		job.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeWorker].Template.Spec.HostNetwork = true
	})
	place.Create(job)
	place.untilPhase(job, training.PhaseFailed)
	if progress := progressOf(job); progress.FailureReason != training.FailureWorker || !strings.Contains(progress.FailureMessage, `violates PodSecurity "baseline:latest": host namespaces`) {
		t.Errorf("it failed with %s: %s", progress.FailureReason, progress.FailureMessage)
	}
	place.Eventually("what was made so far is gone", func() error { return place.wantNoWork(job) })
}

// A namespace gets its service account a moment after it is created, and so may
// its first job.
func TestNoServiceAccountYet(t *testing.T) {
	t.Parallel()
	cluster := sharedCluster.For(t)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "new-"}}
	cluster.create(t, namespace)
	place := cluster.place(t, namespace.Name)
	job := mpiJob("train")
	place.Create(job)
	// The API server itself waits for the account, for a second or two.
	place.Until("the job says what it waits for", job, func() error { return wantConditions(job, "Pending", "True NoServiceAccount") })
	place.Create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	place.untilObjects(mpiJobObjects...)
}
