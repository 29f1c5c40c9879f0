package plan

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/job"
)

// Who may reach whom is in test/networkpolicy, which asks an evaluator of
// policies; here is what users find in their namespace.
func TestNetworkPolicies(t *testing.T) {
	tests := map[string]struct {
		kind     job.Kind
		template training.NetworkPolicyTemplate
		ports    []int32
	}{
		"an MPIJob, Default":                   {kind: job.KindMPIJob, template: training.NetworkPolicyDefault, ports: []int32{443}},
		"an MPIJob, Restricted":                {kind: job.KindMPIJob, template: training.NetworkPolicyRestricted, ports: []int32{443}},
		"a TrainJob, Default":                  {kind: job.KindTrainJob, template: training.NetworkPolicyDefault, ports: []int32{443}},
		"a TrainJob, Restricted, with storage": {kind: job.KindTrainJob, template: training.NetworkPolicyRestricted, ports: []int32{443, 9000}},
		// An empty rule would be one that opens everything.
		"a TrainJob, Restricted, without a way out": {kind: job.KindTrainJob, template: training.NetworkPolicyRestricted},
	}
	files := map[string]bool{}
	for name, tc := range tests {
		file := filepath.Join("testdata/networkpolicy", strings.NewReplacer(",", "", " ", "-").Replace(strings.ToLower(name))+".golden.yaml")
		files[file] = true
		t.Run(name, func(t *testing.T) {
			made := &job.Job{Kind: tc.kind, Namespace: "team-a", Name: "resnet", NetworkPolicy: tc.template}
			got, err := yaml.Marshal(NetworkPolicy(made, tc.ports))
			if err != nil {
				t.Fatal(err)
			}
			if *update {
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatalf("%v (go test -update writes it)", err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("policy (-want +got):\n%s", diff)
			}
		})
	}
	there, err := filepath.Glob("testdata/networkpolicy/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range there {
		if !files[file] {
			t.Errorf("%s belongs to no case", file)
		}
	}
}
