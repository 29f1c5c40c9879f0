package operator

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/agent"
	"github.com/trireme-mpi/trireme/internal/diagnosis"
	"github.com/trireme-mpi/trireme/internal/gang"
	"github.com/trireme-mpi/trireme/internal/job"
	"github.com/trireme-mpi/trireme/internal/plan"
	"github.com/trireme-mpi/trireme/internal/sshkey"
)

// +kubebuilder:rbac:groups="",resources=services;configmaps;persistentvolumeclaims,verbs=get;create
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;create;delete
// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,verbs=get;create
// +kubebuilder:rbac:groups=scheduling.x-k8s.io;scheduling.volcano.sh;scheduling.k8s.io,resources=podgroups,verbs=get;create;delete

const (
	// parallelCreates is how many pods of a job are created at a time.
	parallelCreates = 64
	// cachePatience is how long the cache may take to show what was created.
	cachePatience = 5 * time.Second
)

// apply makes what the plan says. A refusal is what the API server will not take
// however often it is asked.
func (reconciler *Reconciler) apply(ctx context.Context, made *job.Job, seen diagnosis.Observed, verdict *diagnosis.Verdict, in around) (*diagnosis.Refusal, error) {
	state := stateOf(made, seen, verdict)
	if in.Gang == nil {
		// Nothing can be made before the obstacle is out of the way; what is there
		// can go.
		if state.Stage == plan.Active || state.Stage == plan.Initializing {
			return nil, nil
		}
		in = in.withoutGang()
	}
	if state.Stage == plan.Active {
		if err := reconciler.stampClock(ctx, made, seen); err != nil {
			return nil, err
		}
	}
	held := state.Stage == plan.Active && plan.HoldsLauncherBack(made, state, in.Surroundings)
	if isThere(made, state, seen) || held && hasWorkers(made, seen) {
		return nil, nil
	}
	if reconciler.submitted.has(made.UID, state, reconciler.Clock.Now()) {
		lookAgain(verdict)
		return nil, nil
	}
	todo := plan.Of(made, state, in.Surroundings)
	if len(todo.Ensure) > 0 {
		reconciler.submitted.begin(made.UID)
	}
	refusal, err := reconciler.ensure(ctx, made, in, missing(seen, todo.Ensure))
	if refusal != nil || err != nil {
		return refusal, err
	}
	if len(todo.Ensure) > 0 {
		reconciler.submitted.add(made.UID, state, reconciler.Clock.Now())
		lookAgain(verdict)
	}
	return nil, reconciler.remove(ctx, made, seen, todo)
}

// missing are the objects that the cache does not show.
func missing(seen diagnosis.Observed, objects []gang.Object) []gang.Object {
	workers := map[string]bool{}
	for _, pod := range seen.Workers {
		workers[pod.Name] = true
	}
	return slices.DeleteFunc(objects, func(object gang.Object) bool {
		_, isPod := object.(*corev1.Pod)
		return isPod && workers[object.GetName()]
	})
}

// isComplete tells whether all that a job needs is there, or was created a
// moment ago.
func (reconciler *Reconciler) isComplete(made *job.Job, state plan.State, seen diagnosis.Observed) bool {
	return isThere(made, state, seen) || reconciler.submitted.has(made.UID, state, reconciler.Clock.Now())
}

// isThere tells whether the cache shows all that a job needs.
func isThere(made *job.Job, state plan.State, seen diagnosis.Observed) bool {
	switch state.Stage {
	case plan.Initializing:
		return seen.Fetching.Exists
	case plan.Active:
		return seen.Workload.Exists && hasWorkers(made, seen)
	default:
		return false
	}
}

// hasWorkers: those of a TrainJob are JobSet's to make.
func hasWorkers(made *job.Job, seen diagnosis.Observed) bool {
	return made.Kind == job.KindTrainJob || len(seen.Workers) >= int(made.Worker.Replicas)
}

// lookAgain: what was created and is not seen in time was deleted before anybody saw
// it, and nothing else will tell.
func lookAgain(verdict *diagnosis.Verdict) {
	if verdict.NextCheck == 0 || verdict.NextCheck > cachePatience {
		verdict.NextCheck = cachePatience
	}
}

// ensure creates what is not there: first what pods refer to, then the pods. What
// fails keeps nothing else from being made.
func (reconciler *Reconciler) ensure(ctx context.Context, made *job.Job, in around, objects []gang.Object) (*diagnosis.Refusal, error) {
	refusals := &firstRefusal{}
	group := errgroup.Group{}
	group.SetLimit(parallelCreates)
	for i, object := range objects {
		if i > 0 && makesPods(object) && !makesPods(objects[i-1]) {
			if err := group.Wait(); err != nil || refusals.found != nil {
				return refusals.found, err
			}
		}
		group.Go(func() error {
			refusal, err := reconciler.create(ctx, made, in, object)
			refusals.set(refusal)
			return err
		})
	}
	err := group.Wait()
	return refusals.found, err
}

// firstRefusal is the first of what several creations bring.
type firstRefusal struct {
	mutex sync.Mutex
	found *diagnosis.Refusal
}

func (first *firstRefusal) set(refusal *diagnosis.Refusal) {
	first.mutex.Lock()
	defer first.mutex.Unlock()
	if first.found == nil {
		first.found = refusal
	}
}

func makesPods(object gang.Object) bool {
	switch object.(type) {
	case *corev1.Pod, *batchv1.Job, *jobset.JobSet:
		return true
	}
	return false
}

func (reconciler *Reconciler) create(ctx context.Context, made *job.Job, in around, object client.Object) (*diagnosis.Refusal, error) {
	if secret, isSecret := object.(*corev1.Secret); isSecret {
		if err := fillKeys(secret); err != nil {
			return nil, err
		}
	}
	err := reconciler.Create(ctx, object)
	switch {
	case err == nil:
		return nil, nil
	case apierrors.IsAlreadyExists(err):
		return reconciler.whose(ctx, made, in, object)
	case apierrors.IsForbidden(err) || apierrors.IsInvalid(err):
		// A namespace that is going away takes nothing, and takes the job with it.
		if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return nil, nil
		}
		what := describe(reconciler.Scheme(), object)
		if lacksAccount(err.Error()) {
			return nil, &notYet{"NoServiceAccount", fmt.Sprintf("%s could not be created: %s. The job goes on when the account is there", what, err)}
		}
		if !lacksRight(err.Error()) {
			return &diagnosis.Refusal{
				Role: object.GetLabels()[training.LabelReplicaType], Object: what, Message: err.Error(), Quota: strings.Contains(err.Error(), exceededQuota),
			}, nil
		}
	}
	return nil, fmt.Errorf("create %s: %w", describe(reconciler.Scheme(), object), err)
}

// whose tells whether an object that is there already is the job's own.
func (reconciler *Reconciler) whose(ctx context.Context, made *job.Job, in around, object client.Object) (*diagnosis.Refusal, error) {
	there := object.DeepCopyObject().(client.Object)
	what := describe(reconciler.Scheme(), object)
	err := reconciler.Live.Get(ctx, client.ObjectKeyFromObject(object), there)
	if apierrors.IsNotFound(err) {
		// It went in between.
		return nil, waitFor(what)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", what, err)
	}
	if isOwned(there, made) && there.GetDeletionTimestamp() == nil {
		return nil, nil
	}
	if isOwned(there, made) || isLeftover(there, made) {
		return nil, waitFor(what)
	}
	if isGroup(in, object) {
		if found, known := in.Gang.MinMember(there); !known || found != made.Gang.MinMember {
			return &diagnosis.Refusal{Object: what, Message: fmt.Sprintf("PodGroup minMember mismatch: expected %d, got %d", made.Gang.MinMember, found)}, nil
		}
		return nil, nil
	}
	return &diagnosis.Refusal{Object: what, Message: "there is one of this name that does not belong to the job. Delete it, or give the job another name"}, nil
}

// isLeftover tells whether an object belonged to an earlier job of the same name.
// Whoever deletes a job and creates it anew need not wait for the garbage
// collector: we do.
func isLeftover(object client.Object, made *job.Job) bool {
	owner := metav1.GetControllerOf(object)
	return owner != nil && owner.Kind == string(made.Kind) && owner.Name == made.Name && owner.UID != made.UID
}

// notYet is an obstacle that goes away by itself.
type notYet struct{ reason, message string }

func (notYet *notYet) Error() string { return notYet.message }

func (notYet *notYet) answer() *diagnosis.Answer {
	return &diagnosis.Answer{Reason: notYet.reason, Message: notYet.message}
}

// waitFor is what must be gone before it can be made anew.
func waitFor(what string) *notYet {
	return &notYet{"WaitingForDeletion", what + " of an earlier start, or of an earlier job of the same name, is still going. The job goes on when it is gone"}
}

func isGroup(in around, object client.Object) bool {
	return in.Gang != nil && object.GetObjectKind().GroupVersionKind().Kind == in.Gang.GroupKind().Kind && in.Gang.GroupKind().Kind != ""
}

func describe(scheme *runtime.Scheme, object client.Object) string {
	kind := object.GetObjectKind().GroupVersionKind().Kind
	if kinds, _, err := scheme.ObjectKinds(object); kind == "" && err == nil && len(kinds) > 0 {
		kind = kinds[0].Kind
	}
	return fmt.Sprintf("%s %s", kind, object.GetName())
}

// fillKeys makes the job's keys.
func fillKeys(secret *corev1.Secret) error {
	user, err := sshkey.New(rand.Reader, sshkey.Default())
	if err != nil {
		return err
	}
	host, err := sshkey.New(rand.Reader, sshkey.Default())
	if err != nil {
		return err
	}
	secret.Data = map[string][]byte{
		agent.ClientKey: user.Private, agent.ClientPublicKey: user.Public, agent.AuthorizedKeys: user.Public,
		agent.HostKey: host.Private, agent.HostPublicKey: host.Public,
	}
	return nil
}

// remove deletes what must go, if it is the job's.
func (reconciler *Reconciler) remove(ctx context.Context, made *job.Job, seen diagnosis.Observed, todo plan.Plan) error {
	if len(todo.Remove) > 0 {
		reconciler.submitted.forget(made.UID)
	}
	if todo.StopLauncher {
		if err := reconciler.stopLauncher(ctx, made, seen); err != nil {
			return err
		}
	}
	group := errgroup.Group{}
	group.SetLimit(parallelCreates)
	for _, object := range todo.Remove {
		group.Go(func() error {
			gone, err := reconciler.isGone(ctx, made, seen, object)
			if gone || err != nil {
				return err
			}
			err = reconciler.Delete(ctx, object, client.PropagationPolicy(metav1.DeletePropagationBackground))
			if apierrors.IsNotFound(err) || err == nil {
				reconciler.submitted.removed(made.UID, object)
				return nil
			}
			return fmt.Errorf("delete %s: %w", describe(reconciler.Scheme(), object), err)
		})
	}
	return group.Wait()
}

// isGone tells whether there is nothing to delete, so that a job at rest costs
// nothing.
func (reconciler *Reconciler) isGone(ctx context.Context, made *job.Job, seen diagnosis.Observed, object client.Object) (bool, error) {
	switch object := object.(type) {
	case *corev1.Pod:
		for _, pod := range seen.Workers {
			if pod.Name == object.Name {
				return pod.DeletionTimestamp != nil || reconciler.submitted.wasRemoved(made.UID, object), nil
			}
		}
		return true, nil
	case *batchv1.Job:
		if object.Name == plan.NamesOf(made).Initializer {
			return !seen.Fetching.Exists, nil
		}
		return !seen.Workload.Exists, nil
	case *jobset.JobSet:
		return !seen.Workload.Exists, nil
	}
	if reconciler.submitted.wasRemoved(made.UID, object) {
		return true, nil
	}
	// Keys and groups are not in the cache.
	there := object.DeepCopyObject().(client.Object)
	err := reconciler.Live.Get(ctx, client.ObjectKeyFromObject(object), there)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("read %s: %w", describe(reconciler.Scheme(), object), err)
	}
	if err != nil || !isOwned(there, made) {
		reconciler.submitted.removed(made.UID, object)
		return true, nil
	}
	return false, nil
}

// stopLauncher suspends the launcher's Job: what runs of it ends, and what has
// ended stays.
func (reconciler *Reconciler) stopLauncher(ctx context.Context, made *job.Job, seen diagnosis.Observed) error {
	if seen.Workload.Suspended {
		return nil
	}
	batch := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: made.Namespace, Name: plan.NamesOf(made).Launcher}}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"suspend":true}}`))
	if err := reconciler.Patch(ctx, batch, patch); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("stop the launcher of %s/%s: %w", made.Namespace, made.Name, err)
	}
	return nil
}

// stampClock tells the launcher that all workers run: from there on they must be
// reached in time.
func (reconciler *Reconciler) stampClock(ctx context.Context, made *job.Job, seen diagnosis.Observed) error {
	launcher, running := diagnosis.WorkersRunning(made, seen)
	if !running || launcher.Annotations[plan.RunningAnnotation] != "" || launcher.DeletionTimestamp != nil ||
		launcher.Status.Phase == corev1.PodSucceeded || launcher.Status.Phase == corev1.PodFailed {
		return nil
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, plan.RunningAnnotation, reconciler.Clock.Now().UTC().Format(time.RFC3339))
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: launcher.Namespace, Name: launcher.Name}}
	if err := reconciler.Patch(ctx, pod, client.RawPatch(types.MergePatchType, []byte(patch))); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("tell pod %s/%s that all workers run: %w", launcher.Namespace, launcher.Name, err)
	}
	return nil
}

func groupResource(made *job.Job) schema.GroupResource {
	return schema.GroupResource{Group: training.Group, Resource: made.Kind.Type() + "s"}
}
