// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubectl/pkg/cmd/get"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
	"github.com/trireme-mpi/trireme/internal/kube/runtimecheck"
)

// newRuntimeCommand is `odh runtime`.
func newRuntimeCommand(env *environment) *cobra.Command {
	command := group(&cobra.Command{Use: "runtime", Aliases: []string{"runtimes"}, Short: "List, validate and test the runtimes of TrainJobs"})
	command.AddCommand(newRuntimeListCommand(env), newRuntimeValidateCommand(env), newRuntimeTestCommand(env))
	return command
}

// runtimeObject is a runtime of either scope.
type runtimeObject struct {
	client.Object
	kind v2alpha1.RuntimeKind
	spec *v2alpha1.TrainingRuntimeSpec
}

func newRuntimeListCommand(env *environment) *cobra.Command {
	print := get.NewGetPrintFlags()
	all := false
	command := &cobra.Command{
		Use: "list", Aliases: []string{"get"}, Short: "List the runtimes of the cluster and of the namespace", Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			printer, err := print.ToPrinter()
			if err != nil {
				return usageFailure(command, err.Error())
			}
			namespace, err := env.scope(all)
			if err != nil {
				return err
			}
			api, err := env.client()
			if err != nil {
				return err
			}
			runtimes, err := env.runtimes(command.Context(), api, namespace)
			if err != nil {
				return err
			}
			if output := *print.OutputFormat; output != "" && output != "wide" {
				list, err := runtimeObjects(runtimes)
				if err != nil {
					return err
				}
				return printer.PrintObj(list, env.Out)
			}
			if len(runtimes) == 0 {
				env.say("No runtimes found.")
				return nil
			}
			return printer.PrintObj(env.runtimeTable(runtimes), env.Out)
		},
	}
	print.AddFlags(command)
	command.Flags().BoolVarP(&all, "all-namespaces", "A", false, "List the runtimes of all namespaces")
	return command
}

// runtimes returns the runtimes of the cluster and then those of the namespace, by
// name. It warns if one of the two cannot be read, and fails if both cannot.
func (e *environment) runtimes(ctx context.Context, api client.Reader, namespace string) (runtimes []runtimeObject, err error) {
	var clusterRuntimes v2alpha1.ClusterTrainingRuntimeList
	var namespaceRuntimes v2alpha1.TrainingRuntimeList
	clusterErr, namespaceErr := api.List(ctx, &clusterRuntimes), api.List(ctx, &namespaceRuntimes, client.InNamespace(namespace))
	if clusterErr != nil && namespaceErr != nil {
		return nil, clusterErr
	}
	for _, err := range []error{clusterErr, namespaceErr} {
		if err != nil {
			e.say("Warning: not all runtimes are shown: %v", err)
		}
	}
	for i := range clusterRuntimes.Items {
		runtimes = append(runtimes, runtimeObject{&clusterRuntimes.Items[i], v2alpha1.RuntimeKindCluster, &clusterRuntimes.Items[i].Spec})
	}
	for i := range namespaceRuntimes.Items {
		runtimes = append(runtimes, runtimeObject{&namespaceRuntimes.Items[i], v2alpha1.RuntimeKindNamespaced, &namespaceRuntimes.Items[i].Spec})
	}
	slices.SortStableFunc(runtimes, func(a, b runtimeObject) int {
		return slices.Compare([]string{string(a.kind), a.GetNamespace(), a.GetName()}, []string{string(b.kind), b.GetNamespace(), b.GetName()})
	})
	return runtimes, nil
}

// runtimeTable returns runtimes as a table for kubectl's printers.
func (e *environment) runtimeTable(runtimes []runtimeObject) *metav1.Table {
	table := &metav1.Table{}
	for _, name := range []string{"Name", "Scope", "MPI", "Nodes", "Slots", "GPU", "Age"} {
		table.ColumnDefinitions = append(table.ColumnDefinitions, column(name, 0))
	}
	for _, name := range []string{"CPU", "Memory", "Gang", "Image"} {
		table.ColumnDefinitions = append(table.ColumnDefinitions, column(name, 1))
	}
	for _, rt := range runtimes {
		scope := "cluster"
		if rt.GetNamespace() != "" {
			scope = "namespace " + rt.GetNamespace()
		}
		// The values of a job that sets nothing itself.
		model := job.FromTrainJob(&v2alpha1.TrainJob{}, rt.spec, job.Defaults{})
		requests := job.Requests(&model.Worker.Template.Spec)
		table.Rows = append(table.Rows, metav1.TableRow{Object: runtime.RawExtension{Object: rt.Object}, Cells: []any{
			rt.GetName(), scope, orDash(string(rt.spec.MLPolicy.MPIImplementation)), fmt.Sprint(model.Worker.Replicas), fmt.Sprint(model.Slots), job.GPUs(requests).String(),
			age(e.clock.Now(), rt.GetCreationTimestamp().Time),
			requests.Cpu().String(), requests.Memory().String(), orDash(string(model.Gang.Scheduler)), orDash(runtimecheck.ImageOf(rt.spec)),
		}})
	}
	return table
}

// runtimeObjects returns the runtimes as a list for -o json and others.
func runtimeObjects(runtimes []runtimeObject) (runtime.Object, error) {
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("v1")
	list.SetKind("List")
	for _, rt := range runtimes {
		object, err := asUnstructured(rt.Object, &kind{GVK: v2alpha1.GroupVersion.WithKind(string(rt.kind))})
		if err != nil {
			return nil, err
		}
		list.Items = append(list.Items, *object)
	}
	return list, nil
}

// runtimeNamed finds a runtime by name. A runtime of the namespace takes precedence, as
// with create, unless kind is set.
func (e *environment) runtimeNamed(ctx context.Context, api client.Reader, namespace, name, kind string) (*runtimeObject, error) {
	var readErr error
	for _, runtimeKind := range []v2alpha1.RuntimeKind{v2alpha1.RuntimeKindNamespaced, v2alpha1.RuntimeKindCluster} {
		if kind != "" && !strings.EqualFold(kind, string(runtimeKind)) {
			continue
		}
		key, object, spec := jobview.RuntimeToRead(namespace, v2alpha1.RuntimeRef{Kind: runtimeKind, Name: name})
		err := api.Get(ctx, key, object)
		if err == nil {
			return &runtimeObject{object, runtimeKind, spec}, nil
		}
		readErr = cmp.Or(readErr, client.IgnoreNotFound(err))
	}
	if readErr != nil {
		// A runtime that may not be read may still exist.
		return nil, readErr
	}
	return nil, &failure{code: exitNotFound, message: fmt.Sprintf("runtime %q not found", name), reason: "NotFound",
		suggestions: []string{fmt.Sprintf("List the runtimes: %s runtime list -n %s", e.calledAs, namespace)}}
}
