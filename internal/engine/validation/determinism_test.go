// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
)

// Who sends the same again is told the same, in the same order: Go's maps have
// none, so every map of these objects has several things wrong with it.
func TestSameFaultsInTheSameOrder(t *testing.T) {
	wrong := list("cpu", "-1", "memory", "2Ei", "nvidia.com/gpu", "500m", "amd.com/gpu", "500m", "habana.ai/gaudi", "500m", "ephemeral-storage", "-1")
	labels := map[string]string{training.LabelJobName: "other", training.LabelJobType: "other", training.IstioInject: "maybe"}
	impossible := map[string]string{"a b": "", "c d": "", "e f": "", "g h": "", "i j": "", "k l": ""}
	several := func(value string) map[string]string {
		result := map[string]string{}
		for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
			result[key] = value
		}
		return result
	}
	in := func() *ClusterFacts {
		in := somewhere()
		in.Quotas[0].Spec.Hard = list("requests.cpu", "1", "limits.cpu", "1", "requests.memory", "1", "limits.memory", "1", "pods", "0", "services", "0", "secrets", "0", "configmaps", "0")
		in.LimitRanges[0].Spec.Limits[0].Max = list("cpu", "1", "memory", "1", "nvidia.com/gpu", "1", "amd.com/gpu", "1")
		return in
	}
	tests := map[string]struct {
		judge     func() *Findings
		wantAbove int
	}{
		"a new MPIJob": {wantAbove: 40, judge: func() *Findings {
			return rules().CreateMPIJob(mpiJob(func(mpiJob *v2beta1.MPIJob) {
				mpiJob.Labels, mpiJob.Annotations = labels, map[string]string{training.IstioInject: "true"}
				for _, role := range []v2beta1.MPIReplicaType{"Chief", "Evaluator", "Master", "PS"} {
					mpiJob.Spec.MPIReplicaSpecs[role] = &v2beta1.ReplicaSpec{}
				}
				mpiJob.Spec.RunPolicy.SchedulingPolicy = &v2beta1.SchedulingPolicy{MinResources: &wrong}
				launcherOf(mpiJob).Resources = corev1.ResourceRequirements{Limits: wrong, Requests: wrong}
				workerOf(mpiJob).Resources = corev1.ResourceRequirements{Limits: list("cpu", "5", "memory", "5Gi", "nvidia.com/gpu", "2", "amd.com/gpu", "2"), Requests: list("cpu", "6", "memory", "6Gi", "nvidia.com/gpu", "3", "amd.com/gpu", "3")}
			}), in())
		}},
		"a changed MPIJob": {wantAbove: 10, judge: func() *Findings {
			changed := mpiJob(func(mpiJob *v2beta1.MPIJob) {
				mpiJob.Labels = labels
				mpiJob.Spec.SlotsPerWorker, mpiJob.Spec.RunPolicy.BackoffLimit = new(int32(5)), new(int32(5))
				workerOf(mpiJob).Resources.Limits = wrong
				workerPod(mpiJob).NodeSelector = several("new")
			})
			return rules().UpdateMPIJob(mpiJob(func(mpiJob *v2beta1.MPIJob) { workerPod(mpiJob).NodeSelector = several("old") }), changed)
		}},
		"a new TrainJob": {wantAbove: 20, judge: func() *Findings {
			in := in()
			in.Runtime = runtimeOf()
			return rules().CreateTrainJob(trainJob(func(trainJob *v2alpha1.TrainJob) {
				trainJob.Labels = labels
				trainJob.Spec.Trainer.ResourcesPerNode = &corev1.ResourceRequirements{Limits: wrong, Requests: wrong}
				trainJob.Spec.Launcher = &v2alpha1.Launcher{Resources: &corev1.ResourceRequirements{Limits: wrong, Requests: wrong}}
			}), in)
		}},
		"a runtime": {wantAbove: 10, judge: func() *Findings {
			return rules().Runtime(runtimeOf(func(runtime *v2alpha1.TrainingRuntimeSpec) {
				runtime.Constraints = &v2alpha1.Constraints{RequiredNodeLabels: several("required")}
				runtime.PodGroupPolicy = &v2alpha1.PodGroupPolicy{
					Coscheduling: &v2alpha1.GangPolicy{ScheduleTimeoutSeconds: new(int32(1))}, Native: &v2alpha1.GangPolicy{ScheduleTimeoutSeconds: new(int32(1))},
				}
				runtimeWorker(runtime).Spec.NodeSelector = several("chosen")
				runtimeWorker(runtime).Spec.Containers[0].Resources.Limits = wrong
			}), 0)
		}},
		"a runtime whose labels cannot be": {wantAbove: 5, judge: func() *Findings {
			return rules().Runtime(runtimeOf(func(runtime *v2alpha1.TrainingRuntimeSpec) {
				runtime.Constraints = &v2alpha1.Constraints{RequiredNodeLabels: impossible}
			}), 0)
		}},
		"an MPIJob whose nodes cannot be": {wantAbove: 5, judge: func() *Findings {
			return rules().CreateMPIJob(mpiJob(func(mpiJob *v2beta1.MPIJob) { workerPod(mpiJob).NodeSelector = impossible }), anywhere())
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			first := texts(tc.judge())
			if len(first) <= tc.wantAbove {
				t.Errorf("only %d findings, of which no order can be told: %q", len(first), first)
			}
			for range 20 {
				if diff := cmp.Diff(first, texts(tc.judge())); diff != "" {
					t.Fatalf("findings (-first +again):\n%s", diff)
				}
			}
		})
	}
}
