// SPDX-License-Identifier: Apache-2.0

package jobwatch

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
)

// jobsFor returns jobs in ten namespaces, with four phases and two teams.
func jobsFor(count int) []client.Object {
	var jobs []client.Object
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for number := range count {
		job := mpiJob(fmt.Sprintf("team-%d", number%10), fmt.Sprintf("job-%05d", number*7919%count))
		job.ResourceVersion = fmt.Sprint(number + 1)
		job.CreationTimestamp = metav1.NewTime(begin.Add(time.Duration(number*31%count) * time.Second))
		job.Status.Phase = []training.Phase{training.PhasePending, training.PhaseRunning, training.PhaseSucceeded, training.PhaseFailed}[number%4]
		if job.Status.Phase != training.PhasePending {
			job.Status.StartTime = &metav1.Time{Time: job.CreationTimestamp.Add(time.Minute)}
		}
		job.Labels = map[string]string{"shift": []string{"day", "night"}[number%2]}
		jobs = append(jobs, job)
	}
	return jobs
}

func cacheOf(tb testing.TB, jobs []client.Object) *Cache {
	tb.Helper()
	cache := NewCache(newCluster(), Options{})
	for _, kind := range jobview.Kinds {
		listed := jobs
		if kind != jobview.MPIJobs {
			listed = nil
		}
		if err := cache.kinds[kind].replace(entriesOf(tb, listed...), "1000000"); err != nil {
			tb.Fatal(err)
		}
	}
	return cache
}

// BenchmarkList measures a page of 10,000 jobs. Goal: below 100 ms at p99.
func BenchmarkList(b *testing.B) {
	cache := cacheOf(b, jobsFor(10000))
	night, err := labels.Parse("shift=night")
	if err != nil {
		b.Fatal(err)
	}
	first, err := cache.List(b.Context(), jobview.MPIJobs, Query{Sort: "-creationTime", Limit: 500})
	if err != nil {
		b.Fatal(err)
	}
	for _, measured := range []struct {
		name  string
		query Query
	}{
		{"first-page", Query{}},
		{"one-namespace", Query{Namespace: "team-3"}},
		{"by-status", Query{Status: "Running", Sort: "name"}},
		{"labels", Query{Labels: night}},
		{"newest-first", Query{Sort: "-creationTime"}},
		{"second-page", Query{Sort: "-creationTime", Limit: 500, Continue: first.Continue}},
		{"all-at-once", Query{Status: "Running", Runtime: "mpi", Name: "job", Labels: night, Sort: "-startTime", Limit: 1000, Allowed: func(namespace string) bool { return namespace != "team-1" }}},
	} {
		b.Run(measured.name, func(b *testing.B) {
			var took []time.Duration
			for b.Loop() {
				began := time.Now()
				if _, err := cache.List(b.Context(), jobview.MPIJobs, measured.query); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2])/float64(time.Millisecond), "p50-ms")
			b.ReportMetric(float64(took[len(took)*99/100])/float64(time.Millisecond), "p99-ms")
		})
	}
}
