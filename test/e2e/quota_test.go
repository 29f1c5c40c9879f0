// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
)

// Many jobs at once into a quota for a third of them: every one runs or fails with
// ResourceQuotaExceeded, none is left waiting for what another holds.
func TestJobsShareAQuota(t *testing.T) {
	const (
		run     = 2 * time.Second
		workers = 4
	)
	simulateNodes(t, 3)
	for _, tc := range []struct {
		kind  string
		build func(name string) client.Object
	}{
		{"TrainJob", func(name string) client.Object { return simulatedTrainJob(name, workers, run, small()) }},
		{"MPIJob", func(name string) client.Object { return simulatedMPIJob(name, workers, run, small()) }},
	} {
		for _, count := range quotaSizes(t) {
			t.Run(fmt.Sprintf("%d %ss", count, tc.kind), func(t *testing.T) {
				// Never a whole number of jobs, so that some start by halves.
				pods := count*(workers+1)/3 - 2
				shareQuota(t, newCrowd(t, run), count, pods, tc.build)
			})
		}
	}
}

// quotaSizes are the numbers of jobs; QUOTA_JOBS is one more.
func quotaSizes(t *testing.T) []int {
	sizes := []int{5}
	if isThorough() {
		sizes = append(sizes, 10)
	}
	if more := os.Getenv("QUOTA_JOBS"); more != "" {
		size, err := strconv.Atoi(more)
		if err != nil {
			t.Fatalf("QUOTA_JOBS: %v", err)
		}
		sizes = append(sizes, size)
	}
	return sizes
}

func shareQuota(t *testing.T, crowd *crowd, count, pods int, build func(name string) client.Object) {
	t.Helper()
	var jobs []client.Object
	for i := range count {
		job := build(fmt.Sprintf("job-%d", i))
		// Admission refuses jobs that do not fit at the moment; it does not count
		// suspended ones, so that all are resumed at once.
		setSuspend(true)(job)
		jobs = append(jobs, job)
	}
	crowd.submitAll(jobs)
	createQuota(t, crowd.client, quotaOfPods(crowd.namespace, fmt.Sprint(pods)))
	began := time.Now()
	crowd.inParallel(jobs, func(job client.Object) error {
		return retry.RetryOnConflict(retry.DefaultRetry, func() error {
			if err := crowd.client.Get(t.Context(), client.ObjectKeyFromObject(job), job); err != nil {
				return err
			}
			setSuspend(false)(job)
			return crowd.client.Update(t.Context(), job)
		})
	})
	var succeeded, failed int
	crowd.until("every job has finished", 2*time.Minute, func() error {
		succeeded, failed = 0, 0
		var unfinished error
		err := crowd.each(func(job client.Object) {
			switch progress := progressOf(job); {
			case progress.Phase == training.PhaseSucceeded:
				succeeded++
			case progress.Phase == training.PhaseFailed && progress.FailureReason == training.FailureResourceQuota:
				failed++
			case progress.Phase == training.PhaseFailed:
				t.Fatalf("%s failed: %s: %s", job.GetName(), progress.FailureReason, progress.FailureMessage)
			default:
				unfinished = fmt.Errorf("%s is %s, waits for %+v; %d succeeded, %d failed", job.GetName(), progress.Phase, progress.QuotaWait, succeeded, failed)
			}
		})
		if err != nil {
			return err
		}
		return unfinished
	})
	t.Logf("%d pods for %d jobs: %d succeeded, %d failed with ResourceQuotaExceeded after %s", pods, count, succeeded, failed, time.Since(began).Round(time.Second))
	if succeeded < pods/5 {
		t.Errorf("%d jobs succeeded, want at least those that fit at once", succeeded)
	}
	crowd.until("no pod of a failed job is left", time.Minute, func() error {
		var left corev1.PodList
		if err := crowd.client.List(t.Context(), &left, client.InNamespace(crowd.namespace)); err != nil {
			return err
		}
		for i := range left.Items {
			if phase := left.Items[i].Status.Phase; phase != corev1.PodSucceeded {
				return fmt.Errorf("pod %s is %s", left.Items[i].Name, phase)
			}
		}
		return nil
	})
}
