// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/diagnosis"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
	"github.com/trireme-mpi/trireme/internal/kube/partial"
	"github.com/trireme-mpi/trireme/internal/operator/reports"
)

// Reconciler runs the jobs of one kind, from submission until they have finished. It
// only does I/O: package plan decides which objects must exist, and package diagnosis
// what the status is.
type Reconciler struct {
	client.Client
	// Live reads from the API server, not from the cache.
	Live  client.Reader
	Clock clock.PassiveClock
	// Timeouts is how long jobs may wait for conditions that can resolve by themselves.
	Timeouts diagnosis.Timeouts

	kind kind
	// kinds are all kinds of jobs: the jobs of a namespace share its quotas.
	kinds    []kind
	cluster  *clusterInfo
	recorder events.EventRecorder
	reporter *reporter
	memory   memory
	// reports has what jobs have reported, and reported the jobs whose status should show
	// it. Both are nil if no reports are received.
	reports  *reports.Store
	reported chan event.GenericEvent
	// snapshots are the runtimes of TrainJobs; nil for other kinds.
	snapshots *snapshots
}

const (
	// conflictPause is how long the cache has to catch up.
	conflictPause = 20 * time.Millisecond
	// podCountPatience is how long the status of a starting job may lag behind the number
	// of its pods.
	podCountPatience = 3 * time.Second
	// firstRetryPause is when a new job is first checked again for what it waits for.
	firstRetryPause = 100 * time.Millisecond
	// deletionPause is how often the operator checks whether a deletion has finished.
	deletionPause = 500 * time.Millisecond
)

// +kubebuilder:rbac:groups=kubeflow.org,resources=mpijobs;trainjobs,verbs=delete
// +kubebuilder:rbac:groups=kubeflow.org,resources=mpijobs/status;trainjobs/status,verbs=update
// +kubebuilder:rbac:groups=kubeflow.org,resources=mpijobs/finalizers;trainjobs/finalizers,verbs=update

// Reconcile brings one job closer to its desired state.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	object, err := r.read(ctx, request.NamespacedName)
	if err != nil {
		if apierrors.IsNotFound(err) {
			return r.cleanUp(ctx, request)
		}
		return ctrl.Result{}, err
	}
	// Owner references delete the objects of a job that is being deleted.
	if object.GetDeletionTimestamp() != nil {
		return ctrl.Result{}, r.releaseAll(ctx, request.NamespacedName)
	}
	object = r.memory.writes.newest(writtenKey{job: object.GetUID()}, object)
	if ours, err := r.runs(ctx, object); err != nil || !ours {
		return ctrl.Result{}, err
	}
	// A job that looks foreign and is ours gets its name once it has a status.
	isUnnamed := r.kind.isForeign(object)
	if r.kind.lacksName(object) {
		object = r.writeName(ctx, object)
		isUnnamed = r.kind.lacksName(object)
	}
	result, err := r.reconcileObject(ctx, object)
	if isUnnamed && (result.RequeueAfter == 0 || result.RequeueAfter > namingPause) {
		result.RequeueAfter = namingPause
	}
	if apierrors.IsConflict(err) {
		// Another client has updated the job. The cache shows it soon.
		return ctrl.Result{RequeueAfter: conflictPause}, nil
	}
	return result, err
}

// cleanUp handles a request for a job that does not exist. Snapshots of runtimes are in
// the same queue, under their own names.
func (r *Reconciler) cleanUp(ctx context.Context, request ctrl.Request) (result ctrl.Result, err error) {
	if r.snapshots != nil && plan.IsSnapshotName(request.Name) {
		result.RequeueAfter, err = r.snapshots.sweep(ctx, request.NamespacedName)
	}
	return result, errors.Join(err, r.releaseAll(ctx, request.NamespacedName))
}

// read reads a job from the cache. The cache has only parts of a large job, which is
// then read from the API server.
func (r *Reconciler) read(ctx context.Context, key client.ObjectKey) (client.Object, error) {
	object := r.kind.empty()
	if err := r.Get(ctx, key, object); err != nil {
		return nil, err
	}
	if r.isOfOthers(object) {
		// Most JobSets of a cluster may be those of others: they are not read again.
		return object, nil
	}
	return object, partial.Complete(ctx, r.Live, object)
}

// reconcileObject builds the model of a job and reconciles it.
func (r *Reconciler) reconcileObject(ctx context.Context, object client.Object) (ctrl.Result, error) {
	if partial.Is(object) {
		// A job without its spec would look like one without workers.
		return ctrl.Result{}, fmt.Errorf("%s %s/%s was read without its spec", r.kind.name(), object.GetNamespace(), object.GetName())
	}
	j, obstacle, err := r.kind.model(ctx, object)
	if err != nil {
		return ctrl.Result{}, err
	}
	if j == nil {
		return r.reportObstacle(ctx, object, *obstacle)
	}
	result, err := r.reconcileJob(ctx, object, j)
	// There is no event for a snapshot that is deleted before the cache has shown it.
	if r.snapshots.isUnseen(ctx, j) && (result.RequeueAfter == 0 || result.RequeueAfter > cachePatience) {
		result.RequeueAfter = cachePatience
	}
	return result, err
}

func (r *Reconciler) reconcileJob(ctx context.Context, object client.Object, j *job.Job) (ctrl.Result, error) {
	scope := &scope{object: object, job: j, previous: r.kind.previous(object)}
	if diagnosis.Expired(j, scope.previous, r.Clock.Now()) {
		return ctrl.Result{}, r.expire(ctx, object)
	}
	if err := r.gather(ctx, scope); err != nil {
		return ctrl.Result{}, err
	}
	if err := r.releaseLeftovers(ctx, j, scope.leftovers); err != nil {
		return ctrl.Result{}, err
	}
	var err error
	if scope.env, scope.observed.Obstacle, err = r.cluster.environmentOf(ctx, j, scope.previous); err != nil {
		return ctrl.Result{}, err
	}
	if scope.observed.Obstacle == nil {
		scope.observed.Obstacle = r.memory.obstacles.answer(j.UID)
	}
	scope.observed.GangMessage = scope.env.gangMessage
	scope.observed.Reported = r.reportedOf(scope)
	verdict, err := r.diagnose(ctx, scope)
	if err != nil {
		return ctrl.Result{}, err
	}
	r.reporter.metrics.starts.observe(j.UID, scope.previous, &verdict, r.Clock.Now())
	// The verdict is from the API server and the cache lags behind it: the next reconcile
	// would revert the status.
	if scope.observed.Confirmed && verdict.Stage != plan.Finished && verdict.Stage != plan.Restarting && !scope.observed.ScaleUp {
		return ctrl.Result{RequeueAfter: min(cmp.Or(verdict.NextCheck, conflictPause), deletionPause)}, nil
	}
	// While pods are created or deleted, only a count in the status changes. It is
	// written once, with the last pod.
	creating := r.isCreatingPods(scope, &verdict)
	if !creating && (!scope.previous.Finished() || !arePodsTerminating(scope.observed)) {
		if err := r.writeStatus(ctx, scope, &verdict); err != nil {
			return ctrl.Result{}, err
		}
		r.memory.podCounts.wrote(j.UID, countPods(scope.observed))
	}
	if !scope.previous.Finished() && verdict.Stage == plan.Finished {
		// Many jobs may finish at once, when a node is lost. All statuses are written
		// before the first job is cleaned up.
		return ctrl.Result{RequeueAfter: time.Millisecond, Priority: new(0)}, nil
	}
	result, err := r.carryOut(ctx, scope, verdict)
	if creating && err != nil && !apierrors.IsConflict(err) {
		// The pods may never be created.
		return ctrl.Result{}, errors.Join(err, r.writeStatus(ctx, scope, &verdict))
	}
	if creating && (result.RequeueAfter == 0 || result.RequeueAfter > podCountPatience) {
		result.RequeueAfter = podCountPatience
	}
	if err == nil && !creating {
		err = r.writeWorkloadStatus(ctx, scope, &verdict)
	}
	return result, err
}

// isCreatingPods reports whether the pods of a job are about to be created, or were
// created less than podCountPatience ago.
func (r *Reconciler) isCreatingPods(scope *scope, verdict *diagnosis.Verdict) bool {
	previous := &scope.previous
	// The status of a resumed job must change before the job has pods again.
	if previous.Suspended || previous.QuotaWait != nil || scope.observed.Obstacle != nil || verdict.Phase != training.PhasePending ||
		verdict.Stage != plan.Active || verdict.Gang.Reason != diagnosis.CreatingPods {
		return false
	}
	if changing, known := r.memory.podCounts.isChanging(scope.job.UID, countPods(scope.observed), r.Clock.Now()); known {
		return changing
	}
	return previous.Phase == "" && !r.isComplete(scope, stateOf(scope, verdict))
}

// carryOut creates and deletes what a verdict calls for. A refusal of the API server
// leads to another verdict.
func (r *Reconciler) carryOut(ctx context.Context, scope *scope, verdict diagnosis.Verdict) (ctrl.Result, error) {
	refusal, err := r.apply(ctx, scope, &verdict)
	obstacle, isObstacle := errors.AsType[*temporaryObstacle](err)
	r.memory.obstacles.put(scope.job.UID, obstacle)
	if isObstacle {
		return ctrl.Result{RequeueAfter: deletionPause}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	if refusal != nil {
		scope.observed.Refusal = refusal
		scope.previous = r.kind.previous(scope.object)
		verdict = diagnosis.Of(scope.job, scope.previous, scope.observed)
		if err := r.writeStatus(ctx, scope, &verdict); err != nil {
			return ctrl.Result{}, err
		}
		if verdict.Stage != plan.Active && verdict.Stage != plan.Initializing {
			// The reason is in the status: the objects that were created so far can be
			// deleted.
			return ctrl.Result{RequeueAfter: time.Millisecond}, nil
		}
	}
	err = r.nudge(ctx, scope, &verdict)
	return ctrl.Result{RequeueAfter: verdict.NextCheck}, err
}

// expire deletes a job whose TTL has passed. The precondition protects a newer job of
// the same name.
func (r *Reconciler) expire(ctx context.Context, object client.Object) error {
	uid := object.GetUID()
	err := r.Delete(ctx, object, client.PropagationPolicy(metav1.DeletePropagationBackground), client.Preconditions{UID: &uid})
	return client.IgnoreNotFound(err)
}

// diagnose repeats the diagnosis with the facts that it asks for, until it is complete.
func (r *Reconciler) diagnose(ctx context.Context, scope *scope) (diagnosis.Verdict, error) {
	for {
		verdict := diagnosis.Of(scope.job, scope.previous, scope.observed)
		var err error
		switch verdict.Lookup {
		case diagnosis.LookupNodes:
			err = r.countNodes(ctx, scope.job, &scope.observed)
		case diagnosis.LookupConfirmation:
			err = r.confirm(ctx, scope)
		default:
			return verdict, nil
		}
		if err != nil {
			return verdict, err
		}
	}
}

// writeStatus updates the status if the verdict changes it, and then writes events,
// metrics and audit lines.
func (r *Reconciler) writeStatus(ctx context.Context, scope *scope, verdict *diagnosis.Verdict) error {
	j := scope.job
	changed := scope.object.DeepCopyObject().(client.Object)
	r.kind.setStatus(changed, j, verdict, metav1.Time{Time: r.Clock.Now()})
	if apiequality.Semantic.DeepEqual(scope.object, changed) {
		return nil
	}
	err := r.kind.write(ctx, r.Client, scope.object, changed)
	if apierrors.IsNotFound(err) {
		// The job was deleted. The cache shows it soon.
		err = apierrors.NewConflict(groupResource(j), j.Name, err)
	}
	if err != nil {
		return fmt.Errorf("write the status of %s %s/%s: %w", j.Kind, j.Namespace, j.Name, err)
	}
	r.memory.writes.add(writtenKey{job: j.UID}, changed)
	if verdict.Stage == plan.Finished {
		r.reports.Finish(j.UID)
	}
	r.reporter.report(changed, j, scope.previous, verdict, r.recorder)
	scope.object = changed
	if j.Kind.Traits().IsWorkload {
		scope.workload = changed
	}
	return nil
}

// reportObstacle writes into the status why a job cannot start yet.
func (r *Reconciler) reportObstacle(ctx context.Context, object client.Object, obstacle diagnosis.Condition) (ctrl.Result, error) {
	bare := &job.Job{Kind: r.kind.name(), Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID()}
	scope := &scope{object: object, job: bare, previous: r.kind.previous(object)}
	if scope.previous.Finished() {
		return ctrl.Result{}, nil
	}
	verdict := diagnosis.Blocked(scope.previous, obstacle)
	// What a new job waits for is often created in the same second.
	age := max(r.Clock.Now().Sub(object.GetCreationTimestamp().Time), firstRetryPause)
	return ctrl.Result{RequeueAfter: min(verdict.NextCheck, age)}, r.writeStatus(ctx, scope, &verdict)
}

func countPods(observed diagnosis.Observed) int {
	return len(observed.Launchers) + len(observed.Workers)
}

func arePodsTerminating(observed diagnosis.Observed) bool {
	return slices.ContainsFunc(slices.Concat(observed.Launchers, observed.Workers), func(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil })
}

// stateOf is the state of a job as an input of the plan.
func stateOf(scope *scope, verdict *diagnosis.Verdict) plan.State {
	observed := &scope.observed
	state := plan.State{
		Stage: verdict.Stage, WorkersReady: verdict.WorkersReady.Yes,
		LauncherDone: verdict.Stage == plan.Finished && diagnosis.LauncherEnded(scope.job, scope.previous, *observed),
		Launchers:    observed.Launchers, Workers: observed.Workers, Initializers: observed.Initializers, Addresses: scope.addresses,
	}
	if verdict.Restart != nil {
		state.Restart = verdict.Restart.Count
	}
	if scope.workload != nil {
		state.Workload = scope.workload.GetUID()
	}
	return state
}
