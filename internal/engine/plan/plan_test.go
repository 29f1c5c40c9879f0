// SPDX-License-Identifier: Apache-2.0

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

// plans are jobs whose whole plans are stored. Each has a stage, a kind, a gang
// scheduler or a setting that the others do not have; smaller differences are in the
// tables below.
var plans = map[string]whole{
	"MPIJob without a gang":                 {job: ofMPIJob()},
	"MPIJob, coscheduling":                  {job: ofMPIJob(timeout(120)), has: hasCoscheduling},
	"MPIJob, volcano":                       {job: ofMPIJob(priority("urgent"), volcanoQueue("research")), has: hasVolcano},
	"MPIJob, native":                        {job: ofMPIJob(priority("urgent")), has: hasNative, method: InitContainer},
	"MPIJob, the launcher runs ranks":       {job: ofMPIJob(launcherRunsRanks), has: hasCoscheduling},
	"MPIJob, the launcher alone":            {job: ofMPIJob(launcherRunsRanks, noWorkers)},
	"MPIJob, an sshd of the image":          {job: ofMPIJob(asUser)},
	"MPIJob on the host's network":          {job: ofMPIJob(both(hostNetwork))},
	"MPIJob, a template with many settings": {job: ofMPIJob(both(ownEverything), both(ownNames))},

	"MPIJob, restarted": {job: ofMPIJob(), state: State{Restart: 2}},
	"MPIJob, suspended": {job: ofMPIJob(), has: hasVolcano, state: State{Stage: Suspended, Workers: workers(corev1.PodRunning, corev1.PodPending)}},
	"MPIJob, finished":  {job: ofMPIJob(), has: hasNative, state: State{Stage: Finished, Workers: workers(corev1.PodRunning, corev1.PodFailed), Launchers: existing(mpiJob(), training.RoleLauncher, 0, corev1.PodRunning)}},

	"TrainJob without a gang":                {job: ofTrainJob(nodes(3))},
	"TrainJob, coscheduling, in a queue":     {job: ofTrainJob(nodes(3), slots(2), inQueue), has: hasCoscheduling},
	"TrainJob, volcano":                      {job: ofTrainJob(nodes(3), asksVolcano("research", "urgent")), has: hasVolcano},
	"TrainJob, native, restarted":            {job: ofTrainJob(nodes(3), restarts(3)), has: hasNative, method: InitContainer, state: State{Restart: 2}},
	"TrainJob, a runtime with many settings": {job: ofTrainJob(nodes(3), runtimeSaysMuch)},
	"TrainJob with data":                     {job: ofTrainJob(nodes(3), fetches("s3://bucket/set", "hf://org/model"), claim("shared"))},

	"TrainJob, initializing to an existing PVC": {
		job:   ofTrainJob(nodes(3), fetches("s3://bucket/set", "hf://org/model"), secrets("s3", "hub"), claim("shared")),
		state: State{Stage: Initializing},
	},
	"TrainJob, initializing to a new PVC": {
		job:   ofTrainJob(nodes(3), fetches("pvc://archive/sets/one", ""), newClaim("200Gi", "fast"), trainJobNetworkPolicy(training.NetworkPolicyRestricted)),
		state: State{Stage: Initializing}, has: hasCoscheduling,
	},
	"TrainJob, suspended": {
		job: ofTrainJob(fetches("", "hf://org/model"), newClaim("10Gi", "")), has: hasCoscheduling,
		state: State{Stage: Suspended, Initializers: existing(trainJob(), training.RoleInitializer, 0, corev1.PodRunning)},
	},
	"TrainJob, finished": {job: ofTrainJob(), has: hasCoscheduling, state: State{
		Stage: Finished, LauncherDone: true, Launchers: existing(trainJob(), training.RoleLauncher, 0, corev1.PodSucceeded),
		Workers: existing(trainJob(), training.RoleWorker, 0, corev1.PodRunning, corev1.PodSucceeded),
	}},
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

// Objects that others refer to come first: a pod whose Secret or group is missing would
// wait.
func TestObjectsInOrder(t *testing.T) {
	support := []string{"Service resnet-worker", "ConfigMap resnet-hostfile", "Secret resnet-ssh-key"}
	twoWorkers := []string{"Pod resnet-worker-0", "Pod resnet-worker-1"}
	withLauncher := append(slices.Clone(twoWorkers), "Pod resnet-launcher-r0")
	group, launcher := []string{"PodGroup resnet"}, []string{"Job resnet-launcher"}
	ofBert := []string{"Service bert-worker", "ConfigMap bert-hostfile", "Secret bert-ssh"}
	set := []string{"JobSet bert"}
	bertPods := []string{"Pod bert-worker-0-0-r0", "Pod bert-worker-0-1-r0", "Pod bert-launcher-0-0-r0"}
	fetcher := []string{"Pod bert-initializer-r0"}
	restricted := training.NetworkPolicyRestricted
	data := []trainOption{fetches("s3://bucket/set", ""), newClaim("1Gi", "")}
	active := slices.Concat(support, launcher)
	tests := map[string]struct {
		whole
		want, wantPods []string
	}{
		"an MPIJob":                                {whole{job: ofMPIJob()}, active, withLauncher},
		"an MPIJob in a gang":                      {whole{job: ofMPIJob(), has: hasVolcano}, slices.Concat(support, group, launcher), withLauncher},
		"a policy before any pod":                  {whole{job: ofMPIJob(networkPolicy(restricted))}, slices.Concat([]string{"NetworkPolicy mpijob-resnet"}, active), withLauncher},
		"no workers":                               {whole{job: ofMPIJob(launcherRunsRanks, noWorkers)}, active, withLauncher[2:]},
		"no workers, so no gang":                   {whole{job: ofMPIJob(launcherRunsRanks, noWorkers), has: hasVolcano}, active, withLauncher[2:]},
		"a waiting launcher":                       {whole{job: ofMPIJob(launcherWaits)}, active, twoWorkers},
		"a launcher after its workers are ready":   {whole{job: ofMPIJob(launcherWaits), state: State{WorkersReady: true}}, active, withLauncher},
		"a waiting launcher in a gang":             {whole{job: ofMPIJob(launcherWaits), has: hasCoscheduling}, slices.Concat(support, group, launcher), withLauncher},
		"ready workers":                            {whole{job: ofMPIJob(), state: State{WorkersReady: true}}, active, withLauncher},
		"an MPIJob whose workload has no UID yet":  {whole{job: ofMPIJob(), noWorkload: true}, active, nil},
		"an MPIJob, restarted":                     {whole{job: ofMPIJob(), state: State{Restart: 3}}, active, append(slices.Clone(twoWorkers), "Pod resnet-launcher-r3")},
		"a TrainJob":                               {whole{job: ofTrainJob(nodes(2))}, slices.Concat(ofBert, set), bertPods},
		"a TrainJob in a gang":                     {whole{job: ofTrainJob(nodes(2)), has: hasNative}, slices.Concat(ofBert, []string{"PodGroup bert"}, set), bertPods},
		"a TrainJob with a policy":                 {whole{job: ofTrainJob(nodes(2), trainJobNetworkPolicy(restricted))}, slices.Concat([]string{"NetworkPolicy trainjob-bert-network"}, ofBert, set), bertPods},
		"a TrainJob whose workload has no UID yet": {whole{job: ofTrainJob(), noWorkload: true}, slices.Concat(ofBert, set), nil},
		"a TrainJob, restarted": {
			whole{job: ofTrainJob(nodes(2)), state: State{Restart: 1}}, slices.Concat(ofBert, set),
			[]string{"Pod bert-worker-0-0-r1", "Pod bert-worker-0-1-r1", "Pod bert-launcher-0-0-r1"},
		},
		// The PVC was created in the stage before.
		"a TrainJob with data": {whole{job: ofTrainJob(append(data, nodes(2))...)}, slices.Concat(ofBert, set), bertPods},
		"initializing, without group and keys": {
			whole{job: ofTrainJob(data...), has: hasCoscheduling, noWorkload: true, state: State{Stage: Initializing}},
			[]string{"PersistentVolumeClaim bert-workspace"}, fetcher,
		},
		"initializing with a policy": {
			whole{job: ofTrainJob(append(data, trainJobNetworkPolicy(restricted))...), noWorkload: true, state: State{Stage: Initializing}},
			[]string{"NetworkPolicy trainjob-bert-network", "PersistentVolumeClaim bert-workspace"}, fetcher,
		},
		"initializing to an existing PVC": {
			whole{job: ofTrainJob(fetches("s3://bucket/set", ""), claim("shared")), noWorkload: true, state: State{Stage: Initializing}}, nil, fetcher,
		},
		"initializing after a restart": {
			whole{job: ofTrainJob(data...), noWorkload: true, state: State{Stage: Initializing, Restart: 1}},
			[]string{"PersistentVolumeClaim bert-workspace"}, []string{"Pod bert-initializer-r1"},
		},
		"nothing to fetch": {whole{job: ofTrainJob(), state: State{Stage: Initializing}}, nil, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			plan := tc.plan(t)
			if diff := cmp.Diff(tc.want, describeAll(t, plan.Ensure)); diff != "" {
				t.Errorf("what must exist (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.wantPods, describeAll(t, podObjects(plan))); diff != "" {
				t.Errorf("pods (-want +got):\n%s", diff)
			}
			if len(plan.Remove) > 0 {
				t.Errorf("%v must be deleted", describeAll(t, plan.Remove))
			}
		})
	}
}
