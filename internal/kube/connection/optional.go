package connection

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trireme-mpi/trireme/internal/engine/gang"
)

// KueueVersions are those that Kueue may serve, the newest first.
var KueueVersions = []schema.GroupVersion{{Group: "kueue.x-k8s.io", Version: "v1beta2"}, {Group: "kueue.x-k8s.io", Version: "v1beta1"}}

// OptionalKinds are read where a cluster serves them. They are unstructured, and a
// client whose mapper does not ask the cluster must be told of them.
func OptionalKinds() []schema.GroupVersionKind {
	kinds := gang.GroupKinds()
	for _, version := range KueueVersions {
		kinds = append(kinds, version.WithKind("LocalQueue"), version.WithKind("Workload"))
	}
	return kinds
}
