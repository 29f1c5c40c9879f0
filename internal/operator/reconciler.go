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

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/diagnosis"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
	"github.com/trireme-mpi/trireme/internal/kube/partial"
)

// Reconciler brings the jobs of one kind from submit to finish. It only does
// I/O: what must exist is the plan's to say, and how a job stands the
// diagnosis's.
type Reconciler struct {
	client.Client
	// Live reads past the cache.
	Live client.Reader
	// Clock is the operator's time; tests have another.
	Clock clock.PassiveClock
	// Patience is how long jobs may wait for what may come by itself.
	Patience diagnosis.Patience

	kind kind
	// kinds are all kinds of jobs: those of one namespace share its quotas.
	kinds     []kind
	cluster   *surroundings
	recorder  events.EventRecorder
	record    *record
	submitted recently
	// snapshots are the runtimes of TrainJobs; nil for other kinds.
	snapshots *snapshots
}

const (
	// conflictPause is how long the cache has to catch up.
	conflictPause = 20 * time.Millisecond
	// comingPatience is how long the status of a job that starts may be behind the number
	// of its pods.
	comingPatience = 3 * time.Second
	// deletionPause is how often it is looked whether what is being deleted is gone.
	deletionPause = 500 * time.Millisecond
)

// +kubebuilder:rbac:groups=kubeflow.org,resources=mpijobs;trainjobs,verbs=delete
// +kubebuilder:rbac:groups=kubeflow.org,resources=mpijobs/status;trainjobs/status,verbs=update
// +kubebuilder:rbac:groups=kubeflow.org,resources=mpijobs/finalizers;trainjobs/finalizers,verbs=update

// Reconcile looks at one job.
func (reconciler *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	object, err := reconciler.read(ctx, request.NamespacedName)
	if err != nil {
		if apierrors.IsNotFound(err) {
			return reconciler.clearUp(ctx, request)
		}
		return ctrl.Result{}, err
	}
	// What belongs to a job that is being deleted is deleted with it, by its owner
	// references.
	if object.GetDeletionTimestamp() != nil {
		return ctrl.Result{}, reconciler.releaseAll(ctx, request.NamespacedName)
	}
	object = reconciler.submitted.newest(writtenKey{job: object.GetUID()}, object)
	if reconciler.kind.isForeign(object) {
		return ctrl.Result{}, nil
	}
	result, err := reconciler.look(ctx, object)
	if apierrors.IsConflict(err) {
		// Somebody else wrote to the job: the cache will show it in a moment.
		return ctrl.Result{RequeueAfter: conflictPause}, nil
	}
	return result, err
}

// clearUp is for what has no job. Snapshots of runtimes are looked at by the same
// queue, under their own names.
func (reconciler *Reconciler) clearUp(ctx context.Context, request ctrl.Request) (result ctrl.Result, err error) {
	if reconciler.snapshots != nil && plan.IsSnapshotName(request.Name) {
		result.RequeueAfter, err = reconciler.snapshots.sweep(ctx, request.NamespacedName)
	}
	return result, errors.Join(err, reconciler.releaseAll(ctx, request.NamespacedName))
}

// read is a job as the cache has it. Of a large one the cache has only a part, and it
// is read from the API server.
func (reconciler *Reconciler) read(ctx context.Context, key client.ObjectKey) (client.Object, error) {
	object := reconciler.kind.empty()
	if err := reconciler.Get(ctx, key, object); err != nil {
		return nil, err
	}
	return object, partial.Complete(ctx, reconciler.Live, object)
}

// look tells what the job is, and does what there is to do.
func (reconciler *Reconciler) look(ctx context.Context, object client.Object) (ctrl.Result, error) {
	if partial.Is(object) {
		// A job without its spec would be taken for one without workers.
		return ctrl.Result{}, fmt.Errorf("%s %s/%s was not read as a whole", reconciler.kind.name(), object.GetNamespace(), object.GetName())
	}
	made, obstacle, err := reconciler.kind.model(ctx, object)
	if wait, hindered := errors.AsType[*notYet](err); hindered {
		_, err = reconciler.hindered(ctx, object, *wait.answer())
		return ctrl.Result{RequeueAfter: deletionPause}, err
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	if made == nil {
		return reconciler.hindered(ctx, object, *obstacle)
	}
	result, err := reconciler.reconcile(ctx, object, made)
	// Nothing tells of a snapshot that was deleted before the cache had shown it.
	if reconciler.snapshots.isUnseen(ctx, made) && (result.RequeueAfter == 0 || result.RequeueAfter > cachePatience) {
		result.RequeueAfter = cachePatience
	}
	return result, err
}

func (reconciler *Reconciler) reconcile(ctx context.Context, object client.Object, made *job.Job) (ctrl.Result, error) {
	scope := &scope{object: object, job: made, previous: reconciler.kind.previous(object)}
	if diagnosis.Expired(made, scope.previous, reconciler.Clock.Now()) {
		return ctrl.Result{}, reconciler.expire(ctx, object)
	}
	if err := reconciler.gather(ctx, scope); err != nil {
		return ctrl.Result{}, err
	}
	if err := reconciler.releaseLeftovers(ctx, made, scope.leftovers); err != nil {
		return ctrl.Result{}, err
	}
	var err error
	if scope.in, scope.seen.Obstacle, err = reconciler.cluster.of(ctx, made, scope.previous); err != nil {
		return ctrl.Result{}, err
	}
	if scope.seen.Obstacle == nil {
		scope.seen.Obstacle = reconciler.submitted.obstacle(made.UID)
	}
	scope.seen.GangMessage = scope.in.gangWords
	verdict, err := reconciler.diagnose(ctx, scope)
	if err != nil {
		return ctrl.Result{}, err
	}
	reconciler.record.metrics.starts.look(made.UID, scope.previous, &verdict, reconciler.Clock.Now())
	// The cache is behind what was read past it: said now, it would be taken back by
	// the next look.
	if scope.seen.Confirmed && verdict.Stage != plan.Finished && verdict.Stage != plan.Restarting && !scope.seen.ScaleUp {
		return ctrl.Result{RequeueAfter: min(cmp.Or(verdict.NextCheck, conflictPause), deletionPause)}, nil
	}
	// Of a job that has finished, only a count changes with each pod that is deleted, and
	// of one that starts with each pod that is created: it is written with the last one.
	coming := reconciler.arePodsComing(scope, &verdict)
	if !coming && (!scope.previous.Finished() || !arePodsGoing(scope.seen)) {
		if err := reconciler.writeStatus(ctx, scope, &verdict); err != nil {
			return ctrl.Result{}, err
		}
		reconciler.submitted.tell(made.UID, podsOf(scope.seen))
	}
	if !scope.previous.Finished() && verdict.Stage == plan.Finished {
		// Many jobs may finish at the same moment, when a node is lost: all are told
		// before the first one is cleaned up.
		return ctrl.Result{RequeueAfter: time.Millisecond, Priority: new(0)}, nil
	}
	result, err := reconciler.carryOut(ctx, scope, verdict)
	if coming && err != nil && !apierrors.IsConflict(err) {
		// They may not come at all.
		return ctrl.Result{}, errors.Join(err, reconciler.writeStatus(ctx, scope, &verdict))
	}
	if coming && (result.RequeueAfter == 0 || result.RequeueAfter > comingPatience) {
		result.RequeueAfter = comingPatience
	}
	if err == nil && !coming {
		err = reconciler.writeWorkloadStatus(ctx, scope, &verdict)
	}
	return result, err
}

// arePodsComing tells whether the pods of a job are about to be created, or were a
// moment ago.
func (reconciler *Reconciler) arePodsComing(scope *scope, verdict *diagnosis.Verdict) bool {
	previous := &scope.previous
	// That a job was suspended must be unsaid before it has pods again.
	if previous.Suspended || previous.QuotaWait != nil || scope.seen.Obstacle != nil || verdict.Phase != training.PhasePending ||
		verdict.Stage != plan.Active || verdict.Gang.Reason != diagnosis.CreatingPods {
		return false
	}
	if news, known := reconciler.submitted.areNews(scope.job.UID, podsOf(scope.seen), reconciler.Clock.Now()); known {
		return news
	}
	return previous.Phase == "" && !reconciler.isComplete(scope, stateOf(scope, verdict))
}

// carryOut does what a verdict calls for. What the API server refuses makes another
// verdict.
func (reconciler *Reconciler) carryOut(ctx context.Context, scope *scope, verdict diagnosis.Verdict) (ctrl.Result, error) {
	refusal, err := reconciler.apply(ctx, scope, &verdict)
	wait, hindered := errors.AsType[*notYet](err)
	reconciler.submitted.obstruct(scope.job.UID, wait)
	if hindered {
		return ctrl.Result{RequeueAfter: deletionPause}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	if refusal != nil {
		scope.seen.Refusal = refusal
		scope.previous = reconciler.kind.previous(scope.object)
		verdict = diagnosis.Of(scope.job, scope.previous, scope.seen)
		if err := reconciler.writeStatus(ctx, scope, &verdict); err != nil {
			return ctrl.Result{}, err
		}
		if verdict.Stage != plan.Active && verdict.Stage != plan.Initializing {
			// What was created so far is deleted, now that the reason is stored.
			return ctrl.Result{RequeueAfter: time.Millisecond}, nil
		}
	}
	err = reconciler.nudge(ctx, scope, &verdict)
	return ctrl.Result{RequeueAfter: verdict.NextCheck}, err
}

// expire deletes a job that has outlived itself, and no other of its name.
func (reconciler *Reconciler) expire(ctx context.Context, object client.Object) error {
	uid := object.GetUID()
	err := reconciler.Delete(ctx, object, client.PropagationPolicy(metav1.DeletePropagationBackground), client.Preconditions{UID: &uid})
	return client.IgnoreNotFound(err)
}

// diagnose asks what must be found out until the verdict stands.
func (reconciler *Reconciler) diagnose(ctx context.Context, scope *scope) (diagnosis.Verdict, error) {
	for {
		verdict := diagnosis.Of(scope.job, scope.previous, scope.seen)
		var err error
		switch verdict.Ask {
		case diagnosis.AskNodes:
			err = reconciler.countNodes(ctx, scope.job, &scope.seen)
		case diagnosis.AskConfirmation:
			err = reconciler.confirm(ctx, scope)
		default:
			return verdict, nil
		}
		if err != nil {
			return verdict, err
		}
	}
}

// writeStatus stores a verdict if it says something new, and tells those who
// want to know.
func (reconciler *Reconciler) writeStatus(ctx context.Context, scope *scope, verdict *diagnosis.Verdict) error {
	made := scope.job
	changed := scope.object.DeepCopyObject().(client.Object)
	reconciler.kind.setStatus(changed, made, verdict, metav1.Time{Time: reconciler.Clock.Now()})
	if apiequality.Semantic.DeepEqual(scope.object, changed) {
		return nil
	}
	err := reconciler.Status().Update(ctx, changed)
	if apierrors.IsNotFound(err) {
		// The cache will show in a moment that the job is gone.
		err = apierrors.NewConflict(groupResource(made), made.Name, err)
	}
	if err != nil {
		return fmt.Errorf("write the status of %s %s/%s: %w", made.Kind, made.Namespace, made.Name, err)
	}
	reconciler.submitted.wrote(writtenKey{job: made.UID}, changed)
	reconciler.record.note(changed, made, scope.previous, verdict, reconciler.recorder)
	scope.object = changed
	return nil
}

// hindered says why a job cannot begin, and looks again later.
func (reconciler *Reconciler) hindered(ctx context.Context, object client.Object, obstacle diagnosis.Answer) (ctrl.Result, error) {
	bare := &job.Job{Kind: reconciler.kind.name(), Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID()}
	scope := &scope{object: object, job: bare, previous: reconciler.kind.previous(object)}
	if scope.previous.Finished() {
		return ctrl.Result{}, nil
	}
	verdict := diagnosis.Blocked(scope.previous, obstacle)
	return ctrl.Result{RequeueAfter: verdict.NextCheck}, reconciler.writeStatus(ctx, scope, &verdict)
}

func podsOf(seen diagnosis.Observed) int { return len(seen.Launchers) + len(seen.Workers) }

func arePodsGoing(seen diagnosis.Observed) bool {
	return slices.ContainsFunc(slices.Concat(seen.Launchers, seen.Workers), func(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil })
}

// stateOf is what the plan must know of the pods.
func stateOf(scope *scope, verdict *diagnosis.Verdict) plan.State {
	seen := &scope.seen
	state := plan.State{
		Stage: verdict.Stage, WorkersReady: verdict.WorkersReady.Yes,
		LauncherDone: verdict.Stage == plan.Finished && diagnosis.LauncherEnded(scope.job, scope.previous, *seen),
		Launchers:    seen.Launchers, Workers: seen.Workers, Initializers: seen.Initializers, Addresses: scope.addresses,
	}
	if verdict.Restart != nil {
		state.Restart = verdict.Restart.Count
	}
	if scope.workload != nil {
		state.Workload = scope.workload.GetUID()
	}
	return state
}
