// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/config"
)

func TestReplicas(t *testing.T) {
	const unsupported = `spec.mpiReplicaSpecs: Unsupported value: "Chief": supported values: "Launcher", "Worker"`
	outOf := func(count, limits string) []string {
		return []string{"spec.mpiReplicaSpecs.Worker.replicas: Invalid value: " + count + ": Worker replicas must be between " + limits}
	}
	roles := func(roles ...v2beta1.MPIReplicaType) func(*v2beta1.MPIJob) {
		return func(mpiJob *v2beta1.MPIJob) {
			for _, role := range roles {
				mpiJob.Spec.MPIReplicaSpecs[role] = &v2beta1.ReplicaSpec{Template: podTemplate("main", "true")}
			}
		}
	}
	all := func(changes ...func(*v2beta1.MPIJob)) func(*v2beta1.MPIJob) {
		return func(mpiJob *v2beta1.MPIJob) {
			for _, change := range changes {
				change(mpiJob)
			}
		}
	}
	launcherRunsNone := func(mpiJob *v2beta1.MPIJob) { mpiJob.Spec.RunLauncherAsWorker = new(false) }
	const required = "spec.mpiReplicaSpecs.Worker: Required value: Worker replica spec is required"
	tests := map[string]struct {
		minWorkers int32
		change     func(*v2beta1.MPIJob)
		want       []string
	}{
		"two workers": {minWorkers: 2},
		"one worker":  {minWorkers: 2, change: workers(1), want: outOf("1", "2 and 100")},
		"a number of workers that is left out is one": {
			minWorkers: 2, change: func(mpiJob *v2beta1.MPIJob) { mpiJob.Spec.MPIReplicaSpecs["Worker"].Replicas = nil }, want: outOf("1", "2 and 100"),
		},
		"less than none":      {minWorkers: 2, change: workers(-1), want: outOf("-1", "2 and 100")},
		"a hundred":           {minWorkers: 2, change: workers(100)},
		"more than a hundred": {minWorkers: 2, change: workers(101), want: outOf("101", "2 and 100")},

		"a launcher that is a worker, and one more":            {minWorkers: 2, change: all(launcherRunsRanks, workers(1))},
		"a launcher that is a worker, and none beside it":      {minWorkers: 2, change: all(launcherRunsRanks, workers(0)), want: outOf("0", "1 and 100")},
		"a launcher that is a worker, where three are asked":   {minWorkers: 3, change: all(launcherRunsRanks, workers(1)), want: outOf("1", "2 and 100")},
		"a launcher that is a worker, and too many beside it":  {minWorkers: 2, change: all(launcherRunsRanks, workers(101)), want: outOf("101", "1 and 100")},
		"a launcher that says it is no worker":                 {minWorkers: 2, change: all(launcherRunsNone, workers(1)), want: outOf("1", "2 and 100")},
		"a launcher that is a worker does not count as enough": {minWorkers: 2, change: all(launcherRunsRanks, noWorkers), want: []string{required}},

		"no workers at all where two are asked":          {minWorkers: 2, change: noWorkers, want: []string{required}},
		"no workers at all where none is asked":          {minWorkers: 0, change: noWorkers},
		"no workers at all where the launcher is enough": {minWorkers: 1, change: all(launcherRunsRanks, noWorkers)},

		"nobody": {
			minWorkers: 2, change: func(mpiJob *v2beta1.MPIJob) { mpiJob.Spec.MPIReplicaSpecs = nil },
			want: []string{"spec.mpiReplicaSpecs: Required value: mpiReplicaSpecs is required: add a Launcher and Workers"},
		},
		"somebody else": {minWorkers: 2, change: roles("Chief"), want: []string{unsupported}},
		"several others, in order": {
			minWorkers: 2, change: roles("Evaluator", "Chief"),
			want: []string{unsupported, strings.Replace(unsupported, "Chief", "Evaluator", 1)},
		},
		"a launcher that is null": {
			minWorkers: 2, change: func(mpiJob *v2beta1.MPIJob) { mpiJob.Spec.MPIReplicaSpecs["Launcher"] = nil },
			want: []string{"spec.mpiReplicaSpecs.Launcher: Required value: Launcher replica spec is required"},
		},
		"no launcher": {
			minWorkers: 2, change: func(mpiJob *v2beta1.MPIJob) { mpiJob.Spec.MPIReplicaSpecs["Launcher"].Replicas = new(int32(0)) },
			want: []string{"spec.mpiReplicaSpecs.Launcher.replicas: Invalid value: 0: Launcher replicas must be exactly 1, got 0"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			job := mpiJob()
			if tc.change != nil {
				tc.change(job)
			}
			rules := configured(func(configuration *config.Config) { configuration.Limits.MinWorkers = tc.minWorkers })
			var got []string
			for _, fault := range rules.CreateMPIJob(job, anywhere()).Errors {
				got = append(got, fault.Error())
			}
			wantLines(t, tc.want, got)
		})
	}
}

// The name of the last worker, or of the launcher, must be a host name.
func TestNamesOfMPIJobs(t *testing.T) {
	tests := map[string]struct {
		length, workers int
		want            []string
	}{
		"room for the launcher":             {length: 54, workers: 10},
		"no room for the launcher":          {length: 55, workers: 10, want: []string{"has 55 characters; it can have at most 54, because the host name <name>-launcher of a pod can have at most 63"}},
		"room for worker ten":               {length: 53, workers: 11},
		"no room for worker ten":            {length: 54, workers: 11, want: []string{"has 54 characters; it can have at most 53, because the host name <name>-worker-10 of a pod can have at most 63"}},
		"a hundred workers count from zero": {length: 53, workers: 100},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			job := mpiJob(workers(int32(tc.workers)), func(mpiJob *v2beta1.MPIJob) { mpiJob.Name = strings.Repeat("n", tc.length) })
			var got []string
			for _, fault := range rules().CreateMPIJob(job, anywhere()).Errors {
				got = append(got, fault.Detail)
			}
			wantLines(t, tc.want, got)
		})
	}
}

// Where a container runs an sshd of its own, the operator mounts keys for it.
func TestSSHDirectory(t *testing.T) {
	at := func(directory string) func(*v2beta1.MPIJob) {
		return func(mpiJob *v2beta1.MPIJob) {
			for _, pod := range []*corev1.PodSpec{launcherPod(mpiJob), workerPod(mpiJob)} {
				pod.Volumes = []corev1.Volume{{Name: "own"}}
				pod.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "own", MountPath: directory}}
			}
		}
	}
	path := func(directory string) func(*v2beta1.MPIJob) {
		return func(mpiJob *v2beta1.MPIJob) { mpiJob.Spec.SSHAuthMountPath = directory }
	}
	asRoot := func(mpiJob *v2beta1.MPIJob) {
		workerOf(mpiJob).SecurityContext = &corev1.SecurityContext{RunAsUser: new(int64(0))}
	}
	taken := func(directory string) []string {
		text := ".volumeMounts[0].mountPath: Forbidden: " + directory + " is used by the operator, for files that MPI needs; use another mountPath"
		return []string{launcherContainer + text, workerContainer + text}
	}
	type changes = []func(*v2beta1.MPIJob)
	tests := map[string]struct {
		changes changes
		want    []string
	}{
		"a directory":      {changes: changes{runsSSHD, path("/home/me/.ssh")}},
		"half a directory": {changes: changes{runsSSHD, path("home/me/.ssh")}, want: []string{`spec.sshAuthMountPath: Invalid value: "home/me/.ssh": must be an absolute path`}},
		"half a directory that nobody will mount":   {changes: changes{path(".ssh")}, want: []string{`spec.sshAuthMountPath: Invalid value: ".ssh": must be an absolute path`}},
		"the directory of the hostfile":             {changes: changes{runsSSHD, path("/etc/mpi/")}, want: []string{`spec.sshAuthMountPath: Invalid value: "/etc/mpi/": must be a directory that is used for nothing else`}},
		"everything":                                {changes: changes{runsSSHD, path("/../")}, want: []string{`spec.sshAuthMountPath: Invalid value: "/../": must be a directory that is used for nothing else`}},
		"something else there":                      {changes: changes{runsSSHD, path("/keys/"), at("/keys")}, want: taken("/keys")},
		"something else beside it":                  {changes: changes{runsSSHD, path("/keys"), at("/keys/mine")}},
		"something else where it is for a user":     {changes: changes{runsSSHD, at("/home/mpiuser/.ssh")}, want: taken("/home/mpiuser/.ssh")},
		"something else where it is for root":       {changes: changes{runsSSHD, asRoot, at("/root/.ssh/")}, want: taken("/root/.ssh")},
		"something where it is for root, as a user": {changes: changes{runsSSHD, at("/root/.ssh")}},
		"something there, and the agent needs none": {changes: changes{at("/home/mpiuser/.ssh")}},
		"args run an sshd as well": {
			changes: changes{func(mpiJob *v2beta1.MPIJob) { workerOf(mpiJob).Args = []string{"sshd"} }, at("/home/mpiuser/.ssh")}, want: taken("/home/mpiuser/.ssh"),
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, fault := range rules().CreateMPIJob(mpiJob(tc.changes...), anywhere()).Errors {
				got = append(got, fault.Error())
			}
			wantLines(t, tc.want, got)
		})
	}
}

func TestSchedulingPolicy(t *testing.T) {
	const at = "spec.runPolicy.schedulingPolicy"
	tests := map[string]struct {
		policy             v2beta1.SchedulingPolicy
		want, wantWarnings []string
	}{
		"nothing": {},
		"resources": {
			policy:       v2beta1.SchedulingPolicy{MinResources: new(list("cpu", "0", "memory", "1Ei", "nvidia.com/gpu", "3"))},
			wantWarnings: []string{at + ".minResources: is only used by Volcano and the coscheduling plugin; it has no effect with another scheduler"},
		},
		"resources, in a queue of Volcano": {policy: v2beta1.SchedulingPolicy{MinResources: new(list("cpu", "1")), Queue: "gpus"}},
		"no resources":                     {policy: v2beta1.SchedulingPolicy{MinResources: &corev1.ResourceList{}}},
		"all of the pods":                  {policy: v2beta1.SchedulingPolicy{MinAvailable: new(int32(3))}},
		"no limit to wait":                 {policy: v2beta1.SchedulingPolicy{ScheduleTimeoutSeconds: new(int32(0))}},
		"resources that cannot be, in order": {
			policy: v2beta1.SchedulingPolicy{MinResources: new(list("nvidia.com/gpu", "100m", "memory", "2Ei", "cpu", "-1", "amd.com/gpu", "1500m", "gpus", "1"))},
			want: []string{
				at + `.minResources[amd.com/gpu]: Invalid value: "1500m": must be a whole number`,
				at + `.minResources[cpu]: Invalid value: "-1": must not be negative`,
				at + `.minResources[gpus]: Invalid value: "gpus": is not a resource name; device resources have names like nvidia.com/gpu`,
				at + `.minResources[memory]: Invalid value: "2Ei": is more than any node has`,
				at + `.minResources[nvidia.com/gpu]: Invalid value: "100m": must be a whole number`,
			},
			wantWarnings: []string{at + ".minResources: is only used by Volcano and the coscheduling plugin; it has no effect with another scheduler"},
		},
		"more pods than there are": {
			policy: v2beta1.SchedulingPolicy{MinAvailable: new(int32(4))},
			want:   []string{at + ".minAvailable: Invalid value: 4: minAvailable must be between 1 and 3"},
		},
		"a part of the pods": {
			policy:       v2beta1.SchedulingPolicy{MinAvailable: new(int32(1))},
			wantWarnings: []string{at + ".minAvailable: 1 of 3 pods are scheduled together, but the job only starts once all of them are ready; remove it to schedule all pods together"},
		},
		"hardly any time": {
			policy:       v2beta1.SchedulingPolicy{ScheduleTimeoutSeconds: new(int32(5))},
			wantWarnings: []string{at + ".scheduleTimeoutSeconds: 5 is raised to 60, the minimum of this cluster"},
		},
		"less than no time": {
			policy: v2beta1.SchedulingPolicy{ScheduleTimeoutSeconds: new(int32(-1))},
			want:   []string{at + ".scheduleTimeoutSeconds: Invalid value: -1: must be at least 0"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			job := mpiJob(func(mpiJob *v2beta1.MPIJob) { mpiJob.Spec.RunPolicy.SchedulingPolicy = &tc.policy })
			wantFindings(t, rules().CreateMPIJob(job, anywhere()), tc.want, tc.wantWarnings)
		})
	}
}

// Each class is looked for once, and told where it stands.
func TestPriorityClassesOfMPIJob(t *testing.T) {
	const ofJob = "spec.runPolicy.schedulingPolicy.priorityClass"
	const ofLauncher, ofWorker = launcherTemplate + ".spec.priorityClassName", workerTemplate + ".spec.priorityClassName"
	missing := func(path, class string) string {
		return path + `: Invalid value: "` + class + `": PriorityClass does not exist; list them with kubectl get priorityclasses`
	}
	tests := map[string]struct {
		job, launcher, worker string
		want, wantAsked       []string
	}{
		"none":                        {},
		"one that is there":           {job: "high", wantAsked: []string{"high"}},
		"the job's":                   {job: "none", want: []string{missing(ofJob, "none")}, wantAsked: []string{"none"}},
		"the launcher's":              {launcher: "none", want: []string{missing(ofLauncher, "none")}, wantAsked: []string{"none"}},
		"the worker's":                {worker: "none", want: []string{missing(ofWorker, "none")}, wantAsked: []string{"none"}},
		"the same everywhere":         {job: "none", launcher: "none", worker: "none", want: []string{missing(ofJob, "none")}, wantAsked: []string{"none"}},
		"a template's wins":           {job: "high", worker: "none", want: []string{missing(ofWorker, "none")}, wantAsked: []string{"high", "none"}},
		"each another, none is there": {job: "a", launcher: "b", worker: "c", want: []string{missing(ofJob, "a"), missing(ofLauncher, "b"), missing(ofWorker, "c")}, wantAsked: []string{"a", "b", "c"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			job := mpiJob(func(mpiJob *v2beta1.MPIJob) {
				mpiJob.Spec.RunPolicy.SchedulingPolicy = &v2beta1.SchedulingPolicy{PriorityClass: tc.job}
				launcherPod(mpiJob).PriorityClassName, workerPod(mpiJob).PriorityClassName = tc.launcher, tc.worker
			})
			var asked []string
			in := anywhere(func(in *ClusterFacts) {
				in.HasPriorityClass = func(name string) bool {
					asked = append(asked, name)
					return name == "high"
				}
			})
			wantFindings(t, rules().CreateMPIJob(job, in), tc.want, nil)
			if diff := cmp.Diff(tc.wantAsked, asked); diff != "" {
				t.Errorf("classes that were looked for (-want +got):\n%s", diff)
			}
		})
	}
}

// MultiKueue runs a job in another cluster, whose rules are not known here, and
// brings it there through mpi-operator's type.
func TestJobsOfMultiKueue(t *testing.T) {
	elsewhere := func(mpiJob *v2beta1.MPIJob) { mpiJob.Spec.RunPolicy.ManagedBy = new(training.ManagedByMultiKueue) }
	strict := anywhere(labelled("enforce", "restricted"), defaultRequest("cpu", "1"), func(in *ClusterFacts) {
		in.LimitRanges[0].Spec.Limits[0].Max = list("cpu", "500m")
		in.AnyNodeHas = func(corev1.ResourceName) bool { return false }
	})
	tests := map[string]struct {
		change             func(*v2beta1.MPIJob)
		want, wantWarnings []string
	}{
		"the namespace and the nodes of this cluster do not matter": {change: func(mpiJob *v2beta1.MPIJob) {
			workerPod(mpiJob).HostNetwork = true
			workerOf(mpiJob).Resources = limitsOf("cpu", "1", "memory", "1Gi", "nvidia.com/gpu", "1")
		}},
		"a network policy would be lost": {
			change: func(mpiJob *v2beta1.MPIJob) {
				mpiJob.Spec.NetworkPolicy = &training.NetworkPolicy{Template: training.NetworkPolicyDefault}
			},
			want: []string{"spec.networkPolicy: Forbidden: MultiKueue drops this field, so the job would run without a NetworkPolicy; create the NetworkPolicy yourself"},
		},
		"other fields would be lost too, which is less bad": {
			change: func(mpiJob *v2beta1.MPIJob) {
				mpiJob.Spec.CleanPodPolicy, mpiJob.Spec.RequireAllHosts = new(training.CleanPodPolicyAll), new(true)
			},
			wantWarnings: []string{
				"spec.cleanPodPolicy: MultiKueue drops this field; use runPolicy.cleanPodPolicy",
				"spec.requireAllHosts: MultiKueue drops this field",
			},
		},
		"a policy in both places is passed on": {change: func(mpiJob *v2beta1.MPIJob) {
			mpiJob.Spec.CleanPodPolicy, mpiJob.Spec.RunPolicy.CleanPodPolicy = new(training.CleanPodPolicyAll), new(training.CleanPodPolicyAll)
		}},
		"what a worker must ask for is the same everywhere": {
			change: func(mpiJob *v2beta1.MPIJob) { workerOf(mpiJob).Resources = limitsOf("cpu", "500m") },
			want:   []string{workerContainer + `.resources.requests[cpu]: Invalid value: "500m": a worker must request at least 1 cpu`},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			wantFindings(t, rules().CreateMPIJob(mpiJob(elsewhere, tc.change), strict), tc.want, tc.wantWarnings)
		})
	}
}

func TestSSHDirectoryThatNobodyReads(t *testing.T) {
	named := func(mpiJob *v2beta1.MPIJob) { mpiJob.Spec.SSHAuthMountPath = "/home/me/.ssh" }
	wantFindings(t, rules().CreateMPIJob(mpiJob(named), anywhere()), nil, []string{
		"spec.sshAuthMountPath: has no effect: the workers have no command, so the operator's agent accepts connections instead of an SSH server",
	})
	for _, warning := range rules().CreateMPIJob(mpiJob(named, runsSSHD), anywhere()).Warnings {
		if strings.Contains(warning.Field, "sshAuthMountPath") {
			t.Errorf("an image's own sshd reads the keys: %s", warning)
		}
	}
}
