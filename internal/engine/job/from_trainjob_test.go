// SPDX-License-Identifier: Apache-2.0

package job

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
)

func TestFromTrainJobFillsInEveryDefault(t *testing.T) {
	launcher, worker := podTemplate(), podTemplate()
	for _, template := range []*corev1.PodTemplateSpec{&launcher, &worker} {
		template.Spec.Containers[0].Image = "bert:2"
	}
	launcher.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: list("cpu", "2", "memory", "4Gi"), Limits: list("cpu", "2", "memory", "4Gi")}
	want := &Job{
		Kind: KindTrainJob, Namespace: "team-a", Name: "bert", UID: "5678",
		MPI: OpenMPI, Slots: 1,
		Launcher:     Role{Replicas: 1, Template: restarting(corev1.RestartPolicyNever, restricted(launcher))},
		Worker:       Role{Replicas: 1, Template: restarting(corev1.RestartPolicyNever, restricted(worker))},
		SSHDirectory: "/home/mpiuser/.ssh",
		Gang:         Gang{MinMember: 2, TimeoutSeconds: 300},
		Lifetime:     Lifetime{CleanPodPolicy: training.CleanPodPolicyRunning},
	}
	if diff := cmp.Diff(want, FromTrainJob(trainJob(), runtimeOf(), defaults())); diff != "" {
		t.Errorf("job (-want +got):\n%s", diff)
	}
}

func TestFromTrainJobReadsEveryField(t *testing.T) {
	pod := func(command []string, resources corev1.ResourceRequirements) corev1.PodTemplateSpec {
		template := restarting(corev1.RestartPolicyNever, restricted(podTemplate(command...)))
		template.Spec.PriorityClassName = "high"
		template.Spec.Volumes = []corev1.Volume{{Name: "data"}}
		container := &template.Spec.Containers[0]
		container.Image, container.Resources = "bert:2", resources
		container.Env = []corev1.EnvVar{{Name: "EPOCHS", Value: "3"}}
		container.VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
		return template
	}
	want := &Job{
		Kind: KindTrainJob, Namespace: "team-a", Name: "bert", UID: "5678",
		Suspended: true, Queue: "gpus", QueueLabels: map[string]string{"kueue.x-k8s.io/queue-name": "gpus"}, ManagedBy: training.ManagedByMultiKueue,
		MPI: IntelMPI, Slots: 8,
		Launcher:     Role{Replicas: 1, Template: pod([]string{"mpirun", "-np", "128", "python", "train.py", "--fast"}, resources("cpu", "1"))},
		Worker:       Role{Replicas: 16, Template: pod(nil, resources("nvidia.com/gpu", "8"))},
		SSHDirectory: "/home/mpiuser/.ssh",
		Initializer: &Initializer{
			Dataset: &Source{URI: "s3://bucket/data", Secret: "aws"}, Model: &Source{URI: "hf://owner/model"},
			Size: resource.MustParse("100Gi"), StorageClassName: new("fast"),
		},
		ProgressPattern: `step (\d+)`,
		// The action is the runtime's.
		Hang:          Hang{After: time.Hour, Action: training.HangFail},
		NetworkPolicy: training.NetworkPolicyDefault,
		Gang:          Gang{Scheduler: Volcano, MinMember: 17, TimeoutSeconds: 600, PriorityClass: "high", Queue: "gold"},
		Lifetime: Lifetime{CleanPodPolicy: training.CleanPodPolicyAll, BackoffLimit: 2,
			ActiveDeadlineSeconds: new(int64(3600)), TTLSecondsAfterFinished: new(int32(60))},
	}
	want.Worker.Template.Spec.NodeSelector = map[string]string{"gpu": "h100"}
	// requireAllHosts is false although mpirun was added: the job sets it.
	if diff := cmp.Diff(want, FromTrainJob(completeTrainJob(), completeRuntime(), defaults())); diff != "" {
		t.Errorf("job (-want +got):\n%s", diff)
	}
}

// completeTrainJob sets every field to a value other than its default.
func completeTrainJob() *v2alpha1.TrainJob {
	return trainJob(func(trainJob *v2alpha1.TrainJob) {
		trainJob.Labels = map[string]string{training.LabelQueue: "gpus"}
		spec := &trainJob.Spec
		spec.Trainer = v2alpha1.Trainer{
			Image: "bert:2", NumNodes: new(int32(16)), SlotsPerWorker: new(int32(8)),
			Command: []string{"python", "train.py"}, Args: []string{"--fast"},
			Env:              []corev1.EnvVar{{Name: "EPOCHS", Value: "3"}},
			Volumes:          []corev1.Volume{{Name: "data"}},
			VolumeMounts:     []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
			ResourcesPerNode: new(resources("nvidia.com/gpu", "8")), ProgressPattern: `step (\d+)`,
		}
		spec.Hang = &training.Hang{After: &metav1.Duration{Duration: time.Hour}}
		spec.Launcher = &v2alpha1.Launcher{Resources: new(resources("cpu", "1"))}
		spec.Initializer = &v2alpha1.Initializer{
			Dataset: &v2alpha1.Source{StorageURI: "s3://bucket/data", SecretRef: &v2alpha1.SecretRef{Name: "aws"}},
			Model:   &v2alpha1.Source{StorageURI: "hf://owner/model"},
			Storage: &v2alpha1.InitializerStorage{Size: new(resource.MustParse("100Gi")), StorageClassName: new("fast")},
		}
		spec.NetworkPolicy = &training.NetworkPolicy{Template: training.NetworkPolicyDefault}
		spec.RequireAllHosts, spec.Suspend = new(false), new(true)
		spec.ActiveDeadlineSeconds, spec.TTLSecondsAfterFinished = new(int64(3600)), new(int32(60))
		spec.CleanPodPolicy, spec.BackoffLimit = new(training.CleanPodPolicyAll), new(int32(2))
		spec.ManagedBy = new(training.ManagedByMultiKueue)
	})
}

func completeRuntime() *v2alpha1.TrainingRuntimeSpec {
	return runtimeOf(func(runtime *v2alpha1.TrainingRuntimeSpec) {
		runtime.MLPolicy = v2alpha1.MLPolicy{NumNodes: new(int32(4)), SlotsPerWorker: new(int32(2)), MPIImplementation: v2alpha1.MPIImplementationIntelMPI}
		runtime.PodGroupPolicy = &v2alpha1.PodGroupPolicy{
			PriorityClass: "high",
			Volcano:       &v2alpha1.QueuedGangPolicy{GangPolicy: v2alpha1.GangPolicy{ScheduleTimeoutSeconds: new(int32(600))}, Queue: "gold"},
		}
		runtime.Hang = &training.Hang{After: &metav1.Duration{Duration: time.Minute}, Action: new(training.HangFail)}
		runtime.ProgressPattern = "epoch ([0-9]+)"
		runtime.Constraints = &v2alpha1.Constraints{MaxNodes: new(int32(64)), RequiredNodeLabels: map[string]string{"gpu": "h100"}}
		// The runtime sets these, but the job's values apply, and the operator restarts pods.
		runtime.Template.Spec.ReplicatedJobs[0].Replicas = new(int32(7))
		runtime.Template.Spec.ReplicatedJobs[1].Template.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	})
}

func TestTrainJobWorkers(t *testing.T) {
	tests := map[string]struct {
		job, mlPolicy, template *int32
		want                    int32
	}{
		"default":       {want: 1},
		"the template":  {template: new(int32(3)), want: 3},
		"the mlPolicy":  {template: new(int32(3)), mlPolicy: new(int32(4)), want: 4},
		"the job":       {template: new(int32(3)), mlPolicy: new(int32(4)), job: new(int32(5)), want: 5},
		"the job alone": {job: new(int32(5)), want: 5},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := FromTrainJob(
				trainJob(func(trainJob *v2alpha1.TrainJob) { trainJob.Spec.Trainer.NumNodes = tc.job }),
				runtimeOf(func(runtime *v2alpha1.TrainingRuntimeSpec) {
					runtime.MLPolicy.NumNodes = tc.mlPolicy
					runtime.Template.Spec.ReplicatedJobs[1].Replicas = tc.template
				}), defaults())
			if got.Worker.Replicas != tc.want || got.Launcher.Replicas != 1 || got.Gang.MinMember != tc.want+1 {
				t.Errorf("%d workers, %d launchers, a gang of %d; want %d, 1, %d", got.Worker.Replicas, got.Launcher.Replicas, got.Gang.MinMember, tc.want, tc.want+1)
			}
		})
	}
}

func TestTrainJobSlots(t *testing.T) {
	two, four := new(int32(2)), new(int32(4))
	tests := map[string]struct {
		job, runtime *int32
		want         int32
	}{
		"default": {want: 1}, "the runtime": {runtime: two, want: 2}, "the job": {job: four, runtime: two, want: 4},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := FromTrainJob(
				trainJob(func(trainJob *v2alpha1.TrainJob) { trainJob.Spec.Trainer.SlotsPerWorker = tc.job }),
				runtimeOf(func(runtime *v2alpha1.TrainingRuntimeSpec) { runtime.MLPolicy.SlotsPerWorker = tc.runtime }), defaults())
			if got.Slots != tc.want {
				t.Errorf("%d slots, want %d", got.Slots, tc.want)
			}
		})
	}
}

func TestTrainJobManagedBy(t *testing.T) {
	for managedBy, want := range map[string]string{
		"": "", v2alpha1.ManagedByTrainJobController: "", training.ManagedByMultiKueue: training.ManagedByMultiKueue,
	} {
		got := FromTrainJob(trainJob(func(trainJob *v2alpha1.TrainJob) { trainJob.Spec.ManagedBy = &managedBy }), runtimeOf(), defaults())
		if got.ManagedBy != want {
			t.Errorf("managedBy %q is read as %q, want %q", managedBy, got.ManagedBy, want)
		}
	}
}

func TestTrainJobGang(t *testing.T) {
	timeout := v2alpha1.GangPolicy{ScheduleTimeoutSeconds: new(int32(600))}
	tests := map[string]struct {
		policy *v2alpha1.PodGroupPolicy
		want   Gang
	}{
		"no policy: what the cluster has":    {want: Gang{MinMember: 2, TimeoutSeconds: 300}},
		"an empty policy is no policy":       {policy: &v2alpha1.PodGroupPolicy{}, want: Gang{MinMember: 2, TimeoutSeconds: 300}},
		"only a priority class":              {policy: &v2alpha1.PodGroupPolicy{PriorityClass: "high"}, want: Gang{MinMember: 2, TimeoutSeconds: 300, PriorityClass: "high"}},
		"a priority class by its other name": {policy: &v2alpha1.PodGroupPolicy{PriorityClassName: "high"}, want: Gang{MinMember: 2, TimeoutSeconds: 300, PriorityClass: "high"}},
		"coscheduling":                       {policy: &v2alpha1.PodGroupPolicy{Coscheduling: &timeout}, want: Gang{Scheduler: Coscheduling, MinMember: 2, TimeoutSeconds: 600}},
		"coscheduling without a timeout":     {policy: &v2alpha1.PodGroupPolicy{Coscheduling: &v2alpha1.GangPolicy{}}, want: Gang{Scheduler: Coscheduling, MinMember: 2, TimeoutSeconds: 300}},
		"volcano with a queue":               {policy: &v2alpha1.PodGroupPolicy{Volcano: &v2alpha1.QueuedGangPolicy{GangPolicy: timeout, Queue: "gold"}}, want: Gang{Scheduler: Volcano, MinMember: 2, TimeoutSeconds: 600, Queue: "gold"}},
		"volcano without a queue":            {policy: &v2alpha1.PodGroupPolicy{Volcano: &v2alpha1.QueuedGangPolicy{}}, want: Gang{Scheduler: Volcano, MinMember: 2, TimeoutSeconds: 300}},
		"native with a priority":             {policy: &v2alpha1.PodGroupPolicy{Native: &timeout, PriorityClass: "low"}, want: Gang{Scheduler: Native, MinMember: 2, TimeoutSeconds: 600, PriorityClass: "low"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := FromTrainJob(trainJob(), runtimeOf(func(runtime *v2alpha1.TrainingRuntimeSpec) { runtime.PodGroupPolicy = tc.policy }), defaults())
			if diff := cmp.Diff(tc.want, got.Gang); diff != "" {
				t.Errorf("gang (-want +got):\n%s", diff)
			}
			for _, role := range []Role{got.Launcher, got.Worker} {
				if class := role.Template.Spec.PriorityClassName; class != tc.want.PriorityClass {
					t.Errorf("a pod's priority class is %q, want %q", class, tc.want.PriorityClass)
				}
			}
		})
	}
}

func TestTrainJobEnvironment(t *testing.T) {
	secret := &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: "token"}}
	tests := map[string]struct {
		runtime, job, want []corev1.EnvVar
	}{
		"none": {},
		"the runtime": {
			runtime: []corev1.EnvVar{{Name: "A", Value: "1"}}, want: []corev1.EnvVar{{Name: "A", Value: "1"}},
		},
		"the job adds one": {
			runtime: []corev1.EnvVar{{Name: "B", Value: "1"}}, job: []corev1.EnvVar{{Name: "A", Value: "$(B)"}},
			want: []corev1.EnvVar{{Name: "B", Value: "1"}, {Name: "A", Value: "$(B)"}},
		},
		"the job overrides the runtime": {
			runtime: []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "$(A)"}},
			job:     []corev1.EnvVar{{Name: "C", Value: "3"}, {Name: "A", ValueFrom: secret}},
			want:    []corev1.EnvVar{{Name: "A", ValueFrom: secret}, {Name: "B", Value: "$(A)"}, {Name: "C", Value: "3"}},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := FromTrainJob(
				trainJob(func(trainJob *v2alpha1.TrainJob) { trainJob.Spec.Trainer.Env = tc.job }),
				runtimeOf(func(runtime *v2alpha1.TrainingRuntimeSpec) {
					runtimeLauncher(runtime).Env, runtimeWorker(runtime).Env = tc.runtime, tc.runtime
				}), defaults())
			for _, role := range []Role{got.Launcher, got.Worker} {
				if diff := cmp.Diff(tc.want, role.Template.Spec.Containers[0].Env); diff != "" {
					t.Errorf("environment (-want +got):\n%s", diff)
				}
			}
		})
	}
}
