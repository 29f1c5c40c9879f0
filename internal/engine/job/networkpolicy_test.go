// SPDX-License-Identifier: Apache-2.0

package job

import (
	"testing"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
)

func TestDefaultTemplateOfNetworkPolicies(t *testing.T) {
	for name, tc := range map[string]struct {
		ofJob *training.NetworkPolicy
		want  training.NetworkPolicyTemplate
	}{
		"a job without a template has the default": {want: training.NetworkPolicyRestricted},
		"a job's own template wins":                {ofJob: &training.NetworkPolicy{Template: training.NetworkPolicyDefault}, want: training.NetworkPolicyDefault},
	} {
		t.Run(name, func(t *testing.T) {
			defaults := Defaults{NetworkPolicy: training.NetworkPolicyRestricted}
			mpiJob, trainJob := &v2beta1.MPIJob{}, &v2alpha1.TrainJob{}
			mpiJob.Spec.NetworkPolicy, trainJob.Spec.NetworkPolicy = tc.ofJob, tc.ofJob
			if got := FromMPIJob(mpiJob, defaults).NetworkPolicy; got != tc.want {
				t.Errorf("MPIJob: got %q, want %q", got, tc.want)
			}
			if got := FromTrainJob(trainJob, &v2alpha1.TrainingRuntimeSpec{}, defaults).NetworkPolicy; got != tc.want {
				t.Errorf("TrainJob: got %q, want %q", got, tc.want)
			}
		})
	}
}
