// SPDX-License-Identifier: Apache-2.0

package job

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2beta1"
)

func TestFromMPIJobFillsInEveryDefault(t *testing.T) {
	want := &Job{
		Kind: KindMPIJob, Namespace: "team-a", Name: "resnet", UID: "1234",
		MPI: OpenMPI, Slots: 1,
		Launcher:     Role{Replicas: 1, Template: restarting(corev1.RestartPolicyOnFailure, restricted(podTemplate("mpirun", "python", "train.py")))},
		Worker:       Role{Replicas: 2, Template: restarting(corev1.RestartPolicyNever, restricted(podTemplate()))},
		SSHDirectory: "/home/mpiuser/.ssh",
		Gang:         Gang{MinMember: 3},
		Lifetime:     Lifetime{CleanPodPolicy: training.CleanPodPolicyRunning, BackoffLimit: 6},
	}
	if diff := cmp.Diff(want, FromMPIJob(mpiJob(), defaults())); diff != "" {
		t.Errorf("job (-want +got):\n%s", diff)
	}
}

func TestFromMPIJobReadsEveryField(t *testing.T) {
	want := &Job{
		Kind: KindMPIJob, Namespace: "team-a", Name: "resnet", UID: "1234",
		Suspended: true, Queue: "gpus", QueueLabels: map[string]string{"kueue.x-k8s.io/queue-name": "gpus"}, ManagedBy: training.ManagedByMultiKueue,
		MPI: MPICH, Slots: 4,
		Launcher:        Role{Replicas: 1, Template: restarting(corev1.RestartPolicyNever, podTemplate("mpirun", "python", "train.py"))},
		Worker:          Role{Replicas: 8, Template: restarting(corev1.RestartPolicyOnFailure, podTemplate("/usr/sbin/sshd", "-De"))},
		RequireAllHosts: true, LauncherRunsRanks: true, LauncherWaits: true,
		SSHDirectory:    "/keys",
		ProgressPattern: `step (\d+)`, Hang: Hang{Action: training.HangRestart},
		NetworkPolicy: training.NetworkPolicyRestricted,
		Gang: Gang{MinMember: 5, MinResources: list("cpu", "9"), TimeoutSeconds: 120,
			PriorityClass: "high", Queue: "volcanic"},
		Lifetime: Lifetime{CleanPodPolicy: training.CleanPodPolicyAll, BackoffLimit: 0,
			ActiveDeadlineSeconds: new(int64(3600)), TTLSecondsAfterFinished: new(int32(60))},
	}
	want.Launcher.Template.Spec.PriorityClassName = "high"
	want.Worker.Template.Spec.PriorityClassName = "high"
	if diff := cmp.Diff(want, FromMPIJob(completeMPIJob(), defaults())); diff != "" {
		t.Errorf("job (-want +got):\n%s", diff)
	}
}

// completeMPIJob sets every field to a value other than its default.
func completeMPIJob() *v2beta1.MPIJob {
	return mpiJob(workerRunsSSHD, func(mpiJob *v2beta1.MPIJob) {
		mpiJob.Labels = map[string]string{training.LabelQueue: "gpus"}
		launcherOf(mpiJob).RestartPolicy = v2beta1.RestartPolicyNever
		workerOf(mpiJob).RestartPolicy, workerOf(mpiJob).Replicas = v2beta1.RestartPolicyOnFailure, new(int32(8))
		spec := &mpiJob.Spec
		spec.SlotsPerWorker, spec.RunLauncherAsWorker, spec.RequireAllHosts = new(int32(4)), new(true), new(true)
		spec.SSHAuthMountPath = "/keys"
		spec.LauncherCreationPolicy = v2beta1.LauncherCreationPolicyWaitForWorkersReady
		spec.MPIImplementation = v2beta1.MPIImplementationMPICH
		spec.CleanPodPolicy = new(training.CleanPodPolicyAll)
		spec.NetworkPolicy = &training.NetworkPolicy{Template: training.NetworkPolicyRestricted}
		spec.ProgressPattern = `step (\d+)`
		spec.RunPolicy = v2beta1.RunPolicy{
			TTLSecondsAfterFinished: new(int32(60)), ActiveDeadlineSeconds: new(int64(3600)), BackoffLimit: new(int32(0)),
			Hang:    &training.Hang{After: &metav1.Duration{}, Action: new(training.HangRestart)},
			Suspend: new(true), ManagedBy: new(training.ManagedByMultiKueue),
			SchedulingPolicy: &v2beta1.SchedulingPolicy{MinAvailable: new(int32(5)), Queue: "volcanic", MinResources: new(list("cpu", "9")),
				PriorityClass: "high", ScheduleTimeoutSeconds: new(int32(120))},
		}
	})
}

func TestMPIJobRestartPolicy(t *testing.T) {
	tests := map[string]struct {
		own, template            string
		wantLauncher, wantWorker corev1.RestartPolicy
	}{
		"neither":       {wantLauncher: "OnFailure", wantWorker: "Never"},
		"the replicas":  {own: "Never", wantLauncher: "Never", wantWorker: "Never"},
		"the template":  {template: "Always", wantLauncher: "OnFailure", wantWorker: "Never"},
		"both":          {own: "OnFailure", template: "Never", wantLauncher: "OnFailure", wantWorker: "OnFailure"},
		"of an old job": {own: "ExitCode", wantLauncher: "ExitCode", wantWorker: "ExitCode"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := FromMPIJob(mpiJob(func(mpiJob *v2beta1.MPIJob) {
				for _, replica := range mpiJob.Spec.MPIReplicaSpecs {
					replica.RestartPolicy = v2beta1.RestartPolicy(tc.own)
					replica.Template.Spec.RestartPolicy = corev1.RestartPolicy(tc.template)
				}
			}), defaults())
			want := []corev1.RestartPolicy{tc.wantLauncher, tc.wantWorker}
			if diff := cmp.Diff(want, []corev1.RestartPolicy{got.Launcher.Template.Spec.RestartPolicy, got.Worker.Template.Spec.RestartPolicy}); diff != "" {
				t.Errorf("restart policies of launcher and worker (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMPIJobCleanPodPolicy(t *testing.T) {
	all, none := new(training.CleanPodPolicyAll), new(training.CleanPodPolicyNone)
	tests := map[string]struct {
		spec, runPolicy *training.CleanPodPolicy
		want            training.CleanPodPolicy
	}{
		"neither":        {want: training.CleanPodPolicyRunning},
		"spec":           {spec: all, want: training.CleanPodPolicyAll},
		"runPolicy":      {runPolicy: none, want: training.CleanPodPolicyNone},
		"both, the spec": {spec: all, runPolicy: none, want: training.CleanPodPolicyAll},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := FromMPIJob(mpiJob(func(mpiJob *v2beta1.MPIJob) {
				mpiJob.Spec.CleanPodPolicy, mpiJob.Spec.RunPolicy.CleanPodPolicy = tc.spec, tc.runPolicy
			}), defaults())
			if got.Lifetime.CleanPodPolicy != tc.want {
				t.Errorf("cleanPodPolicy is %s, want %s", got.Lifetime.CleanPodPolicy, tc.want)
			}
		})
	}
}

func TestMPIJobImplementation(t *testing.T) {
	for implementation, want := range map[v2beta1.MPIImplementation]MPI{
		"": OpenMPI, "OpenMPI": OpenMPI, "IntelMPI": IntelMPI, "Intel": IntelMPI, "MPICH": MPICH,
	} {
		got := FromMPIJob(mpiJob(func(mpiJob *v2beta1.MPIJob) { mpiJob.Spec.MPIImplementation = implementation }), defaults())
		if got.MPI != want {
			t.Errorf("%q is %s, want %s", implementation, got.MPI, want)
		}
	}
}

func TestMPIJobManagedBy(t *testing.T) {
	for managedBy, want := range map[string]string{
		"": "", v2beta1.ManagedByMPIOperator: "", training.ManagedByTrireme: "", training.ManagedByMultiKueue: training.ManagedByMultiKueue, "example.com/mine": "example.com/mine",
	} {
		got := FromMPIJob(mpiJob(func(mpiJob *v2beta1.MPIJob) { mpiJob.Spec.RunPolicy.ManagedBy = &managedBy }), defaults())
		if got.ManagedBy != want {
			t.Errorf("managedBy %q is read as %q, want %q", managedBy, got.ManagedBy, want)
		}
	}
}

func TestMPIJobSSHDirectory(t *testing.T) {
	root, user := corev1.SecurityContext{RunAsUser: new(int64(0))}, corev1.SecurityContext{RunAsUser: new(int64(1000))}
	tests := map[string]struct {
		mpiJob *v2beta1.MPIJob
		want   string
	}{
		"no user":                            {mpiJob: mpiJob(), want: "/home/mpiuser/.ssh"},
		"an sshd, no user":                   {mpiJob: mpiJob(workerRunsSSHD), want: "/home/mpiuser/.ssh"},
		"the pod is root":                    {mpiJob: mpiJob(workerRunsSSHD, workerPod(runAs(0))), want: "/root/.ssh"},
		"the pod is not root":                {mpiJob: mpiJob(workerRunsSSHD, workerPod(runAs(1000))), want: "/home/mpiuser/.ssh"},
		"the container is root":              {mpiJob: mpiJob(workerRunsSSHD, workerPod(containerSecurity(root))), want: "/root/.ssh"},
		"the container is root, the pod not": {mpiJob: mpiJob(workerRunsSSHD, workerPod(runAs(1000), containerSecurity(root))), want: "/root/.ssh"},
		"the pod is root, the container not": {mpiJob: mpiJob(workerRunsSSHD, workerPod(runAs(0), containerSecurity(user))), want: "/home/mpiuser/.ssh"},
		"an init container is root":          {mpiJob: mpiJob(workerRunsSSHD, workerPod(runAs(1000), initSecurity(root))), want: "/home/mpiuser/.ssh"},
		"the job sets the directory, as root": {
			mpiJob: mpiJob(workerRunsSSHD, workerPod(runAs(0)), func(mpiJob *v2beta1.MPIJob) { mpiJob.Spec.SSHAuthMountPath = "/keys" }), want: "/keys",
		},
		"no workers": {mpiJob: mpiJob(func(mpiJob *v2beta1.MPIJob) {
			delete(mpiJob.Spec.MPIReplicaSpecs, v2beta1.MPIReplicaTypeWorker)
		}), want: "/home/mpiuser/.ssh"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := FromMPIJob(tc.mpiJob, defaults()).SSHDirectory; got != tc.want {
				t.Errorf("keys are in %s, want %s", got, tc.want)
			}
		})
	}
}

func TestMPIJobGang(t *testing.T) {
	tests := map[string]struct {
		policy *v2beta1.SchedulingPolicy
		want   Gang
	}{
		"no policy: all pods, no timeout": {want: Gang{MinMember: 3}},
		"an empty policy is no policy":    {policy: &v2beta1.SchedulingPolicy{}, want: Gang{MinMember: 3}},
		"fewer pods":                      {policy: &v2beta1.SchedulingPolicy{MinAvailable: new(int32(2))}, want: Gang{MinMember: 2}},
		"a timeout":                       {policy: &v2beta1.SchedulingPolicy{ScheduleTimeoutSeconds: new(int32(90))}, want: Gang{MinMember: 3, TimeoutSeconds: 90}},
		"a timeout that is too short":     {policy: &v2beta1.SchedulingPolicy{ScheduleTimeoutSeconds: new(int32(1))}, want: Gang{MinMember: 3, TimeoutSeconds: 60}},
		"a timeout of 0 is none":          {policy: &v2beta1.SchedulingPolicy{ScheduleTimeoutSeconds: new(int32(0))}, want: Gang{MinMember: 3}},
		"a queue of Volcano":              {policy: &v2beta1.SchedulingPolicy{Queue: "gold"}, want: Gang{MinMember: 3, Queue: "gold"}},
		"resources":                       {policy: &v2beta1.SchedulingPolicy{MinResources: new(list("cpu", "4"))}, want: Gang{MinMember: 3, MinResources: list("cpu", "4")}},
		"a priority class":                {policy: &v2beta1.SchedulingPolicy{PriorityClass: "high"}, want: Gang{MinMember: 3, PriorityClass: "high"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := FromMPIJob(mpiJob(func(mpiJob *v2beta1.MPIJob) { mpiJob.Spec.RunPolicy.SchedulingPolicy = tc.policy }), defaults())
			if diff := cmp.Diff(tc.want, got.Gang); diff != "" {
				t.Errorf("gang (-want +got):\n%s", diff)
			}
		})
	}
}

// A cluster administrator may limit how long MPIJobs without a timeout wait.
func TestMPIJobGangTimeoutByDefault(t *testing.T) {
	bounded := defaults()
	bounded.MPIJobScheduleTimeoutSeconds = 600
	for name, test := range map[string]struct {
		policy *v2beta1.SchedulingPolicy
		want   int32
	}{
		"no policy":           {want: 600},
		"an empty policy":     {policy: &v2beta1.SchedulingPolicy{}, want: 600},
		"a timeout":           {policy: &v2beta1.SchedulingPolicy{ScheduleTimeoutSeconds: new(int32(90))}, want: 90},
		"explicitly no limit": {policy: &v2beta1.SchedulingPolicy{ScheduleTimeoutSeconds: new(int32(0))}},
	} {
		got := FromMPIJob(mpiJob(func(mpiJob *v2beta1.MPIJob) { mpiJob.Spec.RunPolicy.SchedulingPolicy = test.policy }), bounded)
		if got.Gang.TimeoutSeconds != test.want {
			t.Errorf("%s: it waits for %d s, want %d", name, got.Gang.TimeoutSeconds, test.want)
		}
	}
}

func TestMPIJobKeepsPodPriorityClass(t *testing.T) {
	got := FromMPIJob(mpiJob(func(mpiJob *v2beta1.MPIJob) {
		mpiJob.Spec.RunPolicy.SchedulingPolicy = &v2beta1.SchedulingPolicy{PriorityClass: "high"}
		workerOf(mpiJob).Template.Spec.PriorityClassName = "low"
	}), defaults())
	want := []string{"high", "low"}
	if diff := cmp.Diff(want, []string{got.Launcher.Template.Spec.PriorityClassName, got.Worker.Template.Spec.PriorityClassName}); diff != "" {
		t.Errorf("priority classes of launcher and worker (-want +got):\n%s", diff)
	}
}

// The command of an MPIJob's launcher is never changed, even if it is not mpirun.
// Releases of Kubernetes disagree about the meaning of empty pod-level resources.
func TestMPIJobPodLevelResources(t *testing.T) {
	claims := &corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpu"}}}
	tests := map[string]struct{ whole, want *corev1.ResourceRequirements }{
		"none":        {},
		"empty":       {whole: &corev1.ResourceRequirements{}},
		"empty lists": {whole: &corev1.ResourceRequirements{Requests: list(), Limits: list()}},
		"set":         {whole: new(resources("cpu", "1")), want: new(resources("cpu", "1"))},
		"only claims": {whole: claims, want: claims},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			mpiJob := mpiJob(func(mpiJob *v2beta1.MPIJob) {
				for _, replicas := range mpiJob.Spec.MPIReplicaSpecs {
					replicas.Template.Spec.Resources = tc.whole
					replicas.Template.Spec.Containers[0].Resources = resources("cpu", "2")
				}
			})
			got := FromMPIJob(mpiJob, defaults())
			for role, pod := range map[string]corev1.PodSpec{"launcher": got.Launcher.Template.Spec, "worker": got.Worker.Template.Spec} {
				if diff := cmp.Diff(tc.want, pod.Resources); diff != "" {
					t.Errorf("resources of the %s's pod (-want +got):\n%s", role, diff)
				}
				if diff := cmp.Diff(resources("cpu", "2"), pod.Containers[0].Resources); diff != "" {
					t.Errorf("resources of the %s's container (-want +got):\n%s", role, diff)
				}
			}
			if diff := cmp.Diff(tc.whole, workerOf(mpiJob).Template.Spec.Resources); diff != "" {
				t.Errorf("the MPIJob was changed (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMPIJobCommandIsNeverWrapped(t *testing.T) {
	got := FromMPIJob(mpiJob(func(mpiJob *v2beta1.MPIJob) {
		launcherOf(mpiJob).Template.Spec.Containers[0].Command = []string{"python"}
		launcherOf(mpiJob).Template.Spec.Containers[0].Args = []string{"train.py"}
	}), defaults())
	container := got.Launcher.Template.Spec.Containers[0]
	if diff := cmp.Diff([][]string{{"python"}, {"train.py"}}, [][]string{container.Command, container.Args}); diff != "" {
		t.Errorf("command and args (-want +got):\n%s", diff)
	}
}

// mpi-operator allows jobs without workers, so stored ones must be readable.
func TestMPIJobWithoutWorkers(t *testing.T) {
	got := FromMPIJob(mpiJob(func(mpiJob *v2beta1.MPIJob) {
		mpiJob.Spec.MPIReplicaSpecs = map[v2beta1.MPIReplicaType]*v2beta1.ReplicaSpec{
			v2beta1.MPIReplicaTypeLauncher: launcherOf(mpiJob), v2beta1.MPIReplicaTypeWorker: nil,
		}
	}), defaults())
	if got.Pods() != 1 || got.WorldSize() != 0 || got.Gang.MinMember != 1 || !got.WorkersRunAgent() {
		t.Errorf("a job without workers is read as %+v", got)
	}
}
