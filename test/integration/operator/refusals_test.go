package operator

import (
	"context"
	"fmt"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2beta1"
)

// limitPods is a quota as the quota controller leaves it.
func (place *place) limitPods(pods string) {
	place.Helper()
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "few"}, Spec: corev1.ResourceQuotaSpec{Hard: resources("pods", pods)}}
	place.Create(quota)
	quota.Status = corev1.ResourceQuotaStatus{Hard: resources("pods", pods), Used: resources("pods", "0")}
	if err := place.client.Status().Update(context.Background(), quota); err != nil {
		place.Fatal(err)
	}
}

// A quota that is full by the time that the pods are created, as a race between
// two jobs leaves it.
func TestAQuotaRefusesAWorker(t *testing.T) {
	t.Parallel()
	place := sharedCluster.For(t).newPlace(t, withoutAdmission)
	place.limitPods("2")
	theirs := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "theirs", Image: "registry.example/theirs:1"}}}}
	place.Create(theirs)
	if used := mustGet(place, &corev1.ResourceQuota{}, "few").Status.Used.Pods().Value(); used != 1 {
		t.Fatalf("the quota counts %d pods", used)
	}
	job := mpiJob("train")
	place.Create(job)
	place.untilPhase(job, training.PhaseFailed)
	message := progressOf(job).FailureMessage
	for _, want := range []string{"Pod train-worker-", "could not be created: ", "exceeded quota: few, requested: pods=1, used: pods=2, limited: pods=2", "kubectl describe quota -n " + place.Namespace} {
		if !strings.Contains(message, want) {
			t.Errorf("it says %q, which lacks %q", message, want)
		}
	}
	if reason := progressOf(job).FailureReason; reason != training.FailureResourceQuota {
		t.Errorf("it failed with %s", reason)
	}
	place.Eventually("what was made so far is gone", func() error { return place.wantNoWork(theirs) })
	place.untilEvents(job, "JobSubmitted", "GangSchedulingStarted", "ResourceQuotaExceeded")
	place.untilMetric("training_operator_mpijob_failed_total", fmt.Sprintf("{failure_reason=\"ResourceQuotaExceeded\",namespace=%q}", place.Namespace), 1)
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
	place.Eventually("what was made so far is gone", func() error { return place.wantNoWork(job) })
}

// An event is what the Job controller leaves when its pods are refused.
func TestEventsOfRefusals(t *testing.T) {
	t.Parallel()
	exceeded := `Error creating: pods "train" is forbidden: exceeded quota: few, requested: pods=1, used: pods=3, limited: pods=3`
	violates := `Error creating: pods "train" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true`
	for name, tc := range map[string]struct {
		message string
		want    training.FailureReason
	}{
		"quota":               {exceeded, training.FailureResourceQuota},
		"security":            {violates, training.FailureLauncher},
		"something that ends": {`Error creating: Internal error occurred: failed calling webhook "pods.example.com": connection refused`, ""},
		"no account yet":      {`Error creating: pods "train" is forbidden: error looking up service account test/default: serviceaccount "default" not found`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			bothKinds(t, func(place *place, job client.Object) {
				place.createEventually(job)
				batch := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "train-launcher"}}
				if isMPIJob(job) {
					place.Until("there is a Job", batch, func() error { return nil })
				} else {
					batch = place.StartJobsOf(job)[training.RoleLauncher]
				}
				place.Create(failedCreate(batch, tc.message))
				if tc.want == "" {
					place.untilPhase(job, training.PhasePending)
					place.stays("the job goes on", func() error {
						if err := place.Get(job, "train"); err != nil || progressOf(job).Phase != training.PhasePending {
							return fmt.Errorf("it is %+v (%v)", progressOf(job), err)
						}
						return nil
					})
					return
				}
				place.untilPhase(job, training.PhaseFailed)
				want := fmt.Sprintf("A pod of Job %s could not be created: %s", batch.Name, strings.TrimPrefix(tc.message, "Error creating: "))
				if progress := progressOf(job); progress.FailureReason != tc.want || !strings.HasPrefix(progress.FailureMessage, want) {
					place.Errorf("it failed with %s: %s", progress.FailureReason, progress.FailureMessage)
				}
				place.RemoveJobsOf("train")
				place.Eventually("what was made so far is gone", func() error { return place.wantNoWork(job) })
			})
		})
	}
}

func failedCreate(batch *batchv1.Job, message string) *corev1.Event {
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: batch.Name + "-"},
		InvolvedObject: corev1.ObjectReference{APIVersion: "batch/v1", Kind: "Job", Namespace: batch.Namespace, Name: batch.Name, UID: batch.UID},
		Reason:         "FailedCreate", Message: message, Type: corev1.EventTypeWarning, Source: corev1.EventSource{Component: "job-controller"},
		FirstTimestamp: metav1.Now(), LastTimestamp: metav1.Now(), Count: 1,
	}
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
