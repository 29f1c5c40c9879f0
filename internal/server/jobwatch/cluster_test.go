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

// cluster is an API server of MPIJobs that forgets nothing by itself, so that it is
// the truth that watchers are measured by.
type cluster struct {
	client.WithWatch

	lock     sync.Mutex
	revision uint64
	history  []watch.Event
	versions []uint64
	jobs     map[types.NamespacedName]*v2beta1.MPIJob
	// forgotten is the version up to which the history cannot be asked for.
	forgotten uint64
	down      bool
	moved     chan struct{}
	// cutOff is closed when all watches break.
	cutOff chan struct{}
	// watches is how often one was begun, gets how often one job was read.
	watches, gets int
}

func newCluster() *cluster {
	return &cluster{revision: 100, jobs: map[types.NamespacedName]*v2beta1.MPIJob{}, moved: make(chan struct{}), cutOff: make(chan struct{})}
}

func mpiJob(namespace, name string) *v2beta1.MPIJob {
	return &v2beta1.MPIJob{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Generation: 1, Labels: map[string]string{"team": namespace}}}
}

// change does something to a job: it is created, changed, or with nil deleted.
func (cluster *cluster) change(namespace, name string, change func(*v2beta1.MPIJob)) {
	cluster.lock.Lock()
	defer cluster.lock.Unlock()
	key := types.NamespacedName{Namespace: namespace, Name: name}
	what, job := watch.Modified, cluster.jobs[key].DeepCopy()
	cluster.revision++
	switch {
	case job == nil && change == nil:
		return
	case job == nil:
		what, job = watch.Added, mpiJob(namespace, name)
		job.UID = types.UID("uid-" + strconv.FormatUint(cluster.revision, 10))
	case change == nil:
		what = watch.Deleted
		delete(cluster.jobs, key)
	}
	job.ResourceVersion = strconv.FormatUint(cluster.revision, 10)
	if change != nil {
		change(job)
		cluster.jobs[key] = job
	}
	cluster.history = append(cluster.history, watch.Event{Type: what, Object: job})
	cluster.versions = append(cluster.versions, cluster.revision)
	cluster.wake()
}

func (cluster *cluster) wake() {
	close(cluster.moved)
	cluster.moved = make(chan struct{})
}

// elsewhere is something that happened to other objects.
func (cluster *cluster) elsewhere() {
	cluster.lock.Lock()
	defer cluster.lock.Unlock()
	cluster.revision++
}

// cut breaks all watches. If the cluster forgets, none of them can be gone on with.
func (cluster *cluster) cut(forget bool) {
	cluster.lock.Lock()
	defer cluster.lock.Unlock()
	close(cluster.cutOff)
	cluster.cutOff = make(chan struct{})
	if forget {
		cluster.revision++
		cluster.forgotten = cluster.revision
	}
}

func (cluster *cluster) setDown(down bool) {
	cluster.lock.Lock()
	defer cluster.lock.Unlock()
	cluster.down = down
}

func (cluster *cluster) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	var asked client.ListOptions
	asked.ApplyOptions(options)
	cluster.lock.Lock()
	defer cluster.lock.Unlock()
	if cluster.down {
		return fmt.Errorf("connection refused")
	}
	var items []runtime.Object
	for _, job := range cluster.jobs {
		if covers(&asked, job) {
			items = append(items, job.DeepCopy())
		}
	}
	list.SetResourceVersion(strconv.FormatUint(cluster.revision, 10))
	if _, is := list.(*v2beta1.MPIJobList); !is {
		return nil
	}
	return meta.SetList(list, items)
}

// Get reads one job.
func (cluster *cluster) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	cluster.lock.Lock()
	defer cluster.lock.Unlock()
	cluster.gets++
	job := cluster.jobs[key]
	if job == nil {
		return apierrors.NewNotFound(v2beta1.GroupVersion.WithResource("mpijobs").GroupResource(), key.Name)
	}
	job.DeepCopyInto(object.(*v2beta1.MPIJob))
	return nil
}

// covers: a job is among those that are asked for.
func covers(asked *client.ListOptions, job client.Object) bool {
	return (asked.Namespace == "" || job.GetNamespace() == asked.Namespace) &&
		(asked.FieldSelector == nil || asked.FieldSelector.Matches(fields.Set{"metadata.name": job.GetName()}))
}

func (cluster *cluster) Watch(ctx context.Context, list client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
	var asked client.ListOptions
	asked.ApplyOptions(options)
	cluster.lock.Lock()
	defer cluster.lock.Unlock()
	cluster.watches++
	since, _ := strconv.ParseUint(asked.Raw.ResourceVersion, 10, 64)
	switch {
	case cluster.down:
		return nil, fmt.Errorf("connection refused")
	case asked.Raw.SendInitialEvents != nil:
		return nil, apierrors.NewBadRequest("initial events are not supported")
	case since < cluster.forgotten:
		return nil, apierrors.NewResourceExpired("too old resource version")
	}
	ctx, cancel := context.WithCancel(ctx)
	watching := &watching{cluster: cluster, cancel: cancel, events: make(chan watch.Event), since: since, cutOff: cluster.cutOff, asked: asked}
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
	// jobs: it is one of MPIJobs, of which alone there are any.
	jobs bool
}

func (watching *watching) Stop()                          { watching.cancel() }
func (watching *watching) ResultChan() <-chan watch.Event { return watching.events }

func (watching *watching) run(ctx context.Context) {
	defer close(watching.events)
	for {
		events, revision, moved := watching.next()
		if len(events) == 0 && watching.asked.Raw.TimeoutSeconds != nil && *watching.asked.Raw.TimeoutSeconds < 60 {
			// A watch that is soon to end says how far it has come.
			events = []watch.Event{{Type: watch.Bookmark, Object: &v2beta1.MPIJob{ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.FormatUint(revision, 10)}}}}
			watching.asked.Raw.TimeoutSeconds = nil
		}
		for _, event := range events {
			select {
			case watching.events <- event:
			case <-ctx.Done():
				return
			case <-watching.cutOff:
				return
			}
		}
		if len(events) > 0 {
			continue
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return
		case <-watching.cutOff:
			return
		}
	}
}

func (watching *watching) next() ([]watch.Event, uint64, chan struct{}) {
	cluster := watching.cluster
	cluster.lock.Lock()
	defer cluster.lock.Unlock()
	var events []watch.Event
	for i, event := range cluster.history {
		if object := event.Object.(client.Object); watching.jobs && cluster.versions[i] > watching.since && covers(&watching.asked, object) {
			events = append(events, watch.Event{Type: event.Type, Object: object.DeepCopyObject()})
		}
	}
	if len(cluster.versions) > 0 {
		watching.since = max(watching.since, cluster.versions[len(cluster.versions)-1])
	}
	return events, cluster.revision, cluster.moved
}

// after is the truth: what happened in a namespace after a version.
func (cluster *cluster) after(namespace string, version uint64) []string {
	cluster.lock.Lock()
	defer cluster.lock.Unlock()
	var told []string
	for i, event := range cluster.history {
		if job := event.Object.(*v2beta1.MPIJob); cluster.versions[i] > version && job.Namespace == namespace {
			told = append(told, fmt.Sprintf("%s %s %d", event.Type, job.Name, cluster.versions[i]))
		}
	}
	return told
}

// rows is the truth: the jobs of a namespace.
func (cluster *cluster) rows(namespace string) map[string]any {
	cluster.lock.Lock()
	defer cluster.lock.Unlock()
	rows := map[string]any{}
	for key, job := range cluster.jobs {
		if key.Namespace == namespace {
			rows[key.Name] = asMap(encode(jobview.Of(job).Row()))
		}
	}
	return rows
}

// run makes a job run with some workers.
func run(job *v2beta1.MPIJob) {
	job.Status.Phase = training.PhaseRunning
	job.Status.ReadyWorkers, job.Status.ReadyWorkerCount, job.Status.WorkerCount = "1/2", 1, 2
}
