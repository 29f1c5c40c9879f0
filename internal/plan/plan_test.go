package plan

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/testing/goldenfile"
)

// plans are jobs worth looking at as a whole: the name says why. Each one is a
// stage, a kind, a gang or a word of the user's that others do not have; what
// differs in less than that is in the tables below.
var plans = map[string]whole{
	"MPIJob without a gang":             {job: ofMPIJob()},
	"MPIJob, coscheduling":              {job: ofMPIJob(timeout(120)), has: hasCoscheduling},
	"MPIJob, volcano":                   {job: ofMPIJob(priority("urgent"), volcanoQueue("research")), has: hasVolcano},
	"MPIJob, native":                    {job: ofMPIJob(priority("urgent")), has: hasNative, method: InitContainer},
	"MPIJob, the launcher runs ranks":   {job: ofMPIJob(launcherRunsRanks), has: hasCoscheduling},
	"MPIJob, the launcher alone":        {job: ofMPIJob(launcherRunsRanks, noWorkers)},
	"MPIJob, an sshd of the image":      {job: ofMPIJob(asUser)},
	"MPIJob on the host's network":      {job: ofMPIJob(both(hostNetwork))},
	"MPIJob, a template that says much": {job: ofMPIJob(both(ownEverything), both(ownNames))},

	"MPIJob, suspended": {job: ofMPIJob(), has: hasVolcano, state: State{Stage: Suspended, Workers: workers(corev1.PodRunning, corev1.PodPending)}},
	"MPIJob, finished":  {job: ofMPIJob(), has: hasNative, state: State{Stage: Finished, Workers: workers(corev1.PodRunning, corev1.PodFailed), LauncherActive: true}},

	"TrainJob without a gang":            {job: ofTrainJob(nodes(3))},
	"TrainJob, coscheduling, in a queue": {job: ofTrainJob(nodes(3), slots(2), inQueue), has: hasCoscheduling},
	"TrainJob, volcano":                  {job: ofTrainJob(nodes(3), asksVolcano("research", "urgent")), has: hasVolcano},
	"TrainJob, native, started anew":     {job: ofTrainJob(nodes(3), restarts(3)), has: hasNative, method: InitContainer},
	"TrainJob, a runtime that says much": {job: ofTrainJob(nodes(3), runtimeSaysMuch)},
	"TrainJob with data":                 {job: ofTrainJob(nodes(3), fetches("s3://bucket/set", "hf://org/model"), claim("shared"))},

	"TrainJob, fetching to a claim that is there": {
		job:   ofTrainJob(nodes(3), fetches("s3://bucket/set", "hf://org/model"), secrets("s3", "hub"), claim("shared")),
		state: State{Stage: Initializing},
	},
	"TrainJob, fetching to a claim of its own": {
		job:   ofTrainJob(nodes(3), fetches("pvc://archive/sets/one", ""), newClaim("200Gi", "fast"), trainJobNetworkPolicy(training.NetworkPolicyRestricted)),
		state: State{Stage: Initializing}, has: hasCoscheduling,
	},
	"TrainJob, suspended": {
		job: ofTrainJob(fetches("", "hf://org/model"), newClaim("10Gi", "")), has: hasCoscheduling, state: State{Stage: Suspended},
	},
	"TrainJob, finished": {job: ofTrainJob(), has: hasCoscheduling, state: State{Stage: Finished, WorkloadEnds: true}},
}

func planFile(name string) string {
	return filepath.Join("testdata/plan", strings.NewReplacer(",", "", "'s", "", " ", "-").Replace(strings.ToLower(name))+".golden.yaml")
}

func TestPlans(t *testing.T) {
	files := map[string]bool{}
	for name, tc := range plans {
		files[planFile(name)] = true
		t.Run(name, func(t *testing.T) {
			got := renderPlan(t, tc.plan(t))
			goldenfile.Check(t, planFile(name), got)
		})
	}
	goldenfile.NoOthers(t, "testdata/plan/*", files)
}

// What others refer to comes first: a pod whose Secret or group is not there
// waits for it without need.
func TestWhatExistsAndInWhichOrder(t *testing.T) {
	support := []string{"Service resnet-worker", "ConfigMap resnet-hostfile", "Secret resnet-ssh-key"}
	twoWorkers := []string{"Pod resnet-worker-0", "Pod resnet-worker-1"}
	withLauncher := append(slices.Clone(twoWorkers), "Job resnet-launcher")
	group := []string{"PodGroup resnet"}
	ofBert := []string{"ConfigMap bert-hostfile", "Secret bert-ssh"}
	restricted := training.NetworkPolicyRestricted
	data := []trainOption{fetches("s3://bucket/set", ""), newClaim("1Gi", "")}
	tests := map[string]struct {
		whole
		want []string
	}{
		"an MPIJob":                                {whole{job: ofMPIJob()}, slices.Concat(support, withLauncher)},
		"an MPIJob in a gang":                      {whole{job: ofMPIJob(), has: hasVolcano}, slices.Concat(support, group, withLauncher)},
		"a policy before any pod":                  {whole{job: ofMPIJob(networkPolicy(restricted))}, slices.Concat([]string{"NetworkPolicy mpijob-resnet"}, support, withLauncher)},
		"no workers":                               {whole{job: ofMPIJob(launcherRunsRanks, noWorkers)}, append(slices.Clone(support), "Job resnet-launcher")},
		"no workers are no gang":                   {whole{job: ofMPIJob(launcherRunsRanks, noWorkers), has: hasVolcano}, append(slices.Clone(support), "Job resnet-launcher")},
		"a launcher that waits":                    {whole{job: ofMPIJob(launcherWaits)}, slices.Concat(support, twoWorkers)},
		"a launcher that has waited":               {whole{job: ofMPIJob(launcherWaits), state: State{WorkersReady: true}}, slices.Concat(support, withLauncher)},
		"a launcher that would keep its gang back": {whole{job: ofMPIJob(launcherWaits), has: hasCoscheduling}, slices.Concat(support, group, withLauncher)},
		"workers that are ready hold nobody back":  {whole{job: ofMPIJob(), state: State{WorkersReady: true}}, slices.Concat(support, withLauncher)},
		"a TrainJob":                               {whole{job: ofTrainJob()}, append(slices.Clone(ofBert), "JobSet bert")},
		"a TrainJob in a gang":                     {whole{job: ofTrainJob(), has: hasNative}, slices.Concat(ofBert, []string{"PodGroup bert", "JobSet bert"})},
		"a TrainJob with a policy":                 {whole{job: ofTrainJob(trainJobNetworkPolicy(restricted))}, slices.Concat([]string{"NetworkPolicy trainjob-bert-network"}, ofBert, []string{"JobSet bert"})},
		// The claim belongs to the stage before, and stays.
		"a TrainJob with data": {whole{job: ofTrainJob(data...)}, append(slices.Clone(ofBert), "JobSet bert")},
		"fetching, and neither group nor keys": {
			whole{job: ofTrainJob(data...), has: hasCoscheduling, state: State{Stage: Initializing}},
			[]string{"PersistentVolumeClaim bert-workspace", "Job bert-initializer"},
		},
		"fetching under a policy": {
			whole{job: ofTrainJob(append(data, trainJobNetworkPolicy(restricted))...), state: State{Stage: Initializing}},
			[]string{"NetworkPolicy trainjob-bert-network", "PersistentVolumeClaim bert-workspace", "Job bert-initializer"},
		},
		"fetching to a claim that is there": {
			whole{job: ofTrainJob(fetches("s3://bucket/set", ""), claim("shared")), state: State{Stage: Initializing}},
			[]string{"Job bert-initializer"},
		},
		"nothing to fetch": {whole{job: ofTrainJob(), state: State{Stage: Initializing}}, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			plan := tc.plan(t)
			if diff := cmp.Diff(tc.want, describeAll(t, plan.Ensure)); diff != "" {
				t.Errorf("what must exist (-want +got):\n%s", diff)
			}
			if len(plan.Remove) > 0 || plan.StopLauncher {
				t.Errorf("%v must go, the launcher: %t", describeAll(t, plan.Remove), plan.StopLauncher)
			}
		})
	}
}
