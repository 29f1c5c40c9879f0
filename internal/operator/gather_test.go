// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// UIDs decide which job a pod belongs to, not labels.
func TestOwns(t *testing.T) {
	set := &jobset.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "train", UID: "set"}}
	batch := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "train-launcher", UID: "batch"}}
	ofJobSet := func(uid types.UID) *corev1.Pod {
		return podOf(job.KindTrainJob, training.RoleWorker, "x", controlled("JobSet", "train", uid))
	}
	withUID := func(pod *corev1.Pod) *corev1.Pod { return labelled(pod, training.LabelJobUID, "job") }
	for name, test := range map[string]struct {
		kind     job.Kind
		workload client.Object
		pod      *corev1.Pod
		want     bool
	}{
		"initializer of the job":                         {job.KindTrainJob, set, podOf(job.KindTrainJob, training.RoleInitializer, "x", controlled("TrainJob", "train", "job")), true},
		"initializer of an earlier job":                  {job.KindTrainJob, set, podOf(job.KindTrainJob, training.RoleInitializer, "x", controlled("TrainJob", "train", "earlier")), false},
		"pod of the JobSet":                              {job.KindTrainJob, set, ofJobSet("set"), true},
		"pod of an earlier JobSet":                       {job.KindTrainJob, set, ofJobSet("earlier set"), false},
		"pod of an earlier JobSet of this job":           {job.KindTrainJob, set, withUID(ofJobSet("earlier set")), false},
		"JobSet was deleted, pod of this job":            {job.KindTrainJob, nil, withUID(ofJobSet("set")), true},
		"JobSet was deleted, pod of an earlier job":      {job.KindTrainJob, nil, labelled(ofJobSet("set"), training.LabelJobUID, "earlier"), false},
		"JobSet was deleted, pod without a job":          {job.KindTrainJob, nil, ofJobSet("set"), false},
		"JobSet was deleted, pod of another JobSet":      {job.KindTrainJob, nil, withUID(podOf(job.KindTrainJob, training.RoleWorker, "x", controlled("JobSet", "other", "set"))), false},
		"JobSet was deleted, pod of a Job of its name":   {job.KindTrainJob, nil, withUID(podOf(job.KindTrainJob, training.RoleWorker, "x", controlled("Job", "train", "set"))), false},
		"forged labels, no owner":                        {job.KindTrainJob, set, withUID(podOf(job.KindTrainJob, training.RoleWorker, "x", nil)), false},
		"forged labels, no owner, JobSet was deleted":    {job.KindTrainJob, nil, withUID(podOf(job.KindTrainJob, training.RoleWorker, "x", nil)), false},
		"forged labels, pod of a ReplicaSet":             {job.KindTrainJob, set, withUID(podOf(job.KindTrainJob, training.RoleWorker, "x", controlled("ReplicaSet", "train", "other"))), false},
		"owner is no controller":                         {job.KindTrainJob, set, withUID(podOf(job.KindTrainJob, training.RoleWorker, "x", []metav1.OwnerReference{{Kind: "JobSet", Name: "train", UID: "set"}})), false},
		"worker of the MPIJob":                           {job.KindMPIJob, batch, podOf(job.KindMPIJob, training.RoleWorker, "x", controlled("MPIJob", "train", "job")), true},
		"worker of an earlier MPIJob":                    {job.KindMPIJob, batch, podOf(job.KindMPIJob, training.RoleWorker, "x", controlled("MPIJob", "train", "earlier")), false},
		"launcher of the MPIJob":                         {job.KindMPIJob, batch, podOf(job.KindMPIJob, training.RoleLauncher, "x", controlled("Job", "train-launcher", "batch")), true},
		"launcher of an earlier Job":                     {job.KindMPIJob, batch, withUID(podOf(job.KindMPIJob, training.RoleLauncher, "x", controlled("Job", "train-launcher", "earlier"))), false},
		"Job was deleted, launcher of this MPIJob":       {job.KindMPIJob, nil, withUID(podOf(job.KindMPIJob, training.RoleLauncher, "x", controlled("Job", "train-launcher", "batch"))), true},
		"Job was deleted, launcher of an earlier MPIJob": {job.KindMPIJob, nil, labelled(podOf(job.KindMPIJob, training.RoleLauncher, "x", controlled("Job", "train-launcher", "batch")), training.LabelJobUID, "earlier"), false},
		"Job was deleted, worker of the MPIJob":          {job.KindMPIJob, nil, podOf(job.KindMPIJob, training.RoleWorker, "x", controlled("MPIJob", "train", "job")), true},
		"Job was deleted, pod of another owner's Job":    {job.KindMPIJob, nil, withUID(podOf(job.KindMPIJob, training.RoleLauncher, "x", controlled("Job", "train", "other"))), false},
	} {
		scope := &scope{job: &job.Job{Kind: test.kind, Namespace: "team", Name: "train", UID: "job"}}
		if test.workload != nil {
			scope.workload = test.workload
		}
		if got := scope.owns(test.pod); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// Pods of an earlier start do not count for the current one, but must be deleted before
// it.
func TestPodsOfAnEarlierStart(t *testing.T) {
	j := &job.Job{Kind: job.KindTrainJob, Namespace: "team", Name: "train", UID: "job"}
	left := labelled(podOf(job.KindTrainJob, training.RoleWorker, "train-worker-0-0-r0", controlled("JobSet", "train", "before")), training.LabelJobUID, "job")
	of := func(owner types.UID) *jobset.JobSet {
		return &jobset.JobSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "train", UID: "now", OwnerReferences: controlled("TrainJob", "train", owner)},
			Spec:       jobset.JobSetSpec{Suspend: new(true), ManagedBy: new(training.ManagedByTrireme)},
		}
	}
	for name, test := range map[string]struct {
		objects   []client.Object
		want      int
		hasJobSet bool
	}{
		"its JobSet was deleted":           {[]client.Object{left}, 1, false},
		"there is another JobSet":          {[]client.Object{left, of("job")}, 0, true},
		"there is an earlier job's JobSet": {[]client.Object{left, of("earlier")}, 1, false},
	} {
		reader := cacheOf(test.objects...)
		cluster := &clusterInfo{}
		cluster.jobSets.Store(true)
		reconciler := &Reconciler{Client: reader, Live: reader, Clock: clock.RealClock{}, cluster: cluster, kind: trainJobs{cluster: cluster}}
		scope := &scope{job: j}
		if err := reconciler.gather(t.Context(), scope); err != nil || len(scope.observed.Workers) != test.want {
			t.Errorf("%s: %d workers are seen, %v", name, len(scope.observed.Workers), err)
		}
		if workload := scope.observed.Workload; workload.Exists != test.hasJobSet || workload.Suspended != test.hasJobSet || (scope.workload != nil) != test.hasJobSet {
			t.Errorf("%s: the workload is %+v", name, workload)
		}
	}
}

// The oldest of the jobs that wait for the same quota is first.
func TestOlderWaits(t *testing.T) {
	begin := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
	progress := func(quota string, phase training.Phase) training.Progress {
		return training.Progress{Phase: phase, QuotaWait: &training.QuotaWait{Name: quota}}
	}
	waiting := progress("compute", training.PhasePending)
	train := func(uid types.UID, age time.Duration, progress training.Progress) *v2alpha1.TrainJob {
		found := &v2alpha1.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "other", UID: uid, CreationTimestamp: metav1.NewTime(begin.Add(-age))}}
		found.Status.Progress = progress
		return found
	}
	mpi := func(uid types.UID, age time.Duration, progress training.Progress) *v2beta1.MPIJob {
		found := &v2beta1.MPIJob{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "other", UID: uid, CreationTimestamp: metav1.NewTime(begin.Add(-age))}}
		found.Status.Progress = progress
		return found
	}
	elsewhere := train("a", time.Minute, waiting)
	elsewhere.Namespace = "other-team"
	ending := train("a", time.Minute, waiting)
	ending.DeletionTimestamp, ending.Finalizers = new(metav1.Now()), []string{"example.com/kept"}
	for name, test := range map[string]struct {
		other client.Object
		want  bool
	}{
		"no other job":                          {nil, false},
		"older TrainJob":                        {train("z", time.Second, waiting), true},
		"older MPIJob":                          {mpi("z", time.Second, waiting), true},
		"younger TrainJob":                      {train("a", -time.Second, waiting), false},
		"younger MPIJob":                        {mpi("a", -time.Second, waiting), false},
		"same second, lower UID":                {train("a", 0, waiting), true},
		"same second, higher UID":               {train("z", 0, waiting), false},
		"older, in another namespace":           {elsewhere, false},
		"older, for another quota":              {train("a", time.Minute, progress("gpus", training.PhasePending)), false},
		"older, for a quota that is not known":  {train("a", time.Minute, progress("", training.PhasePending)), true},
		"older, does not wait":                  {train("a", time.Minute, training.Progress{Phase: training.PhaseRunning}), false},
		"older, has failed":                     {train("a", time.Minute, progress("compute", training.PhaseFailed)), false},
		"older, has succeeded":                  {train("a", time.Minute, progress("compute", training.PhaseSucceeded)), false},
		"older, is being deleted":               {ending, false},
		"itself, as the cache has it":           {train("job", time.Minute, waiting), false},
		"older, restarts and waits for a quota": {train("a", time.Minute, training.Progress{Phase: training.PhasePending, QuotaWait: waiting.QuotaWait, Restart: &training.Restart{Count: 1}}), true},
	} {
		objects := []client.Object{}
		if test.other != nil {
			objects = append(objects, test.other)
		}
		reader := cacheOf(objects...)
		reconciler := &Reconciler{Client: reader, kinds: []kind{mpiJobs{}, trainJobs{}}}
		own := train("job", 0, waiting)
		scope := &scope{object: own, job: &job.Job{Namespace: "team", Name: "train", UID: "job"}}
		scope.previous.Progress = own.Status.Progress
		if got, err := reconciler.olderWaits(t.Context(), scope); err != nil || got != test.want {
			t.Errorf("%s: %t, %v", name, got, err)
		}
	}
}

// cacheOf is a client that finds objects by the operator's indexes.
func cacheOf(objects ...client.Object) client.Client {
	builder := fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(objects...)
	for _, index := range Indexes() {
		builder = builder.WithIndex(index.Object, index.Field, index.Values)
	}
	return builder.Build()
}
