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
)

// newRuntimeCommand is `odh runtime`.
func newRuntimeCommand(env *environment) *cobra.Command {
	command := group(&cobra.Command{Use: "runtime", Aliases: []string{"runtimes"}, Short: "List, validate and test the runtimes of TrainJobs"})
	command.AddCommand(newRuntimeListCommand(env), newRuntimeValidateCommand(env), newRuntimeTestCommand(env))
	return command
}

// foundRuntime is a runtime of either scope.
type foundRuntime struct {
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
			found, err := env.runtimes(command.Context(), api, namespace)
			if err != nil {
				return err
			}
			if output := *print.OutputFormat; output != "" && output != "wide" {
				list, err := runtimeObjects(found)
				if err != nil {
					return err
				}
				return printer.PrintObj(list, env.Out)
			}
			if len(found) == 0 {
				env.say("No runtimes found.")
				return nil
			}
			return printer.PrintObj(env.runtimeTable(found), env.Out)
		},
	}
	print.AddFlags(command)
	command.Flags().BoolVarP(&all, "all-namespaces", "A", false, "List the runtimes of all namespaces")
	return command
}

// runtimes returns the runtimes of the cluster and then those of the namespace, by
// name. It warns if one of the two cannot be read, and fails if both cannot.
func (e *environment) runtimes(ctx context.Context, api client.Reader, namespace string) (found []foundRuntime, err error) {
	var ofCluster v2alpha1.ClusterTrainingRuntimeList
	var ofNamespace v2alpha1.TrainingRuntimeList
	first, second := api.List(ctx, &ofCluster), api.List(ctx, &ofNamespace, client.InNamespace(namespace))
	if first != nil && second != nil {
		return nil, first
	}
	for _, err := range []error{first, second} {
		if err != nil {
			e.say("Warning: not all runtimes are shown: %v", err)
		}
	}
	for i := range ofCluster.Items {
		found = append(found, foundRuntime{&ofCluster.Items[i], v2alpha1.RuntimeKindCluster, &ofCluster.Items[i].Spec})
	}
	for i := range ofNamespace.Items {
		found = append(found, foundRuntime{&ofNamespace.Items[i], v2alpha1.RuntimeKindNamespaced, &ofNamespace.Items[i].Spec})
	}
	slices.SortStableFunc(found, func(a, b foundRuntime) int {
		return slices.Compare([]string{string(a.kind), a.GetNamespace(), a.GetName()}, []string{string(b.kind), b.GetNamespace(), b.GetName()})
	})
	return found, nil
}

// runtimeTable returns runtimes as a table for kubectl's printers.
func (e *environment) runtimeTable(found []foundRuntime) *metav1.Table {
	table := &metav1.Table{}
	for _, name := range []string{"Name", "Scope", "MPI", "Nodes", "Slots", "GPU", "Age"} {
		table.ColumnDefinitions = append(table.ColumnDefinitions, column(name, 0))
	}
	for _, name := range []string{"CPU", "Memory", "Gang", "Image"} {
		table.ColumnDefinitions = append(table.ColumnDefinitions, column(name, 1))
	}
	for _, each := range found {
		scope := "cluster"
		if each.GetNamespace() != "" {
			scope = "namespace " + each.GetNamespace()
		}
		// The values of a job that sets nothing itself.
		model := job.FromTrainJob(&v2alpha1.TrainJob{}, each.spec, job.Defaults{})
		requests := job.Requests(&model.Worker.Template.Spec)
		table.Rows = append(table.Rows, metav1.TableRow{Object: runtime.RawExtension{Object: each.Object}, Cells: []any{
			each.GetName(), scope, orDash(string(each.spec.MLPolicy.MPIImplementation)), fmt.Sprint(model.Worker.Replicas), fmt.Sprint(model.Slots), job.GPUs(requests).String(),
			age(e.clock.Now(), each.GetCreationTimestamp().Time),
			requests.Cpu().String(), requests.Memory().String(), orDash(string(model.Gang.Scheduler)), orDash(imageOf(each.spec)),
		}})
	}
	return table
}

// runtimeObjects returns the runtimes as a list for -o json and others.
func runtimeObjects(found []foundRuntime) (runtime.Object, error) {
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("v1")
	list.SetKind("List")
	for _, each := range found {
		object, err := asUnstructured(each.Object, &kind{GVK: v2alpha1.GroupVersion.WithKind(string(each.kind))})
		if err != nil {
			return nil, err
		}
		list.Items = append(list.Items, *object)
	}
	return list, nil
}

// runtimeNamed finds a runtime by name. A runtime of the namespace takes precedence, as
// with create, unless kind is set.
func (e *environment) runtimeNamed(ctx context.Context, api client.Reader, namespace, name, kind string) (*foundRuntime, error) {
	own, ofCluster := &v2alpha1.TrainingRuntime{}, &v2alpha1.ClusterTrainingRuntime{}
	wanted := func(each v2alpha1.RuntimeKind) bool { return kind == "" || strings.EqualFold(kind, string(each)) }
	var refused error
	if wanted(v2alpha1.RuntimeKindNamespaced) {
		err := api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, own)
		if err == nil {
			return &foundRuntime{own, v2alpha1.RuntimeKindNamespaced, &own.Spec}, nil
		}
		refused = client.IgnoreNotFound(err)
	}
	if wanted(v2alpha1.RuntimeKindCluster) {
		err := api.Get(ctx, client.ObjectKey{Name: name}, ofCluster)
		if err == nil {
			return &foundRuntime{ofCluster, v2alpha1.RuntimeKindCluster, &ofCluster.Spec}, nil
		}
		refused = cmp.Or(refused, client.IgnoreNotFound(err))
	}
	if refused != nil {
		// A runtime that may not be read may still exist.
		return nil, refused
	}
	return nil, &failure{code: exitNotFound, message: fmt.Sprintf("runtime %q not found", name), reason: "NotFound",
		suggestions: []string{fmt.Sprintf("List the runtimes: %s runtime list -n %s", e.calledAs, namespace)}}
}
