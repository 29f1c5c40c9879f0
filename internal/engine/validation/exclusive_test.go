// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"testing"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// JobSet's exclusive placement and a gang would wait for each other.
func TestExclusiveTopologyIsRefused(t *testing.T) {
	const key = "[alpha.jobset.sigs.k8s.io/exclusive-topology]"
	forbidden := func(at string) string { return at + ".annotations" + key + ": Forbidden: " + notExclusive }
	exclusive := func() map[string]string {
		return map[string]string{"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack", training.IstioInject: "false"}
	}
	onRuntime := runtimeOf(func(runtime *v2alpha1.TrainingRuntimeSpec) { runtimeWorker(runtime).Annotations = exclusive() })
	exclusiveTrainJob := trainJob(func(trainJob *v2alpha1.TrainJob) { trainJob.Annotations = exclusive() })
	exclusiveMPIJob := mpiJob(func(mpiJob *v2beta1.MPIJob) {
		mpiJob.Spec.MPIReplicaSpecs["Launcher"].Template.Annotations = exclusive()
		mpiJob.Spec.MPIReplicaSpecs["Worker"].Template.Annotations = exclusive()
	})
	suspended := func(mpiJob *v2beta1.MPIJob) *v2beta1.MPIJob {
		copied := mpiJob.DeepCopy()
		copied.Spec.RunPolicy.Suspend = new(true)
		return copied
	}
	ofBoth := []string{forbidden(launcherTemplate + ".metadata"), forbidden(workerTemplate + ".metadata")}
	tests := map[string]struct {
		got  *Findings
		want []string
	}{
		"a TrainJob": {rules().CreateTrainJob(exclusiveTrainJob, anywhere(withRuntime())), []string{forbidden("metadata")}},
		"a runtime":  {rules().Runtime(onRuntime, 0), []string{forbidden(replicatedJobs + "[1].template.metadata")}},
		"a TrainJob of such a runtime": {
			rules().CreateTrainJob(trainJob(), anywhere(func(in *ClusterFacts) { in.Runtime = onRuntime })),
			[]string{`spec.runtimeRef.name: Invalid value: "openmpi": its template has the annotation alpha.jobset.sigs.k8s.io/exclusive-topology, which ` + notExclusive},
		},
		"an MPIJob":                      {rules().CreateMPIJob(exclusiveMPIJob, anywhere()), ofBoth},
		"a TrainJob, later":              {rules().UpdateTrainJob(trainJob(), exclusiveTrainJob), []string{forbidden("metadata")}},
		"a suspended MPIJob, later":      {rules().UpdateMPIJob(suspended(mpiJob()), suspended(exclusiveMPIJob)), ofBoth},
		"a TrainJob that had it before":  {rules().UpdateTrainJob(exclusiveTrainJob, exclusiveTrainJob), nil},
		"an MPIJob that had it before":   {rules().UpdateMPIJob(suspended(exclusiveMPIJob), suspended(exclusiveMPIJob)), nil},
		"an MPIJob with other templates": {rules().CreateMPIJob(mpiJob(), anywhere()), nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) { wantFindings(t, tc.got, tc.want, nil) })
	}
}

// Trireme creates the pods itself, after Kueue: nothing is lost on the way.
func TestNativeGangInAQueueIsAccepted(t *testing.T) {
	queued := trainJob(func(trainJob *v2alpha1.TrainJob) { trainJob.Labels = map[string]string{training.LabelQueue: "gpus"} })
	runtime := runtimeOf(func(runtime *v2alpha1.TrainingRuntimeSpec) {
		runtime.PodGroupPolicy = &v2alpha1.PodGroupPolicy{Native: &v2alpha1.GangPolicy{}}
	})
	if model := job.FromTrainJob(queued, runtime, job.Defaults{}); model.Gang.Scheduler != job.Native || model.Queue != "gpus" {
		t.Fatalf("the job asks for %q in queue %q", model.Gang.Scheduler, model.Queue)
	}
	wantFindings(t, rules().CreateTrainJob(queued, anywhere(func(in *ClusterFacts) { in.Runtime = runtime })), nil, nil)
}
