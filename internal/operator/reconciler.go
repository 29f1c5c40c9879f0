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
	"github.com/trireme-mpi/trireme/internal/diagnosis"
	"github.com/trireme-mpi/trireme/internal/job"
	"github.com/trireme-mpi/trireme/internal/plan"
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
	// ImagePatience is how long a pod may wait for its image.
	ImagePatience time.Duration

	kind      kind
	cluster   *surroundings
	recorder  events.EventRecorder
	record    *record
	submitted recently
	deletions deletions
}

const (
	// conflictPause is how long the cache has to catch up.
	conflictPause = 20 * time.Millisecond
	// comingPatience is how long the status of a job that starts may be behind the number
	// of its pods.
	comingPatience = time.Second
	// deletionPause is how often it is looked whether what is being deleted is gone.
	deletionPause = 500 * time.Millisecond
)

// +kubebuilder:rbac:groups=kubeflow.org,resources=mpijobs;trainjobs,verbs=delete
// +kubebuilder:rbac:groups=kubeflow.org,resources=mpijobs/status;trainjobs/status,verbs=update
// +kubebuilder:rbac:groups=kubeflow.org,resources=mpijobs/finalizers;trainjobs/finalizers,verbs=update

// Reconcile looks at one job.
func (reconciler *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	object := reconciler.kind.empty()
	if err := reconciler.Get(ctx, request.NamespacedName, object); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	object = reconciler.submitted.newest(object)
	// What belongs to a job that is being deleted goes with it, by its owner
	// references.
	if object.GetDeletionTimestamp() != nil || reconciler.kind.isForeign(object) {
		return ctrl.Result{}, nil
	}
	result, err := reconciler.look(ctx, object)
	if apierrors.IsConflict(err) {
		// Somebody else wrote to the job: the cache will show it in a moment.
		return ctrl.Result{RequeueAfter: conflictPause}, nil
	}
	return result, err
}

// look tells what the job is, and does what there is to do.
func (reconciler *Reconciler) look(ctx context.Context, object client.Object) (ctrl.Result, error) {
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
	return reconciler.reconcile(ctx, object, made)
}

func (reconciler *Reconciler) reconcile(ctx context.Context, object client.Object, made *job.Job) (ctrl.Result, error) {
	previous := reconciler.kind.previous(object)
	if diagnosis.Expired(made, previous, reconciler.Clock.Now()) {
		return ctrl.Result{}, reconciler.expire(ctx, object)
	}
	seen, err := reconciler.gather(ctx, object, made)
	if err != nil {
		return ctrl.Result{}, err
	}
	in, obstacle, err := reconciler.cluster.of(ctx, made, previous)
	if err != nil {
		return ctrl.Result{}, err
	}
	if obstacle == nil {
		obstacle = reconciler.submitted.obstacle(made.UID)
	}
	seen.GangWords, seen.Obstacle = in.gangWords, obstacle
	verdict, err := reconciler.diagnose(ctx, object, made, previous, &seen)
	if err != nil {
		return ctrl.Result{}, err
	}
	// The cache is behind what was read past it: said now, it would be taken back by
	// the next look.
	if seen.Confirmed && verdict.Stage != plan.Finished && !seen.ScaleUp {
		return ctrl.Result{RequeueAfter: min(cmp.Or(verdict.NextCheck, conflictPause), deletionPause)}, nil
	}
	// Of a job that has ended, only a count changes with each pod that goes, and of one
	// that starts with each pod that comes: it is written with the last one.
	coming := reconciler.arePodsComing(made, previous, seen, &verdict)
	if !coming && (!previous.Finished() || !arePodsGoing(seen)) {
		if object, err = reconciler.writeStatus(ctx, object, made, previous, &verdict); err != nil {
			return ctrl.Result{}, err
		}
		reconciler.submitted.tell(made.UID, podsOf(seen))
	}
	if verdict.Stage == plan.Finished || verdict.Stage == plan.Suspended {
		reconciler.deletions.forget(client.ObjectKeyFromObject(object))
	}
	if !previous.Finished() && verdict.Stage == plan.Finished {
		// Many jobs may end at the same moment, when a node is lost: all are told
		// before the first one is cleared up.
		return ctrl.Result{RequeueAfter: time.Millisecond, Priority: new(0)}, nil
	}
	result, err := reconciler.carryOut(ctx, object, made, seen, verdict, in)
	if coming && err != nil {
		// They may not come at all.
		_, unwritten := reconciler.writeStatus(ctx, object, made, previous, &verdict)
		return ctrl.Result{}, errors.Join(err, unwritten)
	}
	if coming && (result.RequeueAfter == 0 || result.RequeueAfter > comingPatience) {
		result.RequeueAfter = comingPatience
	}
	return result, err
}

// arePodsComing tells whether the pods of a job are about to be created, or were a
// moment ago.
func (reconciler *Reconciler) arePodsComing(made *job.Job, previous diagnosis.Previous, seen diagnosis.Observed, verdict *diagnosis.Verdict) bool {
	// That a job was suspended must be unsaid before it has pods again.
	if previous.Suspended || previous.Queued || seen.Obstacle != nil || verdict.Phase != training.PhasePending ||
		verdict.Stage != plan.Active || verdict.Gang.Reason != diagnosis.CreatingPods {
		return false
	}
	if news, known := reconciler.submitted.areNews(made.UID, podsOf(seen), reconciler.Clock.Now()); known {
		return news
	}
	return previous.Phase == "" && !reconciler.isComplete(made, stateOf(made, seen, verdict), seen)
}

// carryOut makes what a verdict calls for. What the API server refuses for good
// makes another verdict.
func (reconciler *Reconciler) carryOut(ctx context.Context, object client.Object, made *job.Job, seen diagnosis.Observed, verdict diagnosis.Verdict, in around) (ctrl.Result, error) {
	refusal, err := reconciler.apply(ctx, made, seen, &verdict, in)
	wait, hindered := errors.AsType[*notYet](err)
	reconciler.submitted.obstruct(made.UID, wait)
	if hindered {
		return ctrl.Result{RequeueAfter: deletionPause}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	if refusal != nil {
		seen.Refusal = refusal
		previous := reconciler.kind.previous(object)
		verdict = diagnosis.Of(made, previous, seen)
		if _, err = reconciler.writeStatus(ctx, object, made, previous, &verdict); err != nil {
			return ctrl.Result{}, err
		}
		// What was made so far goes, now that the reason is written down.
		if _, err = reconciler.apply(ctx, made, seen, &verdict, in); err != nil {
			return ctrl.Result{}, err
		}
	}
	err = reconciler.nudge(ctx, made, seen, &verdict, in)
	return ctrl.Result{RequeueAfter: verdict.NextCheck}, err
}

// expire deletes a job that has outlived itself, and no other of its name.
func (reconciler *Reconciler) expire(ctx context.Context, object client.Object) error {
	uid := object.GetUID()
	err := reconciler.Delete(ctx, object, client.PropagationPolicy(metav1.DeletePropagationBackground), client.Preconditions{UID: &uid})
	return client.IgnoreNotFound(err)
}

// diagnose asks what must be found out until the verdict stands.
func (reconciler *Reconciler) diagnose(ctx context.Context, object client.Object, made *job.Job, previous diagnosis.Previous, seen *diagnosis.Observed) (diagnosis.Verdict, error) {
	for {
		verdict := diagnosis.Of(made, previous, *seen)
		var err error
		switch verdict.Ask {
		case diagnosis.AskNodes:
			err = reconciler.countNodes(ctx, made, seen)
		case diagnosis.AskConfirmation:
			err = reconciler.confirm(ctx, object, made, seen)
		default:
			return verdict, nil
		}
		if err != nil {
			return verdict, err
		}
	}
}

// writeStatus stores a verdict if it says something new, and tells those who
// want to know. It returns the object as it is stored.
func (reconciler *Reconciler) writeStatus(ctx context.Context, object client.Object, made *job.Job, previous diagnosis.Previous, verdict *diagnosis.Verdict) (client.Object, error) {
	changed := object.DeepCopyObject().(client.Object)
	reconciler.kind.setStatus(changed, made, verdict, metav1.Time{Time: reconciler.Clock.Now()})
	if apiequality.Semantic.DeepEqual(object, changed) {
		return object, nil
	}
	err := reconciler.Status().Update(ctx, changed)
	if apierrors.IsNotFound(err) {
		// The cache will show in a moment that the job is gone.
		err = apierrors.NewConflict(groupResource(made), made.Name, err)
	}
	if err != nil {
		return nil, fmt.Errorf("write the status of %s %s/%s: %w", made.Kind, made.Namespace, made.Name, err)
	}
	reconciler.submitted.wrote(changed)
	reconciler.record.note(changed, made, previous, verdict, reconciler.recorder)
	return changed, nil
}

// hindered says why a job cannot begin, and looks again later.
func (reconciler *Reconciler) hindered(ctx context.Context, object client.Object, obstacle diagnosis.Answer) (ctrl.Result, error) {
	bare := &job.Job{Kind: reconciler.kind.name(), Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID()}
	previous := reconciler.kind.previous(object)
	if previous.Finished() {
		return ctrl.Result{}, nil
	}
	verdict := diagnosis.Hindered(previous, obstacle)
	_, err := reconciler.writeStatus(ctx, object, bare, previous, &verdict)
	return ctrl.Result{RequeueAfter: verdict.NextCheck}, err
}

func podsOf(seen diagnosis.Observed) int { return len(seen.Launchers) + len(seen.Workers) }

func arePodsGoing(seen diagnosis.Observed) bool {
	return slices.ContainsFunc(slices.Concat(seen.Launchers, seen.Workers), func(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil })
}

// stateOf is what the plan must know of the pods.
func stateOf(made *job.Job, seen diagnosis.Observed, verdict *diagnosis.Verdict) plan.State {
	return plan.State{
		Stage: verdict.Stage, WorkersReady: verdict.WorkersReady.Yes, Workers: seen.Workers,
		// A launcher that was done may be lost with its node before its Job knows: the Job
		// would try another.
		LauncherActive:    verdict.Stage == plan.Finished && seen.Workload.Exists && !seen.Workload.Complete && seen.Workload.Failed == "" && !diagnosis.LauncherEnded(made, seen),
		InitializerActive: seen.Fetching.Exists && !seen.Fetching.Complete && seen.Fetching.Failed == "",
		WorkloadEnds:      seen.Workload.Complete || seen.Workload.Failed != "" || diagnosis.EndsByItself(made, seen),
	}
}
