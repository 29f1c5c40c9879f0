package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/training"
)

// What is left of a job, and what goes. Keys go always, pods as the user says,
// and the rest goes with the job.
func TestWhatGoes(t *testing.T) {
	const (
		keys, launcher         = "Secret resnet-ssh-key", "Job resnet-launcher"
		first, second, third   = "Pod resnet-worker-0", "Pod resnet-worker-1", "Pod resnet-worker-2"
		set, setKeys, fetching = "JobSet bert", "Secret bert-ssh", "Job bert-initializer"
	)
	all, running, none := training.CleanPodPolicyAll, training.CleanPodPolicyRunning, training.CleanPodPolicyNone
	mixed := workers(corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed)
	ended := workers(corev1.PodSucceeded, corev1.PodFailed)
	finished := func(workers []*corev1.Pod, launcherActive bool) State {
		return State{Stage: Finished, Workers: workers, LauncherActive: launcherActive}
	}
	data := []trainOption{fetches("s3://bucket/set", ""), newClaim("1Gi", "")}
	withData := func(options ...trainOption) []trainOption { return append(options, data...) }
	tests := map[string]struct {
		whole
		want []string
		stop bool
	}{
		"Running, a worker still runs": {whole: whole{job: ofMPIJob(cleans(running)), state: finished(mixed, false)}, want: []string{keys, first}},
		"Running is what is meant":     {whole: whole{job: ofMPIJob(), state: finished(mixed, false)}, want: []string{keys, first}},
		"Running, a worker waits for its place": {
			whole: whole{job: ofMPIJob(cleans(running)), state: finished(workers(corev1.PodPending, corev1.PodUnknown, ""), false)},
			want:  []string{keys, first, second, third},
		},
		"Running, all have ended":                {whole: whole{job: ofMPIJob(cleans(running)), state: finished(ended, false)}, want: []string{keys}},
		"Running, and so does the launcher":      {whole: whole{job: ofMPIJob(cleans(running)), state: finished(mixed, true)}, want: []string{keys, first}, stop: true},
		"All":                                    {whole: whole{job: ofMPIJob(cleans(all)), state: finished(mixed, false)}, want: []string{keys, launcher, first, second, third}},
		"All, what is deleted need not be ended": {whole: whole{job: ofMPIJob(cleans(all)), state: finished(mixed, true)}, want: []string{keys, launcher, first, second, third}},
		"None":                                   {whole: whole{job: ofMPIJob(cleans(none)), state: finished(mixed, false)}, want: []string{keys}},
		// A launcher that goes on would be a job that goes on.
		"None, the launcher still runs": {whole: whole{job: ofMPIJob(cleans(none)), state: finished(mixed, true)}, want: []string{keys}, stop: true},
		"the group goes first":          {whole: whole{job: ofMPIJob(), has: hasCoscheduling, state: finished(nil, false)}, want: []string{"PodGroup resnet", keys}},
		"no workers":                    {whole: whole{job: ofMPIJob(launcherRunsRanks, noWorkers, cleans(all)), state: finished(nil, false)}, want: []string{keys, launcher}},

		"a TrainJob that JobSet ends":              {whole: whole{job: ofTrainJob(), state: State{Stage: Finished, WorkloadEnds: true}}, want: []string{setKeys}},
		"a TrainJob that the operator ended":       {whole: whole{job: ofTrainJob(), state: State{Stage: Finished}}, want: []string{setKeys, set}},
		"a TrainJob, its launcher is not stopped":  {whole: whole{job: ofTrainJob(), state: State{Stage: Finished, LauncherActive: true}}, want: []string{setKeys, set}},
		"a TrainJob, All":                          {whole: whole{job: ofTrainJob(trainJobCleans(all)), state: State{Stage: Finished, WorkloadEnds: true}}, want: []string{setKeys, set}},
		"a TrainJob that ended while it fetched":   {whole: whole{job: ofTrainJob(data...), state: State{Stage: Finished, InitializerActive: true}}, want: []string{setKeys, set, fetching}},
		"a TrainJob that has fetched":              {whole: whole{job: ofTrainJob(data...), state: State{Stage: Finished, WorkloadEnds: true}}, want: []string{setKeys}},
		"a TrainJob that has fetched, All":         {whole: whole{job: ofTrainJob(withData(trainJobCleans(all))...), state: State{Stage: Finished, WorkloadEnds: true}}, want: []string{setKeys, set, fetching}},
		"a TrainJob in a gang":                     {whole: whole{job: ofTrainJob(), has: hasVolcano, state: State{Stage: Finished, WorkloadEnds: true}}, want: []string{"PodGroup bert", setKeys}},
		"suspended, launcher and workers":          {whole: whole{job: ofMPIJob(), state: State{Stage: Suspended, Workers: mixed}}, want: []string{launcher, first, second, third}},
		"suspended, the group":                     {whole: whole{job: ofMPIJob(), has: hasNative, state: State{Stage: Suspended}}, want: []string{launcher, "PodGroup resnet"}},
		"suspended, as its pods would be cleaned":  {whole: whole{job: ofMPIJob(cleans(none)), state: State{Stage: Suspended, Workers: ended}}, want: []string{launcher, first, second}},
		"suspended, a TrainJob":                    {whole: whole{job: ofTrainJob(), state: State{Stage: Suspended}}, want: []string{set}},
		"suspended, a TrainJob while it fetches":   {whole: whole{job: ofTrainJob(data...), state: State{Stage: Suspended, InitializerActive: true}}, want: []string{set, fetching}},
		"suspended, a TrainJob in a gang and data": {whole: whole{job: ofTrainJob(data...), has: hasCoscheduling, state: State{Stage: Suspended}}, want: []string{set, "PodGroup bert", fetching}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			plan := tc.plan(t)
			if diff := cmp.Diff(tc.want, describeAll(t, plan.Remove)); diff != "" {
				t.Errorf("what must go (-want +got):\n%s", diff)
			}
			if plan.StopLauncher != tc.stop {
				t.Errorf("the launcher is stopped: %t", plan.StopLauncher)
			}
			if len(plan.Ensure) > 0 {
				t.Errorf("%v must exist", describeAll(t, plan.Ensure))
			}
			for _, object := range plan.Remove {
				if object.GetNamespace() != "team-a" {
					t.Errorf("%s is of namespace %q", describe(t, object), object.GetNamespace())
				}
			}
		})
	}
}
