// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
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
// +kubebuilder:rbac:groups=scheduling.x-k8s.io;scheduling.volcano.sh;scheduling.run.ai;scheduling.k8s.io,resources=podgroups,verbs=get;create;delete

const (
	// parallelCreates is how many pods of a job are created in parallel.
	parallelCreates = 64
	// cachePatience is how long the cache may take to show a created object.
	cachePatience = 5 * time.Second
)

// apply creates and deletes objects as the plan says. A refusal is an object that the
// API server rejects for good.
func (r *Reconciler) apply(ctx context.Context, scope *scope, verdict *diagnosis.Verdict) (*diagnosis.Refusal, error) {
	state := stateOf(scope, verdict)
	if err := r.release(ctx, plan.Released(state)); err != nil {
		return nil, err
	}
	env := scope.env
	if env.Gang == nil {
		// Without a gang scheduler objects can only be deleted.
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
		// The launcher cannot reach workers that DNS does not know.
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
	todo := plan.Of(scope.job, state, env.Environment)
	if len(todo.Ensure)+len(todo.Pods) == 0 {
		return nil, r.remove(ctx, scope, todo.Remove)
	}
	r.memory.deletions.forget(scope.job.UID)
	refusal, err := r.ensure(ctx, scope, state, env, todo)
	// A workload that a queue suspends has no pods to wait for.
	if refusal != nil || err != nil || scope.observed.Workload.Suspended {
		return refusal, err
	}
	now := r.Clock.Now()
	r.memory.creations.add(scope.job.UID, state, now)
	r.memory.podCounts.change(scope.job.UID, now)
	checkAgain(verdict)
	return nil, nil
}

// isComplete reports whether all objects of a job exist, or were just created.
func (r *Reconciler) isComplete(scope *scope, state plan.State) bool {
	return scope.hasAll(state, scope.env) || r.memory.creations.has(scope.job.UID, state, r.Clock.Now())
}

// hasAll reports whether the cache shows all objects that a job needs.
func (s *scope) hasAll(state plan.State, env environment) bool {
	switch state.Stage {
	case plan.Initializing:
		return !slices.ContainsFunc(plan.InitializerNames(s.job, state), func(name string) bool { return !s.hasPod(state.Initializers, name) })
	case plan.Active:
		held := env.Gang != nil && plan.HoldsLauncherBack(s.job, state, env.Environment)
		return s.workload != nil && len(state.Workers) >= int(s.job.Worker.Replicas) &&
			(held || s.hasPod(state.Launchers, plan.PodName(s.job, training.RoleLauncher, 0, state.Restart)))
	default:
		return false
	}
}

func (s *scope) hasPod(pods []*corev1.Pod, name string) bool {
	return slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return pod.Name == name })
}

// checkAgain schedules a reconcile for the case that a created object is deleted before
// the cache shows it: that causes no event.
func checkAgain(verdict *diagnosis.Verdict) { checkWithin(verdict, cachePatience) }

// ensure creates the objects that do not exist: first the workload and what pods refer
// to, then the pods.
func (r *Reconciler) ensure(ctx context.Context, scope *scope, state plan.State, env environment, todo plan.Plan) (*diagnosis.Refusal, error) {
	// If a pod of this start exists, so do the objects that it refers to.
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
		todo = plan.Of(scope.job, state, env.Environment)
	}
	var pods []gang.Object
	for _, pod := range todo.Pods {
		if !scope.hasPod(slices.Concat(scope.observed.Launchers, scope.observed.Workers), pod.Name) {
			pods = append(pods, pod)
		}
	}
	// While a quota is exceeded, only one pod is tried.
	if scope.previous.QuotaWait != nil && len(pods) > 0 {
		if refusal, err := r.createAll(ctx, scope, pods[:1], 1); refusal != nil || err != nil {
			return refusal, err
		}
		pods = pods[1:]
	}
	return r.createAll(ctx, scope, pods, parallelCreates)
}

// creationOrder puts the workload first if it stores the digest of the job's runtime:
// until the status has the digest, a new leader reads it from the workload.
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

// useCreatedWorkload uses the workload as the API server stored it: a queue may have
// suspended it on creation.
func (r *Reconciler) useCreatedWorkload(ctx context.Context, scope *scope, created []gang.Object) error {
	workload := r.kind.emptyWorkload()
	for _, object := range created {
		if object.GetName() == plan.NamesOf(scope.job).Workload && r.isWorkload(object) && object.GetUID() != "" {
			scope.useWorkload(r.kind, object)
			return nil
		}
	}
	// It existed already, but the cache does not show it yet.
	key := client.ObjectKey{Namespace: scope.job.Namespace, Name: plan.NamesOf(scope.job).Workload}
	if err := r.Live.Get(ctx, key, workload); err != nil {
		return fmt.Errorf("read %s %s: %w", scope.job.Kind.Traits().Workload, key, err)
	}
	scope.useWorkload(r.kind, workload)
	return nil
}

// createAll creates objects in parallel. If one fails, the others are still created,
// unless a quota is exceeded.
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

// firstRefusal keeps the first refusal of several parallel requests.
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
		// The deletion of the namespace also deletes the job.
		return nil, nil
	}
	if reason, temporary := isTemporary(err.Error()); temporary {
		return nil, &temporaryObstacle{reason, fmt.Sprintf("%s could not be created: %s. The operator retries", what, err)}
	}
	name, isQuota := quota.ParseExceeded(err.Error())
	return &diagnosis.Refusal{
		Role: object.GetLabels()[training.LabelReplicaType], Object: what, Message: err.Error(), Quota: isQuota, QuotaName: name,
	}, nil
}

// checkExisting decides what to do about an object that exists already: nothing if it
// is the job's own, wait if it is a leftover, else it is a refusal.
func (r *Reconciler) checkExisting(ctx context.Context, scope *scope, object client.Object) (*diagnosis.Refusal, error) {
	j := scope.job
	existing := object.DeepCopyObject().(client.Object)
	what := describe(r.Scheme(), object)
	err := r.Live.Get(ctx, client.ObjectKeyFromObject(object), existing)
	if apierrors.IsNotFound(err) {
		// It was deleted in between.
		return nil, waitForDeletion(what)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", what, err)
	}
	if metav1.GetControllerOf(object) == nil {
		// It outlives jobs, so it may be that of an earlier one.
		return nil, nil
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
	return &diagnosis.Refusal{Object: what, Message: "an object with this name exists that does not belong to the job. Delete it, or give the job another name"}, nil
}

// sameRuntime returns a conflict if an earlier leader created the workload from another
// version of the runtime. The cache shows that workload soon, with the digest to use.
func sameRuntime(j *job.Job, existing client.Object) error {
	found := existing.GetAnnotations()[training.AnnotationRuntimeDigest]
	if found == "" || found == j.RuntimeDigest {
		return nil
	}
	return apierrors.NewConflict(groupResource(j), j.Name, fmt.Errorf("%s was created from runtime %s, not %s", existing.GetName(), found, j.RuntimeDigest))
}

func hasSameController(one, other client.Object) bool {
	owner, wanted := metav1.GetControllerOf(one), metav1.GetControllerOf(other)
	return owner != nil && wanted != nil && owner.UID == wanted.UID
}

// hasSameManager reports whether the same controller creates the pods of two workloads.
func (r *Reconciler) hasSameManager(one, other client.Object) bool {
	if !r.isWorkload(one) {
		return true
	}
	return r.kind.managerOf(one) == r.kind.managerOf(other)
}

// isLeftover reports whether an object belongs to an earlier job of the same name, or to
// an earlier start of this one. The operator waits for the garbage collector, so that
// users can delete a job and create it again at once.
func isLeftover(object client.Object, j *job.Job) bool {
	owner := metav1.GetControllerOf(object)
	if owner == nil {
		return false
	}
	isEarlierJob := owner.Kind == string(j.Kind) && owner.Name == j.Name && owner.UID != j.UID
	return isEarlierJob || owner.Kind == string(j.Kind.Traits().Workload) && owner.Name == plan.NamesOf(j).Workload
}

// temporaryObstacle keeps a job's objects from being created, and disappears without
// a change of the job.
type temporaryObstacle struct{ reason, message string }

func (o *temporaryObstacle) Error() string { return o.message }

func (o *temporaryObstacle) answer() *diagnosis.Condition {
	return &diagnosis.Condition{Reason: o.reason, Message: o.message}
}

// waitForDeletion is the obstacle of an object that must be deleted before it can be
// created again.
func waitForDeletion(what string) *temporaryObstacle {
	return &temporaryObstacle{"WaitingForDeletion", fmt.Sprintf("Waiting for leftover %s to be deleted. It belongs to an earlier start of the job, or to an earlier job of the same name", what)}
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

// fillKeys generates the SSH keys of a job.
func fillKeys(secret *corev1.Secret) error {
	user, err := sshkey.New(rand.Reader, sshkey.Default())
	if err != nil {
		return err
	}
	host, err := sshkey.New(rand.Reader, sshkey.Default())
	if err != nil {
		return err
	}
	keys := map[string][]byte{
		protocol.ClientKey: user.Private, protocol.ClientPublicKey: user.Public, protocol.AuthorizedKeys: user.Public,
		protocol.HostKey: host.Private, protocol.HostPublicKey: host.Public,
	}
	maps.Copy(keys, secret.Data)
	secret.Data = keys
	return nil
}

// remove deletes objects of a job.
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
			// A conflict means that the name belongs to a newer object.
			if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
				r.memory.deletions.add(uid, object)
				return nil
			}
			return fmt.Errorf("delete %s: %w", describe(r.Scheme(), object), err)
		})
	}
	return group.Wait()
}

// isDeleted reports whether there is nothing to delete, so that a finished job costs no
// requests.
func (r *Reconciler) isDeleted(ctx context.Context, scope *scope, object client.Object) (bool, error) {
	if r.memory.deletions.has(scope.job.UID, object) {
		return true, nil
	}
	if object.GetUID() != "" {
		isWorkload := scope.workload != nil && scope.workload.GetUID() == object.GetUID()
		return isWorkload && scope.workload.GetDeletionTimestamp() != nil, nil
	}
	// Secrets and PodGroups are not in the cache.
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

// stampClock annotates the launcher with the time at which all workers are running. From
// then on, the launcher's connect timeout runs.
func (r *Reconciler) stampClock(ctx context.Context, scope *scope) error {
	launcher, running := diagnosis.WorkersRunning(scope.job, scope.previous, scope.observed)
	if !running || launcher.Annotations[plan.RunningAnnotation] != "" || launcher.DeletionTimestamp != nil ||
		launcher.Status.Phase == corev1.PodSucceeded || launcher.Status.Phase == corev1.PodFailed {
		return nil
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, plan.RunningAnnotation, r.Clock.Now().UTC().Format(time.RFC3339))
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: launcher.Namespace, Name: launcher.Name}}
	if err := r.Patch(ctx, pod, client.RawPatch(types.MergePatchType, []byte(patch))); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("annotate pod %s/%s that all workers are running: %w", launcher.Namespace, launcher.Name, err)
	}
	return nil
}

func groupResource(j *job.Job) schema.GroupResource {
	return schema.GroupResource{Group: training.Group, Resource: j.Kind.Type() + "s"}
}
