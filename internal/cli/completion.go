// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
)

// completionTimeout is the timeout for completions.
const completionTimeout = 2 * time.Second

// Maximum number of names that a command accepts.
const (
	one  = 1
	many = 1 << 20
)

// completion is a completion function of cobra.
type completion = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective)

// completeNames completes the jobs of a kind.
func (e *environment) completeNames(kind *kind, atMost int) completion {
	return func(command *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= atMost {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		names := e.namesOf(command.Context(), kind.GVK)
		return withPrefix(slices.DeleteFunc(names, func(name string) bool { return slices.Contains(args, name) }), prefix), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeJobs completes the jobs of both kinds, as KIND/NAME and NAME.
func (e *environment) completeJobs(command *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var candidates []string
	for _, kind := range kinds {
		for _, name := range e.namesOf(command.Context(), kind.GVK) {
			candidates = append(candidates, kind.Command+"/"+name, name)
		}
	}
	return withPrefix(candidates, prefix), cobra.ShellCompDirectiveNoFileComp
}

// completeRuntimes completes the runtimes of both scopes.
func (e *environment) completeRuntimes(command *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	names := e.namesOf(command.Context(), v2alpha1.GroupVersion.WithKind(string(v2alpha1.RuntimeKindCluster)))
	names = append(names, e.namesOf(command.Context(), v2alpha1.GroupVersion.WithKind(string(v2alpha1.RuntimeKindNamespaced)))...)
	return withPrefix(names, prefix), cobra.ShellCompDirectiveNoFileComp
}

func (e *environment) namespaceNames(command *cobra.Command) []string {
	return e.namesOf(command.Context(), corev1.SchemeGroupVersion.WithKind("Namespace"))
}

func (e *environment) contextNames() []string {
	config, err := e.config.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return nil
	}
	var names []string
	for name := range config.Contexts {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// namesOf lists the names of a kind. It ignores errors, because the shell would print
// them into the line that the user is typing.
func (e *environment) namesOf(ctx context.Context, kind schema.GroupVersionKind) (names []string) {
	ctx, stop := context.WithTimeout(ctx, completionTimeout)
	defer stop()
	api, err := e.client()
	if err != nil {
		return nil
	}
	namespace, err := e.namespace()
	if err != nil {
		return nil
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := api.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil
	}
	_ = meta.EachListItem(list, func(object runtime.Object) error {
		names = append(names, object.(*metav1.PartialObjectMetadata).Name)
		return nil
	})
	return names
}
