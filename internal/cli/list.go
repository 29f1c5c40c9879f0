// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubectl/pkg/cmd/get"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/internal/kube/jobview"
)

// lister is `get` and `list`.
type lister struct {
	*environment
	// kinds to list: one or both.
	kinds     []*kind
	names     []string
	print     *get.PrintFlags
	namespace string

	all           bool
	selector      string
	state         string
	watch         bool
	pageSize      int64
	models        *jobview.RuntimeCache
	client        client.WithWatch
	matching      labels.Selector
	wide          bool
	humanReadable bool
	outputFormat  string
	// missing are the errors of named jobs that do not exist.
	missing []error
}

// newListCommand lists jobs of one kind or, if only is nil, of both.
func newListCommand(env *environment, only *kind) *cobra.Command {
	l := &lister{environment: env, kinds: kinds, print: get.NewGetPrintFlags()}
	if only != nil {
		l.kinds = []*kind{only}
	}
	command := &cobra.Command{
		RunE: func(command *cobra.Command, names []string) error {
			l.names = names
			if err := l.complete(command); err != nil {
				return err
			}
			return l.run(command.Context())
		},
	}
	command.Example = `  odh training list --all-namespaces
  odh training list --status Running -o wide`
	if only != nil {
		command.Example = fmt.Sprintf(`  odh %[1]s get
  odh %[1]s get hello -o yaml
  odh %[1]s get --status Running --watch`, only.Command)
		command.ValidArgsFunction = env.completeNames(only, many)
	}
	flags := command.Flags()
	l.print.AddFlags(command)
	flags.BoolVarP(&l.all, "all-namespaces", "A", false, "List jobs in all namespaces")
	flags.StringVarP(&l.selector, "selector", "l", "", "Only list jobs with these labels, such as team=vision,env!=test")
	flags.StringVar(&l.state, "status", "", "Only list jobs with this status ("+strings.Join(jobview.States, ", ")+")")
	flags.BoolVarP(&l.watch, "watch", "w", false, "After listing the jobs, watch for changes")
	flags.Int64Var(&l.pageSize, "chunk-size", 500, "Number of jobs to request at a time; 0 requests all at once")
	return command
}

func (l *lister) complete(command *cobra.Command) (err error) {
	if l.state != "" && !slices.ContainsFunc(jobview.States, func(state string) bool { return strings.EqualFold(state, l.state) }) {
		return usageFailure(command, fmt.Sprintf("--status must be one of %s, not %q", strings.Join(jobview.States, ", "), l.state))
	}
	if l.matching, err = labels.Parse(l.selector); err != nil {
		return usageFailure(command, fmt.Sprintf("--selector: %v", err))
	}
	if len(l.names) > 0 && (l.all || l.selector != "") {
		return usageFailure(command, "--all-namespaces and --selector cannot be combined with job names")
	}
	if l.namespace, err = l.scope(l.all); err != nil {
		return err
	}
	l.outputFormat = *l.print.OutputFormat
	l.wide = l.outputFormat == "wide"
	l.humanReadable = (l.wide || l.outputFormat == "") && *l.print.TemplateFlags.TemplateArgument == ""
	if _, err := l.print.ToPrinter(); err != nil {
		return usageFailure(command, err.Error())
	}
	if l.all && l.humanReadable {
		if err := l.print.EnsureWithNamespace(); err != nil {
			return err
		}
	}
	l.client, err = l.environment.client()
	l.models = jobview.NewRuntimeCache(l.client)
	return err
}

func (l *lister) run(ctx context.Context) error {
	printer, err := l.print.ToPrinter()
	if err != nil {
		return err
	}
	if sortBy := *l.print.HumanReadableFlags.SortBy; sortBy != "" && !l.watch {
		printer = &get.SortingPrinter{Delegate: printer, SortField: sortBy}
	}
	switch {
	case l.watch:
		return l.showChanges(ctx, printer)
	case l.humanReadable:
		jobs, _, err := l.read(ctx)
		if err != nil {
			return err
		}
		if len(jobs) == 0 && len(l.names) > 0 {
			return l.joinFailures(l.missing, "found")
		}
		if len(jobs) == 0 {
			l.say("%s", l.noneFound())
			return nil
		}
		if err := l.printTable(ctx, printer.PrintObj, jobs); err != nil {
			return err
		}
	default:
		if err := l.printObjects(ctx, printer.PrintObj); err != nil {
			return err
		}
	}
	return l.joinFailures(l.missing, "found")
}

// skipMissing records a job that does not exist; the others are still shown.
func (l *lister) skipMissing(err error) bool {
	if !apierrors.IsNotFound(err) || l.watch {
		return false
	}
	l.missing = append(l.missing, err)
	return true
}

func (l *lister) noneFound() string {
	noun := "jobs"
	if len(l.kinds) == 1 {
		noun = string(l.kinds[0].Kind) + "s"
	}
	if l.namespace == "" {
		return fmt.Sprintf("No %s found.", noun)
	}
	return fmt.Sprintf("No %s found in namespace %s.", noun, l.namespace)
}

// read returns all jobs in the order of kubectl, and the resource version of each
// kind's list.
func (l *lister) read(ctx context.Context) (jobs []*view, versions map[*kind]string, err error) {
	versions = map[*kind]string{}
	for _, kind := range l.kinds {
		if len(l.names) > 0 && l.watch {
			if versions[kind], err = versionOf(ctx, kind, l.client, client.ListOptions{Namespace: l.namespace}); err != nil {
				return nil, nil, err
			}
		}
		for _, name := range l.names {
			j, err := kind.Get(ctx, l.client, l.namespace, name)
			if l.skipMissing(err) {
				continue
			}
			if err != nil {
				return nil, nil, err
			}
			jobs = append(jobs, j)
		}
		if len(l.names) > 0 {
			continue
		}
		versions[kind], err = l.pages(ctx, kind.NewList, func(object runtime.Object) error {
			if j := jobview.Of(object.(client.Object)); l.matches(j) {
				jobs = append(jobs, j)
			}
			return nil
		})
		if err != nil {
			return nil, nil, err
		}
	}
	if len(l.kinds) > 1 {
		slices.SortStableFunc(jobs, func(one, other *view) int {
			return strings.Compare(one.GetNamespace()+"/"+one.GetName(), other.GetNamespace()+"/"+other.GetName())
		})
	}
	return jobs, versions, nil
}

// pages calls handle with every object of a list. It requests the next page while it
// processes one, and returns the resource version of the list.
func (l *lister) pages(ctx context.Context, newList func() client.ObjectList, handle func(runtime.Object) error) (string, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	type page struct {
		list client.ObjectList
		err  error
	}
	arriving := make(chan page, 1)
	go func() {
		defer close(arriving)
		for next := ""; ; {
			list := newList()
			err := l.client.List(ctx, list, &client.ListOptions{Namespace: l.namespace, LabelSelector: l.matching, Limit: l.pageSize, Continue: next})
			arriving <- page{list, err}
			if next = list.GetContinue(); err != nil || next == "" || ctx.Err() != nil {
				return
			}
		}
	}()
	version := ""
	for page := range arriving {
		if page.err != nil {
			return "", page.err
		}
		version = page.list.GetResourceVersion()
		if err := meta.EachListItem(page.list, handle); err != nil {
			stop()
			for range arriving {
			}
			return "", err
		}
	}
	return version, nil
}

func (l *lister) matches(j *view) bool {
	return (l.state == "" || strings.EqualFold(l.state, j.State())) &&
		(len(l.names) == 0 || slices.Contains(l.names, j.GetName()))
}

// printObjects prints objects as the cluster returns them, unknown fields included.
func (l *lister) printObjects(ctx context.Context, show func(runtime.Object, io.Writer) error) error {
	objects := &unstructured.UnstructuredList{}
	objects.SetAPIVersion("v1")
	objects.SetKind("List")
	for _, kind := range l.kinds {
		for _, name := range l.names {
			object := &unstructured.Unstructured{}
			object.SetGroupVersionKind(kind.GVK)
			err := l.client.Get(ctx, client.ObjectKey{Namespace: l.namespace, Name: name}, object)
			if l.skipMissing(err) {
				continue
			}
			if err != nil {
				return err
			}
			objects.Items = append(objects.Items, *object)
		}
		if len(l.names) > 0 {
			continue
		}
		newList := func() client.ObjectList {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(kind.GVK.GroupVersion().WithKind(kind.GVK.Kind + "List"))
			return list
		}
		if _, err := l.pages(ctx, newList, func(object runtime.Object) error {
			return l.addMatching(objects, kind, object.(*unstructured.Unstructured))
		}); err != nil {
			return err
		}
	}
	if len(l.missing) > 0 && len(objects.Items) == 0 {
		return nil
	}
	if len(l.names) == 1 {
		return show(&objects.Items[0], l.Out)
	}
	return show(objects, l.Out)
}

// addMatching adds an object to the list if it has the wanted status.
func (l *lister) addMatching(objects *unstructured.UnstructuredList, kind *kind, object *unstructured.Unstructured) error {
	if l.state != "" {
		typed := kind.NewObject()
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, typed); err != nil {
			return err
		}
		if !l.matches(jobview.Of(typed)) {
			return nil
		}
	}
	object.SetGroupVersionKind(kind.GVK)
	objects.Items = append(objects.Items, *object)
	return nil
}

func (l *lister) printTable(ctx context.Context, show func(runtime.Object, io.Writer) error, jobs []*view) error {
	return show(l.table(ctx, jobs, l.clock.Now()), l.Out)
}

// table returns jobs as a table for kubectl's printers.
func (l *lister) table(ctx context.Context, jobs []*view, now time.Time) *metav1.Table {
	both := len(l.kinds) > 1
	table := &metav1.Table{ColumnDefinitions: []metav1.TableColumnDefinition{column("Name", 0)}}
	if both {
		table.ColumnDefinitions = append(table.ColumnDefinitions, column("Kind", 0))
	}
	for _, name := range []string{"Status", "Workers", "Progress", "Duration", "Age"} {
		table.ColumnDefinitions = append(table.ColumnDefinitions, column(name, 0))
	}
	for _, name := range []string{"GPU", "MPI", "Runtime", "Queue", "Failure", "Image"} {
		table.ColumnDefinitions = append(table.ColumnDefinitions, column(name, 1))
	}
	for _, j := range jobs {
		cells := []any{j.GetName()}
		if both {
			cells = append(cells, string(j.Kind.Kind))
		}
		cells = append(cells, j.State(), j.Workers(), progressCell(j), runTime(j, now), age(now, j.GetCreationTimestamp().Time))
		if l.wide {
			cells = append(cells, details(ctx, l.models, j)...)
		}
		table.Rows = append(table.Rows, metav1.TableRow{Cells: cells, Object: runtime.RawExtension{Object: j.Object}})
	}
	return table
}

// runTime returns the run time of a job as a cell.
func runTime(j *view, now time.Time) string {
	ran, known := j.Ran(now)
	if !known {
		return "-"
	}
	return ran.Round(time.Second).String()
}
