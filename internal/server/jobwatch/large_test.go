// SPDX-License-Identifier: Apache-2.0

package jobwatch

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
	"github.com/trireme-mpi/trireme/internal/kube/partial"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

// large adds 1 MiB to a job's template.
func large(job *v2beta1.MPIJob) {
	worker := &v2beta1.ReplicaSpec{Replicas: new(int32(3))}
	worker.Template.Spec.Containers = []corev1.Container{{Name: "main", Args: []string{strings.Repeat("x", 1<<20)}}}
	job.Spec.MPIReplicaSpecs = map[v2beta1.MPIReplicaType]*v2beta1.ReplicaSpec{v2beta1.MPIReplicaTypeWorker: worker}
}

// cacheOfLarge returns a cache with large jobs and a small one.
func cacheOfLarge(t *testing.T, count int) (*cluster, *Cache) {
	t.Helper()
	cluster := newCluster()
	for number := range count {
		cluster.change("team", fmt.Sprintf("large-%02d", number), large)
	}
	cluster.change("team", "small", func(*v2beta1.MPIJob) {})
	cache := NewCache(cluster, Options{})
	go cache.Run(t.Context())
	must(t, cache.WaitForSync(t.Context()))
	return cluster, cache
}

func argumentOf(t *testing.T, object any) int {
	t.Helper()
	job := object.(*v2beta1.MPIJob)
	if partial.Is(job) || job.Kind != "MPIJob" || job.ManagedFields != nil {
		t.Errorf("%s is not as it is stored", job.Name)
	}
	return len(job.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeWorker].Template.Spec.Containers[0].Args[0])
}

// TestLargeJobsAreNotKept: only their rows are in memory; their specs are read when
// needed.
func TestLargeJobsAreNotKept(t *testing.T) {
	cluster, cache := cacheOfLarge(t, 3)
	store := cache.kinds[jobview.MPIJobs].store
	// Also a job that becomes large, and one whose status changes.
	cluster.change("team", "small", large)
	cluster.change("team", "large-00", func(job *v2beta1.MPIJob) { job.Status.Phase = training.PhaseRunning })
	eventually.Holds(t, "the changes are known", func() bool {
		store.lock.RLock()
		defer store.lock.RUnlock()
		return store.newest >= cluster.revision
	})
	for _, entry := range store.sorted {
		if !partial.Is(entry.Object) || entry.size < 1<<20 || entry.Row.NumNodes != 3 {
			t.Errorf("%s is kept whole, or wrong: %d bytes, %d workers", entry.Row.Name, entry.size, entry.Row.NumNodes)
		}
	}
	for _, change := range store.changes {
		if object := change.event.Object.(*v2beta1.MPIJob); object.Spec.MPIReplicaSpecs != nil {
			t.Errorf("event %s of %s has a spec", change.event.Type, object.Name)
		}
	}
	if cluster.gets != 0 {
		t.Errorf("%d jobs were read in vain", cluster.gets)
	}
	found, err := cache.Get(t.Context(), jobview.MPIJobs, "team", "large-01")
	if err != nil || argumentOf(t, found) != 1<<20 {
		t.Errorf("%v", err)
	}
	_, err = cache.Get(t.Context(), jobview.MPIJobs, "team", "missing")
	if !apierrors.IsNotFound(err) {
		t.Errorf("%v", err)
	}
}

// TestPagesEndAtTheirSize: every job is on one page.
func TestPagesEndAtTheirSize(t *testing.T) {
	cluster, cache := cacheOfLarge(t, 10)
	for name, source := range map[string]Source{"memory": cache, "API server": NewDirect(cluster)} {
		t.Run(name, func(t *testing.T) {
			query := Query{Whole: true, Bytes: 3 << 20, Limit: 100}
			var names []string
			pages := 0
			for next := true; next; next = query.Continue != "" {
				page, err := source.List(t.Context(), jobview.MPIJobs, query)
				if err != nil {
					t.Fatal(err)
				}
				if len(page.Entries) > 3 || page.Total != 11 || page.Remaining != 11-len(names)-len(page.Entries) {
					t.Errorf("a page has %d jobs of %d, %d remain", len(page.Entries), page.Total, page.Remaining)
				}
				for _, entry := range page.Entries {
					names = append(names, entry.Row.Name)
					if entry.Row.Name != "small" && argumentOf(t, entry.Object) != 1<<20 {
						t.Errorf("%s is not whole", entry.Row.Name)
					}
				}
				query.Continue = page.Continue
				pages++
			}
			if len(names) != 11 || names[0] != "large-00" || names[10] != "small" || pages != 5 {
				t.Errorf("%d pages: %s", pages, names)
			}
		})
	}
}

// TestRowsNeedNoObjects: lists of rows read nothing from the API server, and have many
// rows on a page.
func TestRowsNeedNoObjects(t *testing.T) {
	cluster, cache := cacheOfLarge(t, 10)
	page, err := cache.List(t.Context(), jobview.MPIJobs, Query{})
	if err != nil || len(page.Entries) != 11 || cluster.gets != 0 {
		t.Fatalf("%d jobs, %d read, %v", len(page.Entries), cluster.gets, err)
	}
	for _, entry := range page.Entries {
		if entry.Object != nil {
			t.Errorf("%s has an object", entry.Row.Name)
		}
	}
}

// TestDeletedJobsAreOmitted: the cache is behind the cluster.
func TestDeletedJobsAreOmitted(t *testing.T) {
	cluster, cache := cacheOfLarge(t, 2)
	cluster.lock.Lock()
	for key := range cluster.jobs {
		if key.Name == "large-01" {
			delete(cluster.jobs, key)
		}
	}
	cluster.lock.Unlock()
	page, err := cache.List(t.Context(), jobview.MPIJobs, Query{Whole: true})
	if err != nil || len(page.Entries) != 2 {
		t.Errorf("%+v, %v", page, err)
	}
	if _, err := cache.Get(t.Context(), jobview.MPIJobs, "team", "large-01"); !apierrors.IsNotFound(err) || codeOf(err) == http.StatusServiceUnavailable {
		t.Errorf("%v", err)
	}
}
