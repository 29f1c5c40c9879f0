// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/training"
)

// The objects that are deleted in each stage. The keys of a finished job are always
// deleted, pods depend on cleanPodPolicy, and the rest is deleted with the job.
func TestRemovedObjects(t *testing.T) {
	const (
		keys, workload, launcher = "Secret resnet-ssh-key", "Job resnet-launcher", "Pod resnet-launcher-r0"
		first, second, third     = "Pod resnet-worker-0", "Pod resnet-worker-1", "Pod resnet-worker-2"
		setKeys, set, setGroup   = "Secret bert-ssh", "JobSet bert", "PodGroup bert"
		setLauncher, fetching    = "Pod bert-launcher-0-0-r0", "Pod bert-initializer-r0"
		setFirst, setSecond      = "Pod bert-worker-0-0-r0", "Pod bert-worker-0-1-r0"
	)
	all, running, none := training.CleanPodPolicyAll, training.CleanPodPolicyRunning, training.CleanPodPolicyNone
	launchers := func(phase corev1.PodPhase) []*corev1.Pod { return existing(mpiJob(), training.RoleLauncher, 0, phase) }
	mixed := workers(corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed)
	ended := workers(corev1.PodSucceeded, corev1.PodFailed)
	// of is an MPIJob in a stage, with a launcher in a phase.
	of := func(stage Stage, launcher corev1.PodPhase, workers []*corev1.Pod) State {
		return State{Stage: stage, Launchers: launchers(launcher), Workers: workers, LauncherDone: launcher == corev1.PodSucceeded}
	}
	bert := func(stage Stage, launcher corev1.PodPhase, workers ...corev1.PodPhase) State {
		return State{
			Stage: stage, LauncherDone: launcher == corev1.PodSucceeded,
			Launchers: existing(trainJob(), training.RoleLauncher, 0, launcher), Workers: existing(trainJob(), training.RoleWorker, 0, workers...),
		}
	}
	fetcher := func(state State, phase corev1.PodPhase) State {
		state.Initializers = existing(trainJob(), training.RoleInitializer, 0, phase)
		return state
	}
	data := []trainOption{fetches("s3://bucket/set", ""), newClaim("1Gi", "")}
	withData := func(options ...trainOption) []trainOption { return append(options, data...) }
	isRunning, succeeded, failed := corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed
	sidecar := of(Finished, isRunning, mixed)
	sidecar.LauncherDone = true
	exited := of(Restarting, isRunning, mixed)
	exited.Launchers[0].Spec.Containers, exited.Launchers[0].Spec.RestartPolicy = make([]corev1.Container, 1), corev1.RestartPolicyNever
	exited.Launchers[0].Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}}}}
	tests := map[string]struct {
		whole
		want []string
	}{
		"finished, Running":            {whole{job: ofMPIJob(cleans(running)), state: of(Finished, succeeded, mixed)}, []string{keys, first}},
		"finished, Running by default": {whole{job: ofMPIJob(), state: of(Finished, succeeded, mixed)}, []string{keys, first}},
		"finished, Running, workers that wait": {
			whole{job: ofMPIJob(cleans(running)), state: of(Finished, succeeded, workers(corev1.PodPending, corev1.PodUnknown, ""))},
			[]string{keys, first, second, third},
		},
		"finished, Running, all have finished":       {whole{job: ofMPIJob(cleans(running)), state: of(Finished, failed, ended)}, []string{keys}},
		"finished, Running, the launcher still runs": {whole{job: ofMPIJob(cleans(running)), state: of(Finished, isRunning, mixed)}, []string{keys, launcher, first}},
		"finished, Running, a sidecar still runs":    {whole{job: ofMPIJob(cleans(running)), state: sidecar}, []string{keys, first}},
		"finished, All":                            {whole{job: ofMPIJob(cleans(all)), state: of(Finished, succeeded, mixed)}, []string{keys, workload, launcher, first, second, third}},
		"finished, All, the launcher still runs":   {whole{job: ofMPIJob(cleans(all)), state: of(Finished, isRunning, mixed)}, []string{keys, workload, launcher, first, second, third}},
		"finished, All, no workload":               {whole{job: ofMPIJob(cleans(all)), noWorkload: true, state: of(Finished, succeeded, ended)}, []string{keys, launcher, first, second}},
		"finished, None":                           {whole{job: ofMPIJob(cleans(none)), state: of(Finished, succeeded, mixed)}, []string{keys}},
		"finished, None, the launcher still runs":  {whole{job: ofMPIJob(cleans(none)), state: of(Finished, isRunning, mixed)}, []string{keys, launcher}},
		"finished, the group first":                {whole{job: ofMPIJob(), has: hasCoscheduling, state: State{Stage: Finished}}, []string{"PodGroup resnet", keys}},
		"finished, no workers":                     {whole{job: ofMPIJob(launcherRunsRanks, noWorkers, cleans(all)), state: of(Finished, succeeded, nil)}, []string{keys, workload, launcher}},
		"finished, a TrainJob":                     {whole{job: ofTrainJob(), state: bert(Finished, succeeded, isRunning, succeeded)}, []string{setKeys, setFirst}},
		"finished, a TrainJob, the launcher runs":  {whole{job: ofTrainJob(), state: bert(Finished, isRunning, isRunning, failed)}, []string{setKeys, setLauncher, setFirst}},
		"finished, a TrainJob, None":               {whole{job: ofTrainJob(trainJobCleans(none)), state: bert(Finished, succeeded, isRunning, succeeded)}, []string{setKeys}},
		"finished, a TrainJob, None, it runs":      {whole{job: ofTrainJob(trainJobCleans(none)), state: bert(Finished, isRunning, isRunning, succeeded)}, []string{setKeys, setLauncher}},
		"finished, a TrainJob, All":                {whole{job: ofTrainJob(trainJobCleans(all)), state: bert(Finished, succeeded, isRunning, succeeded)}, []string{setKeys, set, setLauncher, setFirst, setSecond}},
		"finished, a TrainJob that initializes":    {whole{job: ofTrainJob(data...), noWorkload: true, state: fetcher(State{Stage: Finished}, isRunning)}, []string{setKeys, fetching}},
		"finished, None, initializing":             {whole{job: ofTrainJob(withData(trainJobCleans(none))...), noWorkload: true, state: fetcher(State{Stage: Finished}, isRunning)}, []string{setKeys, fetching}},
		"finished, an initialized TrainJob":        {whole{job: ofTrainJob(data...), state: fetcher(bert(Finished, succeeded), succeeded)}, []string{setKeys}},
		"finished, All, initialized":               {whole{job: ofTrainJob(withData(trainJobCleans(all))...), state: fetcher(bert(Finished, succeeded), succeeded)}, []string{setKeys, set, setLauncher, fetching}},
		"finished, a TrainJob in a gang":           {whole{job: ofTrainJob(), has: hasVolcano, state: bert(Finished, succeeded)}, []string{setGroup, setKeys}},
		"suspended, workload and pods":             {whole{job: ofMPIJob(), state: of(Suspended, isRunning, mixed)}, []string{workload, launcher, first, second, third}},
		"suspended, the group":                     {whole{job: ofMPIJob(), has: hasNative, state: State{Stage: Suspended}}, []string{workload, "PodGroup resnet"}},
		"suspended, in spite of cleanPodPolicy":    {whole{job: ofMPIJob(cleans(none)), state: of(Suspended, failed, ended)}, []string{workload, launcher, first, second}},
		"suspended, nothing exists":                {whole{job: ofMPIJob(), noWorkload: true, state: State{Stage: Suspended}}, nil},
		"suspended, a TrainJob":                    {whole{job: ofTrainJob(), state: bert(Suspended, isRunning, isRunning, isRunning)}, []string{set, setLauncher, setFirst, setSecond}},
		"suspended, a TrainJob that initializes":   {whole{job: ofTrainJob(data...), noWorkload: true, state: fetcher(State{Stage: Suspended}, isRunning)}, []string{fetching}},
		"suspended, a TrainJob in a gang and data": {whole{job: ofTrainJob(data...), has: hasCoscheduling, state: fetcher(State{Stage: Suspended}, succeeded)}, []string{set, fetching, setGroup}},
		"held, pods but not the workload":          {whole{job: ofTrainJob(), state: bert(Held, isRunning, isRunning, failed)}, []string{setLauncher, setFirst, setSecond}},
		"held, not the fetched data":               {whole{job: ofTrainJob(data...), state: fetcher(bert(Held, corev1.PodPending), succeeded)}, []string{setLauncher}},
		"held, an MPIJob in a gang":                {whole{job: ofMPIJob(), has: hasVolcano, state: of(Held, isRunning, mixed)}, []string{launcher, first, second, third}},
		"restarting, every pod of a TrainJob":      {whole{job: ofTrainJob(), state: bert(Restarting, failed, isRunning, failed)}, []string{setLauncher, setFirst, setSecond}},
		"restarting, not the fetched data":         {whole{job: ofTrainJob(data...), state: fetcher(bert(Restarting, failed), succeeded)}, []string{setLauncher}},
		// A launcher that has finished is kept for its log.
		"restarting, no pod of an MPIJob":               {whole{job: ofMPIJob(), state: of(Restarting, failed, mixed)}, nil},
		"restarting, a launcher whose container exited": {whole{job: ofMPIJob(), state: exited}, nil},
		"restarting, a running launcher":                {whole{job: ofMPIJob(), state: of(Restarting, isRunning, mixed)}, []string{launcher}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			plan := tc.plan(t)
			if diff := cmp.Diff(tc.want, describeAll(t, plan.Remove)); diff != "" {
				t.Errorf("what must be deleted (-want +got):\n%s", diff)
			}
			if len(plan.Ensure)+len(plan.Pods) > 0 {
				t.Errorf("%v must exist", describeAll(t, slices.Concat(plan.Ensure, podObjects(plan))))
			}
			for _, object := range plan.Remove {
				if object.GetNamespace() != "team-a" {
					t.Errorf("%s is of namespace %q", describe(t, object), object.GetNamespace())
				}
				wantUID(t, object.GetName(), describe(t, object), string(object.GetUID()))
			}
		})
	}
}

// wantUID checks the UID: a newer pod or workload of the same name must not be deleted.
func wantUID(t *testing.T, name, described, uid string) {
	t.Helper()
	switch want := map[string]string{"Pod " + name: "uid-of-" + name, "Job " + name: string(workloadUID), "JobSet " + name: string(workloadUID)}[described]; {
	case uid != want:
		t.Errorf("%s has the UID %q, want %q", described, uid, want)
	}
}

// Pods that are being deleted are not deleted again.
func TestDeletedPodsAreNotRemovedAgain(t *testing.T) {
	for _, stage := range []Stage{Suspended, Held, Restarting, Finished} {
		state := State{Stage: stage, Launchers: existing(trainJob(), training.RoleLauncher, 0, corev1.PodRunning), Workers: existing(trainJob(), training.RoleWorker, 0, corev1.PodRunning)}
		for _, pod := range slices.Concat(state.Launchers, state.Workers) {
			pod.DeletionTimestamp = &metav1.Time{}
		}
		for _, object := range (whole{job: ofTrainJob(), state: state}).plan(t).Remove {
			if _, isPod := object.(*corev1.Pod); isPod {
				t.Errorf("%s: %s must be deleted", stage, describe(t, object))
			}
		}
	}
}

// A launcher's pod keeps its finalizer while the job's result depends on it.
func TestReleased(t *testing.T) {
	first := existing(trainJob(), training.RoleLauncher, 0, corev1.PodFailed)
	second := existing(trainJob(), training.RoleLauncher, 1, corev1.PodRunning)
	both := slices.Concat(first, second)
	withoutFinalizer := existing(trainJob(), training.RoleLauncher, 0, corev1.PodFailed)
	withoutFinalizer[0].Finalizers = []string{"example.com/theirs"}
	tests := map[string]struct {
		state State
		want  []*corev1.Pod
	}{
		"active":                    {State{Stage: Active, Launchers: first}, nil},
		"initializing":              {State{Stage: Initializing, Launchers: first}, nil},
		"active, after a restart":   {State{Stage: Active, Restart: 1, Launchers: both}, first},
		"restarting":                {State{Stage: Restarting, Restart: 1, Launchers: first}, first},
		"held":                      {State{Stage: Held, Launchers: first}, first},
		"suspended":                 {State{Stage: Suspended, Launchers: first}, first},
		"finished":                  {State{Stage: Finished, Restart: 1, Launchers: both}, both},
		"no finalizer":              {State{Stage: Finished, Launchers: withoutFinalizer}, nil},
		"workers have no finalizer": {State{Stage: Finished, Workers: workers(corev1.PodFailed)}, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Released(tc.state)); diff != "" {
				t.Errorf("released (-want +got):\n%s", diff)
			}
		})
	}
}
