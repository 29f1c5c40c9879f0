package gang

import (
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Available is what a cluster has.
type Available struct {
	Coscheduling, Volcano, Native bool
	// CoschedulerName is the scheduler that has a profile with the plugin
	// Coscheduling. Nothing in a cluster says it, so that it comes from the
	// configuration; empty is DefaultCoschedulerName.
	CoschedulerName string
}

func (a *Available) coscheduler() string {
	if a.CoschedulerName == "" {
		return DefaultCoschedulerName
	}
	return a.CoschedulerName
}

// Server tells what an API server serves, as client-go's discovery client does.
type Server interface {
	ServerResourcesForGroupVersion(groupVersion string) (*metav1.APIResourceList, error)
}

// Discover asks an API server for the groups it serves, each time anew: people
// install schedulers while the operator runs. The version is part of the
// question, because scheduling.k8s.io has PodGroups of another shape in other
// releases of Kubernetes.
func Discover(server Server) (Available, error) {
	var found Available
	for _, question := range []struct {
		kind   schema.GroupVersionKind
		answer *bool
	}{
		{coschedulingKind, &found.Coscheduling},
		{volcanoKind, &found.Volcano},
		{nativeKind, &found.Native},
	} {
		served, err := serves(server, question.kind)
		if err != nil {
			return Available{}, fmt.Errorf("ask the API server for %s of %s: %w", question.kind.Kind, question.kind.GroupVersion(), err)
		}
		*question.answer = served
	}
	return found, nil
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
		// A subresource such as podgroups/status has the kind, too, and cannot be
		// created.
		return resource.Kind == kind.Kind && slices.Contains(resource.Verbs, "create")
	}), nil
}
