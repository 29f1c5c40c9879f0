// SPDX-License-Identifier: Apache-2.0

package jobwatch

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/trireme-mpi/trireme/internal/kube/jobview"
)

// quietly discards the log: these tests cause errors of the API server.
func quietly(options Options) Options {
	options.Log = slog.New(slog.DiscardHandler)
	return options
}

// startCache runs a cache until the test ends.
func startCache(t *testing.T, cluster *cluster, options Options) *Cache {
	t.Helper()
	cache := NewCache(cluster, quietly(options))
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { cache.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	must(t, cache.WaitForSync(ctx))
	return cache
}

// watchFor returns the events of a watch for some time, and its error.
func watchFor(t *testing.T, source Source, watch Watch, duration time.Duration) ([]string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), duration)
	defer cancel()
	var told []string
	for event, err := range source.Watch(ctx, jobview.MPIJobs, watch) {
		if err != nil {
			return told, err
		}
		name := ""
		if event.Row != nil {
			name = event.Row.Namespace + "/" + event.Row.Name
		}
		told = append(told, fmt.Sprintf("%s %s %s", event.Type, name, event.ResourceVersion))
	}
	return told, nil
}

// TestSources: both sources send the same events.
func TestSources(t *testing.T) {
	for name, start := range map[string]func(*testing.T, *cluster) Source{
		"cache":  func(t *testing.T, cluster *cluster) Source { return startCache(t, cluster, Options{}) },
		"direct": func(_ *testing.T, cluster *cluster) Source { return NewDirect(cluster) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { trySource(t, start) })
		})
	}
}

func trySource(t *testing.T, start func(*testing.T, *cluster) Source) {
	cluster := newCluster()
	cluster.change("blue", "b", run)
	cluster.change("blue", "a", run)
	cluster.change("green", "c", run)
	source := start(t, cluster)
	time.AfterFunc(time.Second, func() {
		cluster.change("blue", "a", run)
		cluster.change("green", "c", run)
		cluster.cut(false)
		cluster.change("blue", "b", nil)
		cluster.change("blue", "d", run)
	})
	told, err := watchFor(t, source, Watch{Namespace: "blue"}, time.Minute)
	if difference := cmp.Diff([]string{"ADDED blue/a ", "ADDED blue/b ", "SYNCED  103", "MODIFIED blue/a 104", "DELETED blue/b 106", "ADDED blue/d 107"}, told); difference != "" || err != nil {
		t.Errorf("%v\n%s", err, difference)
	}
	for name, test := range map[string]struct {
		watch Watch
		told  []string
		code  int
	}{
		"from the start, later": {Watch{Namespace: "blue"}, []string{"ADDED blue/a ", "ADDED blue/d ", "SYNCED  107"}, 0},
		"one job":               {Watch{Namespace: "blue", Name: "a"}, []string{"ADDED blue/a ", "SYNCED  107"}, 0},
		"all namespaces":        {Watch{}, []string{"ADDED blue/a ", "ADDED blue/d ", "ADDED green/c ", "SYNCED  107"}, 0},
		"one job, resumed":      {Watch{Namespace: "blue", Name: "b", Since: "104"}, []string{"DELETED blue/b 106"}, 0},
		"resumed":               {Watch{Namespace: "blue", Since: "104"}, []string{"DELETED blue/b 106", "ADDED blue/d 107"}, 0},
		"resumed at the end":    {Watch{Namespace: "blue", Since: "107"}, nil, 0},
		"before the start":      {Watch{Namespace: "blue", Since: "101"}, []string{"ADDED blue/a 102", "MODIFIED blue/a 104", "DELETED blue/b 106", "ADDED blue/d 107"}, 0},
		"from the future":       {Watch{Namespace: "blue", Since: "108"}, nil, 400},
		"garbage":               {Watch{Namespace: "blue", Since: "latest"}, nil, 400},
		"in another's gap":      {Watch{Namespace: "blue", Since: "101-104-1"}, nil, 410},
	} {
		told, err := watchFor(t, source, test.watch, time.Minute)
		if difference := cmp.Diff(test.told, told); difference != "" || codeOf(err) != test.code {
			t.Errorf("%s: %v\n%s", name, err, difference)
		}
	}
	page, names := listed(t, source, Query{Namespace: "blue", Sort: "-name"})
	if difference := cmp.Diff([]string{"blue/d", "blue/a"}, names); difference != "" || page.ResourceVersion != "107" || page.Total != 2 {
		t.Errorf("%+v %s", page, difference)
	}
	cluster.cut(true)
	cluster.elsewhere()
	time.Sleep(time.Minute)
	if told, err := watchFor(t, source, Watch{Namespace: "blue", Since: "100"}, time.Minute); codeOf(err) != 410 {
		t.Errorf("too old, and told %q: %v", told, err)
	}
}

func TestNotReady(t *testing.T) {
	cache := NewCache(newCluster(), Options{})
	if _, err := cache.Get(t.Context(), jobview.MPIJobs, "blue", "a"); codeOf(err) != 503 {
		t.Error(err)
	}
	if _, err := cache.List(t.Context(), jobview.MPIJobs, Query{}); codeOf(err) != 503 {
		t.Error(err)
	}
	if _, err := watchFor(t, cache, Watch{}, time.Second); codeOf(err) != 503 {
		t.Error(err)
	}
	if cache.HasSynced() || cache.BrokenFor() == 0 {
		t.Error("a cache that has read nothing says that all is well")
	}
}

func TestGet(t *testing.T) {
	cache := cacheOf(t, jobsFor(10))
	read, err := cache.Get(t.Context(), jobview.MPIJobs, "team-0", "job-00000")
	if err != nil || read.GetName() != "job-00000" || read.GetObjectKind().GroupVersionKind() != jobview.MPIJobs.GVK {
		t.Errorf("%v %v", read, err)
	}
	for _, name := range []string{"job", ""} {
		if _, err := cache.Get(t.Context(), jobview.MPIJobs, "team-0", name); !apierrors.IsNotFound(err) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, err := cache.Get(t.Context(), jobview.TrainJobs, "team-0", "job-00000"); !apierrors.IsNotFound(err) {
		t.Error(err)
	}
}

func TestBrokenWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := newCluster()
		cache := startCache(t, cluster, Options{})
		time.Sleep(time.Minute)
		if broken := cache.BrokenFor(); broken != 0 || !cache.HasSynced() {
			t.Errorf("broken for %s", broken)
		}
		cluster.setDown(true)
		cluster.cut(false)
		time.Sleep(10 * time.Minute)
		if broken := cache.BrokenFor(); broken != 10*time.Minute {
			t.Errorf("broken for %s", broken)
		}
		cluster.setDown(false)
		time.Sleep(time.Minute)
		if broken := cache.BrokenFor(); broken != 0 {
			t.Errorf("broken for %s", broken)
		}
	})
}

// TestManyResumeAtOnce: after a restart all clients resume, each from another version,
// with one watch of the API server.
func TestManyResumeAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := newCluster()
		for number := range 1000 {
			cluster.change("blue", fmt.Sprintf("job-%d", number), run)
		}
		registry := prometheus.NewPedanticRegistry()
		cache := startCache(t, cluster, Options{Registry: registry})
		time.Sleep(time.Second)
		before := cluster.watches
		var watching sync.WaitGroup
		for number := range 1000 {
			watching.Go(func() {
				if told, err := watchFor(t, cache, Watch{Namespace: "blue", Since: fmt.Sprint(100 + number)}, time.Minute); err != nil || len(told) != 1000-number {
					t.Errorf("since %d: %d events, %v", 100+number, len(told), err)
				}
			})
		}
		watching.Wait()
		if asked := cluster.watches - before; asked > 10 {
			t.Errorf("the API server was asked %d times", asked)
		}
		families, err := registry.Gather()
		must(t, err)
		resumed := 0.0
		for _, family := range families {
			for _, metric := range family.GetMetric() {
				if family.GetName() == "trireme_server_watch_resumes_total" {
					resumed += metric.GetCounter().GetValue()
				}
			}
		}
		if resumed != 1000 {
			t.Errorf("%f watches were resumed", resumed)
		}
	})
}

// TestSlowReader: a slow client is disconnected, and others are not affected.
func TestSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := newCluster()
		cluster.change("blue", "a", run)
		cache := startCache(t, cluster, Options{History: 10})
		var watching sync.WaitGroup
		watching.Go(func() {
			told, err := watchFor(t, cache, Watch{Namespace: "blue"}, time.Minute)
			if err != nil || len(told) != 2+50 {
				t.Errorf("a quick reader saw %d: %v", len(told), err)
			}
		})
		watching.Go(func() {
			var last error
			for _, err := range cache.Watch(t.Context(), jobview.MPIJobs, Watch{Namespace: "blue"}) {
				last = err
				time.Sleep(30 * time.Second)
			}
			if codeOf(last) != 410 {
				t.Errorf("a slow reader is told: %v", last)
			}
		})
		for range 50 {
			time.Sleep(100 * time.Millisecond)
			cluster.change("blue", "a", run)
		}
		watching.Wait()
	})
}
