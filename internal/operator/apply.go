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
func (r *Reconciler) apply(ctx context.Context, scope *scope, verdict *diagnosis.Verdict) (*diagnosis.Refusal, error) {
	state := stateOf(scope, verdict)
	if err := r.release(ctx, plan.Released(state)); err != nil {
		return nil, err
	}
	env := scope.env
	if env.Gang == nil {
		// Nothing can be created before the obstacle is removed; what exists can be
		// deleted.
		if state.Stage == plan.Active || state.Stage == plan.Initializing {
			return nil, nil
		}
		env = env.forDeletion()
	}
	if state.Stage == plan.Active {
		published, refusal, err := r.publish(ctx, scope, state, verdict)
		if refusal != nil || err != nil {
			return refusal, err
		}
		// Nobody is reached in time whom DNS does not know.
		if published {
			if err := r.stampClock(ctx, scope); err != nil {
				return nil, err
			}
		}
	}
	if scope.hasAll(state, env) {
		return nil, nil
	}
	if r.memory.creations.has(scope.job.UID, state, r.Clock.Now()) {
		checkAgain(verdict)
		return nil, nil
	}
	todo := plan.Of(scope.job, state, env.Surroundings)
	if len(todo.Ensure)+len(todo.Pods) == 0 {
		return nil, r.remove(ctx, scope, todo.Remove)
	}
	r.memory.deletions.forget(scope.job.UID)
	refusal, err := r.ensure(ctx, scope, state, env, todo)
	// Where a queue holds a new workload back there are no pods to wait for.
	if refusal != nil || err != nil || scope.observed.Workload.Suspended {
		return refusal, err
	}
	now := r.Clock.Now()
	r.memory.creations.add(scope.job.UID, state, now)
	r.memory.podCounts.change(scope.job.UID, now)
	checkAgain(verdict)
	return nil, nil
}

// isComplete tells whether all that a job needs exists, or was created a moment ago.
func (r *Reconciler) isComplete(scope *scope, state plan.State) bool {
	return scope.hasAll(state, scope.env) || r.memory.creations.has(scope.job.UID, state, r.Clock.Now())
}

// hasAll tells whether the cache shows all that a job needs.
func (s *scope) hasAll(state plan.State, env environment) bool {
	switch state.Stage {
	case plan.Initializing:
		return s.hasPod(state.Initializers, plan.PodName(s.job, training.RoleInitializer, 0, state.Restart))
	case plan.Active:
		held := env.Gang != nil && plan.HoldsLauncherBack(s.job, state, env.Surroundings)
		return s.workload != nil && len(state.Workers) >= int(s.job.Worker.Replicas) &&
			(held || s.hasPod(state.Launchers, plan.PodName(s.job, training.RoleLauncher, 0, state.Restart)))
	default:
		return false
	}
}

func (s *scope) hasPod(pods []*corev1.Pod, name string) bool {
	return slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return pod.Name == name })
}

// lookAgain: what was created and is not seen in time was deleted before anybody saw
// it, and nothing else will tell.
func checkAgain(verdict *diagnosis.Verdict) { checkWithin(verdict, cachePatience) }

// ensure creates what does not exist: first what pods refer to and what stands for
// them, then the pods.
func (r *Reconciler) ensure(ctx context.Context, scope *scope, state plan.State, env environment, todo plan.Plan) (*diagnosis.Refusal, error) {
	// Where a pod of this start exists, so does all that it refers to.
	if scope.workload == nil || countPods(scope.observed) == 0 {
		for _, objects := range r.creationOrder(scope.job, todo.Ensure) {
			if refusal, err := r.createAll(ctx, scope, objects, len(objects)); refusal != nil || err != nil {
				return refusal, err
			}
		}
	}
	if state.Stage == plan.Active && scope.workload == nil {
		if err := r.useCreatedWorkload(ctx, scope, todo.Ensure); err != nil {
			return nil, err
		}
		if scope.observed.Workload.Suspended {
			return nil, nil
		}
		state.Workload = scope.workload.GetUID()
		todo = plan.Of(scope.job, state, env.Surroundings)
	}
	var pods []gang.Object
	for _, pod := range todo.Pods {
		if !scope.hasPod(slices.Concat(scope.observed.Launchers, scope.observed.Workers), pod.Name) {
			pods = append(pods, pod)
		}
	}
	// While a quota is exceeded, one pod tries it for all.
	if scope.previous.QuotaWait != nil && len(pods) > 0 {
		if refusal, err := r.createAll(ctx, scope, pods[:1], 1); refusal != nil || err != nil {
			return refusal, err
		}
		pods = pods[1:]
	}
	return r.createAll(ctx, scope, pods, parallelCreates)
}

// inOrder has the workload created first where it tells which runtime the job was
// begun with: until the job's status does, nothing else could tell a new leader.
func (r *Reconciler) creationOrder(j *job.Job, objects []gang.Object) [][]gang.Object {
	if j.RuntimeDigest == "" {
		return [][]gang.Object{objects}
	}
	var workloads, others []gang.Object
	for _, object := range objects {
		if r.isWorkload(object) {
			workloads = append(workloads, object)
		} else {
			others = append(others, object)
		}
	}
	return [][]gang.Object{workloads, others}
}

func (r *Reconciler) isWorkload(object client.Object) bool {
	return reflect.TypeOf(object) == reflect.TypeOf(r.kind.emptyWorkload())
}

// takeCreated takes the workload as it was stored: a queue may hold it back from its
// first moment on.
func (r *Reconciler) useCreatedWorkload(ctx context.Context, scope *scope, created []gang.Object) error {
	workload := r.kind.emptyWorkload()
	for _, object := range created {
		if object.GetName() == plan.NamesOf(scope.job).Workload && r.isWorkload(object) && object.GetUID() != "" {
			scope.useWorkload(r.kind, object)
			return nil
		}
	}
	// It existed already, and the cache has not seen it yet.
	key := client.ObjectKey{Namespace: scope.job.Namespace, Name: plan.NamesOf(scope.job).Workload}
	if err := r.Live.Get(ctx, key, workload); err != nil {
		return fmt.Errorf("read %s %s: %w", scope.job.Kind.Traits().Workload, key, err)
	}
	scope.useWorkload(r.kind, workload)
	return nil
}

// createAll creates objects at the same time. What fails keeps nothing else from
// being created, but what a quota refuses stops the others.
func (r *Reconciler) createAll(ctx context.Context, scope *scope, objects []gang.Object, parallel int) (*diagnosis.Refusal, error) {
	refusals := &firstRefusal{}
	group := errgroup.Group{}
	group.SetLimit(max(parallel, 1))
	for _, object := range objects {
		group.Go(func() error {
			if refusals.isQuota() {
				return nil
			}
			refusal, err := r.create(ctx, scope, object)
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

func (fr *firstRefusal) set(refusal *diagnosis.Refusal) {
	fr.mutex.Lock()
	defer fr.mutex.Unlock()
	if fr.found == nil {
		fr.found = refusal
	}
}

func (fr *firstRefusal) isQuota() bool {
	fr.mutex.Lock()
	defer fr.mutex.Unlock()
	return fr.found != nil && fr.found.Quota
}

func (r *Reconciler) create(ctx context.Context, scope *scope, object client.Object) (*diagnosis.Refusal, error) {
	if secret, isSecret := object.(*corev1.Secret); isSecret {
		if err := fillKeys(secret); err != nil {
			return nil, err
		}
	}
	err := r.Create(ctx, object)
	what := describe(r.Scheme(), object)
	switch {
	case err == nil:
		return nil, nil
	case apierrors.IsAlreadyExists(err):
		return r.checkExisting(ctx, scope, object)
	case !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) || lacksPermission(err.Error()):
		return nil, fmt.Errorf("create %s: %w", what, err)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		// A namespace that is being deleted takes nothing, and takes the job with it.
		return nil, nil
	}
	if reason, passes := isTemporary(err.Error()); passes {
		return nil, &temporaryObstacle{reason, fmt.Sprintf("%s could not be created: %s. It is tried again", what, err)}
	}
	name, isQuota := quotaOf(err.Error())
	return &diagnosis.Refusal{
		Role: object.GetLabels()[training.LabelReplicaType], Object: what, Message: err.Error(), Quota: isQuota, QuotaName: name,
	}, nil
}

// whose tells whether an object that exists already is the job's own.
func (r *Reconciler) checkExisting(ctx context.Context, scope *scope, object client.Object) (*diagnosis.Refusal, error) {
	j := scope.job
	existing := object.DeepCopyObject().(client.Object)
	what := describe(r.Scheme(), object)
	err := r.Live.Get(ctx, client.ObjectKeyFromObject(object), existing)
	if apierrors.IsNotFound(err) {
		// It went in between.
		return nil, waitForDeletion(what)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", what, err)
	}
	isOurs := hasSameController(existing, object) && r.hasSameManager(existing, object)
	if isOurs && existing.GetDeletionTimestamp() == nil {
		return nil, sameRuntime(j, existing)
	}
	if isOurs || isLeftover(existing, j) {
		return nil, waitForDeletion(what)
	}
	if isGroup(scope.env, object) {
		if found, known := scope.env.Gang.MinMember(existing); !known || found != j.Gang.MinMember {
			return &diagnosis.Refusal{Object: what, Message: fmt.Sprintf("PodGroup minMember mismatch: expected %d, got %d", j.Gang.MinMember, found)}, nil
		}
		return nil, nil
	}
	return &diagnosis.Refusal{Object: what, Message: "there is one of this name that does not belong to the job. Delete it, or give the job another name"}, nil
}

// sameRuntime refuses a workload that an earlier leader created from another state of
// the runtime. The cache shows it in a moment, and with it what the job was begun with.
func sameRuntime(j *job.Job, existing client.Object) error {
	found := existing.GetAnnotations()[training.AnnotationRuntimeDigest]
	if found == "" || found == j.RuntimeDigest {
		return nil
	}
	return apierrors.NewConflict(groupResource(j), j.Name, fmt.Errorf("%s was created from the runtime %s, not %s", existing.GetName(), found, j.RuntimeDigest))
}

func hasSameController(one, other client.Object) bool {
	owner, wanted := metav1.GetControllerOf(one), metav1.GetControllerOf(other)
	return owner != nil && wanted != nil && owner.UID == wanted.UID
}

// hasSameManager: where another controller creates the pods of a workload, we do not.
func (r *Reconciler) hasSameManager(one, other client.Object) bool {
	if !r.isWorkload(one) {
		return true
	}
	return r.kind.managerOf(one) == r.kind.managerOf(other)
}

// isLeftover tells whether an object belonged to an earlier job of the same name, or
// to an earlier start of this one. Whoever deletes a job and creates it again need
// not wait for the garbage collector: we do.
func isLeftover(object client.Object, j *job.Job) bool {
	owner := metav1.GetControllerOf(object)
	if owner == nil {
		return false
	}
	isJobs := owner.Kind == string(j.Kind) && owner.Name == j.Name && owner.UID != j.UID
	return isJobs || owner.Kind == string(j.Kind.Traits().Workload) && owner.Name == plan.NamesOf(j).Workload
}

// temporaryObstacle keeps a job's objects from being created, and disappears without
// a change of the job.
type temporaryObstacle struct{ reason, message string }

func (o *temporaryObstacle) Error() string { return o.message }

func (o *temporaryObstacle) answer() *diagnosis.Answer {
	return &diagnosis.Answer{Reason: o.reason, Message: o.message}
}

// waitFor is what must be gone before it can be made anew.
func waitForDeletion(what string) *temporaryObstacle {
	return &temporaryObstacle{"WaitingForDeletion", what + " of an earlier start, or of an earlier job of the same name, is still going. The job goes on when it is gone"}
}

func isGroup(env environment, object client.Object) bool {
	return env.Gang != nil && object.GetObjectKind().GroupVersionKind().Kind == env.Gang.GroupKind().Kind && env.Gang.GroupKind().Kind != ""
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
func (r *Reconciler) remove(ctx context.Context, scope *scope, objects []gang.Object) error {
	uid := scope.job.UID
	if len(objects) > 0 {
		r.memory.creations.forget(uid)
		r.memory.podCounts.forget(uid)
	}
	group := errgroup.Group{}
	group.SetLimit(parallelCreates)
	for _, object := range objects {
		group.Go(func() error {
			deleted, err := r.isDeleted(ctx, scope, object)
			if deleted || err != nil {
				return err
			}
			options := []client.DeleteOption{client.PropagationPolicy(metav1.DeletePropagationBackground)}
			if known := object.GetUID(); known != "" {
				options = append(options, client.Preconditions{UID: &known})
			}
			err = r.Delete(ctx, object, options...)
			// Of another UID it is not the one that must go.
			if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
				r.memory.deletions.add(uid, object)
				return nil
			}
			return fmt.Errorf("delete %s: %w", describe(r.Scheme(), object), err)
		})
	}
	return group.Wait()
}

// isGone tells whether there is nothing to delete, so that a job at rest costs
// nothing.
func (r *Reconciler) isDeleted(ctx context.Context, scope *scope, object client.Object) (bool, error) {
	if r.memory.deletions.has(scope.job.UID, object) {
		return true, nil
	}
	if object.GetUID() != "" {
		isWorkload := scope.workload != nil && scope.workload.GetUID() == object.GetUID()
		return isWorkload && scope.workload.GetDeletionTimestamp() != nil, nil
	}
	// Keys and groups are not in the cache.
	existing := object.DeepCopyObject().(client.Object)
	err := r.Live.Get(ctx, client.ObjectKeyFromObject(object), existing)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("read %s: %w", describe(r.Scheme(), object), err)
	}
	if err != nil || !isOwned(existing, scope.job) {
		r.memory.deletions.add(scope.job.UID, object)
		return true, nil
	}
	object.SetUID(existing.GetUID())
	return false, nil
}

// stampClock tells the launcher that all workers run: from there on they must be
// reached in time.
func (r *Reconciler) stampClock(ctx context.Context, scope *scope) error {
	launcher, running := diagnosis.WorkersRunning(scope.job, scope.previous, scope.observed)
	if !running || launcher.Annotations[plan.RunningAnnotation] != "" || launcher.DeletionTimestamp != nil ||
		launcher.Status.Phase == corev1.PodSucceeded || launcher.Status.Phase == corev1.PodFailed {
		return nil
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, plan.RunningAnnotation, r.Clock.Now().UTC().Format(time.RFC3339))
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: launcher.Namespace, Name: launcher.Name}}
	if err := r.Patch(ctx, pod, client.RawPatch(types.MergePatchType, []byte(patch))); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("tell pod %s/%s that all workers run: %w", launcher.Namespace, launcher.Name, err)
	}
	return nil
}

func groupResource(j *job.Job) schema.GroupResource {
	return schema.GroupResource{Group: training.Group, Resource: j.Kind.Type() + "s"}
}
