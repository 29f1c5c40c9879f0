// SPDX-License-Identifier: Apache-2.0

package job

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestPodsAndWorldSize(t *testing.T) {
	tests := map[string]struct {
		job       Job
		wantPods  int32
		wantWorld int32
	}{
		"the launcher has no ranks": {job: Job{Launcher: Role{Replicas: 1}, Worker: Role{Replicas: 4}, Slots: 2}, wantPods: 5, wantWorld: 8},
		"the launcher has ranks too": {
			job: Job{Launcher: Role{Replicas: 1}, Worker: Role{Replicas: 4}, Slots: 2, LauncherRunsRanks: true}, wantPods: 5, wantWorld: 10,
		},
		"a launcher alone": {job: Job{Launcher: Role{Replicas: 1}, Slots: 2}, wantPods: 1, wantWorld: 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tc.job.Pods(); got != tc.wantPods {
				t.Errorf("%d pods, want %d", got, tc.wantPods)
			}
			if got := tc.job.WorldSize(); got != tc.wantWorld {
				t.Errorf("%d ranks, want %d", got, tc.wantWorld)
			}
		})
	}
}

func TestWorkersRunAgent(t *testing.T) {
	tests := map[string]struct {
		containers []corev1.Container
		want       bool
	}{
		"no container":                      {want: false},
		"neither command nor args":          {containers: []corev1.Container{{}}, want: true},
		"a command":                         {containers: []corev1.Container{{Command: []string{"sshd"}}}, want: false},
		"args":                              {containers: []corev1.Container{{Args: []string{"-De"}}}, want: false},
		"a command of the second container": {containers: []corev1.Container{{}, {Command: []string{"metrics"}}}, want: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			job := Job{Worker: Role{Replicas: 1, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: tc.containers}}}}
			if got := job.WorkersRunAgent(); got != tc.want {
				t.Errorf("workers run the agent: %t, want %t", got, tc.want)
			}
		})
	}
}

func TestNames(t *testing.T) {
	want := []string{"bert-worker-12", "bert-launcher-0-0-xxxxx", "trainjob", "mpijob"}
	if diff := cmp.Diff(want, []string{WorkerName("bert", 12), KindTrainJob.LongestName("bert", 4), KindTrainJob.Type(), KindMPIJob.Type()}); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}

// The workload of a kind decides how its pods are named, owned and restarted.
func TestTraits(t *testing.T) {
	for kind, want := range map[Kind]struct {
		version                     string
		workload                    Workload
		ownsWorkers, restartsAll    bool
		numbersLauncher, hasRuntime bool
	}{
		KindTrainJob: {version: "kubeflow.org/v2alpha1", workload: "JobSet", ownsWorkers: true, restartsAll: true, hasRuntime: true},
		KindMPIJob:   {version: "kubeflow.org/v2beta1", workload: "Job", numbersLauncher: true},
	} {
		got := kind.Traits()
		if got.APIVersion != want.version || got.Workload != want.workload || got.WorkloadOwnsWorkers != want.ownsWorkers || got.RestartsAsWhole != want.restartsAll ||
			got.NumbersFromLauncher != want.numbersLauncher || got.HasRuntime != want.hasRuntime {
			t.Errorf("%s has %+v, want %+v", kind, got, want)
		}
	}
}

func TestObjects(t *testing.T) {
	type numbers = map[corev1.ResourceName]int64
	tests := map[string]struct {
		job  Job
		want numbers
	}{
		"an MPIJob": {
			job: Job{Kind: KindMPIJob},
			want: numbers{"services": 1, "count/services": 1, "secrets": 1, "count/secrets": 1, "configmaps": 1, "count/configmaps": 1,
				"count/jobs.batch": 1},
		},
		"a TrainJob": {
			job: Job{Kind: KindTrainJob},
			want: numbers{"services": 1, "count/services": 1, "secrets": 1, "count/secrets": 1, "configmaps": 1, "count/configmaps": 1,
				"count/jobsets.jobset.x-k8s.io": 1},
		},
		"a job with a NetworkPolicy": {
			job: Job{Kind: KindMPIJob, NetworkPolicy: "Default"},
			want: numbers{"services": 1, "count/services": 1, "secrets": 1, "count/secrets": 1, "configmaps": 1, "count/configmaps": 1,
				"count/jobs.batch": 1, "count/networkpolicies.networking.k8s.io": 1},
		},
		"a TrainJob with a new PVC": {
			job: Job{Kind: KindTrainJob, Initializer: &Initializer{Size: resource.MustParse("1Ki"), StorageClassName: new("fast")}},
			want: numbers{"services": 1, "count/services": 1, "secrets": 1, "count/secrets": 1, "configmaps": 1, "count/configmaps": 1,
				"count/jobsets.jobset.x-k8s.io": 1, "persistentvolumeclaims": 1, "count/persistentvolumeclaims": 1, "requests.storage": 1024,
				"fast.storageclass.storage.k8s.io/requests.storage": 1024, "fast.storageclass.storage.k8s.io/persistentvolumeclaims": 1},
		},
		"a TrainJob with an existing PVC": {
			job: Job{Kind: KindTrainJob, Initializer: &Initializer{ClaimName: "data"}},
			want: numbers{"services": 1, "count/services": 1, "secrets": 1, "count/secrets": 1, "configmaps": 1, "count/configmaps": 1,
				"count/jobsets.jobset.x-k8s.io": 1},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.job.Objects()); diff != "" {
				t.Errorf("objects (-want +got):\n%s", diff)
			}
		})
	}
}

// Jobs and runtimes come from a shared cache.
func TestInputsAreNotChanged(t *testing.T) {
	mpi, agent, train, runtime, given := completeMPIJob(), mpiJob(), completeTrainJob(), completeRuntime(), defaults()
	// The launcher has the operator's defaults, the worker the job's values.
	train.Spec.Launcher = nil
	type inputs struct {
		MPI, Agent, Train, Runtime any
		Defaults                   Defaults
	}
	now := func() inputs {
		copied := Defaults{LauncherResources: given.LauncherResources.DeepCopy(), ScheduleTimeoutSeconds: given.ScheduleTimeoutSeconds, MinScheduleTimeoutSeconds: given.MinScheduleTimeoutSeconds, RunAsUser: new(*given.RunAsUser)}
		return inputs{mpi.DeepCopy(), agent.DeepCopy(), train.DeepCopy(), runtime.DeepCopy(), copied}
	}
	before := now()
	for name, from := range map[string]func() *Job{
		"MPIJob with an sshd":   func() *Job { return FromMPIJob(mpi, given) },
		"MPIJob with the agent": func() *Job { return FromMPIJob(agent, given) },
		"TrainJob":              func() *Job { return FromTrainJob(train, runtime, given) },
	} {
		t.Run(name, func(t *testing.T) {
			first, second := from(), from()
			if diff := cmp.Diff(first, second); diff != "" {
				t.Errorf("two results differ:\n%s", diff)
			}
			if diff := cmp.Diff(before, now()); diff != "" {
				t.Errorf("the input was changed:\n%s", diff)
			}
			scribble(first)
			if diff := cmp.Diff(before, now()); diff != "" {
				t.Errorf("the job shares memory with the input:\n%s", diff)
			}
			if diff := cmp.Diff(second, from()); diff != "" {
				t.Errorf("the job shares memory with the next one:\n%s", diff)
			}
		})
	}
}

// scribble changes everything in a job that later steps may change.
func scribble(job *Job) {
	for _, role := range []*Role{&job.Launcher, &job.Worker} {
		pod := &role.Template.Spec
		if pod.SecurityContext != nil {
			*pod.SecurityContext.RunAsUser = 4711
		}
		for name := range pod.NodeSelector {
			pod.NodeSelector[name] = "scribbled"
		}
		for i := range pod.Volumes {
			pod.Volumes[i].Name = "scribbled"
		}
		container := &pod.Containers[0]
		for i := range container.Command {
			container.Command[i] = "scribbled"
		}
		for i := range container.Env {
			container.Env[i].Value = "scribbled"
		}
		for i := range container.VolumeMounts {
			container.VolumeMounts[i].Name = "scribbled"
		}
		for _, list := range []corev1.ResourceList{container.Resources.Requests, container.Resources.Limits, job.Gang.MinResources} {
			for name, quantity := range list {
				quantity.Mul(2)
				list[name] = quantity
			}
		}
	}
}
