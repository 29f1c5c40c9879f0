// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/config"
	"github.com/trireme-mpi/trireme/internal/engine/diagnosis"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
)

func TestCheckExisting(t *testing.T) {
	j := &job.Job{Kind: job.KindMPIJob, Namespace: "team", Name: "train", UID: "job"}
	ownedBy := func(owner types.UID) *corev1.ConfigMap {
		earlier := *j
		earlier.UID = owner
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "train-hostfile", OwnerReferences: []metav1.OwnerReference{plan.OwnerOf(&earlier)}}}
	}
	deleting := ownedBy("job")
	deleting.DeletionTimestamp, deleting.Finalizers = new(metav1.Now()), []string{"example.com/kept"}
	foreign := ownedBy("")
	foreign.OwnerReferences = nil
	for name, test := range map[string]struct {
		existing       *corev1.ConfigMap
		waits, refused bool
	}{
		"its own":                {ownedBy("job"), false, false},
		"its own, being deleted": {deleting, true, false},
		"an earlier job's":       {ownedBy("an earlier job"), true, false},
		"another owner's":        {foreign, false, true},
		"deleted in between":     {nil, true, false},
	} {
		builder := fake.NewClientBuilder().WithScheme(Scheme())
		if test.existing != nil {
			builder = builder.WithObjects(test.existing)
		}
		reader := builder.Build()
		reconciler := &Reconciler{Client: reader, Live: reader, kind: mpiJobs{}}
		refusal, err := reconciler.checkExisting(t.Context(), &scope{job: j}, ownedBy("job"))
		_, waits := errors.AsType[*temporaryObstacle](err)
		if waits != test.waits || (err != nil) != test.waits || (refusal != nil) != test.refused {
			t.Errorf("%s: %v, refused %v", name, err, refusal)
		}
	}
}

func TestIsLeftover(t *testing.T) {
	for name, test := range map[string]struct {
		kind   job.Kind
		owners []metav1.OwnerReference
		want   bool
	}{
		"earlier TrainJob's":                  {job.KindTrainJob, controlled("TrainJob", "train", "earlier"), true},
		"this TrainJob's":                     {job.KindTrainJob, controlled("TrainJob", "train", "job"), false},
		"another TrainJob's":                  {job.KindTrainJob, controlled("TrainJob", "other", "earlier"), false},
		"an MPIJob's of the same name":        {job.KindTrainJob, controlled("MPIJob", "train", "earlier"), false},
		"pod of an earlier JobSet":            {job.KindTrainJob, controlled("JobSet", "train", "earlier set"), true},
		"pod of another JobSet":               {job.KindTrainJob, controlled("JobSet", "other", "set"), false},
		"pod of a Job of the JobSet's name":   {job.KindTrainJob, controlled("Job", "train", "set"), false},
		"launcher of an earlier MPIJob":       {job.KindMPIJob, controlled("Job", "train-launcher", "earlier Job"), true},
		"worker of an earlier MPIJob":         {job.KindMPIJob, controlled("MPIJob", "train", "earlier"), true},
		"pod of a Job of the MPIJob's name":   {job.KindMPIJob, controlled("Job", "train", "other"), false},
		"pod of a ReplicaSet":                 {job.KindMPIJob, controlled("ReplicaSet", "train-launcher", "other"), false},
		"no owner":                            {job.KindMPIJob, nil, false},
		"an owner that is no controller":      {job.KindMPIJob, []metav1.OwnerReference{{Kind: "MPIJob", Name: "train", UID: "earlier"}}, false},
		"TrainJob's, checked for an MPIJob":   {job.KindMPIJob, controlled("TrainJob", "train", "earlier"), false},
		"JobSet's pod, checked for an MPIJob": {job.KindMPIJob, controlled("JobSet", "train", "earlier set"), false},
	} {
		j := &job.Job{Kind: test.kind, Namespace: "team", Name: "train", UID: "job"}
		if got := isLeftover(podOf(test.kind, training.RoleWorker, "x", test.owners), j); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// hasAll saves requests, so it must not be wrong.
func TestHasAll(t *testing.T) {
	pods := func(names ...string) (found []*corev1.Pod) {
		for _, name := range names {
			found = append(found, podOf(job.KindTrainJob, "", name, nil))
		}
		return found
	}
	workers, launcher := pods("train-worker-0-0-r0", "train-worker-0-1-r0"), pods("train-launcher-0-0-r0")
	for name, test := range map[string]struct {
		state     plan.State
		hasNoSet  bool
		waits     bool
		initialer bool
		want      bool
	}{
		"all":                                   {state: plan.State{Stage: plan.Active, Launchers: launcher, Workers: workers}, want: true},
		"no workload":                           {state: plan.State{Stage: plan.Active, Launchers: launcher, Workers: workers}, hasNoSet: true},
		"a worker is missing":                   {state: plan.State{Stage: plan.Active, Launchers: launcher, Workers: workers[:1]}},
		"no launcher":                           {state: plan.State{Stage: plan.Active, Workers: workers}},
		"the launcher of the last start":        {state: plan.State{Stage: plan.Active, Restart: 1, Launchers: launcher, Workers: workers}},
		"the launcher of this start":            {state: plan.State{Stage: plan.Active, Restart: 1, Launchers: pods("train-launcher-0-0-r0", "train-launcher-0-0-r1"), Workers: workers}, want: true},
		"no launcher, it waits for workers":     {state: plan.State{Stage: plan.Active, Workers: workers}, waits: true, want: true},
		"no launcher, and workers are ready":    {state: plan.State{Stage: plan.Active, Workers: workers, WorkersReady: true}, waits: true},
		"a launcher, and workers are ready":     {state: plan.State{Stage: plan.Active, Launchers: launcher, Workers: workers, WorkersReady: true}, waits: true, want: true},
		"the initializer":                       {state: plan.State{Stage: plan.Initializing, Initializers: pods("train-initializer-r0")}, want: true},
		"no initializer":                        {state: plan.State{Stage: plan.Initializing}},
		"the initializer of the last start":     {state: plan.State{Stage: plan.Initializing, Restart: 1, Initializers: pods("train-initializer-r0")}},
		"held, pods may have to be deleted":     {state: plan.State{Stage: plan.Held, Launchers: launcher, Workers: workers}},
		"finished, pods may have to be deleted": {state: plan.State{Stage: plan.Finished, Launchers: launcher, Workers: workers}},
		"between two starts":                    {state: plan.State{Stage: plan.Restarting}},
		"suspended":                             {state: plan.State{Stage: plan.Suspended}},
	} {
		j := &job.Job{Kind: job.KindTrainJob, Name: "train", LauncherWaits: test.waits, Worker: job.Role{Replicas: 2}}
		scope := &scope{job: j, workload: &jobset.JobSet{}}
		if test.hasNoSet {
			scope.workload = nil
		}
		if got := scope.hasAll(test.state, environment{}.forDeletion()); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// An object that exists when the operator creates it, but is deleted before the operator
// reads it, is created at the next reconcile. No pods are created before that.
func TestDeletionDuringCreateIsWaitedFor(t *testing.T) {
	object := mpiJob("job")
	going := true
	api := fake.NewClientBuilder().WithScheme(Scheme()).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, api client.WithWatch, created client.Object, options ...client.CreateOption) error {
			if _, is := created.(*corev1.ConfigMap); is && going {
				return apierrors.NewAlreadyExists(corev1.Resource("configmaps"), created.GetName())
			}
			created.SetUID(types.UID(created.GetName()))
			return api.Create(ctx, created, options...)
		},
	}).Build()
	reconciler := &Reconciler{Client: api, Live: api, Clock: clock.RealClock{}, kind: mpiJobs{}}
	look := func() (wait bool, configMaps, pods int) {
		j := job.FromMPIJob(object, config.Default().JobDefaults())
		scope := &scope{object: object, job: j, env: environment{}.forDeletion()}
		result, err := reconciler.carryOut(t.Context(), scope, diagnosis.Verdict{Stage: plan.Active})
		if err != nil {
			t.Fatal(err)
		}
		var maps corev1.ConfigMapList
		var workers corev1.PodList
		if err := errors.Join(api.List(t.Context(), &maps), api.List(t.Context(), &workers)); err != nil {
			t.Fatal(err)
		}
		return result.RequeueAfter == deletionPause, len(maps.Items), len(workers.Items)
	}
	if wait, configMaps, pods := look(); !wait || configMaps+pods > 0 || reconciler.memory.obstacles.answer("job") == nil {
		t.Errorf("the job waits: %t; there are %d ConfigMaps and %d pods", wait, configMaps, pods)
	}
	going = false
	if wait, configMaps, pods := look(); wait || configMaps != 1 || pods != 3 || reconciler.memory.obstacles.answer("job") != nil {
		t.Errorf("the job waits: %t; there are %d ConfigMaps and %d pods", wait, configMaps, pods)
	}
}

const fullQuota = "exceeded quota: compute, requested: pods=1, used: pods=8, limited: pods=8"

// refusesPods is an API server whose quota is exceeded.
func refusesPods(object client.Object) error {
	if pod, is := object.(*corev1.Pod); is {
		return apierrors.NewForbidden(corev1.Resource("pods"), pod.Name, errors.New(fullQuota))
	}
	return nil
}

// One pod tries an exceeded quota twice a second, until the quota timeout has passed.
func TestQuotaIsRetried(t *testing.T) {
	train, runtime := trainJob("job")
	withInitializer, _ := trainJob("job")
	withInitializer.Spec.Initializer = &v2alpha1.Initializer{
		Dataset: &v2alpha1.Source{StorageURI: "s3://data/set"}, Storage: &v2alpha1.InitializerStorage{ClaimName: "data"},
	}
	for name, test := range map[string]struct {
		objects []client.Object
		pods    []string
	}{
		"TrainJob":    {[]client.Object{train, runtime}, []string{"train-launcher-0-0-r0", "train-worker-0-0-r0", "train-worker-0-1-r0"}},
		"MPIJob":      {[]client.Object{mpiJob("job")}, []string{"train-launcher-r0", "train-worker-0", "train-worker-1"}},
		"initializer": {[]client.Object{withInitializer, runtime}, []string{"train-initializer-r0"}},
	} {
		t.Run(name, func(t *testing.T) {
			lab := newLab(t, test.objects...)
			reconciler, status := lab.train, func() training.Progress {
				found := &v2alpha1.TrainJob{}
				lab.get(found, "train")
				return found.Status.Progress
			}
			if name == "MPIJob" {
				reconciler, status = lab.mpi, func() training.Progress {
					found := &v2beta1.MPIJob{}
					lab.get(found, "train")
					return found.Status.Progress
				}
			}
			tried := 0
			lab.refuses = func(object client.Object) error {
				err := refusesPods(object)
				if err != nil {
					tried++
				}
				return err
			}
			if result := lab.reconcile(reconciler, 0); result.RequeueAfter != 500*time.Millisecond {
				t.Errorf("after the first refusal the next reconcile is in %s", result.RequeueAfter)
			}
			if wait := status().QuotaWait; wait == nil || wait.Name != "compute" || !strings.Contains(wait.Message, fullQuota) {
				t.Fatalf("it waits for %+v", wait)
			}
			tried = 0
			if result := lab.reconcile(reconciler, 500*time.Millisecond); result.RequeueAfter != 500*time.Millisecond || tried != 1 {
				t.Errorf("then the next reconcile is in %s, and %d pods were tried", result.RequeueAfter, tried)
			}
			lab.refuses = nil
			lab.reconcile(reconciler, 500*time.Millisecond)
			if diff := cmp.Diff(test.pods, slices.Sorted(maps.Keys(lab.pods()))); diff != "" {
				t.Errorf("pods (-want +got):\n%s", diff)
			}
			lab.reconcile(reconciler, 500*time.Millisecond)
			if wait := status().QuotaWait; wait != nil {
				t.Errorf("all pods exist, and it waits for %+v", wait)
			}
		})
	}
	t.Run("for too long", func(t *testing.T) {
		lab := newLab(t, mpiJob("job"))
		lab.refuses = refusesPods
		lab.reconcile(lab.mpi, 0)
		lab.reconcile(lab.mpi, time.Minute)
		found := &v2beta1.MPIJob{}
		lab.get(found, "train")
		if found.Status.FailureReason != training.FailureResourceQuota || found.Status.QuotaWait != nil {
			t.Errorf("%s %s, waits for %+v", found.Status.Phase, found.Status.FailureReason, found.Status.QuotaWait)
		}
	})
}

// A job that was deleted and created again waits for leftovers of the earlier one. Only
// the operator removes the finalizer of the earlier launcher.
func TestLaunchersOfAnEarlierJobAreReleased(t *testing.T) {
	train, runtime := trainJob("job")
	for name, test := range map[string]struct {
		kind    job.Kind
		owner   []metav1.OwnerReference
		pod     string
		objects []client.Object
	}{
		"TrainJob": {job.KindTrainJob, controlled("JobSet", "train", "earlier set"), "train-launcher-0-0-r0", []client.Object{train, runtime}},
		"MPIJob":   {job.KindMPIJob, controlled("Job", "train-launcher", "earlier Job"), "train-launcher-r0", []client.Object{mpiJob("job")}},
	} {
		t.Run(name, func(t *testing.T) {
			left := labelled(podOf(test.kind, training.RoleLauncher, test.pod, test.owner), training.LabelJobUID, "earlier")
			left.Finalizers, left.DeletionTimestamp = []string{training.FinalizerLauncher}, new(metav1.Now())
			lab := newLab(t, append(test.objects, left)...)
			reconciler := lab.train
			if test.kind == job.KindMPIJob {
				reconciler = lab.mpi
			}
			for range 4 {
				lab.reconcile(reconciler, time.Second)
			}
			if pod := lab.pods()[test.pod]; pod == nil || pod.Labels[training.LabelJobUID] != "job" {
				t.Errorf("the launcher is %+v", pod)
			}
		})
	}
}

// Launchers without a known result keep their finalizer, and so do those of other jobs.
func TestLaunchersAreKept(t *testing.T) {
	lab := newLab(t, mpiJob("job"))
	lab.reconcile(lab.mpi, 0)
	lab.reconcile(lab.mpi, time.Second)
	launcher := lab.pods()["train-launcher-r0"]
	if err := lab.api.Delete(t.Context(), launcher); err != nil {
		t.Fatal(err)
	}
	launcher = lab.pods()["train-launcher-r0"]
	launcher.Spec.NodeName = "node"
	if err := lab.api.Update(t.Context(), launcher); err != nil {
		t.Fatal(err)
	}
	launcher.Status.Phase = corev1.PodRunning
	if err := lab.api.Status().Update(t.Context(), launcher); err != nil {
		t.Fatal(err)
	}
	lab.reconcile(lab.mpi, time.Second)
	if launcher = lab.pods()["train-launcher-r0"]; launcher == nil || !slices.Contains(launcher.Finalizers, training.FinalizerLauncher) {
		t.Fatalf("a launcher that is being ended is released: %+v", launcher)
	}
	launcher.Status.Phase = corev1.PodSucceeded
	launcher.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(lab.clock.Now())},
	}}}
	if err := lab.api.Status().Update(t.Context(), launcher); err != nil {
		t.Fatal(err)
	}
	lab.reconcile(lab.mpi, time.Second)
	found := &v2beta1.MPIJob{}
	lab.get(found, "train")
	if found.Status.Phase != training.PhaseSucceeded {
		t.Errorf("the job is %s", found.Status.Phase)
	}
	lab.reconcile(lab.mpi, time.Second)
	if launcher = lab.pods()["train-launcher-r0"]; launcher != nil {
		t.Errorf("the launcher of a job that has succeeded is kept: %+v", launcher.Finalizers)
	}
}

// An initializer that crashes in its pod is deleted before the next one is created.
func TestRestartDeletesTheInitializer(t *testing.T) {
	pod := func(name string, phase corev1.PodPhase) *corev1.Pod {
		found := podOf(job.KindTrainJob, training.RoleInitializer, name, nil)
		found.Status.Phase = phase
		return found
	}
	j := &job.Job{Kind: job.KindTrainJob, Namespace: "team", Name: "train"}
	state := plan.State{Stage: plan.Restarting, Initializers: []*corev1.Pod{pod("runs", corev1.PodRunning), pod("failed", corev1.PodFailed), pod("waits", corev1.PodPending)}}
	var removed []string
	for _, object := range plan.Of(j, state, environment{}.forDeletion().Environment).Remove {
		removed = append(removed, object.GetName())
	}
	if diff := cmp.Diff([]string{"runs", "waits"}, removed); diff != "" {
		t.Errorf("deleted (-want +got):\n%s", diff)
	}
}
