// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

// writer changes jobs of a namespace, and keeps the truth: what happened to each job.
// It is the only one who does, so whatever it finds it has done itself, even where
// the answer got lost.
type writer struct {
	cluster   *cluster
	namespace string
	random    *rand.Rand
	// step is written into each change.
	step  int
	alive map[string]bool
	lock  sync.Mutex
	truth map[string][]string
}

func newWriter(cluster *cluster, namespace string, seed uint64) *writer {
	return &writer{cluster: cluster, namespace: namespace, random: rand.New(rand.NewPCG(seed, 1)), alive: map[string]bool{}, truth: map[string][]string{}}
}

// write makes changes until the context ends.
func (writer *writer) write(ctx context.Context, t testing.TB) {
	for ctx.Err() == nil {
		name := fmt.Sprintf("job-%d", writer.random.IntN(8))
		switch {
		case !writer.alive[name]:
			writer.create(t, name)
		case writer.random.IntN(10) == 0:
			writer.delete(t, name)
		default:
			writer.update(t, name)
		}
		time.Sleep(time.Duration(writer.random.IntN(int(20 * time.Millisecond))))
	}
}

func (writer *writer) note(name, what string) {
	writer.lock.Lock()
	defer writer.lock.Unlock()
	writer.truth[name] = append(writer.truth[name], what)
}

func (writer *writer) create(t testing.TB, name string) {
	insist(t, func(ctx context.Context) error {
		err := writer.cluster.client.Create(ctx, simpleJob(t, writer.namespace, name))
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
	writer.alive[name] = true
	writer.note(name, "ADDED")
}

func (writer *writer) delete(t testing.TB, name string) {
	insist(t, func(ctx context.Context) error {
		return client.IgnoreNotFound(writer.cluster.client.Delete(ctx, simpleJob(t, writer.namespace, name)))
	})
	writer.alive[name] = false
	writer.note(name, "DELETED")
}

func (writer *writer) update(t testing.TB, name string) {
	writer.step++
	wanted := fmt.Sprintf("%d/1000000", writer.step)
	insist(t, func(ctx context.Context) error {
		job := &v2beta1.MPIJob{}
		err := writer.cluster.client.Get(ctx, client.ObjectKey{Namespace: writer.namespace, Name: name}, job)
		if err != nil || job.Status.ReadyWorkers == wanted {
			return err
		}
		job.Status.ReadyWorkers = wanted
		return writer.cluster.client.Status().Update(ctx, job)
	})
	writer.note(name, "MODIFIED "+wanted)
}

// insist does something until it is done: the API server may be away.
func insist(t testing.TB, do func(context.Context) error) {
	deadline := time.Now().Add(2 * time.Minute)
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		err := do(ctx)
		cancel()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("the API server is away for too long: %v", err)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// reader is a client that comes back whenever its connection breaks.
type reader struct {
	namespace string
	lock      sync.Mutex
	synced    bool
	version   string
	// seen is what happened to each job since all were told, now what it is by now.
	seen map[string][]string
	now  map[string]string
	// resumed and gone are how often it came back, and how often it could not.
	resumed, gone int
}

func (reader *reader) read(ctx context.Context, t testing.TB, current *current) {
	for ctx.Err() == nil {
		server := current.Load()
		address := strings.Replace(server.web.URL, "https", "wss", 1) + "/" + reader.namespace
		if reader.version != "" {
			address += "?resourceVersion=" + reader.version
		}
		connection, _, err := websocket.Dial(ctx, address, &websocket.DialOptions{HTTPClient: server.web.Client()})
		if err != nil {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		for {
			_, text, err := connection.Read(ctx)
			if err != nil {
				break
			}
			reader.see(t, text)
		}
		_ = connection.CloseNow()
		reader.lock.Lock()
		reader.resumed++
		reader.lock.Unlock()
	}
}

func (reader *reader) see(t testing.TB, text []byte) {
	var event struct {
		Type, Namespace, Name, ResourceVersion, Message string
		Code                                            int
		Job, Changes                                    struct{ ReadyWorkers string }
	}
	if err := json.Unmarshal(text, &event); err != nil {
		t.Errorf("%s: %v", text, err)
	}
	reader.lock.Lock()
	defer reader.lock.Unlock()
	switch event.Type {
	case "HEARTBEAT":
		return
	case "ERROR":
		if event.Code == http.StatusGone {
			reader.gone++
			reader.version, reader.synced, reader.seen, reader.now = "", false, map[string][]string{}, map[string]string{}
		} else if event.Code != http.StatusServiceUnavailable {
			t.Errorf("%s", text)
		}
		return
	case "SYNCED":
		reader.synced = true
	case "MODIFIED":
		reader.now[event.Name] = event.Changes.ReadyWorkers
		reader.seen[event.Name] = append(reader.seen[event.Name], "MODIFIED "+event.Changes.ReadyWorkers)
	case "DELETED":
		delete(reader.now, event.Name)
		reader.seen[event.Name] = append(reader.seen[event.Name], event.Type)
	case "ADDED":
		reader.now[event.Name] = event.Job.ReadyWorkers
		if reader.synced {
			reader.seen[event.Name] = append(reader.seen[event.Name], event.Type)
		}
	}
	if event.Namespace != reader.namespace {
		t.Errorf("a watcher of %s is told: %s", reader.namespace, text)
	}
	reader.version = event.ResourceVersion
}

func (reader *reader) upToDate(writer *writer) bool {
	reader.lock.Lock()
	defer reader.lock.Unlock()
	for name, happened := range writer.truth {
		last := happened[len(happened)-1]
		now, exists := reader.now[name]
		if exists != writer.alive[name] || exists && now != strings.TrimPrefix(strings.TrimPrefix(last, "MODIFIED "), "ADDED") {
			return false
		}
	}
	return true
}

// TestResume counts what watchers see against the truth.
func TestResume(t *testing.T) {
	cluster := startCluster(t)
	for name, test := range map[string]struct {
		disturb func(t *testing.T, current *current)
		// forgets: the API server itself loses what happened, as much as it takes until it
		// is there again. What is different by then is told, and not each step on the way.
		forgets bool
		// startsOver: nobody is left who would know what happened.
		startsOver bool
	}{
		"connections to the API server are cut": {disturb: func(_ *testing.T, current *current) { current.Load().wires.cut() }},
		"the server is started anew":            {disturb: func(t *testing.T, current *current) { current.restart(t, cluster) }},
		"the API server is started anew":        {disturb: func(t *testing.T, _ *current) { cluster.restart(t) }, forgets: true},
		"both are started anew": {disturb: func(t *testing.T, current *current) {
			cluster.restart(t)
			current.restart(t, cluster)
		}, forgets: true, startsOver: true},
	} {
		t.Run(name, func(t *testing.T) {
			var current current
			current.Store(startServer(t, cluster))
			namespace, elsewhere := cluster.namespace(t), cluster.namespace(t)
			writers := []*writer{newWriter(cluster, namespace, 1), newWriter(cluster, elsewhere, 2)}
			readers := []*reader{}
			reading, stopReading := context.WithCancel(t.Context())
			writing, stopWriting := context.WithCancel(t.Context())
			var atWork, atRead sync.WaitGroup
			for range 5 {
				reader := &reader{namespace: namespace, seen: map[string][]string{}, now: map[string]string{}}
				readers = append(readers, reader)
				atRead.Go(func() { reader.read(reading, t, &current) })
			}
			eventually.Holds(t, "all are connected", func() bool {
				return !slices.ContainsFunc(readers, func(reader *reader) bool {
					reader.lock.Lock()
					defer reader.lock.Unlock()
					return !reader.synced
				})
			})
			for _, writer := range writers {
				atWork.Go(func() { writer.write(writing, t) })
			}
			for range 2 {
				time.Sleep(2 * time.Second)
				test.disturb(t, &current)
			}
			time.Sleep(2 * time.Second)
			stopWriting()
			atWork.Wait()
			eventually.Holds(t, "all have seen the last change of each job", func() bool {
				return !slices.ContainsFunc(readers, func(reader *reader) bool { return !reader.upToDate(writers[0]) })
			})
			// What is told twice comes late.
			time.Sleep(3 * time.Second)
			stopReading()
			atRead.Wait()
			for _, reader := range readers {
				if reader.gone > 0 && !test.startsOver {
					t.Errorf("started over %d times", reader.gone)
				}
				compare(t, writers[0].truth, reader, test.forgets)
			}
		})
	}
}

func compare(t *testing.T, truth map[string][]string, reader *reader, forgets bool) {
	t.Helper()
	total, missing := 0, 0
	for name, happened := range truth {
		total += len(happened)
		seen := reader.seen[name]
		if !forgets {
			if difference := cmp.Diff(happened, seen); difference != "" {
				t.Errorf("%s: what happened and what was seen differ:\n%s", name, difference)
			}
			continue
		}
		// What is told must have happened, in this order and once. That the jobs are as
		// they should be in the end was seen before.
		left := happened
		for _, what := range seen {
			index := slices.Index(left, what)
			if index < 0 {
				t.Errorf("%s: %q never happened, or is told twice; left was %q", name, what, left)
				break
			}
			missing += index
			left = left[index+1:]
		}
		missing += len(left)
	}
	t.Logf("%d changes, %d of them told as a part of others; connected again %d times, started over %d times", total, missing, reader.resumed, reader.gone)
}
