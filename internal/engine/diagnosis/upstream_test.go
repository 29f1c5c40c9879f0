// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// reportedSet is a JobSet whose job has reported this progress.
func reportedSet(progress *training.TrainerStatus) *jobset.JobSet {
	set := recordedSet()
	set.OwnerReferences = []metav1.OwnerReference{{APIVersion: "trainer.kubeflow.org/v1alpha1", Kind: "TrainJob", Name: "bert", UID: "u1", Controller: new(true)}}
	verdict := Verdict{Progress: training.Progress{Phase: training.PhaseRunning, TrainerStatus: progress}}
	verdict.JobSetRecord(&job.Job{Kind: job.KindJobSet, Slots: 1}, set)
	return set
}

func TestUpstreamProgress(t *testing.T) {
	all := &training.TrainerStatus{
		Step: new(int64(5)), TotalSteps: new(int64(10)), ProgressPercentage: new(int32(50)), EstimatedRemainingSeconds: new(int64(1 << 40)), LastUpdatedTime: new(stamp(ready)),
		Metrics: []training.TrainerMetric{{Name: "loss", Value: "0.25"}, {Name: "eval_loss", Value: "0.5"}, {Name: "epoch", Value: "1.9"}, {Name: "note", Value: "x"}, {Name: "nan", Value: "NaN"}, {Name: "empty"}},
	}
	for name, test := range map[string]struct {
		progress             *training.TrainerStatus
		wantStatus, wantMeta string
	}{
		"everything": {
			all,
			`{"metadata":{"uid":"u1"},"status":{"trainerStatus":{"estimatedRemainingSeconds":2147483647,"lastUpdatedTime":"2026-03-01T10:00:05Z","metrics":[` +
				`{"name":"loss","value":"0.25"},{"name":"eval_loss","value":"0.5"},{"name":"epoch","value":"1.9"},{"name":"note","value":"x"},{"name":"nan","value":"NaN"}],"progressPercentage":50}}}`,
			`{"metadata":{"annotations":{"trainer.opendatahub.io/trainerStatus":"{\"currentEpoch\":1.9,\"currentStep\":5,\"estimatedRemainingSeconds\":2147483647,\"estimatedRemainingTimeSummary\":\"68y\",\"evalMetrics\":{\"eval_loss\":0.5},` +
				`\"lastUpdatedTime\":\"2026-03-01T10:00:05Z\",\"progressPercentage\":50,\"totalSteps\":10,\"trainMetrics\":{\"loss\":0.25}}"},"uid":"u1"}}`,
		},
		"nothing but a time": {
			&training.TrainerStatus{LastUpdatedTime: new(stamp(ready))},
			`{"metadata":{"uid":"u1"},"status":{"trainerStatus":{"estimatedRemainingSeconds":null,"lastUpdatedTime":"2026-03-01T10:00:05Z","metrics":[],"progressPercentage":null}}}`,
			`{"metadata":{"annotations":{"trainer.opendatahub.io/trainerStatus":"{\"evalMetrics\":{},\"lastUpdatedTime\":\"2026-03-01T10:00:05Z\",\"trainMetrics\":{}}"},"uid":"u1"}}`,
		},
		"no progress": {nil, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			status, metadata := UpstreamProgress(reportedSet(nil), reportedSet(test.progress))
			if string(status) != test.wantStatus || string(metadata) != test.wantMeta {
				t.Errorf("status\n%s\nwant\n%s\nmetadata\n%s\nwant\n%s", status, test.wantStatus, metadata, test.wantMeta)
			}
		})
	}
	if status, metadata := UpstreamProgress(reportedSet(all), reportedSet(all)); status != nil || metadata != nil {
		t.Errorf("the same progress is written again: %s %s", status, metadata)
	}
}
