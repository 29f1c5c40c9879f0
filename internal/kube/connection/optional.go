// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trireme-mpi/trireme/internal/engine/gang"
)

// KueueVersions are the API versions of Kueue, the newest first.
var KueueVersions = []schema.GroupVersion{{Group: "kueue.x-k8s.io", Version: "v1beta2"}, {Group: "kueue.x-k8s.io", Version: "v1beta1"}}

// OptionalKinds are kinds that a cluster may not have. They are unstructured, so a client
// without discovery must be created with them.
func OptionalKinds() []schema.GroupVersionKind {
	kinds := gang.GroupKinds()
	for _, version := range KueueVersions {
		kinds = append(kinds, version.WithKind("LocalQueue"), version.WithKind("Workload"))
	}
	return kinds
}
