// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
)

func TestRuntime(t *testing.T) {
	type runtime = *v2alpha1.TrainingRuntimeSpec
	const defineBoth = "Runtime must define launcher and worker jobs"
	named := func(names ...string) func(runtime) {
		return func(runtime runtime) {
			template := *runtimeWorker(runtime)
			runtime.Template.Spec.ReplicatedJobs = nil
			for _, name := range names {
				runtime.Template.Spec.ReplicatedJobs = append(runtime.Template.Spec.ReplicatedJobs, v2alpha1.ReplicatedJob{Name: name, Template: template})
			}
		}
	}
	lacksIstio := func(index string) string {
		return replicatedJobs + "[" + index + `].template.metadata.annotations: does not contain sidecar.istio.io/inject: "false"; the operator sets it, but add it so that readers of the runtime see it`
	}
	tests := map[string]struct {
		change             func(runtime)
		want, wantWarnings []string
	}{
		"nothing is wrong": {},
		"it has no MPI": {
			change:       func(runtime runtime) { runtime.MLPolicy.MPIImplementation = "" },
			wantWarnings: []string{"spec.mlPolicy.mpiImplementation: is not set, so no TrainJob can use this runtime"},
		},

		"worker before launcher": {change: named("worker", "launcher")},
		"no roles":               {change: named(), want: []string{replicatedJobs + ": Invalid value: null: " + defineBoth}},
		"two launchers":          {change: named("launcher", "launcher"), want: []string{replicatedJobs + `: Invalid value: ["launcher","launcher"]: ` + defineBoth}},
		"roles of another name":  {change: named("Worker", "Launcher"), want: []string{replicatedJobs + `: Invalid value: ["Launcher","Worker"]: ` + defineBoth}},
		"one launcher, in so many words": {
			change: func(runtime runtime) { runtime.Template.Spec.ReplicatedJobs[0].Replicas = new(int32(1)) },
		},
		"no launcher": {
			change: func(runtime runtime) { runtime.Template.Spec.ReplicatedJobs[0].Replicas = new(int32(0)) },
			want:   []string{replicatedJobs + "[0].replicas: Invalid value: 0: must be 1"},
		},

		"images come from the job, but only for the first containers": {
			change: func(runtime runtime) {
				for _, template := range []*corev1.PodTemplateSpec{runtimeLauncher(runtime), runtimeWorker(runtime)} {
					template.Spec.Containers[0].Image = ""
				}
				runtimeLauncher(runtime).Spec.InitContainers = []corev1.Container{{Name: "fetch"}}
				runtimeWorker(runtime).Spec.Containers = append(runtimeWorker(runtime).Spec.Containers, corev1.Container{Name: "beside", Image: "?"})
			},
			want: []string{
				replicatedJobs + "[0].template.spec.initContainers[0].image: Required value: must be set to an image",
				replicatedJobs + `[1].template.spec.containers[1].image: Invalid value: "?": is not a valid image name (invalid reference format); write registry/name:tag`,
			},
		},
		"an image that the job will replace must still be one": {
			change: func(runtime runtime) { runtimeWorker(runtime).Spec.Containers[0].Image = "?" },
			want:   []string{replicatedJobs + `[1].template.spec.containers[0].image: Invalid value: "?": is not a valid image name (invalid reference format); write registry/name:tag`},
		},
		"a role without containers": {
			change: func(runtime runtime) { runtimeWorker(runtime).Spec.Containers = nil },
			want:   []string{replicatedJobs + "[1].template.spec.containers: Required value: must have at least one container"},
		},

		"nothing about Istio": {
			change: func(runtime runtime) {
				runtimeLauncher(runtime).Annotations, runtimeWorker(runtime).Annotations = nil, nil
			},
			wantWarnings: []string{lacksIstio("0"), lacksIstio("1")},
		},
		"Istio, by a label that is none": {
			change: func(runtime runtime) {
				runtimeWorker(runtime).Labels = map[string]string{training.IstioInject: "maybe"}
			},
			want: []string{replicatedJobs + `[1].template.metadata.labels[sidecar.istio.io/inject]: Unsupported value: "maybe": supported values: "true", "false"`},
		},

		"every scheduler, each out of its time": {
			change: func(runtime runtime) {
				runtime.PodGroupPolicy = &v2alpha1.PodGroupPolicy{
					Coscheduling: &v2alpha1.GangPolicy{ScheduleTimeoutSeconds: new(int32(59))},
					Native:       &v2alpha1.GangPolicy{ScheduleTimeoutSeconds: new(int32(-1))},
					Volcano:      &v2alpha1.QueuedGangPolicy{GangPolicy: v2alpha1.GangPolicy{ScheduleTimeoutSeconds: new(int32(3601))}},
				}
			},
			want: []string{
				`spec.podGroupPolicy: Invalid value: ["coscheduling","native","volcano"]: must have at most one of coscheduling, volcano, kai and native`,
				"spec.podGroupPolicy.coscheduling.scheduleTimeoutSeconds: Invalid value: 59: scheduleTimeoutSeconds must be at least 60",
				"spec.podGroupPolicy.native.scheduleTimeoutSeconds: Invalid value: -1: scheduleTimeoutSeconds must be at least 60",
				"spec.podGroupPolicy.volcano.scheduleTimeoutSeconds: Invalid value: 3601: scheduleTimeoutSeconds must be at most 3600",
			},
		},
		"the shortest time": {
			change: func(runtime runtime) {
				runtime.PodGroupPolicy = &v2alpha1.PodGroupPolicy{Coscheduling: &v2alpha1.GangPolicy{ScheduleTimeoutSeconds: new(int32(60))}}
			},
		},
		"the longest time, and both names of the priority": {
			change: func(runtime runtime) {
				runtime.PodGroupPolicy = &v2alpha1.PodGroupPolicy{Native: &v2alpha1.GangPolicy{ScheduleTimeoutSeconds: new(int32(3600))}, PriorityClass: "high", PriorityClassName: "high"}
			},
		},
		"a queue that cannot be": {
			change: func(runtime runtime) {
				runtime.PodGroupPolicy = &v2alpha1.PodGroupPolicy{Volcano: &v2alpha1.QueuedGangPolicy{Queue: "a.b"}}
			},
			want: []string{`spec.podGroupPolicy.volcano.queue: Invalid value: "a.b": is not a valid queue name: must not contain dots`},
		},

		"labels that agree, and one that contradicts": {
			change: func(runtime runtime) {
				runtime.Constraints = &v2alpha1.Constraints{RequiredNodeLabels: map[string]string{"gpu": "a100", "zone": "a", "only": "here"}}
				runtimeWorker(runtime).Spec.NodeSelector = map[string]string{"gpu": "a100", "zone": "b", "other": "c"}
				runtimeLauncher(runtime).Spec.NodeSelector = map[string]string{"gpu": "none"}
			},
			want: []string{replicatedJobs + `[1].template.spec.nodeSelector[zone]: Invalid value: "b": differs from constraints.requiredNodeLabels, where it is "a"`},
		},
		"as many nodes as it allows": {
			change: func(runtime runtime) {
				runtime.MLPolicy.NumNodes = new(int32(4))
				runtime.Constraints = &v2alpha1.Constraints{MaxNodes: new(int32(4)), MaxGPUsPerNode: new(int32(0))}
			},
		},
		"eight GPUs": {change: func(runtime runtime) {
			runtimeWorker(runtime).Spec.Containers[0].Resources = limitsOf("nvidia.com/gpu", "8")
		}},
		"nine GPUs, which is only a warning, and only of workers": {
			change: func(runtime runtime) {
				runtimeWorker(runtime).Spec.Containers[0].Resources = limitsOf("nvidia.com/gpu", "9")
				runtimeLauncher(runtime).Spec.Containers[0].Resources = limitsOf("nvidia.com/gpu", "9")
			},
			wantWarnings: []string{replicatedJobs + "[1].template: 9 GPUs per node; most machines have at most 8"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			runtime := runtimeOf()
			if tc.change != nil {
				tc.change(runtime)
			}
			wantFindings(t, rules().Runtime(runtime, 0), tc.want, tc.wantWarnings)
		})
	}
}
