// SPDX-License-Identifier: Apache-2.0

package jobwatch

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
)

func asMap(encoded json.RawMessage) map[string]any {
	read := map[string]any{}
	if err := json.Unmarshal(encoded, &read); err != nil {
		panic(err)
	}
	// A merge patch does not distinguish null from a missing value.
	maps.DeleteFunc(read, func(_ string, value any) bool { return value == nil })
	return read
}

// viewer is a typical client: it keeps the jobs by applying events, and resumes from the
// last version.
type viewer struct {
	t         *testing.T
	namespace string
	jobs      map[string]any
	synced    bool
	version   string
	// since is the version of the last snapshot, events the events after it.
	since  string
	events []string
	// restarts counts how often the viewer had to start over.
	restarts int
}

func (v *viewer) startOver() {
	v.jobs, v.synced, v.version, v.events = map[string]any{}, false, "", nil
}

func (v *viewer) see(event *Event) {
	var read struct {
		message
		Job     json.RawMessage `json:"job"`
		Changes json.RawMessage `json:"changes"`
	}
	if err := json.Unmarshal(event.JSON, &read); err != nil {
		v.t.Errorf("%s: %v", event.JSON, err)
	}
	_, exists := v.jobs[read.Name]
	switch read.Type {
	case Synced:
		v.synced, v.since = true, read.ResourceVersion
	case Added:
		if exists {
			v.t.Errorf("%s was added twice", read.Name)
		}
		v.jobs[read.Name] = asMap(read.Job)
	case Modified:
		if !exists {
			v.t.Errorf("%s was changed, and never added", read.Name)
			return
		}
		row := v.jobs[read.Name].(map[string]any)
		patch := map[string]any{}
		if err := json.Unmarshal(read.Changes, &patch); err != nil {
			v.t.Error(err)
		}
		maps.Copy(row, patch)
		maps.DeleteFunc(row, func(_ string, value any) bool { return value == nil })
	case Deleted:
		if !exists {
			v.t.Errorf("%s was deleted, and never added", read.Name)
		}
		delete(v.jobs, read.Name)
	}
	if v.synced && read.Type != Synced {
		v.events = append(v.events, fmt.Sprintf("%s %s %s", read.Type, read.Name, read.ResourceVersion))
	}
	if !v.synced && event.ResourceVersion != "" || v.synced && event.ResourceVersion == "" || read.ResourceVersion != event.ResourceVersion {
		v.t.Errorf("a reader that is synced=%t cannot use version %q: %s", v.synced, event.ResourceVersion, event.JSON)
	}
	v.version = event.ResourceVersion
}

// connect watches until the context ends, or for a random time.
func (v *viewer) connect(ctx context.Context, source Source, random *rand.Rand) {
	if v.version == "" {
		v.startOver()
	}
	for event, err := range source.Watch(ctx, jobview.MPIJobs, Watch{Namespace: v.namespace, Since: v.version}) {
		if isExpired(err) {
			v.restarts++
			v.startOver()
			return
		}
		if err != nil {
			if code := codeOf(err); code != 503 {
				v.t.Errorf("since %s: %v", v.version, err)
			}
			time.Sleep(time.Second)
			return
		}
		v.see(event)
		switch random.IntN(20) {
		case 0:
			return
		case 1:
			time.Sleep(time.Duration(random.IntN(int(3 * time.Second))))
		}
	}
}

// replicas are servers that can be replaced one by one.
type replicas struct {
	ctx     context.Context
	cluster *cluster
	history int
	running [2]atomic.Pointer[Cache]
	stop    [2]context.CancelFunc
	done    sync.WaitGroup
}

func (r *replicas) restart(index int) {
	if r.stop[index] != nil {
		r.stop[index]()
	}
	ctx, stop := context.WithCancel(r.ctx)
	cache := NewCache(r.cluster, quietly(Options{History: r.history}))
	r.done.Go(func() { cache.Run(ctx) })
	r.running[index].Store(cache)
	r.stop[index] = stop
}

// TestWatchersConverge: whatever happens to jobs, connections, servers and the API
// server, watchers end up with the real jobs, receive nothing twice and, while the API
// server has its history, receive everything.
func TestWatchersConverge(t *testing.T) {
	for name, chaos := range map[string]struct {
		// forget means that the API server loses its history from time to time.
		forget  bool
		history int
	}{
		"the API server knows its history":             {history: 100000},
		"the API server forgets":                       {forget: true, history: 100000},
		"the API server forgets, and so does a server": {forget: true, history: 25},
	} {
		for seed := range uint64(40) {
			t.Run(fmt.Sprintf("%s/%d", name, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { watchAndCompare(t, seed, chaos.history, chaos.forget) })
			})
		}
	}
}

var namespaces = []string{"blue", "green"}

func watchAndCompare(t *testing.T, seed uint64, history int, forget bool) {
	random := rand.New(rand.NewPCG(seed, 7))
	ctx, stop := context.WithCancel(t.Context())
	replicas := &replicas{ctx: ctx, cluster: newCluster(), history: history}
	replicas.restart(0)
	replicas.restart(1)
	var viewers []*viewer
	var watching sync.WaitGroup
	for number := range 8 {
		viewer := &viewer{t: t, namespace: namespaces[number%len(namespaces)]}
		viewers = append(viewers, viewer)
		luck := rand.New(rand.NewPCG(seed, uint64(number)))
		watching.Go(func() {
			for ctx.Err() == nil {
				connection, cancel := context.WithTimeout(ctx, time.Duration(1+luck.IntN(60))*time.Second)
				viewer.connect(connection, replicas.running[luck.IntN(2)].Load(), luck)
				cancel()
			}
		})
	}
	for range 400 {
		disturb(random, replicas, forget)
	}
	time.Sleep(5 * time.Minute)
	stop()
	watching.Wait()
	replicas.done.Wait()
	for _, viewer := range viewers {
		if difference := cmp.Diff(replicas.cluster.rows(viewer.namespace), viewer.jobs); difference != "" {
			t.Errorf("a watcher of %s sees something else than there is (-truth +seen):\n%s", viewer.namespace, difference)
		}
		since, _ := parseVersion(viewer.since)
		if truth := replicas.cluster.after(viewer.namespace, since); !forget && !slices.Equal(truth, viewer.events) {
			t.Errorf("a watcher of %s was told something else than happened since %d:\n%s", viewer.namespace, since, cmp.Diff(truth, viewer.events))
		}
		if !forget && viewer.restarts > 0 {
			t.Errorf("a watcher had to start over %d times, though the API server knew everything", viewer.restarts)
		}
	}
}

// disturb causes a random event.
func disturb(random *rand.Rand, replicas *replicas, forget bool) {
	cluster := replicas.cluster
	namespace, name := namespaces[random.IntN(len(namespaces))], fmt.Sprintf("job-%d", random.IntN(6))
	switch choice := random.IntN(100); {
	case choice < 55:
		cluster.change(namespace, name, func(job *v2beta1.MPIJob) {
			job.Status.Phase = []training.Phase{"", training.PhasePending, training.PhaseRunning, training.PhaseFailed}[random.IntN(4)]
			job.Status.ReadyWorkers = []string{"", "0/2", "2/2"}[random.IntN(3)]
		})
	case choice < 70:
		cluster.change(namespace, name, nil)
	case choice < 75:
		cluster.elsewhere()
	case choice < 80:
		cluster.cut(false)
	case choice < 84:
		cluster.cut(forget)
	case choice < 86:
		cluster.setDown(true)
		cluster.cut(forget)
		time.Sleep(time.Duration(random.IntN(int(20 * time.Second))))
		cluster.setDown(false)
	case choice < 88:
		replicas.restart(random.IntN(2))
	default:
		time.Sleep(time.Duration(random.IntN(int(5 * time.Second))))
	}
}
