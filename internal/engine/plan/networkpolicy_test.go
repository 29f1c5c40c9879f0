// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/testing/goldenfile"
)

// test/networkpolicy evaluates the policies; this test shows the objects.
func TestNetworkPolicies(t *testing.T) {
	tests := map[string]struct {
		kind     job.Kind
		template training.NetworkPolicyTemplate
		ports    []int32
		reports  *Reports
	}{
		"an MPIJob, Default":                   {kind: job.KindMPIJob, template: training.NetworkPolicyDefault, ports: []int32{443}},
		"an MPIJob, Restricted":                {kind: job.KindMPIJob, template: training.NetworkPolicyRestricted, ports: []int32{443}},
		"a TrainJob, Default":                  {kind: job.KindTrainJob, template: training.NetworkPolicyDefault, ports: []int32{443}},
		"a TrainJob, Restricted, with storage": {kind: job.KindTrainJob, template: training.NetworkPolicyRestricted, ports: []int32{443, 9000}},
		"a TrainJob, Restricted, that reports": {kind: job.KindTrainJob, template: training.NetworkPolicyRestricted, ports: []int32{443}, reports: reports()},
		// An empty rule would allow everything.
		"a TrainJob, Restricted, without egress ports": {kind: job.KindTrainJob, template: training.NetworkPolicyRestricted},
	}
	files := map[string]bool{}
	for name, tc := range tests {
		file := filepath.Join("testdata/networkpolicy", strings.NewReplacer(",", "", " ", "-").Replace(strings.ToLower(name))+".golden.yaml")
		files[file] = true
		t.Run(name, func(t *testing.T) {
			j := &job.Job{Kind: tc.kind, Namespace: "team-a", Name: "resnet", NetworkPolicy: tc.template}
			got, err := yaml.Marshal(NetworkPolicy(j, tc.ports, tc.reports))
			if err != nil {
				t.Fatal(err)
			}
			goldenfile.Check(t, file, got)
		})
	}
	goldenfile.NoOthers(t, "testdata/networkpolicy/*", files)
}
