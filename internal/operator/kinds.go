// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/diagnosis"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
	"github.com/trireme-mpi/trireme/internal/kube/partial"
)

// kind is what differs between the job APIs for the reconciler.
type kind interface {
	name() job.Kind
	empty() client.Object
	emptyList() client.ObjectList
	// model returns the job that an object describes. An obstacle says why there is none
	// yet.
	model(ctx context.Context, object client.Object) (*job.Job, *diagnosis.Condition, error)
	// known returns the job that an object describes, from memory; nil if something would
	// have to be read.
	known(object client.Object) *job.Job
	previous(object client.Object) diagnosis.Previous
	// isForeign reports whether another operator runs the job.
	isForeign(object client.Object) bool
	// mayBeUnrecorded reports whether the status does not say who started a foreign job.
	mayBeUnrecorded(object client.Object) bool
	// lacksName reports whether the job must name Trireme as its controller, and does not.
	lacksName(object client.Object) bool
	// write stores an object whose status has changed.
	write(ctx context.Context, api client.Client, stored, changed client.Object) error
	// setStatus writes a verdict into an object.
	setStatus(object client.Object, j *job.Job, verdict *diagnosis.Verdict, now metav1.Time)
	// items are the jobs of a list.
	items(list client.ObjectList) []client.Object

	// hasWorkloads reports whether the cluster serves the kind of the workload.
	hasWorkloads() bool
	emptyWorkload() client.Object
	// managerOf returns spec.managedBy of a workload; empty if its own controller creates
	// the pods.
	managerOf(workload client.Object) string
	// isSuspended reports whether a queue suspends a workload.
	isSuspended(workload client.Object) bool
	// adopt copies the pod templates of a workload into the model.
	adopt(j *job.Job, workload client.Object)
	// setWorkloadStatus writes a verdict into a workload.
	setWorkloadStatus(workload client.Object, j *job.Job, verdict *diagnosis.Verdict, now metav1.Time)
}

// mpiJobs is the kind MPIJob.
type mpiJobs struct {
	defaults job.Defaults
	share    job.Share
}

func (mpiJobs) name() job.Kind       { return job.KindMPIJob }
func (mpiJobs) empty() client.Object { return &v2beta1.MPIJob{} }

func (mpiJobs) emptyList() client.ObjectList { return &v2beta1.MPIJobList{} }

func (mj mpiJobs) model(_ context.Context, object client.Object) (*job.Job, *diagnosis.Condition, error) {
	return job.FromMPIJob(object.(*v2beta1.MPIJob), mj.defaults), nil, nil
}

func (mj mpiJobs) known(object client.Object) *job.Job {
	if partial.Is(object) {
		return nil
	}
	return job.FromMPIJob(object.(*v2beta1.MPIJob), mj.defaults)
}

func (mpiJobs) previous(object client.Object) diagnosis.Previous {
	return diagnosis.FromMPIJob(object.(*v2beta1.MPIJob))
}

func (mj mpiJobs) isForeign(object client.Object) bool {
	return !mj.share.Runs(object.(*v2beta1.MPIJob))
}

func (mpiJobs) mayBeUnrecorded(object client.Object) bool {
	mpiJob := object.(*v2beta1.MPIJob)
	return mpiJob.Spec.RunPolicy.ManagedBy == nil && len(mpiJob.Status.Conditions) == 0
}

func (mj mpiJobs) lacksName(object client.Object) bool {
	return mj.share.NamesStarted(object.(*v2beta1.MPIJob))
}

func (mpiJobs) setStatus(object client.Object, j *job.Job, verdict *diagnosis.Verdict, now metav1.Time) {
	verdict.MPIJobStatus(j, &object.(*v2beta1.MPIJob).Status, object.GetGeneration(), now)
}

func (mpiJobs) write(ctx context.Context, api client.Client, _, changed client.Object) error {
	return api.Status().Update(ctx, changed)
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

// adopt does nothing: Kueue edits the templates of the MPIJob itself.
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
	snapshots *snapshots
	defaults  job.Defaults
	cluster   *clusterInfo
}

func (trainJobs) write(ctx context.Context, api client.Client, _, changed client.Object) error {
	return api.Status().Update(ctx, changed)
}

func (trainJobs) items(list client.ObjectList) []client.Object {
	return pointers[v2alpha1.TrainJob](list.(*v2alpha1.TrainJobList).Items)
}

func (tj trainJobs) hasWorkloads() bool        { return tj.cluster.hasJobSet() }
func (trainJobs) emptyWorkload() client.Object { return &jobset.JobSet{} }

func (trainJobs) managerOf(workload client.Object) string {
	return ptr.Deref(workload.(*jobset.JobSet).Spec.ManagedBy, "")
}

func (trainJobs) isSuspended(workload client.Object) bool {
	suspend := workload.(*jobset.JobSet).Spec.Suspend
	return suspend != nil && *suspend
}

// adopt is needed because Kueue edits the templates of a suspended JobSet.
func (trainJobs) adopt(j *job.Job, workload client.Object) {
	roles := map[string]*job.Role{training.RoleLauncher: &j.Launcher, training.RoleWorker: &j.Worker}
	for i := range workload.(*jobset.JobSet).Spec.ReplicatedJobs {
		replicated := &workload.(*jobset.JobSet).Spec.ReplicatedJobs[i]
		if role := roles[replicated.Name]; role != nil {
			role.Template = *replicated.Template.Spec.Template.DeepCopy()
		}
	}
}

func (trainJobs) setWorkloadStatus(workload client.Object, j *job.Job, verdict *diagnosis.Verdict, now metav1.Time) {
	verdict.JobSetStatus(j, workload.(*jobset.JobSet), now)
}

func (trainJobs) name() job.Kind       { return job.KindTrainJob }
func (trainJobs) empty() client.Object { return &v2alpha1.TrainJob{} }

func (trainJobs) emptyList() client.ObjectList { return &v2alpha1.TrainJobList{} }

func (trainJobs) previous(object client.Object) diagnosis.Previous {
	return diagnosis.FromTrainJob(object.(*v2alpha1.TrainJob))
}

func (trainJobs) isForeign(object client.Object) bool {
	managedBy := ptr.Deref(object.(*v2alpha1.TrainJob).Spec.ManagedBy, "")
	return managedBy != "" && managedBy != v2alpha1.ManagedByTrainJobController
}

func (trainJobs) mayBeUnrecorded(client.Object) bool { return false }

// lacksName is false: no other operator serves TrainJobs.
func (trainJobs) lacksName(client.Object) bool { return false }

func (trainJobs) setStatus(object client.Object, j *job.Job, verdict *diagnosis.Verdict, now metav1.Time) {
	verdict.TrainJobStatus(j, &object.(*v2alpha1.TrainJob).Status, object.GetGeneration(), now)
}

// model uses the runtime as it was when the job was created. Later changes of the
// runtime only affect later jobs.
func (tj trainJobs) model(ctx context.Context, object client.Object) (*job.Job, *diagnosis.Condition, error) {
	trainJob := object.(*v2alpha1.TrainJob)
	digest, err := tj.storedDigest(ctx, trainJob)
	if err != nil {
		return nil, nil, err
	}
	runtime, obstacle, err := tj.snapshots.of(ctx, trainJob, digest)
	if runtime == nil {
		return nil, obstacle, err
	}
	j := job.FromTrainJob(trainJob, runtime.spec, tj.defaults)
	j.RuntimeDigest = runtime.digest
	return j, nil, nil
}

func (tj trainJobs) known(object client.Object) *job.Job {
	trainJob := object.(*v2alpha1.TrainJob)
	if partial.Is(object) || trainJob.Status.RuntimeDigest == "" {
		return nil
	}
	runtime := tj.snapshots.cache.get(trainJob.Status.RuntimeDigest)
	if runtime == nil {
		return nil
	}
	return job.FromTrainJob(trainJob, runtime.spec, tj.defaults)
}

// storedDigest returns the digest of the runtime that the job was started with. It is in
// the status or, until that is written, in the JobSet, which is created first.
func (tj trainJobs) storedDigest(ctx context.Context, trainJob *v2alpha1.TrainJob) (string, error) {
	if trainJob.Status.RuntimeDigest != "" || !tj.hasWorkloads() {
		return trainJob.Status.RuntimeDigest, nil
	}
	bare := &job.Job{Kind: job.KindTrainJob, Namespace: trainJob.Namespace, Name: trainJob.Name, UID: trainJob.UID}
	set := &jobset.JobSet{}
	err := tj.Get(ctx, client.ObjectKey{Namespace: bare.Namespace, Name: plan.NamesOf(bare).Workload}, set)
	if err != nil || !isOwned(set, bare) || tj.managerOf(set) != training.ManagedByTrireme || !job.IsDigest(set.Annotations[training.AnnotationRuntimeDigest]) {
		return "", client.IgnoreNotFound(err)
	}
	return set.Annotations[training.AnnotationRuntimeDigest], nil
}

// +kubebuilder:rbac:groups=jobset.x-k8s.io,resources=jobsets,verbs=patch

// jobSets are the JobSets of Kubeflow's Trainer whose runtime names Trireme. Each is a job
// and its own workload. Its status is for others, so what Trireme knows of the job is in
// an annotation.
type jobSets struct {
	live     client.Reader
	defaults job.Defaults
	cluster  *clusterInfo
}

func (jobSets) name() job.Kind       { return job.KindJobSet }
func (jobSets) empty() client.Object { return &jobset.JobSet{} }

func (jobSets) emptyList() client.ObjectList { return &jobset.JobSetList{} }

func (jobSets) items(list client.ObjectList) []client.Object {
	return pointers[jobset.JobSet](list.(*jobset.JobSetList).Items)
}

// model uses the hostfile that Trainer has written for this start of the job.
func (js jobSets) model(ctx context.Context, object client.Object) (*job.Job, *diagnosis.Condition, error) {
	set := object.(*jobset.JobSet)
	if known := js.known(set); known != nil {
		return known, nil, nil
	}
	name, key := job.HostfileConfigMap(set)
	if name == "" {
		// The model says why Trireme cannot run it.
		return job.FromJobSet(set, job.TrainerHosts{}, js.defaults), nil, nil
	}
	hostfile := &corev1.ConfigMap{}
	err := js.live.Get(ctx, client.ObjectKey{Namespace: set.Namespace, Name: name}, hostfile)
	if client.IgnoreNotFound(err) != nil {
		return nil, nil, fmt.Errorf("read the hostfile of JobSet %s/%s: %w", set.Namespace, set.Name, err)
	}
	owner, wanted := metav1.GetControllerOf(hostfile), metav1.GetControllerOf(set)
	if err != nil || owner == nil || wanted == nil || owner.UID != wanted.UID {
		return nil, &diagnosis.Condition{Reason: "WaitingForHostfile", Message: fmt.Sprintf(
			"Waiting for Kubeflow's Trainer to create ConfigMap %s with the hostfile of TrainJob %s", name, set.Name)}, nil
	}
	hosts, err := job.ParseTrainerHosts(set.Name, hostfile.Data[key])
	if err != nil {
		return nil, &diagnosis.Condition{Reason: "InvalidHostfile", Message: fmt.Sprintf("The hostfile in ConfigMap %s cannot be used: %v", name, err)}, nil
	}
	return job.FromJobSet(set, hosts, js.defaults), nil, nil
}

// known uses the settings of a hostfile that was read before. While a job is suspended,
// Trainer may write another one.
func (js jobSets) known(object client.Object) *job.Job {
	set := object.(*jobset.JobSet)
	if hosts := diagnosis.RecordedHosts(set); hosts != nil && !js.isSuspended(set) && !partial.Is(set) {
		return job.FromJobSet(set, *hosts, js.defaults)
	}
	return nil
}

func (jobSets) previous(object client.Object) diagnosis.Previous {
	return diagnosis.FromJobSet(object.(*jobset.JobSet))
}

func (jobSets) isForeign(object client.Object) bool { return !job.RunsJobSet(object.(*jobset.JobSet)) }

func (jobSets) mayBeUnrecorded(client.Object) bool { return false }
func (jobSets) lacksName(client.Object) bool       { return false }

// +kubebuilder:rbac:groups=trainer.kubeflow.org,resources=trainjobs;trainjobs/status,verbs=patch

func (jobSets) write(ctx context.Context, api client.Client, stored, changed client.Object) error {
	copyProgress(ctx, api, stored.(*jobset.JobSet), changed.(*jobset.JobSet))
	return api.Patch(ctx, changed, client.MergeFromWithOptions(stored, client.MergeFromWithOptimisticLock{}))
}

func (jobSets) setStatus(object client.Object, j *job.Job, verdict *diagnosis.Verdict, _ metav1.Time) {
	verdict.JobSetRecord(j, object.(*jobset.JobSet))
}

func (js jobSets) hasWorkloads() bool        { return js.cluster.hasJobSet() }
func (jobSets) emptyWorkload() client.Object { return &jobset.JobSet{} }

func (jobSets) managerOf(workload client.Object) string {
	return ptr.Deref(workload.(*jobset.JobSet).Spec.ManagedBy, "")
}

func (jobSets) isSuspended(workload client.Object) bool {
	return ptr.Deref(workload.(*jobset.JobSet).Spec.Suspend, false)
}

// adopt does nothing: the model is that of the JobSet itself.
func (jobSets) adopt(*job.Job, client.Object) {}

func (jobSets) setWorkloadStatus(workload client.Object, j *job.Job, verdict *diagnosis.Verdict, now metav1.Time) {
	verdict.JobSetStatus(j, workload.(*jobset.JobSet), now)
}

// copyProgress copies progress into Trainer's TrainJob. The status of the job must not
// depend on the webhooks of Trainer: what fails is written with the next progress.
func copyProgress(ctx context.Context, api client.Client, stored, changed *jobset.JobSet) {
	status, metadata := diagnosis.UpstreamProgress(stored, changed)
	if status == nil {
		return
	}
	owner := metav1.GetControllerOf(changed)
	trainJob := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: owner.APIVersion, Kind: owner.Kind}}
	trainJob.SetNamespace(changed.Namespace)
	trainJob.SetName(owner.Name)
	err := api.Status().Patch(ctx, trainJob.DeepCopy(), client.RawPatch(types.MergePatchType, status))
	if err == nil {
		err = api.Patch(ctx, trainJob, client.RawPatch(types.MergePatchType, metadata))
	}
	if err != nil {
		ctrl.LoggerFrom(ctx).Info("The progress of a JobSet is not in its TrainJob", "trainJob", client.ObjectKeyFromObject(trainJob).String(), "cause", err.Error())
	}
}
