package operator

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/config"
	"github.com/trireme-mpi/trireme/internal/engine/diagnosis"
	"github.com/trireme-mpi/trireme/internal/kube/partial"
	"github.com/trireme-mpi/trireme/internal/operator/admission"
)

const (
	// jobSetPeriod is how often a cluster without JobSet is asked for it.
	jobSetPeriod = 15 * time.Second
	// settling is how long what happens to workers is collected before a job is
	// looked at: a hundred of them start within a moment.
	workerEventDelay = 100 * time.Millisecond
	// endsFirst is the priority of jobs one of whose pods has ended; others have 0.
	finishedPodPriority = 1
	// longestRetry bounds how long a job that met an error is left alone.
	maxRetryDelay = 30 * time.Second
)

// CachedKinds are what is kept in memory of what jobs are made of: only what is
// ours, and of that only what is read. JobSet cannot be among them: not every cluster
// has it, and a cache with a selector for it would not start there.
func CachedKinds() map[client.Object]cache.ByObject {
	ours, err := labels.Parse(training.LabelJobType)
	if err != nil {
		panic(err) // a constant
	}
	snapshots, err := labels.Parse(training.LabelRuntimeDigest)
	if err != nil {
		panic(err) // a constant
	}
	return map[client.Object]cache.ByObject{
		&corev1.Node{}:               {Transform: trimNode},
		&corev1.Pod{}:                {Label: ours, Transform: trimPod},
		&batchv1.Job{}:               {Label: ours, Transform: partial.Transform},
		&appsv1.ControllerRevision{}: {Label: snapshots, Transform: dropContent},
		&discoveryv1.EndpointSlice{}: {Label: ours},
		&v2beta1.MPIJob{}:            {Transform: partial.Transform},
		&v2alpha1.TrainJob{}:         {Transform: partial.Transform},
	}
}

// keepStatus drops what nobody reads of a pod.
func trimPod(object any) (any, error) {
	pod, isPod := object.(*corev1.Pod)
	if !isPod {
		return object, nil
	}
	pod.ManagedFields, pod.Spec.Volumes, pod.Spec.Affinity = nil, nil, nil
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			kept := &containers[i]
			*kept = corev1.Container{Name: kept.Name, Image: kept.Image, Resources: kept.Resources}
		}
	}
	return pod, nil
}

// addReconcilers makes the manager run the jobs of both kinds.
func addReconcilers(manager ctrl.Manager, settings *config.Config, audit *admission.Audit, registry prometheus.Registerer) error {
	server, err := discovery.NewDiscoveryClientForConfigAndClient(manager.GetConfig(), manager.GetHTTPClient())
	if err != nil {
		return err
	}
	if err := addIndexes(manager.GetFieldIndexer()); err != nil {
		return err
	}
	reconcilers, err := NewReconcilers(Parts{
		Client: manager.GetClient(), Live: manager.GetAPIReader(), Clock: clock.RealClock{}, Discovery: server,
		Recorder: manager.GetEventRecorder("trireme"), Audit: audit, Registry: registry, Settings: settings,
	})
	if err != nil {
		return err
	}
	// Whether the cluster has JobSet must be known before the first job is looked at,
	// because a job that runs is not one without a JobSet.
	hasJobSet, err := servesJobSet(manager.GetRESTMapper())
	if err != nil {
		return fmt.Errorf("ask the API server for JobSet: %w", err)
	}
	for _, reconciler := range reconcilers {
		reconciler.cluster.jobSets.Store(hasJobSet)
		if err := reconciler.addTo(manager, int(settings.Reconcile.Workers)); err != nil {
			return fmt.Errorf("set up the reconciler of %s: %w", reconciler.kind.name(), err)
		}
	}
	return forgetNamespaces(manager.GetCache(), reconcilers)
}

// forgetNamespaces drops the metrics of namespaces that are deleted: series of
// namespaces that come and go would otherwise pile up.
func forgetNamespaces(informers cache.Cache, reconcilers []*Reconciler) error {
	namespaces, err := informers.GetInformer(context.Background(), &corev1.Namespace{})
	if err != nil {
		return fmt.Errorf("watch namespaces: %w", err)
	}
	_, err = namespaces.AddEventHandler(toolscache.ResourceEventHandlerFuncs{DeleteFunc: func(gone any) {
		key, err := toolscache.DeletionHandlingMetaNamespaceKeyFunc(gone)
		if err != nil {
			return // neither an object nor a tombstone: client-go hands in nothing else
		}
		for _, reconciler := range reconcilers {
			reconciler.reporter.metrics.forget(key)
		}
	}})
	return err
}

// Parts are what reconcilers work with: a manager's, or those of a simulation.
type Parts struct {
	Client    client.Client
	Live      client.Reader
	Clock     clock.PassiveClock
	Discovery discovery.DiscoveryInterface
	Recorder  events.EventRecorder
	Audit     *admission.Audit
	Registry  prometheus.Registerer
	Settings  *config.Config
	// HasJobSet: where it is not known yet, it is found out.
	HasJobSet bool
}

// NewReconcilers are those of both kinds.
func NewReconcilers(parts Parts) (reconcilers []*Reconciler, err error) {
	cluster, err := newClusterInfo(parts.Settings, parts.Client, parts.Discovery)
	if err != nil {
		return nil, err
	}
	cluster.jobSets.Store(parts.HasJobSet)
	defaults := parts.Settings.JobDefaults()
	patience := diagnosis.Patience{
		Image:   time.Duration(parts.Settings.Failures.ImagePullSeconds) * time.Second,
		Quota:   time.Duration(parts.Settings.Failures.QuotaSeconds) * time.Second,
		Restart: time.Duration(parts.Settings.Failures.RestartSeconds) * time.Second,
	}
	runtimes := newSnapshots(parts)
	kinds := []kind{mpiJobs{defaults}, trainJobs{parts.Client, runtimes, defaults, cluster}}
	for i, kind := range kinds {
		record, err := newReporter(kind, parts.Client, parts.Audit, parts.Registry)
		if err != nil {
			return nil, err
		}
		reconcilers = append(reconcilers, &Reconciler{
			Client: parts.Client, Live: parts.Live, Clock: parts.Clock, Patience: patience,
			kind: kind, kinds: kinds, cluster: cluster, recorder: parts.Recorder, reporter: record,
			snapshots: []*snapshots{nil, runtimes}[i],
		})
	}
	return reconcilers, nil
}

// Watched is a kind of objects, and what becomes of what happens to them.
type Watched struct {
	Object  client.Object
	Handler handler.EventHandler
}

// Watches are what has jobs looked at. The workload comes last: not every cluster has
// JobSet.
func (r *Reconciler) Watches() []Watched {
	watched := []Watched{
		{r.kind.empty(), r.jobs()},
		{&corev1.Pod{}, r.pods()},
		{&discoveryv1.EndpointSlice{}, r.parts()},
	}
	if r.snapshots != nil {
		watched = append(watched, Watched{&appsv1.ControllerRevision{}, r.snapshots.watch()})
	}
	if r.kind.hasWorkloads() {
		watched = append(watched, Watched{r.kind.emptyWorkload(), r.workloads()})
	}
	return watched
}

// addTo has the reconciler called for its jobs and for what belongs to them.
func (r *Reconciler) addTo(manager ctrl.Manager, workers int) error {
	running, err := r.newBuilder(manager, workers).Build(r)
	if err != nil || r.kind.hasWorkloads() {
		return err
	}
	return manager.Add(&jobSetWatch{reconciler: r, controller: running, cache: manager.GetCache(), mapper: manager.GetRESTMapper()})
}

func (r *Reconciler) newBuilder(manager ctrl.Manager, workers int) *builder.Builder {
	building := ctrl.NewControllerManagedBy(manager).
		Named(r.kind.name().Type()).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers,
			RateLimiter:             RetryPauses(),
			NewQueue:                newLeadersQueue(manager.Elected()),
		}).
		WatchesRawSource(source.Func(r.enqueueAllWhenLeading(manager.Elected())))
	for _, watched := range r.Watches() {
		building = building.Watches(watched.Object, watched.Handler)
	}
	return building
}

// RetryPauses are how long a job that met an error is left alone.
func RetryPauses() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](5*time.Millisecond, maxRetryDelay)
}

func servesJobSet(mapper meta.RESTMapper) (bool, error) {
	_, err := mapper.RESTMapping(schema.GroupKind{Group: jobset.GroupVersion.Group, Kind: "JobSet"}, jobset.GroupVersion.Version)
	if meta.IsNoMatchError(err) {
		return false, nil
	}
	return err == nil, err
}

// jobs also forgets what is remembered of a job that is gone, or that the cache
// shows by now.
func (r *Reconciler) jobs() handler.EventHandler {
	enqueue := &handler.EnqueueRequestForObject{}
	// A status is our own work: it is no reason to look again.
	meaningful := predicate.Or(predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{})
	return handler.Funcs{
		GenericFunc: enqueue.Generic,
		CreateFunc: func(ctx context.Context, created event.CreateEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			r.snapshots.addJob(created.Object)
			enqueue.Create(ctx, created, queue)
		},
		UpdateFunc: func(ctx context.Context, changed event.UpdateEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			// Where a watch broke, a job that was made anew under its name is a changed one.
			anew := changed.ObjectOld.GetUID() != changed.ObjectNew.GetUID()
			if anew {
				r.forget(changed.ObjectOld, queue)
			}
			r.snapshots.addJob(changed.ObjectNew)
			r.memory.writes.newest(writtenKey{job: changed.ObjectNew.GetUID()}, changed.ObjectNew)
			if anew || meaningful.Update(changed) {
				enqueue.Update(ctx, changed, queue)
			}
		},
		DeleteFunc: func(ctx context.Context, gone event.DeleteEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			r.forget(gone.Object, queue)
			// Its launcher may still have its finalizer.
			enqueue.Delete(ctx, gone, queue)
		},
	}
}

// forget is for a job that is gone.
func (r *Reconciler) forget(gone client.Object, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	r.memory.forget(gone.GetUID())
	r.reporter.metrics.starts.take(gone.GetUID())
	r.snapshots.forget(gone, queue)
}

// requestFor is the job that an object belongs to by its labels.
func (r *Reconciler) requestFor(object client.Object) (request reconcile.Request, found bool) {
	labels := object.GetLabels()
	if labels[training.LabelJobType] != r.kind.name().Type() || labels[training.LabelJobName] == "" {
		return request, false
	}
	request.Namespace, request.Name = object.GetNamespace(), labels[training.LabelJobName]
	return request, true
}

// parts has a job looked at when something that belongs to it changes.
func (r *Reconciler) parts() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(_ context.Context, object client.Object) []reconcile.Request {
		if request, found := r.requestFor(object); found {
			return []reconcile.Request{request}
		}
		return nil
	})
}

// workloads has a job looked at when somebody else than us changes its workload.
func (r *Reconciler) workloads() handler.EventHandler {
	enqueue := r.parts()
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	return handler.Funcs{
		CreateFunc: enqueue.Create, DeleteFunc: enqueue.Delete, GenericFunc: enqueue.Generic,
		UpdateFunc: func(ctx context.Context, changed event.UpdateEvent, queue queue) {
			// A status is our own work.
			isStatus := changed.ObjectOld.GetUID() == changed.ObjectNew.GetUID() && changed.ObjectOld.GetGeneration() == changed.ObjectNew.GetGeneration() &&
				changed.ObjectNew.GetDeletionTimestamp() == nil
			if !isStatus {
				enqueue.Update(ctx, changed, queue)
			}
		},
	}
}

// pods has a job looked at when something happens to one of its pods: at once
// where it may decide over the job, else in a moment.
func (r *Reconciler) pods() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	enqueue := func(queue queue, pod client.Object, delay time.Duration) {
		request, found := r.requestFor(pod)
		if !found {
			return
		}
		switch pod := pod.(*corev1.Pod); {
		case hasEnded(pod):
			addWithPriority(queue, request)
		case pod.Labels[training.LabelReplicaType] != training.RoleWorker:
			queue.Add(request)
		default:
			queue.AddAfter(request, delay)
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, event event.CreateEvent, queue queue) {
			enqueue(queue, event.Object, workerEventDelay)
		},
		UpdateFunc: func(ctx context.Context, event event.UpdateEvent, queue queue) {
			delay := workerEventDelay
			if hasAddress(event.ObjectNew) && !hasAddress(event.ObjectOld) && r.haveAddresses(ctx, event.ObjectNew) {
				delay = 0
			}
			enqueue(queue, event.ObjectNew, delay)
		},
		DeleteFunc: func(_ context.Context, event event.DeleteEvent, queue queue) {
			enqueue(queue, event.Object, workerEventDelay)
		},
		GenericFunc: func(_ context.Context, event event.GenericEvent, queue queue) {
			enqueue(queue, event.Object, workerEventDelay)
		},
	}
}

// haveAddresses tells whether all pods of a pod's job have addresses: the launcher waits
// for the last one.
func (r *Reconciler) haveAddresses(ctx context.Context, pod client.Object) bool {
	var pods corev1.PodList
	err := r.List(ctx, &pods, client.InNamespace(pod.GetNamespace()), client.MatchingFields{partOf: jobOfPart(pod)[0]}, client.UnsafeDisableDeepCopy)
	return err == nil && !slices.ContainsFunc(pods.Items, func(pod corev1.Pod) bool { return !hasAddress(&pod) })
}

func hasAddress(pod client.Object) bool { return len(pod.(*corev1.Pod).Status.PodIPs) > 0 }

// hasEnded tells whether a pod may decide over its job.
func hasEnded(pod *corev1.Pod) bool {
	if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		return true
	}
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(status corev1.ContainerStatus) bool { return status.State.Terminated != nil })
}

// addFirst has a job looked at before those that nobody waits for: while many
// jobs start, the end of one is told at once.
func addWithPriority(queue workqueue.TypedRateLimitingInterface[reconcile.Request], request reconcile.Request) {
	if ordered, has := queue.(priorityqueue.PriorityQueue[reconcile.Request]); has {
		ordered.AddWithOpts(priorityqueue.AddOpts{Priority: new(finishedPodPriority)}, request)
		return
	}
	queue.Add(request)
}

// jobSetWatch waits until the cluster has JobSet, and watches it from then on.
type jobSetWatch struct {
	reconciler *Reconciler
	controller controller.Controller
	cache      cache.Cache
	mapper     meta.RESTMapper
}

var _ manager.Runnable = (*jobSetWatch)(nil)

func (js *jobSetWatch) Start(ctx context.Context) error {
	for {
		served, err := servesJobSet(js.mapper)
		if served {
			break
		}
		if err != nil {
			ctrl.Log.Error(err, "ask the API server for JobSet")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(jobSetPeriod):
		}
	}
	if err := js.controller.Watch(source.Kind[client.Object](js.cache, &jobset.JobSet{}, js.reconciler.workloads())); err != nil {
		return fmt.Errorf("watch JobSets: %w", err)
	}
	js.reconciler.cluster.jobSets.Store(true)
	if err := js.controller.Watch(source.Func(js.reconciler.enqueueAll)); err != nil {
		return fmt.Errorf("look at the TrainJobs that waited for JobSet: %w", err)
	}
	<-ctx.Done()
	return nil
}
