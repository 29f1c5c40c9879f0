// SPDX-License-Identifier: Apache-2.0

//go:build operator

package peers

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trireme-mpi/trireme/api/training"
)

// Jobs that start at once into a quota for a third of them must not hold what the others
// need: every one runs, or fails and says that it was the quota. test/e2e has the same
// with Kubernetes' own gangs, and without any.
func TestCoschedulingSharesAQuota(t *testing.T) {
	for _, kind := range []jobKind{triremeMPIJob, trainJob} {
		for _, count := range quotaSizes(t) {
			t.Run(fmt.Sprintf("%d %ss", count, kind.kind.Kind), func(t *testing.T) { coscheduling.sharesQuota(newPlace(t), kind, count) })
		}
	}
}

// quotaSizes are the numbers of jobs; QUOTA_JOBS is one more.
func quotaSizes(t *testing.T) []int {
	sizes := []int{5, 10}
	if more := os.Getenv("QUOTA_JOBS"); more != "" {
		size, err := strconv.Atoi(more)
		if err != nil {
			t.Fatalf("QUOTA_JOBS: %v", err)
		}
		sizes = append(sizes, size)
	}
	return sizes
}

func (scheduler gangScheduler) sharesQuota(place *place, kind jobKind, count int) {
	suspend := map[string][]string{mpiJobKind.Kind: {"spec", "runPolicy", "suspend"}, trainJobKind.Kind: {"spec", "suspend"}}[kind.kind.Kind]
	// Admission refuses jobs that do not fit at the moment; it does not count suspended
	// ones, so that all are resumed at once.
	suspended := func(object *unstructured.Unstructured) {
		if object.GetKind() == kind.kind.Kind {
			if err := unstructured.SetNestedField(object.Object, true, suspend...); err != nil {
				place.Fatal(err)
			}
		}
	}
	names := make([]string, count)
	for i := range names {
		names[i] = fmt.Sprintf("job-%d", i)
		kind.create(place, jobShape{name: names[i], runFor: "2s", gang: scheduler}, suspended)
	}
	// Never a whole number of jobs, so that some start by halves.
	place.createQuota(max(count*jobPods/3-1, jobPods+1))
	for _, name := range names {
		patch := `{"spec":{"suspend":false}}`
		if kind.kind.Kind == mpiJobKind.Kind {
			patch = `{"spec":{"runPolicy":{"suspend":false}}}`
		}
		place.patch(kind.kind, name, patch)
	}
	var succeeded, failed int
	place.eventually("every job has ended", func() (unfinished error) {
		succeeded, failed = 0, 0
		for _, name := range names {
			job, err := place.find(kind.kind, name)
			if err != nil {
				return err
			}
			switch phase, reason := text(job, "status", "phase"), text(job, "status", "failureReason"); {
			case phase == string(training.PhaseSucceeded):
				succeeded++
			case phase == string(training.PhaseFailed) && reason == string(training.FailureResourceQuota):
				failed++
			case phase == string(training.PhaseFailed):
				place.Fatalf("%s failed: %s: %s", name, reason, text(job, "status", "failureMessage"))
			default:
				unfinished = fmt.Errorf("%s is %s", name, phase)
			}
		}
		return unfinished
	})
	place.Logf("%d succeeded, %d failed with ResourceQuotaExceeded", succeeded, failed)
	if succeeded == 0 {
		place.Error("none succeeded")
	}
	place.eventually("no pod of a failed job is left", func() error {
		for _, name := range names {
			for _, pod := range place.pods(kind.pods(name)) {
				if pod.Status.Phase != corev1.PodSucceeded {
					return fmt.Errorf("pod %s is %s", pod.Name, pod.Status.Phase)
				}
			}
		}
		return nil
	})
}

func (place *place) createQuota(pods int) {
	place.Helper()
	hard := corev1.ResourceList{corev1.ResourcePods: *resource.NewQuantity(int64(pods), resource.DecimalSI)}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: place.namespace, Name: "pods"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}
	if err := place.client.Create(place.Context(), quota); err != nil {
		place.Fatal(err)
	}
}
