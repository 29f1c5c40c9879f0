// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/quota"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

// quota makes a ResourceQuota with some of it used.
func (cluster *cluster) quota(t testing.TB, namespace, name string, hard, used corev1.ResourceList) {
	t.Helper()
	made := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}
	cluster.create(t, made)
	made.Status = corev1.ResourceQuotaStatus{Hard: hard, Used: used}
	if err := cluster.client.Status().Update(t.Context(), made); err != nil {
		t.Fatal(err)
	}
}

// refusal is the error of a creation that shall be refused once the operator
// knows what the test has made.
func refusal(t testing.TB, create func() error) error {
	t.Helper()
	var refused error
	eventually.Succeeds(t, "refusal", func() error {
		if refused = create(); refused == nil {
			return fmt.Errorf("accepted")
		}
		return nil
	})
	return refused
}

// refusalOf is a refusal that tells of all that the test has made: the operator watches
// jobs, quotas and what is used of them side by side.
func refusalOf(t testing.TB, told string, create func() error) error {
	t.Helper()
	var refused error
	eventually.Succeeds(t, "refusal that tells of "+told, func() error {
		if refused = create(); !contains(refused, told) {
			return fmt.Errorf("it is %w", refused)
		}
		return nil
	})
	return refused
}

// Three jobs use 24 of 32 GPUs; one of 20 workers with 2 GPUs asks for 40 more.
func TestQuotaExceeded(t *testing.T) {
	cluster := sharedCluster.For(t)
	namespace := cluster.namespace(t, nil)
	for i := range 3 {
		job := mpiJob(namespace, fmt.Sprintf("running-%d", i))
		cluster.create(t, job)
		job.Status.Phase = training.PhaseRunning
		if err := cluster.client.Status().Update(t.Context(), job); err != nil {
			t.Fatal(err)
		}
	}
	cluster.create(t, runtime(namespace, "mpi"))
	cluster.quota(t, namespace, "team", resources("requests.nvidia.com/gpu", "32"), resources("requests.nvidia.com/gpu", "24"))

	const details = `Details: Requested 40 GPUs (20 workers × 2 GPUs), but namespace quota is 32 GPUs.
Current usage: 24 GPUs (3 running jobs)
Available: 8 GPUs

Suggestions:
1. Reduce worker count to 4 (8 GPUs total)
2. Wait for existing jobs to complete
3. Request quota increase from administrator`
	err := refusalOf(t, "24 GPUs (3 running jobs)", func() error {
		return cluster.client.Create(t.Context(), mpiJob(namespace, "big", func(job *v2beta1.MPIJob) {
			job.Spec.MPIReplicaSpecs["Worker"].Replicas = new(int32(20))
		}), dryRun)
	})
	wantCauses(t, err, wantCause{workerAt + ".replicas", "Error: Quota exceeded\n" + details})

	err = refusalOf(t, "24 GPUs (3 running jobs)", func() error {
		return cluster.client.Create(t.Context(), trainJob(namespace, "big", func(job *v2alpha1.TrainJob) {
			job.Spec.Trainer.NumNodes = new(int32(20))
		}), dryRun)
	})
	wantCauses(t, err, wantCause{"spec.trainer.numNodes", "Insufficient namespace quota: requested 40 GPUs, available 8 GPUs\n" + details})
	// The API server passes the type of the cause on to clients.
	if status, is := err.(apierrors.APIStatus); !is || !quota.IsExceeded(status.Status()) {
		t.Errorf("clients cannot tell that it is a quota: %#v", err)
	}

	// What the first suggestion says is true.
	if err := cluster.client.Create(t.Context(), mpiJob(namespace, "fits"), dryRun); err != nil {
		t.Errorf("4 workers do not fit: %v", err)
	}
}

func TestQuotaOfWaitingJobsIsNotChecked(t *testing.T) {
	cluster := sharedCluster.For(t)
	namespace := cluster.namespace(t, nil)
	cluster.quota(t, namespace, "none", resources("requests.nvidia.com/gpu", "1"), nil)
	refusal(t, func() error { return cluster.client.Create(t.Context(), mpiJob(namespace, "train"), dryRun) })
	for name, change := range map[string]func(*v2beta1.MPIJob){
		"suspended": func(job *v2beta1.MPIJob) { job.Spec.RunPolicy.Suspend = new(true) },
		"queued":    func(job *v2beta1.MPIJob) { job.Labels = map[string]string{training.LabelQueue: "team"} },
	} {
		cluster.warnings.take()
		if err := cluster.client.Create(t.Context(), mpiJob(namespace, name, change)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if warned := strings.Join(cluster.warnings.take(), "\n"); !strings.Contains(warned, "quota of the namespace is only checked when its pods are created") {
			t.Errorf("%s: no word about the quota in %q", name, warned)
		}
	}
}

// A quota on CPU makes Kubernetes refuse pods that do not state it. A LimitRange
// states it for them.
func TestLauncherThatStatesNothing(t *testing.T) {
	cluster := sharedCluster.For(t)
	namespace := cluster.namespace(t, nil)
	cluster.quota(t, namespace, "team", resources("requests.cpu", "100", "pods", "100"), nil)
	err := refusal(t, func() error { return cluster.client.Create(t.Context(), mpiJob(namespace, "train"), dryRun) })
	wantCauses(t, err, wantCause{launcherAt + ".template.spec.containers[0].resources",
		"container launcher must set requests.cpu, because ResourceQuota team of the namespace counts it"})

	cluster.create(t, &corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "defaults"},
		Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
			Type: corev1.LimitTypeContainer, DefaultRequest: resources("cpu", "1"), Max: resources("nvidia.com/gpu", "2", "cpu", "4"), Default: resources("nvidia.com/gpu", "0", "cpu", "1"),
		}}},
	})
	eventually.Succeeds(t, "the LimitRange's default counts", func() error {
		return cluster.client.Create(t.Context(), mpiJob(namespace, "train"), dryRun)
	})
	err = refusal(t, func() error {
		return cluster.client.Create(t.Context(), mpiJob(namespace, "train", func(job *v2beta1.MPIJob) {
			worker(job).Resources.Limits = resources("cpu", "8", "memory", "16Gi", "nvidia.com/gpu", "2")
		}), dryRun)
	})
	wantCauses(t, err,
		wantCause{workerAt + ".template.spec.containers[0].resources", "container worker has a limit of 8 cpu; at most 4 is allowed (LimitRange defaults)"},
		wantCause{workerAt + ".template.spec.containers[0].resources", "container worker requests 8 cpu; at most 4 is allowed (LimitRange defaults)"})
}

// Pods with empty pod-level resources are not BestEffort if their containers have some.
func TestEmptyPodLevelResourcesInQuotaScope(t *testing.T) {
	cluster := sharedCluster.For(t)
	namespace := cluster.namespace(t, nil)
	full := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "best-effort"},
		Spec:       corev1.ResourceQuotaSpec{Hard: resources("pods", "0"), Scopes: []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeBestEffort}},
	}
	cluster.create(t, full)
	full.Status = corev1.ResourceQuotaStatus{Hard: resources("pods", "0"), Used: resources("pods", "0")}
	if err := cluster.client.Status().Update(t.Context(), full); err != nil {
		t.Fatal(err)
	}
	withLimits := func(limits corev1.ResourceList) func(*v2beta1.MPIJob) {
		return func(job *v2beta1.MPIJob) {
			for _, replicas := range job.Spec.MPIReplicaSpecs {
				replicas.Template.Spec.Resources = &corev1.ResourceRequirements{}
				replicas.Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{Limits: limits}
			}
		}
	}
	refusalOf(t, "namespace quota is 0 pods", func() error {
		return cluster.client.Create(t.Context(), mpiJob(namespace, "train", withLimits(resources("nvidia.com/gpu", "1"))), dryRun)
	})
	if err := cluster.client.Create(t.Context(), mpiJob(namespace, "train", withLimits(resources("cpu", "1"))), dryRun); err != nil {
		t.Errorf("the containers have CPU, so the quota does not count the pods: %v", err)
	}
}
