// SPDX-License-Identifier: Apache-2.0

package jobservice

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/internal/kube/connection"
	"github.com/trireme-mpi/trireme/internal/server/auth"
)

// A runtime without an MPI implementation has no framework.
func TestRuntimesOfAFramework(t *testing.T) {
	cluster := fake.NewClientBuilder().WithScheme(connection.Scheme()).WithObjects(
		&v2alpha1.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: "mpi"}, Spec: v2alpha1.TrainingRuntimeSpec{MLPolicy: v2alpha1.MLPolicy{MPIImplementation: v2alpha1.MPIImplementationOpenMPI}}},
		&v2alpha1.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: "plain"}},
	).Build()
	ctx := auth.WithCaller(t.Context(), &auth.Caller{Client: cluster})
	for framework, want := range map[string][]string{"": {"mpi", "plain"}, "MPI": {"mpi"}, "mpi": {"mpi"}, "torch": nil} {
		t.Run(framework, func(t *testing.T) {
			found, err := New(Options{}).Runtimes(ctx, RuntimeQuery{Framework: framework})
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, runtime := range found {
				names = append(names, runtime.Name)
			}
			if diff := cmp.Diff(want, names); diff != "" {
				t.Errorf("runtimes (-want +got):\n%s", diff)
			}
		})
	}
}
