// SPDX-License-Identifier: Apache-2.0

package job

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
)

func TestTrainJobWorkerResources(t *testing.T) {
	tests := map[string]struct {
		job     *corev1.ResourceRequirements
		runtime corev1.ResourceRequirements
		want    corev1.ResourceRequirements
	}{
		// There is no default for workers.
		"default":     {},
		"the runtime": {runtime: resources("cpu", "8"), want: resources("cpu", "8")},
		"the job":     {job: new(resources("nvidia.com/gpu", "4")), runtime: resources("cpu", "8"), want: resources("nvidia.com/gpu", "4")},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := FromTrainJob(
				trainJob(func(trainJob *v2alpha1.TrainJob) { trainJob.Spec.Trainer.ResourcesPerNode = tc.job }),
				runtimeOf(func(runtime *v2alpha1.TrainingRuntimeSpec) { runtimeWorker(runtime).Resources = tc.runtime }), defaults())
			if diff := cmp.Diff(tc.want, got.Worker.Template.Spec.Containers[0].Resources); diff != "" {
				t.Errorf("resources of the worker (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTrainJobLauncherResources(t *testing.T) {
	byDefault := corev1.ResourceRequirements{Requests: list("cpu", "2", "memory", "4Gi"), Limits: list("cpu", "2", "memory", "4Gi")}
	tests := map[string]struct {
		job     *v2alpha1.Launcher
		runtime corev1.ResourceRequirements
		want    corev1.ResourceRequirements
	}{
		"default":                        {want: byDefault},
		"the runtime":                    {runtime: resources("cpu", "1"), want: resources("cpu", "1")},
		"the runtime, only requests":     {runtime: corev1.ResourceRequirements{Requests: list("cpu", "1")}, want: corev1.ResourceRequirements{Requests: list("cpu", "1")}},
		"the job":                        {job: &v2alpha1.Launcher{Resources: new(resources("memory", "1Gi"))}, runtime: resources("cpu", "1"), want: resources("memory", "1Gi")},
		"a launcher without resources":   {job: &v2alpha1.Launcher{}, runtime: resources("cpu", "1"), want: resources("cpu", "1")},
		"empty resources of the job":     {job: &v2alpha1.Launcher{Resources: &corev1.ResourceRequirements{}}, runtime: resources("cpu", "1"), want: byDefault},
		"empty resources of the runtime": {runtime: corev1.ResourceRequirements{Limits: corev1.ResourceList{}}, want: byDefault},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := FromTrainJob(
				trainJob(func(trainJob *v2alpha1.TrainJob) {
					trainJob.Spec.Launcher = tc.job
					trainJob.Spec.Trainer.ResourcesPerNode = new(resources("nvidia.com/gpu", "8"))
				}),
				runtimeOf(func(runtime *v2alpha1.TrainingRuntimeSpec) { runtimeLauncher(runtime).Resources = tc.runtime }), defaults())
			if diff := cmp.Diff(tc.want, got.Launcher.Template.Spec.Containers[0].Resources); diff != "" {
				t.Errorf("resources of the launcher (-want +got):\n%s", diff)
			}
		})
	}
}

// Kubernetes refuses a container that requests more than its pod, so the job's resources
// replace both.
func TestTrainJobPodLevelResources(t *testing.T) {
	whole := resources("cpu", "1")
	mute := corev1.ResourceRequirements{}
	byDefault := corev1.ResourceRequirements{Requests: list("cpu", "2", "memory", "4Gi"), Limits: list("cpu", "2", "memory", "4Gi")}
	type said struct {
		Container corev1.ResourceRequirements
		Pod       *corev1.ResourceRequirements
	}
	tests := map[string]struct {
		launcher, perNode        *corev1.ResourceRequirements
		runtime                  *corev1.ResourceRequirements
		wantLauncher, wantWorker said
	}{
		"the runtime":                    {runtime: &whole, wantLauncher: said{Pod: &whole}, wantWorker: said{Pod: &whole}},
		"empty resources of the runtime": {runtime: &mute, wantLauncher: said{Container: byDefault}},
		"resourcesPerNode of the job":    {runtime: &whole, perNode: new(resources("cpu", "8")), wantLauncher: said{Pod: &whole}, wantWorker: said{Container: resources("cpu", "8")}},
		"launcher resources of the job":  {runtime: &whole, launcher: new(resources("cpu", "8")), wantLauncher: said{Container: resources("cpu", "8")}, wantWorker: said{Pod: &whole}},
		"empty resources of the job":     {runtime: &whole, launcher: &mute, wantLauncher: said{Container: byDefault}, wantWorker: said{Pod: &whole}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := FromTrainJob(
				trainJob(func(trainJob *v2alpha1.TrainJob) {
					trainJob.Spec.Trainer.ResourcesPerNode = tc.perNode
					if tc.launcher != nil {
						trainJob.Spec.Launcher = &v2alpha1.Launcher{Resources: tc.launcher}
					}
				}),
				runtimeOf(func(runtime *v2alpha1.TrainingRuntimeSpec) {
					for i := range runtime.Template.Spec.ReplicatedJobs {
						pod := &runtime.Template.Spec.ReplicatedJobs[i].Template.Spec
						pod.Resources, pod.Containers[0].Resources = tc.runtime, corev1.ResourceRequirements{}
					}
				}), defaults())
			for role, pair := range map[string]struct {
				want said
				pod  *corev1.PodSpec
			}{"launcher": {tc.wantLauncher, &got.Launcher.Template.Spec}, "worker": {tc.wantWorker, &got.Worker.Template.Spec}} {
				if diff := cmp.Diff(pair.want, said{pair.pod.Containers[0].Resources, pair.pod.Resources}); diff != "" {
					t.Errorf("resources of the %s (-want +got):\n%s", role, diff)
				}
			}
		})
	}
}

func TestTrainJobNodeLabels(t *testing.T) {
	tests := map[string]struct {
		selector    map[string]string
		constraints *v2alpha1.Constraints
		want        map[string]string
	}{
		"no constraints":             {selector: map[string]string{"zone": "a"}, want: map[string]string{"zone": "a"}},
		"constraints without labels": {constraints: &v2alpha1.Constraints{}},
		"labels":                     {constraints: &v2alpha1.Constraints{RequiredNodeLabels: map[string]string{"gpu": "h100"}}, want: map[string]string{"gpu": "h100"}},
		"labels and a selector": {
			selector:    map[string]string{"zone": "a", "gpu": "t4"},
			constraints: &v2alpha1.Constraints{RequiredNodeLabels: map[string]string{"gpu": "h100"}},
			want:        map[string]string{"zone": "a", "gpu": "h100"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := FromTrainJob(trainJob(), runtimeOf(func(runtime *v2alpha1.TrainingRuntimeSpec) {
				runtime.Constraints = tc.constraints
				runtime.Template.Spec.ReplicatedJobs[1].Template.Spec.NodeSelector = tc.selector
			}), defaults())
			if diff := cmp.Diff(tc.want, got.Worker.Template.Spec.NodeSelector); diff != "" {
				t.Errorf("node selector of the worker (-want +got):\n%s", diff)
			}
			// The launcher needs no GPU and may run anywhere.
			if selector := got.Launcher.Template.Spec.NodeSelector; selector != nil {
				t.Errorf("node selector of the launcher is %v, want none", selector)
			}
		})
	}
}

func TestTrainJobInitializer(t *testing.T) {
	source := func(uri string) *v2alpha1.Source { return &v2alpha1.Source{StorageURI: uri} }
	tests := map[string]struct {
		spec *v2alpha1.Initializer
		want *Initializer
	}{
		"none":                {},
		"nothing to fetch":    {spec: &v2alpha1.Initializer{Storage: &v2alpha1.InitializerStorage{ClaimName: "data"}}},
		"a dataset":           {spec: &v2alpha1.Initializer{Dataset: source("s3://b/d")}, want: &Initializer{Dataset: &Source{URI: "s3://b/d"}}},
		"a model, by a token": {spec: &v2alpha1.Initializer{Model: &v2alpha1.Source{StorageURI: "hf://o/m", SecretRef: &v2alpha1.SecretRef{Name: "hf"}}}, want: &Initializer{Model: &Source{URI: "hf://o/m", Secret: "hf"}}},
		"both, to a PVC": {
			spec: &v2alpha1.Initializer{Dataset: source("pvc://c/d"), Model: source("hf://o/m"), Storage: &v2alpha1.InitializerStorage{ClaimName: "data"}},
			want: &Initializer{Dataset: &Source{URI: "pvc://c/d"}, Model: &Source{URI: "hf://o/m"}, ClaimName: "data"},
		},
		"to a new PVC": {
			spec: &v2alpha1.Initializer{Model: source("hf://o/m"), Storage: &v2alpha1.InitializerStorage{Size: new(resource.MustParse("10Gi")), StorageClassName: new("")}},
			want: &Initializer{Model: &Source{URI: "hf://o/m"}, Size: resource.MustParse("10Gi"), StorageClassName: new("")},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := FromTrainJob(trainJob(func(trainJob *v2alpha1.TrainJob) { trainJob.Spec.Initializer = tc.spec }), runtimeOf(), defaults())
			if diff := cmp.Diff(tc.want, got.Initializer); diff != "" {
				t.Errorf("initializer (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTrainJobVolumes(t *testing.T) {
	got := FromTrainJob(completeTrainJob(), runtimeOf(func(runtime *v2alpha1.TrainingRuntimeSpec) {
		pod := &runtime.Template.Spec.ReplicatedJobs[1].Template.Spec
		pod.Volumes = []corev1.Volume{{Name: "cache"}}
		pod.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "cache", MountPath: "/cache"}}
		pod.Containers = append(pod.Containers, corev1.Container{Name: "metrics", Image: "metrics:1"})
	}), defaults())
	pod := got.Worker.Template.Spec
	if diff := cmp.Diff([]corev1.Volume{{Name: "cache"}, {Name: "data"}}, pod.Volumes); diff != "" {
		t.Errorf("volumes (-want +got):\n%s", diff)
	}
	want := []corev1.VolumeMount{{Name: "cache", MountPath: "/cache"}, {Name: "data", MountPath: "/data"}}
	if diff := cmp.Diff(want, pod.Containers[0].VolumeMounts); diff != "" {
		t.Errorf("mounts (-want +got):\n%s", diff)
	}
	// Only the first container runs the training.
	if other := pod.Containers[1]; other.Image != "metrics:1" || len(other.Env) > 0 || len(other.VolumeMounts) > 0 || len(other.Resources.Limits) > 0 {
		t.Errorf("the runtime's other container was changed: %+v", other)
	}
}

// Admission refuses such runtimes, but it builds the model first.
func TestTrainJobOfEmptyRuntime(t *testing.T) {
	for name, runtime := range map[string]*v2alpha1.TrainingRuntimeSpec{
		"no roles": {},
		"no containers": runtimeOf(func(runtime *v2alpha1.TrainingRuntimeSpec) {
			for i := range runtime.Template.Spec.ReplicatedJobs {
				runtime.Template.Spec.ReplicatedJobs[i].Template = corev1.PodTemplateSpec{}
			}
		}),
	} {
		t.Run(name, func(t *testing.T) {
			got := FromTrainJob(completeTrainJob(), runtime, defaults())
			if got.Launcher.Replicas != 1 || got.Worker.Replicas != 16 || got.WorkersRunAgent() || got.RequireAllHosts {
				t.Errorf("%d launchers, %d workers, agent: %t, all hosts: %t; want 1, 16, false, false",
					got.Launcher.Replicas, got.Worker.Replicas, got.WorkersRunAgent(), got.RequireAllHosts)
			}
		})
	}
}
