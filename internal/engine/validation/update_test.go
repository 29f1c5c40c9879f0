// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/config"
)

// immutable is what is said at each path that changed.
func immutable(paths ...string) []string {
	var faults []string
	for _, path := range paths {
		faults = append(faults, path+": Forbidden: field is immutable; delete and recreate the job, or create one with another name")
	}
	return faults
}

func variables(pairs ...string) []corev1.EnvVar {
	var variables []corev1.EnvVar
	for i := 0; i < len(pairs); i += 2 {
		variables = append(variables, corev1.EnvVar{Name: pairs[i], Value: pairs[i+1]})
	}
	return variables
}

func TestUpdateMPIJob(t *testing.T) {
	type change = func(*v2beta1.MPIJob)
	suspended := func(mpiJob *v2beta1.MPIJob) { mpiJob.Spec.RunPolicy.Suspend = new(true) }
	policy := func(mpiJob *v2beta1.MPIJob) {
		mpiJob.Spec.RunPolicy.SchedulingPolicy = &v2beta1.SchedulingPolicy{MinResources: new(list("cpu", "2"))}
	}
	amount := func(text string) change {
		return func(mpiJob *v2beta1.MPIJob) { workerOf(mpiJob).Resources.Limits["memory"] = resource.MustParse(text) }
	}
	tests := map[string]struct {
		old, change  change
		want         []string
		wantWarnings []string
	}{
		"nothing": {},

		"a value": {
			old:    func(mpiJob *v2beta1.MPIJob) { mpiJob.Spec.SlotsPerWorker = new(int32(1)) },
			change: func(mpiJob *v2beta1.MPIJob) { mpiJob.Spec.SlotsPerWorker = new(int32(2)) },
			want:   immutable("spec.slotsPerWorker"),
		},
		"a value where there was none": {
			change: func(mpiJob *v2beta1.MPIJob) { mpiJob.Spec.MPIImplementation = v2beta1.MPIImplementationMPICH },
			want:   immutable("spec.mpiImplementation"),
		},
		"no value where there was one": {
			change: func(mpiJob *v2beta1.MPIJob) { mpiJob.Spec.MPIReplicaSpecs["Worker"].Replicas = nil },
			want:   immutable("spec.mpiReplicaSpecs.Worker.replicas"),
		},
		"our name in a job that we have started": {
			old:    func(mpiJob *v2beta1.MPIJob) { mpiJob.Status.Phase = training.PhaseRunning },
			change: func(mpiJob *v2beta1.MPIJob) { mpiJob.Spec.RunPolicy.ManagedBy = new(training.ManagedByTrireme) },
		},
		"our name in a job of mpi-operator": {
			old: func(mpiJob *v2beta1.MPIJob) {
				mpiJob.Status.Conditions = []v2beta1.JobCondition{{Type: v2beta1.JobCreated}}
			},
			change: func(mpiJob *v2beta1.MPIJob) { mpiJob.Spec.RunPolicy.ManagedBy = new(training.ManagedByTrireme) },
			want:   immutable("spec.runPolicy.managedBy"),
		},
		"our name instead of another": {
			old: func(mpiJob *v2beta1.MPIJob) {
				mpiJob.Status.Phase, mpiJob.Spec.RunPolicy.ManagedBy = training.PhaseRunning, new(v2beta1.ManagedByMPIOperator)
			},
			change: func(mpiJob *v2beta1.MPIJob) { mpiJob.Spec.RunPolicy.ManagedBy = new(training.ManagedByTrireme) },
			want:   immutable("spec.runPolicy.managedBy"),
		},
		"a value deep in a template": {
			change: func(mpiJob *v2beta1.MPIJob) {
				launcherOf(mpiJob).SecurityContext = &corev1.SecurityContext{RunAsUser: new(int64(0))}
			},
			want: immutable(launcherContainer + ".securityContext"),
		},
		"a structure where there was none": {change: policy, want: immutable("spec.runPolicy.schedulingPolicy")},
		"a part of a structure": {
			old:    policy,
			change: func(mpiJob *v2beta1.MPIJob) { mpiJob.Spec.RunPolicy.SchedulingPolicy.Queue = "other" },
			want:   immutable("spec.runPolicy.schedulingPolicy.queue"),
		},

		"a key more in a map": {
			old:    func(mpiJob *v2beta1.MPIJob) { workerPod(mpiJob).NodeSelector = map[string]string{"zone": "a"} },
			change: func(mpiJob *v2beta1.MPIJob) { workerPod(mpiJob).NodeSelector["pool"] = "gpu" },
			want:   immutable(workerTemplate + ".spec.nodeSelector.pool"),
		},
		"a key that could be taken for a path": {
			change: func(mpiJob *v2beta1.MPIJob) {
				workerOf(mpiJob).Resources.Limits["nvidia.com/gpu"] = resource.MustParse("1")
			},
			want: immutable(workerContainer + ".resources.limits[nvidia.com/gpu]"),
		},
		"a key less in a map": {
			old: func(mpiJob *v2beta1.MPIJob) {
				workerPod(mpiJob).NodeSelector = map[string]string{"zone": "a", "pool": "gpu"}
			},
			change: func(mpiJob *v2beta1.MPIJob) { delete(workerPod(mpiJob).NodeSelector, "zone") },
			want:   immutable(workerTemplate + ".spec.nodeSelector.zone"),
		},
		"a key that is called otherwise": {
			old:    func(mpiJob *v2beta1.MPIJob) { workerPod(mpiJob).NodeSelector = map[string]string{"zone": "a"} },
			change: func(mpiJob *v2beta1.MPIJob) { workerPod(mpiJob).NodeSelector = map[string]string{"area": "a"} },
			want:   immutable(workerTemplate+".spec.nodeSelector.area", workerTemplate+".spec.nodeSelector.zone"),
		},
		"a map where there was none": {
			change: func(mpiJob *v2beta1.MPIJob) {
				workerPod(mpiJob).NodeSelector = map[string]string{"zone": "a", "pool": "gpu"}
			},
			want: immutable(workerTemplate + ".spec.nodeSelector"),
		},
		"a role less": {change: noWorkers, want: immutable("spec.mpiReplicaSpecs.Worker")},

		"an item more in a list": {
			old:    func(mpiJob *v2beta1.MPIJob) { workerOf(mpiJob).Env = variables("A", "1") },
			change: func(mpiJob *v2beta1.MPIJob) { workerOf(mpiJob).Env = variables("A", "1", "B", "2") },
			want:   immutable(workerContainer + ".env"),
		},
		"an item less in a list": {
			old:    func(mpiJob *v2beta1.MPIJob) { workerOf(mpiJob).Env = variables("A", "1", "B", "2") },
			change: func(mpiJob *v2beta1.MPIJob) { workerOf(mpiJob).Env = variables("A", "1") },
			want:   immutable(workerContainer + ".env"),
		},
		"an item of a list": {
			old:    func(mpiJob *v2beta1.MPIJob) { workerOf(mpiJob).Env = variables("A", "1", "B", "2") },
			change: func(mpiJob *v2beta1.MPIJob) { workerOf(mpiJob).Env = variables("A", "1", "B", "3") },
			want:   immutable(workerContainer + ".env[1].value"),
		},
		"the order of a list": {
			change: func(mpiJob *v2beta1.MPIJob) { launcherOf(mpiJob).Command = []string{"hostname", "mpirun"} },
			want:   immutable(launcherContainer+".command[0]", launcherContainer+".command[1]"),
		},

		"an empty list where there was none": {change: func(mpiJob *v2beta1.MPIJob) {
			workerOf(mpiJob).Args = []string{}
			workerOf(mpiJob).Env = []corev1.EnvVar{}
			workerPod(mpiJob).Tolerations = []corev1.Toleration{}
		}},
		"an empty map where there was none": {change: func(mpiJob *v2beta1.MPIJob) {
			workerPod(mpiJob).NodeSelector = map[string]string{}
			workerOf(mpiJob).Resources.Requests = corev1.ResourceList{}
			mpiJob.Labels = map[string]string{}
		}},
		"no list where there was an empty one": {
			old:    func(mpiJob *v2beta1.MPIJob) { workerOf(mpiJob).Args = []string{} },
			change: func(mpiJob *v2beta1.MPIJob) { workerOf(mpiJob).Args = nil },
		},
		"an empty list of what must be there where there was none": {
			old:    func(mpiJob *v2beta1.MPIJob) { workerPod(mpiJob).Containers = nil },
			change: func(mpiJob *v2beta1.MPIJob) { workerPod(mpiJob).Containers = []corev1.Container{} },
		},

		"a quantity in other words":        {old: amount("1Gi"), change: amount("1024Mi")},
		"a quantity that is a bit more":    {old: amount("1Gi"), change: amount("1025Mi"), want: immutable(workerContainer + ".resources.limits.memory")},
		"a quantity in another notation":   {old: amount("1Gi"), change: amount("1073741824")},
		"a quantity in the decimal system": {old: amount("1e9"), change: amount("1G")},
		"a quantity behind a pointer": {
			old: policy,
			change: func(mpiJob *v2beta1.MPIJob) {
				(*mpiJob.Spec.RunPolicy.SchedulingPolicy.MinResources)["cpu"] = resource.MustParse("2000m")
			},
		},

		"differences come sorted, all of them": {
			change: func(mpiJob *v2beta1.MPIJob) {
				workerOf(mpiJob).Image, launcherOf(mpiJob).Image = "other:1", "other:1"
				mpiJob.Spec.SlotsPerWorker = new(int32(2))
				mpiJob.Spec.CleanPodPolicy = new(training.CleanPodPolicyAll)
				mpiJob.Spec.RunPolicy.BackoffLimit = new(int32(0))
			},
			want: immutable("spec.cleanPodPolicy", launcherContainer+".image", workerContainer+".image", "spec.runPolicy.backoffLimit", "spec.slotsPerWorker"),
		},

		"it is suspended": {change: suspended},
		"it is resumed":   {old: suspended, change: func(mpiJob *v2beta1.MPIJob) { mpiJob.Spec.RunPolicy.Suspend = nil }},
		"the placement of one role while it is suspended": {
			old: suspended,
			change: func(mpiJob *v2beta1.MPIJob) {
				workerPod(mpiJob).SchedulingGates = []corev1.PodSchedulingGate{{Name: "kueue.x-k8s.io/topology"}}
			},
		},
		"more of the placement than Kueue touches, while it is suspended": {
			old: suspended,
			change: func(mpiJob *v2beta1.MPIJob) {
				workerPod(mpiJob).NodeSelector = map[string]string{"pool": "gpu"}
				workerPod(mpiJob).Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{}}}}
				workerPod(mpiJob).PriorityClassName = "high"
				workerPod(mpiJob).SchedulerName = "mine"
			},
			want: immutable(workerTemplate+".spec.affinity", workerTemplate+".spec.priorityClassName", workerTemplate+".spec.schedulerName"),
		},
		"a role more while it is suspended": {
			old: func(mpiJob *v2beta1.MPIJob) {
				suspended(mpiJob)
				noWorkers(mpiJob)
			},
			change: func(mpiJob *v2beta1.MPIJob) {
				mpiJob.Spec.MPIReplicaSpecs["Worker"] = &v2beta1.ReplicaSpec{Template: podTemplate("worker")}
			},
			want: immutable("spec.mpiReplicaSpecs.Worker"),
		},

		"a label of the user's, on a job that no rule of today would let in": {
			old: func(mpiJob *v2beta1.MPIJob) {
				mpiJob.Name = "1.job"
				mpiJob.Spec.SlotsPerWorker = new(int32(99))
				workerOf(mpiJob).Image = "?"
			},
			change: func(mpiJob *v2beta1.MPIJob) { mpiJob.Labels = map[string]string{"team": "vision"} },
		},
		"nothing, beside labels that were wrong before": {
			old: func(mpiJob *v2beta1.MPIJob) { mpiJob.Labels = map[string]string{training.LabelJobName: "other"} },
		},
		"an annotation, beside a label that was wrong before": {
			old:    func(mpiJob *v2beta1.MPIJob) { mpiJob.Labels = map[string]string{training.LabelJobType: "trainjob"} },
			change: func(mpiJob *v2beta1.MPIJob) { mpiJob.Annotations = map[string]string{training.IstioInject: "true"} },
			wantWarnings: []string{
				"metadata.annotations[sidecar.istio.io/inject]: MPI does not work through Istio's sidecar, so Trireme sets this to \"false\" on every pod",
			},
		},
		"a label that was wrong before, into another that is": {
			old:    func(mpiJob *v2beta1.MPIJob) { mpiJob.Labels = map[string]string{training.LabelJobType: "trainjob"} },
			change: func(mpiJob *v2beta1.MPIJob) { mpiJob.Labels = map[string]string{training.LabelJobType: "job"} },
			want: []string{
				`metadata.labels[training.kubeflow.org/job-type]: Invalid value: "job": must be "mpijob"; the operator sets it if it is missing`,
			},
		},
		"everything, of a job that is being deleted": {
			change: func(mpiJob *v2beta1.MPIJob) {
				mpiJob.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
				mpiJob.Labels = map[string]string{training.LabelJobName: "other"}
				mpiJob.Spec = v2beta1.MPIJobSpec{}
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			old := mpiJob()
			if tc.old != nil {
				tc.old(old)
			}
			changed := old.DeepCopy()
			if tc.change != nil {
				tc.change(changed)
			}
			oldBefore, changedBefore := old.DeepCopy(), changed.DeepCopy()
			wantFindings(t, rules().UpdateMPIJob(old, changed), tc.want, tc.wantWarnings)
			if diff := cmp.Diff([]*v2beta1.MPIJob{oldBefore, changedBefore}, []*v2beta1.MPIJob{old, changed}); diff != "" {
				t.Errorf("what the user wrote was changed:\n%s", diff)
			}
		})
	}
}

// Jobs that are there may go on when no new ones are let in.
func TestUpdateOfADeprecatedMPIJob(t *testing.T) {
	refuse := configured(func(configuration *config.Config) {
		configuration.Admission.MPIJobDeprecation = config.DeprecationRefuse
	})
	resumed := mpiJob(func(mpiJob *v2beta1.MPIJob) { mpiJob.Labels = map[string]string{"a": "b"} })
	wantFindings(t, refuse.UpdateMPIJob(mpiJob(), resumed), nil, nil)
}

func TestUpdateTrainJob(t *testing.T) {
	type change = func(*v2alpha1.TrainJob)
	storage := func(size string) change {
		return func(trainJob *v2alpha1.TrainJob) {
			trainJob.Spec.Initializer = &v2alpha1.Initializer{Storage: &v2alpha1.InitializerStorage{Size: new(resource.MustParse(size))}}
		}
	}
	suspend := func(value *bool) change {
		return func(trainJob *v2alpha1.TrainJob) { trainJob.Spec.Suspend = value }
	}
	tests := map[string]struct {
		old, change change
		want        []string
	}{
		"nothing":             {},
		"it is suspended":     {change: suspend(new(true))},
		"it is resumed":       {old: suspend(new(true)), change: suspend(new(false))},
		"suspend is left out": {old: suspend(new(true)), change: suspend(nil)},
		"a value":             {change: func(trainJob *v2alpha1.TrainJob) { trainJob.Spec.Trainer.NumNodes = new(int32(3)) }, want: immutable("spec.trainer.numNodes")},
		"Kueue has no business with the placement, even of a suspended job": {
			old: suspend(new(true)),
			change: func(trainJob *v2alpha1.TrainJob) {
				trainJob.Spec.Trainer.Volumes = []corev1.Volume{{Name: "data"}}
				trainJob.Spec.Trainer.Args = []string{"--fast"}
			},
			want: immutable("spec.trainer.args", "spec.trainer.volumes"),
		},
		"a key more in a map": {
			change: func(trainJob *v2alpha1.TrainJob) {
				trainJob.Spec.Trainer.ResourcesPerNode.Limits["ephemeral-storage"] = resource.MustParse("1Gi")
			},
			want: immutable("spec.trainer.resourcesPerNode.limits.ephemeral-storage"),
		},
		"an item more in a list": {
			change: func(trainJob *v2alpha1.TrainJob) {
				trainJob.Spec.Trainer.Command = []string{"python", "train.py", "-v"}
			},
			want: immutable("spec.trainer.command"),
		},
		"an item of a list": {
			change: func(trainJob *v2alpha1.TrainJob) { trainJob.Spec.Trainer.Command = []string{"python", "test.py"} },
			want:   immutable("spec.trainer.command[1]"),
		},
		"empty lists and maps where there were none": {change: func(trainJob *v2alpha1.TrainJob) {
			trainJob.Spec.Trainer.Args = []string{}
			trainJob.Spec.Trainer.Env = []corev1.EnvVar{}
			trainJob.Spec.Trainer.ResourcesPerNode.Requests = corev1.ResourceList{}
		}},
		"a quantity in other words": {old: storage("1Gi"), change: storage("1024Mi")},
		"a quantity that is larger": {old: storage("1Gi"), change: storage("2Gi"), want: immutable("spec.initializer.storage.size")},
		"everything, of a job that is being deleted": {change: func(trainJob *v2alpha1.TrainJob) {
			trainJob.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
			trainJob.Spec = v2alpha1.TrainJobSpec{}
		}},
		"a label of the operator's": {
			change: func(trainJob *v2alpha1.TrainJob) {
				trainJob.Labels = map[string]string{training.LabelJobType: "mpijob"}
			},
			want: []string{`metadata.labels[training.kubeflow.org/job-type]: Invalid value: "mpijob": must be "trainjob"; the operator sets it if it is missing`},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			old := trainJob()
			if tc.old != nil {
				tc.old(old)
			}
			changed := old.DeepCopy()
			if tc.change != nil {
				tc.change(changed)
			}
			oldBefore, changedBefore := old.DeepCopy(), changed.DeepCopy()
			wantFindings(t, rules().UpdateTrainJob(old, changed), tc.want, nil)
			if diff := cmp.Diff([]*v2alpha1.TrainJob{oldBefore, changedBefore}, []*v2alpha1.TrainJob{old, changed}); diff != "" {
				t.Errorf("what the user wrote was changed:\n%s", diff)
			}
		})
	}
}
