// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Server lists the resources that an API server serves, like client-go's discovery
// client.
type Server interface {
	ServerResourcesForGroupVersion(groupVersion string) (*metav1.APIResourceList, error)
}

// Discover reads which gang schedulers' PodGroups an API server serves. The operator
// calls it repeatedly, because schedulers may be installed at any time, and an upgrade of
// Kubernetes changes the version of scheduling.k8s.io.
func Discover(server Server) (Available, error) {
	var available Available
	for _, kind := range GroupKinds() {
		served, err := serves(server, kind)
		if err != nil {
			return Available{}, fmt.Errorf("read whether the API server serves %s: %w", apiOf(kind), err)
		}
		if served {
			available.Served = append(available.Served, kind)
		}
	}
	return available, nil
}

func serves(server Server, kind schema.GroupVersionKind) (bool, error) {
	resources, err := server.ServerResourcesForGroupVersion(kind.GroupVersion().String())
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(resources.APIResources, func(resource metav1.APIResource) bool {
		// A subresource such as podgroups/status has the same kind, but cannot be created.
		return resource.Kind == kind.Kind && slices.Contains(resource.Verbs, "create")
	}), nil
}
