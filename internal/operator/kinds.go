package operator

import (
	"context"
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/diagnosis"
	"github.com/trireme-mpi/trireme/internal/job"
	"github.com/trireme-mpi/trireme/internal/plan"
)

// kind is what differs between the two job APIs, as far as the reconciler is
// concerned.
type kind interface {
	name() job.Kind
	empty() client.Object
	emptyList() client.ObjectList
	// model is the job that an object describes. An obstacle says why there is
	// none yet.
	model(ctx context.Context, object client.Object) (*job.Job, *diagnosis.Answer, error)
	previous(object client.Object) diagnosis.Previous
	// isForeign tells whether another operator runs the job.
	isForeign(object client.Object) bool
	// setStatus writes a verdict into an object.
	setStatus(object client.Object, made *job.Job, verdict *diagnosis.Verdict, now metav1.Time)
	// items are the jobs of a list.
	items(list client.ObjectList) []client.Object

	// hasWorkloads tells whether the cluster serves the kind of the workload.
	hasWorkloads() bool
	emptyWorkload() client.Object
	// managerOf is whose pods a workload's are; empty for its own controller's.
	managerOf(workload client.Object) string
	// isSuspended tells whether a queue holds a workload back.
	isSuspended(workload client.Object) bool
	// adopt takes the templates of a workload into the model.
	adopt(made *job.Job, workload client.Object)
	// setWorkloadStatus writes a verdict into a workload.
	setWorkloadStatus(workload client.Object, made *job.Job, verdict *diagnosis.Verdict, now metav1.Time)
}

// mpiJobs is the kind MPIJob.
type mpiJobs struct{ defaults job.Defaults }

func (mpiJobs) name() job.Kind       { return job.KindMPIJob }
func (mpiJobs) empty() client.Object { return &v2beta1.MPIJob{} }

func (mpiJobs) emptyList() client.ObjectList { return &v2beta1.MPIJobList{} }

func (kind mpiJobs) model(_ context.Context, object client.Object) (*job.Job, *diagnosis.Answer, error) {
	return job.FromMPIJob(object.(*v2beta1.MPIJob), kind.defaults), nil, nil
}

func (mpiJobs) previous(object client.Object) diagnosis.Previous {
	return diagnosis.FromMPIJob(object.(*v2beta1.MPIJob))
}

// isForeign: mpi-operator has conditions and no phase. What it has begun it may
// end.
func (mpiJobs) isForeign(object client.Object) bool {
	mpiJob := object.(*v2beta1.MPIJob)
	return mpiJob.Status.Phase == "" && len(mpiJob.Status.Conditions) > 0 || isManagedBy(mpiJob.Spec.RunPolicy.ManagedBy, v2beta1.ManagedByMPIOperator)
}

// isManagedBy tells whether a job names somebody else than us.
func isManagedBy(named *string, us string) bool { return named != nil && *named != "" && *named != us }

func (mpiJobs) setStatus(object client.Object, made *job.Job, verdict *diagnosis.Verdict, now metav1.Time) {
	verdict.MPIJobStatus(made, &object.(*v2beta1.MPIJob).Status, object.GetGeneration(), now)
}

func (mpiJobs) items(list client.ObjectList) []client.Object {
	return pointers[v2beta1.MPIJob](list.(*v2beta1.MPIJobList).Items)
}

func (mpiJobs) hasWorkloads() bool           { return true }
func (mpiJobs) emptyWorkload() client.Object { return &batchv1.Job{} }

func (mpiJobs) managerOf(workload client.Object) string {
	return ptr.Deref(workload.(*batchv1.Job).Spec.ManagedBy, "")
}

func (mpiJobs) isSuspended(workload client.Object) bool {
	suspend := workload.(*batchv1.Job).Spec.Suspend
	return suspend != nil && *suspend
}

// adopt: Kueue edits the templates of the MPIJob itself.
func (mpiJobs) adopt(*job.Job, client.Object) {}

func (mpiJobs) setWorkloadStatus(workload client.Object, _ *job.Job, verdict *diagnosis.Verdict, now metav1.Time) {
	verdict.BatchJobStatus(workload.(*batchv1.Job), now)
}

func pointers[T any, P interface {
	*T
	client.Object
}](items []T) (objects []client.Object) {
	for i := range items {
		objects = append(objects, P(&items[i]))
	}
	return objects
}

// trainJobs is the kind TrainJob.
type trainJobs struct {
	client.Client
	live     client.Reader
	defaults job.Defaults
	cluster  *surroundings
}

func (trainJobs) items(list client.ObjectList) []client.Object {
	return pointers[v2alpha1.TrainJob](list.(*v2alpha1.TrainJobList).Items)
}

func (kind trainJobs) hasWorkloads() bool      { return kind.cluster.hasJobSet() }
func (trainJobs) emptyWorkload() client.Object { return &jobset.JobSet{} }

func (trainJobs) managerOf(workload client.Object) string {
	return ptr.Deref(workload.(*jobset.JobSet).Spec.ManagedBy, "")
}

func (trainJobs) isSuspended(workload client.Object) bool {
	suspend := workload.(*jobset.JobSet).Spec.Suspend
	return suspend != nil && *suspend
}

// adopt: Kueue edits the templates of the JobSet while it is suspended.
func (trainJobs) adopt(made *job.Job, workload client.Object) {
	roles := map[string]*job.Role{training.RoleLauncher: &made.Launcher, training.RoleWorker: &made.Worker}
	for i := range workload.(*jobset.JobSet).Spec.ReplicatedJobs {
		replicated := &workload.(*jobset.JobSet).Spec.ReplicatedJobs[i]
		if role := roles[replicated.Name]; role != nil {
			role.Template = *replicated.Template.Spec.Template.DeepCopy()
		}
	}
}

func (trainJobs) setWorkloadStatus(workload client.Object, made *job.Job, verdict *diagnosis.Verdict, now metav1.Time) {
	verdict.JobSetStatus(made, workload.(*jobset.JobSet), now)
}

func (trainJobs) name() job.Kind       { return job.KindTrainJob }
func (trainJobs) empty() client.Object { return &v2alpha1.TrainJob{} }

func (trainJobs) emptyList() client.ObjectList { return &v2alpha1.TrainJobList{} }

func (trainJobs) previous(object client.Object) diagnosis.Previous {
	return diagnosis.FromTrainJob(object.(*v2alpha1.TrainJob))
}

func (trainJobs) isForeign(object client.Object) bool {
	return isManagedBy(object.(*v2alpha1.TrainJob).Spec.ManagedBy, v2alpha1.ManagedByTrainJobController)
}

func (trainJobs) setStatus(object client.Object, _ *job.Job, verdict *diagnosis.Verdict, now metav1.Time) {
	verdict.TrainJobStatus(&object.(*v2alpha1.TrainJob).Status, object.GetGeneration(), now)
}

// +kubebuilder:rbac:groups=apps,resources=controllerrevisions,verbs=get;list;watch;create

// model takes the runtime as it was when the job was created: what becomes of
// it later is for later jobs.
func (kind trainJobs) model(ctx context.Context, object client.Object) (*job.Job, *diagnosis.Answer, error) {
	trainJob := object.(*v2alpha1.TrainJob)
	runtimeSpec, obstacle, err := kind.snapshot(ctx, trainJob)
	if runtimeSpec == nil {
		return nil, obstacle, err
	}
	return job.FromTrainJob(trainJob, runtimeSpec, kind.defaults), nil, nil
}

// snapshot is the runtime as the job has kept it. The first time it is kept.
func (kind trainJobs) snapshot(ctx context.Context, trainJob *v2alpha1.TrainJob) (*v2alpha1.TrainingRuntimeSpec, *diagnosis.Answer, error) {
	bare := &job.Job{Kind: job.KindTrainJob, Namespace: trainJob.Namespace, Name: trainJob.Name, UID: trainJob.UID}
	spec, obstacle, err := kind.kept(ctx, kind.Client, bare)
	if !apierrors.IsNotFound(err) {
		return spec, obstacle, err
	}
	spec, obstacle, err = kind.keep(ctx, trainJob, bare)
	if apierrors.IsAlreadyExists(err) {
		// It was kept a moment ago, and the cache does not know yet.
		return kind.kept(ctx, kind.live, bare)
	}
	return spec, obstacle, err
}

// kept reads the runtime that the job has kept.
func (kind trainJobs) kept(ctx context.Context, reader client.Reader, bare *job.Job) (*v2alpha1.TrainingRuntimeSpec, *diagnosis.Answer, error) {
	name := plan.NamesOf(bare).Snapshot
	revision := &appsv1.ControllerRevision{}
	if err := reader.Get(ctx, client.ObjectKey{Namespace: bare.Namespace, Name: name}, revision); err != nil {
		return nil, nil, fmt.Errorf("read the runtime that the job has kept: %w", err)
	}
	if isLeftover(revision, bare) {
		return nil, nil, waitFor("ControllerRevision " + name)
	}
	if !isOwned(revision, bare) {
		return nil, &diagnosis.Answer{Reason: "NameTaken", Message: fmt.Sprintf(
			"The ControllerRevision %s belongs to another. Delete it, or give the job another name.", name)}, nil
	}
	spec := &v2alpha1.TrainingRuntimeSpec{}
	if err := json.Unmarshal(revision.Data.Raw, spec); err != nil {
		return nil, nil, fmt.Errorf("read the runtime in ControllerRevision %s: %w", name, err)
	}
	return spec, nil, nil
}

// keep stores the runtime with the job.
func (kind trainJobs) keep(ctx context.Context, trainJob *v2alpha1.TrainJob, bare *job.Job) (*v2alpha1.TrainingRuntimeSpec, *diagnosis.Answer, error) {
	spec, err := kind.current(ctx, trainJob)
	if apierrors.IsNotFound(err) {
		reference := trainJob.Spec.RuntimeRef
		return nil, &diagnosis.Answer{Reason: "RuntimeNotFound", Message: fmt.Sprintf(
			"The %s %s is gone since the job was created. Create it again, or delete the job.", reference.Kind, reference.Name)}, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read the job's runtime: %w", err)
	}
	raw, err := json.Marshal(spec)
	if err != nil {
		return nil, nil, fmt.Errorf("write the job's runtime down: %w", err)
	}
	err = kind.Create(ctx, &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: trainJob.Namespace, Name: plan.NamesOf(bare).Snapshot, Labels: plan.Selector(bare),
			OwnerReferences: []metav1.OwnerReference{plan.OwnerOf(bare)},
		},
		Data: runtime.RawExtension{Raw: raw}, Revision: 1,
	})
	if err != nil {
		return nil, nil, fmt.Errorf("keep the job's runtime: %w", err)
	}
	return spec, nil, nil
}

// current is the runtime as it is now. It is read past the cache, which may not
// have seen it yet if it was created together with the job.
func (kind trainJobs) current(ctx context.Context, trainJob *v2alpha1.TrainJob) (*v2alpha1.TrainingRuntimeSpec, error) {
	reference := trainJob.Spec.RuntimeRef
	if reference.Kind == v2alpha1.RuntimeKindNamespaced {
		found := &v2alpha1.TrainingRuntime{}
		err := kind.live.Get(ctx, client.ObjectKey{Namespace: trainJob.Namespace, Name: reference.Name}, found)
		return &found.Spec, err
	}
	found := &v2alpha1.ClusterTrainingRuntime{}
	err := kind.live.Get(ctx, client.ObjectKey{Name: reference.Name}, found)
	return &found.Spec, err
}
