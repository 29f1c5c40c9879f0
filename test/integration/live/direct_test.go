// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/trireme-mpi/trireme/internal/kube/jobview"
	"github.com/trireme-mpi/trireme/internal/server/apierror"
	"github.com/trireme-mpi/trireme/internal/server/jobwatch"
)

// TestSources: with and without a cache a user sees the same, of a real API server.
func TestSources(t *testing.T) {
	cluster := startCluster(t)
	// Whatever happened before a cache began it must ask for.
	namespace := cluster.namespace(t)
	for _, name := range []string{"c", "a", "b"} {
		if err := cluster.client.Create(t.Context(), simpleJob(t, namespace, name)); err != nil {
			t.Fatal(err)
		}
	}
	before, _ := firstEvents(t, jobwatch.NewDirect(cluster.client), jobwatch.Watch{Namespace: namespace}, 4)
	since := before[3].ResourceVersion
	if err := cluster.client.Delete(t.Context(), simpleJob(t, namespace, "b")); err != nil {
		t.Fatal(err)
	}
	// Something else happens, so that the cache begins at a later version.
	cluster.namespace(t)
	server := startServer(t, cluster)
	for name, source := range map[string]jobwatch.Source{"cache": server.cache, "direct": jobwatch.NewDirect(cluster.client)} {
		t.Run(name, func(t *testing.T) {
			all, _ := firstEvents(t, source, jobwatch.Watch{Namespace: namespace}, 3)
			if difference := cmp.Diff([]string{"ADDED a", "ADDED c", "SYNCED "}, short(all)); difference != "" {
				t.Error(difference)
			}
			began := time.Now()
			resumed, _ := firstEvents(t, source, jobwatch.Watch{Namespace: namespace, Since: since}, 1)
			if difference := cmp.Diff([]string{"DELETED b"}, short(resumed)); difference != "" {
				t.Error(difference)
			}
			t.Logf("resumed in %s", time.Since(began))
			one, _ := firstEvents(t, source, jobwatch.Watch{Namespace: namespace, Name: "c"}, 2)
			if difference := cmp.Diff([]string{"ADDED c", "SYNCED "}, short(one)); difference != "" {
				t.Error(difference)
			}
			for since, code := range map[string]int{"x": 400, "999999999": 400, "1": 410, "1-2-1": 410} {
				if _, err := firstEvents(t, source, jobwatch.Watch{Namespace: namespace, Since: since}, 1); codeOf(err) != code {
					t.Errorf("since %s: %v", since, err)
				}
			}
			page, err := source.List(t.Context(), jobview.MPIJobs, jobwatch.Query{Namespace: namespace, Sort: "-name", Limit: 1, Labels: labels.Everything()})
			if err != nil || page.Total != 2 || len(page.Entries) != 1 || page.Entries[0].Row.Name != "c" || page.Continue == "" {
				t.Errorf("%+v %v", page, err)
			}
			job, err := source.Get(t.Context(), jobview.MPIJobs, namespace, "a")
			if err != nil || job.GetName() != "a" || job.GetManagedFields() != nil {
				t.Errorf("%v %v", job, err)
			}
		})
	}
}

// firstEvents are as many as are waited for, or less, and why.
func firstEvents(t *testing.T, source jobwatch.Source, watch jobwatch.Watch, count int) ([]*jobwatch.Event, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var events []*jobwatch.Event
	for event, err := range source.Watch(ctx, jobview.MPIJobs, watch) {
		if err != nil {
			return events, err
		}
		if events = append(events, event); len(events) == count {
			return events, nil
		}
	}
	t.Fatalf("a minute was not enough for %d events: %q", count, short(events))
	return nil, nil
}

func short(events []*jobwatch.Event) []string {
	var told []string
	for _, event := range events {
		name := ""
		if event.Row != nil {
			name = event.Row.Name
		}
		told = append(told, fmt.Sprintf("%s %s", event.Type, name))
	}
	return told
}

func codeOf(err error) int {
	if known, is := errors.AsType[*apierror.Error](err); is {
		return known.Code
	}
	return 0
}
