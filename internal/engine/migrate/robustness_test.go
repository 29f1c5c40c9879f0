// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"math/rand"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/testing/random"
)

// Jobs that make no sense, with something in every field that there is.
func TestNothingOfAnythingIsLost(t *testing.T) {
	converted := 0
	for seed := range int64(300) {
		mpiJob := &v2beta1.MPIJob{}
		random.Fill(seed, mpiJob)
		mpiJob.TypeMeta = metav1.TypeMeta{APIVersion: "kubeflow.org/v2beta1", Kind: "MPIJob"}
		specs := map[v2beta1.MPIReplicaType]*v2beta1.ReplicaSpec{}
		for i, role := range []v2beta1.MPIReplicaType{v2beta1.MPIReplicaTypeLauncher, v2beta1.MPIReplicaTypeWorker} {
			specs[role] = &v2beta1.ReplicaSpec{}
			random.Fill(seed*2+int64(i), specs[role])
		}
		mpiJob.Spec.MPIReplicaSpecs = specs
		raw := unstructuredOf(t, mpiJob)
		result, err := Convert(raw, Options{})
		if err != nil {
			continue
		}
		converted++
		outputs := map[string]map[string]any{"TrainJob": unstructuredOf(t, result.TrainJob), "TrainingRuntime": unstructuredOf(t, result.Runtime)}
		for _, path := range leaves(raw, "") {
			if fault := accounted(raw, outputs, result.Report, path); fault != "" {
				t.Fatalf("seed %d: %s: %s", seed, path, fault)
			}
		}
	}
	if converted == 0 {
		t.Error("no job was converted")
	}
}

// Whatever is written where something else belongs, the answer is an error or a
// report, and what was given is not changed.
func TestNonsenseIsSurvived(t *testing.T) {
	nonsense := []any{nil, "", "text", int64(-1), int64(7), 1.5, true, []any{}, []any{nil}, map[string]any{}, map[string]any{"a": "b"}, []any{map[string]any{}}}
	for seed := range int64(600) {
		dice := rand.New(rand.NewSource(seed))
		raw := unstructuredOf(t, randomJob(seed))
		for range 1 + dice.Intn(3) {
			replaceSomething(dice, raw, nonsense[dice.Intn(len(nonsense))])
		}
		before := len(leaves(raw, ""))
		result, err := Convert(raw, Options{})
		if err != nil {
			continue
		}
		if after := len(leaves(raw, "")); after != before {
			t.Fatalf("seed %d: the input had %d leaves, and has %d", seed, before, after)
		}
		for _, path := range leaves(raw, "") {
			noted := false
			for i := range result.Report.Entries {
				noted = noted || result.Report.Entries[i].covers(path)
			}
			if !noted {
				t.Fatalf("seed %d: %s is not in the report", seed, path)
			}
		}
	}
}

// replaceSomething puts a value somewhere into an object.
func replaceSomething(dice *rand.Rand, node map[string]any, value any) {
	for {
		var keys []string
		for _, path := range children(node, "") {
			keys = append(keys, segments(path)[0])
		}
		if len(keys) == 0 {
			return
		}
		key := keys[dice.Intn(len(keys))]
		below, isMap := node[key].(map[string]any)
		if !isMap || dice.Intn(6) == 0 {
			node[key] = value
			return
		}
		node = below
	}
}
