package operator

import (
	"context"
	"crypto/rand"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/engine/diagnosis"
	"github.com/trireme-mpi/trireme/internal/engine/gang"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
	"github.com/trireme-mpi/trireme/internal/engine/quota"
	"github.com/trireme-mpi/trireme/internal/operator/sshkey"
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

// apply does what the plan says. A refusal is what the API server will not take.
func (reconciler *Reconciler) apply(ctx context.Context, scope *scope, verdict *diagnosis.Verdict) (*diagnosis.Refusal, error) {
	state := stateOf(scope, verdict)
	if err := reconciler.release(ctx, plan.Released(state)); err != nil {
		return nil, err
	}
	in := scope.in
	if in.Gang == nil {
		// Nothing can be created before the obstacle is removed; what exists can be
		// deleted.
		if state.Stage == plan.Active || state.Stage == plan.Initializing {
			return nil, nil
		}
		in = in.withoutGang()
	}
	if state.Stage == plan.Active {
		published, refusal, err := reconciler.publish(ctx, scope, state, verdict)
		if refusal != nil || err != nil {
			return refusal, err
		}
		// Nobody is reached in time whom DNS does not know.
		if published {
			if err := reconciler.stampClock(ctx, scope); err != nil {
				return nil, err
			}
		}
	}
	if scope.hasAll(state, in) {
		return nil, nil
	}
	if reconciler.submitted.has(scope.job.UID, state, reconciler.Clock.Now()) {
		lookAgain(verdict)
		return nil, nil
	}
	todo := plan.Of(scope.job, state, in.Surroundings)
	if len(todo.Ensure)+len(todo.Pods) == 0 {
		return nil, reconciler.remove(ctx, scope, todo.Remove)
	}
	reconciler.submitted.begin(scope.job.UID)
	refusal, err := reconciler.ensure(ctx, scope, state, in, todo)
	// Where a queue holds a new workload back there are no pods to wait for.
	if refusal != nil || err != nil || scope.seen.Workload.Suspended {
		return refusal, err
	}
	reconciler.submitted.add(scope.job.UID, state, reconciler.Clock.Now())
	lookAgain(verdict)
	return nil, nil
}

// isComplete tells whether all that a job needs exists, or was created a moment ago.
func (reconciler *Reconciler) isComplete(scope *scope, state plan.State) bool {
	return scope.hasAll(state, scope.in) || reconciler.submitted.has(scope.job.UID, state, reconciler.Clock.Now())
}

// hasAll tells whether the cache shows all that a job needs.
func (scope *scope) hasAll(state plan.State, in around) bool {
	switch state.Stage {
	case plan.Initializing:
		return scope.hasPod(state.Initializers, plan.PodName(scope.job, training.RoleInitializer, 0, state.Restart))
	case plan.Active:
		held := in.Gang != nil && plan.HoldsLauncherBack(scope.job, state, in.Surroundings)
		return scope.workload != nil && len(state.Workers) >= int(scope.job.Worker.Replicas) &&
			(held || scope.hasPod(state.Launchers, plan.PodName(scope.job, training.RoleLauncher, 0, state.Restart)))
	default:
		return false
	}
}

func (scope *scope) hasPod(pods []*corev1.Pod, name string) bool {
	return slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return pod.Name == name })
}

// lookAgain: what was created and is not seen in time was deleted before anybody saw
// it, and nothing else will tell.
func lookAgain(verdict *diagnosis.Verdict) { lookIn(verdict, cachePatience) }

// ensure creates what does not exist: first what pods refer to and what stands for
// them, then the pods.
func (reconciler *Reconciler) ensure(ctx context.Context, scope *scope, state plan.State, in around, todo plan.Plan) (*diagnosis.Refusal, error) {
	// Where a pod of this start exists, so does all that it refers to.
	if scope.workload == nil || podsOf(scope.seen) == 0 {
		for _, objects := range reconciler.inOrder(scope.job, todo.Ensure) {
			if refusal, err := reconciler.createAll(ctx, scope, objects, len(objects)); refusal != nil || err != nil {
				return refusal, err
			}
		}
	}
	if state.Stage == plan.Active && scope.workload == nil {
		if err := reconciler.takeCreated(ctx, scope, todo.Ensure); err != nil {
			return nil, err
		}
		if scope.seen.Workload.Suspended {
			return nil, nil
		}
		state.Workload = scope.workload.GetUID()
		todo = plan.Of(scope.job, state, in.Surroundings)
	}
	var pods []gang.Object
	for _, pod := range todo.Pods {
		if !scope.hasPod(slices.Concat(scope.seen.Launchers, scope.seen.Workers), pod.Name) {
			pods = append(pods, pod)
		}
	}
	// While a quota is exceeded, one pod tries it for all.
	if scope.previous.QuotaWait != nil && len(pods) > 0 {
		if refusal, err := reconciler.createAll(ctx, scope, pods[:1], 1); refusal != nil || err != nil {
			return refusal, err
		}
		pods = pods[1:]
	}
	return reconciler.createAll(ctx, scope, pods, parallelCreates)
}

// inOrder has the workload created first where it tells which runtime the job was
// begun with: until the job's status does, nothing else could tell a new leader.
func (reconciler *Reconciler) inOrder(made *job.Job, objects []gang.Object) [][]gang.Object {
	if made.RuntimeDigest == "" {
		return [][]gang.Object{objects}
	}
	var workloads, others []gang.Object
	for _, object := range objects {
		if reconciler.isWorkload(object) {
			workloads = append(workloads, object)
		} else {
			others = append(others, object)
		}
	}
	return [][]gang.Object{workloads, others}
}

func (reconciler *Reconciler) isWorkload(object client.Object) bool {
	return reflect.TypeOf(object) == reflect.TypeOf(reconciler.kind.emptyWorkload())
}

// takeCreated takes the workload as it was stored: a queue may hold it back from its
// first moment on.
func (reconciler *Reconciler) takeCreated(ctx context.Context, scope *scope, created []gang.Object) error {
	workload := reconciler.kind.emptyWorkload()
	for _, object := range created {
		if object.GetName() == plan.NamesOf(scope.job).Workload && reconciler.isWorkload(object) && object.GetUID() != "" {
			scope.take(reconciler.kind, object)
			return nil
		}
	}
	// It existed already, and the cache has not seen it yet.
	key := client.ObjectKey{Namespace: scope.job.Namespace, Name: plan.NamesOf(scope.job).Workload}
	if err := reconciler.Live.Get(ctx, key, workload); err != nil {
		return fmt.Errorf("read %s %s: %w", scope.job.Kind.Traits().Workload, key, err)
	}
	scope.take(reconciler.kind, workload)
	return nil
}

// createAll creates objects at the same time. What fails keeps nothing else from
// being created, but what a quota refuses stops the others.
func (reconciler *Reconciler) createAll(ctx context.Context, scope *scope, objects []gang.Object, parallel int) (*diagnosis.Refusal, error) {
	refusals := &firstRefusal{}
	group := errgroup.Group{}
	group.SetLimit(max(parallel, 1))
	for _, object := range objects {
		group.Go(func() error {
			if refusals.isQuota() {
				return nil
			}
			refusal, err := reconciler.create(ctx, scope, object)
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

func (first *firstRefusal) isQuota() bool {
	first.mutex.Lock()
	defer first.mutex.Unlock()
	return first.found != nil && first.found.Quota
}

func (reconciler *Reconciler) create(ctx context.Context, scope *scope, object client.Object) (*diagnosis.Refusal, error) {
	if secret, isSecret := object.(*corev1.Secret); isSecret {
		if err := fillKeys(secret); err != nil {
			return nil, err
		}
	}
	err := reconciler.Create(ctx, object)
	what := describe(reconciler.Scheme(), object)
	switch {
	case err == nil:
		return nil, nil
	case apierrors.IsAlreadyExists(err):
		return reconciler.whose(ctx, scope, object)
	case !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) || lacksRight(err.Error()):
		return nil, fmt.Errorf("create %s: %w", what, err)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		// A namespace that is being deleted takes nothing, and takes the job with it.
		return nil, nil
	}
	if reason, passes := passesByItself(err.Error()); passes {
		return nil, &notYet{reason, fmt.Sprintf("%s could not be created: %s. It is tried again", what, err)}
	}
	name, isQuota := quota.ParseExceeded(err.Error())
	return &diagnosis.Refusal{
		Role: object.GetLabels()[training.LabelReplicaType], Object: what, Message: err.Error(), Quota: isQuota, QuotaName: name,
	}, nil
}

// whose tells whether an object that exists already is the job's own.
func (reconciler *Reconciler) whose(ctx context.Context, scope *scope, object client.Object) (*diagnosis.Refusal, error) {
	made := scope.job
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
	isOurs := hasSameController(there, object) && reconciler.hasSameManager(there, object)
	if isOurs && there.GetDeletionTimestamp() == nil {
		return nil, sameRuntime(made, there)
	}
	if isOurs || isLeftover(there, made) {
		return nil, waitFor(what)
	}
	if isGroup(scope.in, object) {
		if found, known := scope.in.Gang.MinMember(there); !known || found != made.Gang.MinMember {
			return &diagnosis.Refusal{Object: what, Message: fmt.Sprintf("PodGroup minMember mismatch: expected %d, got %d", made.Gang.MinMember, found)}, nil
		}
		return nil, nil
	}
	return &diagnosis.Refusal{Object: what, Message: "there is one of this name that does not belong to the job. Delete it, or give the job another name"}, nil
}

// sameRuntime refuses a workload that an earlier leader created from another state of
// the runtime. The cache shows it in a moment, and with it what the job was begun with.
func sameRuntime(made *job.Job, there client.Object) error {
	found := there.GetAnnotations()[training.AnnotationRuntimeDigest]
	if found == "" || found == made.RuntimeDigest {
		return nil
	}
	return apierrors.NewConflict(groupResource(made), made.Name, fmt.Errorf("%s was created from the runtime %s, not %s", there.GetName(), found, made.RuntimeDigest))
}

func hasSameController(one, other client.Object) bool {
	owner, wanted := metav1.GetControllerOf(one), metav1.GetControllerOf(other)
	return owner != nil && wanted != nil && owner.UID == wanted.UID
}

// hasSameManager: where another controller creates the pods of a workload, we do not.
func (reconciler *Reconciler) hasSameManager(one, other client.Object) bool {
	if !reconciler.isWorkload(one) {
		return true
	}
	return reconciler.kind.managerOf(one) == reconciler.kind.managerOf(other)
}

// isLeftover tells whether an object belonged to an earlier job of the same name, or
// to an earlier start of this one. Whoever deletes a job and creates it again need
// not wait for the garbage collector: we do.
func isLeftover(object client.Object, made *job.Job) bool {
	owner := metav1.GetControllerOf(object)
	if owner == nil {
		return false
	}
	isJobs := owner.Kind == string(made.Kind) && owner.Name == made.Name && owner.UID != made.UID
	return isJobs || owner.Kind == string(made.Kind.Traits().Workload) && owner.Name == plan.NamesOf(made).Workload
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
		protocol.ClientKey: user.Private, protocol.ClientPublicKey: user.Public, protocol.AuthorizedKeys: user.Public,
		protocol.HostKey: host.Private, protocol.HostPublicKey: host.Public,
	}
	return nil
}

// remove deletes what must not exist.
func (reconciler *Reconciler) remove(ctx context.Context, scope *scope, objects []gang.Object) error {
	uid := scope.job.UID
	if len(objects) > 0 {
		reconciler.submitted.forget(uid)
	}
	group := errgroup.Group{}
	group.SetLimit(parallelCreates)
	for _, object := range objects {
		group.Go(func() error {
			gone, err := reconciler.isGone(ctx, scope, object)
			if gone || err != nil {
				return err
			}
			options := []client.DeleteOption{client.PropagationPolicy(metav1.DeletePropagationBackground)}
			if known := object.GetUID(); known != "" {
				options = append(options, client.Preconditions{UID: &known})
			}
			err = reconciler.Delete(ctx, object, options...)
			// Of another UID it is not the one that must go.
			if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
				reconciler.submitted.removed(uid, object)
				return nil
			}
			return fmt.Errorf("delete %s: %w", describe(reconciler.Scheme(), object), err)
		})
	}
	return group.Wait()
}

// isGone tells whether there is nothing to delete, so that a job at rest costs
// nothing.
func (reconciler *Reconciler) isGone(ctx context.Context, scope *scope, object client.Object) (bool, error) {
	if reconciler.submitted.wasRemoved(scope.job.UID, object) {
		return true, nil
	}
	if object.GetUID() != "" {
		isWorkload := scope.workload != nil && scope.workload.GetUID() == object.GetUID()
		return isWorkload && scope.workload.GetDeletionTimestamp() != nil, nil
	}
	// Keys and groups are not in the cache.
	there := object.DeepCopyObject().(client.Object)
	err := reconciler.Live.Get(ctx, client.ObjectKeyFromObject(object), there)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("read %s: %w", describe(reconciler.Scheme(), object), err)
	}
	if err != nil || !isOwned(there, scope.job) {
		reconciler.submitted.removed(scope.job.UID, object)
		return true, nil
	}
	object.SetUID(there.GetUID())
	return false, nil
}

// stampClock tells the launcher that all workers run: from there on they must be
// reached in time.
func (reconciler *Reconciler) stampClock(ctx context.Context, scope *scope) error {
	launcher, running := diagnosis.WorkersRunning(scope.job, scope.previous, scope.seen)
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
