// SPDX-License-Identifier: Apache-2.0

package jobwatch

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
)

// cluster is a fake API server for MPIJobs that keeps its whole history, to compare
// watches with.
type cluster struct {
	client.WithWatch

	lock     sync.Mutex
	revision uint64
	history  []watch.Event
	versions []uint64
	jobs     map[types.NamespacedName]*v2beta1.MPIJob
	// forgotten is the version up to which the history is not available.
	forgotten uint64
	down      bool
	moved     chan struct{}
	// cutOff is closed when all watches break.
	cutOff chan struct{}
	// watches counts started watches, gets counts reads of one job.
	watches, gets int
}

func newCluster() *cluster {
	return &cluster{revision: 100, jobs: map[types.NamespacedName]*v2beta1.MPIJob{}, moved: make(chan struct{}), cutOff: make(chan struct{})}
}

func mpiJob(namespace, name string) *v2beta1.MPIJob {
	return &v2beta1.MPIJob{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Generation: 1, Labels: map[string]string{"team": namespace}}}
}

// change creates or changes a job, or with nil deletes it.
func (c *cluster) change(namespace, name string, change func(*v2beta1.MPIJob)) {
	c.lock.Lock()
	defer c.lock.Unlock()
	key := types.NamespacedName{Namespace: namespace, Name: name}
	what, job := watch.Modified, c.jobs[key].DeepCopy()
	c.revision++
	switch {
	case job == nil && change == nil:
		return
	case job == nil:
		what, job = watch.Added, mpiJob(namespace, name)
		job.UID = types.UID("uid-" + strconv.FormatUint(c.revision, 10))
	case change == nil:
		what = watch.Deleted
		delete(c.jobs, key)
	}
	job.ResourceVersion = strconv.FormatUint(c.revision, 10)
	if change != nil {
		change(job)
		c.jobs[key] = job
	}
	c.history = append(c.history, watch.Event{Type: what, Object: job})
	c.versions = append(c.versions, c.revision)
	c.wake()
}

func (c *cluster) wake() {
	close(c.moved)
	c.moved = make(chan struct{})
}

// elsewhere is a change of another object.
func (c *cluster) elsewhere() {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.revision++
}

// cut breaks all watches. With forget, none of them can be resumed.
func (c *cluster) cut(forget bool) {
	c.lock.Lock()
	defer c.lock.Unlock()
	close(c.cutOff)
	c.cutOff = make(chan struct{})
	if forget {
		c.revision++
		c.forgotten = c.revision
	}
}

func (c *cluster) setDown(down bool) {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.down = down
}

func (c *cluster) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	var asked client.ListOptions
	asked.ApplyOptions(options)
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.down {
		return fmt.Errorf("connection refused")
	}
	var items []runtime.Object
	for _, job := range c.jobs {
		if covers(&asked, job) {
			items = append(items, job.DeepCopy())
		}
	}
	list.SetResourceVersion(strconv.FormatUint(c.revision, 10))
	if _, is := list.(*v2beta1.MPIJobList); !is {
		return nil
	}
	return meta.SetList(list, items)
}

// Get reads one job.
func (c *cluster) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.gets++
	job := c.jobs[key]
	if job == nil {
		return apierrors.NewNotFound(v2beta1.GroupVersion.WithResource("mpijobs").GroupResource(), key.Name)
	}
	job.DeepCopyInto(object.(*v2beta1.MPIJob))
	return nil
}

// covers tells whether a job matches the list options.
func covers(asked *client.ListOptions, job client.Object) bool {
	return (asked.Namespace == "" || job.GetNamespace() == asked.Namespace) &&
		(asked.FieldSelector == nil || asked.FieldSelector.Matches(fields.Set{"metadata.name": job.GetName()}))
}

func (c *cluster) Watch(ctx context.Context, list client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
	var asked client.ListOptions
	asked.ApplyOptions(options)
	c.lock.Lock()
	defer c.lock.Unlock()
	c.watches++
	since, _ := strconv.ParseUint(asked.Raw.ResourceVersion, 10, 64)
	switch {
	case c.down:
		return nil, fmt.Errorf("connection refused")
	case asked.Raw.SendInitialEvents != nil:
		return nil, apierrors.NewBadRequest("initial events are not supported")
	case since < c.forgotten:
		return nil, apierrors.NewResourceExpired("too old resource version")
	}
	ctx, cancel := context.WithCancel(ctx)
	watching := &watching{cluster: c, cancel: cancel, events: make(chan watch.Event), since: since, cutOff: c.cutOff, asked: asked}
	_, watching.jobs = list.(*v2beta1.MPIJobList)
	go watching.run(ctx)
	return watching, nil
}

// watching is one watch of the cluster.
type watching struct {
	cluster *cluster
	cancel  context.CancelFunc
	events  chan watch.Event
	since   uint64
	cutOff  chan struct{}
	asked   client.ListOptions
	// jobs is true for MPIJobs: no other kind has objects.
	jobs bool
}

func (w *watching) Stop()                          { w.cancel() }
func (w *watching) ResultChan() <-chan watch.Event { return w.events }

func (w *watching) run(ctx context.Context) {
	defer close(w.events)
	for {
		events, revision, changed := w.next()
		if len(events) == 0 && w.asked.Raw.TimeoutSeconds != nil && *w.asked.Raw.TimeoutSeconds < 60 {
			// A watch sends a bookmark before it ends.
			events = []watch.Event{{Type: watch.Bookmark, Object: &v2beta1.MPIJob{ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.FormatUint(revision, 10)}}}}
			w.asked.Raw.TimeoutSeconds = nil
		}
		for _, event := range events {
			select {
			case w.events <- event:
			case <-ctx.Done():
				return
			case <-w.cutOff:
				return
			}
		}
		if len(events) > 0 {
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		case <-w.cutOff:
			return
		}
	}
}

func (w *watching) next() ([]watch.Event, uint64, chan struct{}) {
	cluster := w.cluster
	cluster.lock.Lock()
	defer cluster.lock.Unlock()
	var events []watch.Event
	for i, event := range cluster.history {
		if object := event.Object.(client.Object); w.jobs && cluster.versions[i] > w.since && covers(&w.asked, object) {
			events = append(events, watch.Event{Type: event.Type, Object: object.DeepCopyObject()})
		}
	}
	if len(cluster.versions) > 0 {
		w.since = max(w.since, cluster.versions[len(cluster.versions)-1])
	}
	return events, cluster.revision, cluster.moved
}

// after returns the real changes in a namespace after a version.
func (c *cluster) after(namespace string, version uint64) []string {
	c.lock.Lock()
	defer c.lock.Unlock()
	var told []string
	for i, event := range c.history {
		if job := event.Object.(*v2beta1.MPIJob); c.versions[i] > version && job.Namespace == namespace {
			told = append(told, fmt.Sprintf("%s %s %d", event.Type, job.Name, c.versions[i]))
		}
	}
	return told
}

// rows returns the real jobs of a namespace.
func (c *cluster) rows(namespace string) map[string]any {
	c.lock.Lock()
	defer c.lock.Unlock()
	rows := map[string]any{}
	for key, job := range c.jobs {
		if key.Namespace == namespace {
			rows[key.Name] = asMap(encode(jobview.Of(job).Row()))
		}
	}
	return rows
}

// run sets a job to running with some workers.
func run(job *v2beta1.MPIJob) {
	job.Status.Phase = training.PhaseRunning
	job.Status.ReadyWorkers, job.Status.ReadyWorkerCount, job.Status.WorkerCount = "1/2", 1, 2
}
