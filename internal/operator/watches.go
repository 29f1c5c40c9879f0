// SPDX-License-Identifier: Apache-2.0

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
	"github.com/trireme-mpi/trireme/internal/operator/reports"
)

const (
	// jobSetPeriod is how often a cluster without JobSet is checked for it.
	jobSetPeriod = 15 * time.Second
	// workerEventDelay is how long events of workers are collected before a job is
	// reconciled: a hundred workers may start at once.
	workerEventDelay = 100 * time.Millisecond
	// finishedPodPriority is the priority of jobs with a finished pod; others have 0.
	finishedPodPriority = 1
	// maxRetryDelay limits the backoff after errors.
	maxRetryDelay = 30 * time.Second
)

// CachedKinds limits the cache to objects of jobs, and to the fields that are read.
// JobSet is not among them: in a cluster without it, a cache with a selector for it would
// not start.
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

// trimPod drops the fields of a pod that are not read.
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

// addReconcilers makes the manager run the jobs of all kinds.
func addReconcilers(manager ctrl.Manager, settings *config.Config, audit *admission.Audit, registry prometheus.Registerer, port *reportPort) error {
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
	if port != nil {
		if err := receiveReports(manager, port, reconcilers, registry); err != nil {
			return err
		}
	}
	// Whether the cluster has JobSet must be known before the first reconcile: otherwise
	// a running job would look like one without a JobSet.
	hasJobSet, err := servesJobSet(manager.GetRESTMapper())
	if err != nil {
		return fmt.Errorf("check whether the API server serves JobSet: %w", err)
	}
	for _, reconciler := range reconcilers {
		reconciler.cluster.jobSets.Store(hasJobSet)
		if err := reconciler.addTo(manager, int(settings.Reconcile.Workers)); err != nil {
			return fmt.Errorf("set up the reconciler of %s: %w", reconciler.kind.name(), err)
		}
	}
	return forgetNamespaces(manager.GetCache(), reconcilers)
}

// receiveReports makes the leader receive the reports of jobs.
func receiveReports(manager ctrl.Manager, port *reportPort, reconcilers []*Reconciler, registry prometheus.Registerer) error {
	store, err := reports.NewStore(clock.RealClock{}, registry)
	if err != nil {
		return err
	}
	addReports(store, reconcilers)
	for _, reconciler := range reconcilers {
		reconciler.cluster.reports = port
	}
	return port.serve(manager, store, newReportedJobs(reconcilers))
}

// forgetNamespaces drops the metrics of deleted namespaces: otherwise the number of
// series would grow without limit.
func forgetNamespaces(informers cache.Cache, reconcilers []*Reconciler) error {
	namespaces, err := informers.GetInformer(context.Background(), &corev1.Namespace{})
	if err != nil {
		return fmt.Errorf("watch namespaces: %w", err)
	}
	_, err = namespaces.AddEventHandler(toolscache.ResourceEventHandlerFuncs{DeleteFunc: func(deleted any) {
		key, err := toolscache.DeletionHandlingMetaNamespaceKeyFunc(deleted)
		if err != nil {
			return // client-go only passes objects and tombstones
		}
		for _, reconciler := range reconcilers {
			reconciler.reporter.metrics.forget(key)
			reconciler.reports.ForgetNamespace(key)
		}
	}})
	return err
}

// Parts are the dependencies of reconcilers: a manager's, or those of a simulation.
type Parts struct {
	Client    client.Client
	Live      client.Reader
	Clock     clock.PassiveClock
	Discovery discovery.DiscoveryInterface
	Recorder  events.EventRecorder
	Audit     *admission.Audit
	Registry  prometheus.Registerer
	Settings  *config.Config
	// HasJobSet is whether the cluster serves JobSet. A manager finds out by itself.
	HasJobSet bool
}

// NewReconcilers returns the reconcilers of all kinds.
func NewReconcilers(parts Parts) (reconcilers []*Reconciler, err error) {
	cluster, err := newClusterInfo(parts.Settings, parts.Client, parts.Discovery)
	if err != nil {
		return nil, err
	}
	cluster.jobSets.Store(parts.HasJobSet)
	defaults := parts.Settings.JobDefaults()
	timeouts := diagnosis.Timeouts{
		Image:   time.Duration(parts.Settings.Failures.ImagePullSeconds) * time.Second,
		Quota:   time.Duration(parts.Settings.Failures.QuotaSeconds) * time.Second,
		Restart: time.Duration(parts.Settings.Failures.RestartSeconds) * time.Second,
	}
	runtimes := newSnapshots(parts)
	kinds := []kind{mpiJobs{defaults, parts.Settings.MPIJobs.Manage}, trainJobs{parts.Client, runtimes, defaults, cluster}, jobSets{parts.Live, defaults, cluster}}
	for i, kind := range kinds {
		reporter, err := newReporter(kind, parts.Client, parts.Audit, parts.Registry)
		if err != nil {
			return nil, err
		}
		reconcilers = append(reconcilers, &Reconciler{
			Client: parts.Client, Live: parts.Live, Clock: parts.Clock, Timeouts: timeouts,
			kind: kind, kinds: kinds, cluster: cluster, recorder: parts.Recorder, reporter: reporter,
			snapshots: []*snapshots{nil, runtimes, nil}[i],
		})
	}
	return reconcilers, nil
}

// Watched is a kind of objects and the handler of their events.
type Watched struct {
	Object  client.Object
	Handler handler.EventHandler
}

// Watches are the kinds whose events enqueue jobs. The workload comes last: not every
// cluster has JobSet.
func (r *Reconciler) Watches() []Watched {
	watched := []Watched{
		{&corev1.Pod{}, r.pods()},
		{&discoveryv1.EndpointSlice{}, r.parts()},
	}
	isWorkload := r.kind.name().Traits().IsWorkload
	if !isWorkload {
		watched = append(watched, Watched{r.kind.empty(), r.jobs()})
	}
	if r.snapshots != nil {
		watched = append(watched, Watched{&appsv1.ControllerRevision{}, r.snapshots.watch()})
	}
	if r.kind.hasWorkloads() {
		watched = append(watched, Watched{r.kind.emptyWorkload(), r.workloadEvents()})
	}
	return watched
}

// workloadEvents handles events of workloads, some of which are jobs themselves.
func (r *Reconciler) workloadEvents() handler.EventHandler {
	if r.kind.name().Traits().IsWorkload {
		return r.jobs()
	}
	return r.workloads()
}

// addTo registers the reconciler with a manager.
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
	if r.reported != nil {
		building = building.WatchesRawSource(source.Channel(r.reported, &handler.EnqueueRequestForObject{}))
	}
	for _, watched := range r.Watches() {
		building = building.Watches(watched.Object, watched.Handler)
	}
	return building
}

// RetryPauses is the backoff after errors.
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

// jobs enqueues changed jobs. It also drops what the memory holds of deleted jobs, and
// writes that the cache shows now.
func (r *Reconciler) jobs() handler.EventHandler {
	enqueue := &handler.EnqueueRequestForObject{}
	// The operator itself writes the status.
	meaningful := predicate.Or(predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{})
	return handler.Funcs{
		GenericFunc: enqueue.Generic,
		CreateFunc: func(ctx context.Context, created event.CreateEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			if r.isOfOthers(created.Object) {
				return
			}
			r.snapshots.addJob(created.Object)
			enqueue.Create(ctx, created, queue)
		},
		UpdateFunc: func(ctx context.Context, changed event.UpdateEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			if r.isOfOthers(changed.ObjectNew) && r.isOfOthers(changed.ObjectOld) {
				return
			}
			// After a broken watch, a job that was deleted and created again looks like an update.
			recreated := changed.ObjectOld.GetUID() != changed.ObjectNew.GetUID()
			if recreated {
				r.forget(changed.ObjectOld, queue)
			}
			r.snapshots.addJob(changed.ObjectNew)
			r.memory.writes.newest(writtenKey{job: changed.ObjectNew.GetUID()}, changed.ObjectNew)
			if recreated || meaningful.Update(changed) {
				enqueue.Update(ctx, changed, queue)
			}
		},
		DeleteFunc: func(ctx context.Context, deleted event.DeleteEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			r.forget(deleted.Object, queue)
			// The launcher may still have a finalizer.
			enqueue.Delete(ctx, deleted, queue)
		},
	}
}

// isOfOthers reports whether an object is a JobSet that is not a job: those of our own
// TrainJobs, and those that JobSet's controller runs.
func (r *Reconciler) isOfOthers(object client.Object) bool {
	return r.kind.name().Traits().IsWorkload && r.kind.isForeign(object)
}

// forget drops everything about a deleted job.
func (r *Reconciler) forget(deleted client.Object, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	r.memory.forget(deleted.GetUID())
	r.reports.Forget(deleted.GetUID())
	r.reporter.metrics.starts.take(deleted.GetUID())
	r.snapshots.forget(deleted, queue)
}

// requestFor returns the request for the job that an object's labels name.
func (r *Reconciler) requestFor(object client.Object) (request reconcile.Request, found bool) {
	labels := object.GetLabels()
	if labels[training.LabelJobType] != r.kind.name().Type() || labels[training.LabelJobName] == "" {
		return request, false
	}
	request.Namespace, request.Name = object.GetNamespace(), labels[training.LabelJobName]
	return request, true
}

// parts enqueues a job when one of its objects changes.
func (r *Reconciler) parts() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(_ context.Context, object client.Object) []reconcile.Request {
		if request, found := r.requestFor(object); found {
			return []reconcile.Request{request}
		}
		return nil
	})
}

// workloads enqueues a job when another client changes its workload.
func (r *Reconciler) workloads() handler.EventHandler {
	enqueue := r.parts()
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	return handler.Funcs{
		CreateFunc: enqueue.Create, DeleteFunc: enqueue.Delete, GenericFunc: enqueue.Generic,
		UpdateFunc: func(ctx context.Context, changed event.UpdateEvent, queue queue) {
			// The operator itself writes the status.
			isStatus := changed.ObjectOld.GetUID() == changed.ObjectNew.GetUID() && changed.ObjectOld.GetGeneration() == changed.ObjectNew.GetGeneration() &&
				changed.ObjectNew.GetDeletionTimestamp() == nil
			if !isStatus {
				enqueue.Update(ctx, changed, queue)
			}
		},
	}
}

// pods enqueues a job when one of its pods changes: at once if that may finish the job,
// else after workerEventDelay.
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

// haveAddresses reports whether all pods of a pod's job have addresses: the launcher
// waits for the last one.
func (r *Reconciler) haveAddresses(ctx context.Context, pod client.Object) bool {
	var pods corev1.PodList
	err := r.List(ctx, &pods, client.InNamespace(pod.GetNamespace()), client.MatchingFields{partOf: jobOfPart(pod)[0]}, client.UnsafeDisableDeepCopy)
	return err == nil && !slices.ContainsFunc(pods.Items, func(pod corev1.Pod) bool { return !hasAddress(&pod) })
}

func hasAddress(pod client.Object) bool { return len(pod.(*corev1.Pod).Status.PodIPs) > 0 }

// hasEnded reports whether a pod, or a container of it, has finished.
func hasEnded(pod *corev1.Pod) bool {
	if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		return true
	}
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(status corev1.ContainerStatus) bool { return status.State.Terminated != nil })
}

// addWithPriority enqueues a job in front of others, so that the end of a job is
// reported at once while many jobs start.
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
			ctrl.Log.Error(err, "check whether the API server serves JobSet")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(jobSetPeriod):
		}
	}
	if err := js.controller.Watch(source.Kind[client.Object](js.cache, &jobset.JobSet{}, js.reconciler.workloadEvents())); err != nil {
		return fmt.Errorf("watch JobSets: %w", err)
	}
	js.reconciler.cluster.jobSets.Store(true)
	if err := js.controller.Watch(source.Func(js.reconciler.enqueueAll)); err != nil {
		return fmt.Errorf("enqueue the jobs that waited for JobSet: %w", err)
	}
	<-ctx.Done()
	return nil
}
