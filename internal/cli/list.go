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

	all       bool
	selector  string
	state     string
	watch     bool
	pageSize  int64
	models    *models
	client    client.WithWatch
	matching  labels.Selector
	wide      bool
	humanly   bool
	outputFor string
	// missing are the errors of named jobs that do not exist.
	missing []error
}

// newListCommand lists jobs of one kind or, if only is nil, of both.
func newListCommand(environment *environment, only *kind) *cobra.Command {
	lister := &lister{environment: environment, kinds: kinds, print: get.NewGetPrintFlags()}
	if only != nil {
		lister.kinds = []*kind{only}
	}
	command := &cobra.Command{
		RunE: func(command *cobra.Command, names []string) error {
			lister.names = names
			if err := lister.complete(command); err != nil {
				return err
			}
			return lister.run(command.Context())
		},
	}
	command.Example = `  odh training list --all-namespaces
  odh training list --status Running -o wide`
	if only != nil {
		command.Example = fmt.Sprintf(`  odh %[1]s get
  odh %[1]s get hello -o yaml
  odh %[1]s get --status Running --watch`, only.Command)
		command.ValidArgsFunction = environment.completeNames(only, many)
	}
	flags := command.Flags()
	lister.print.AddFlags(command)
	flags.BoolVarP(&lister.all, "all-namespaces", "A", false, "List jobs in all namespaces")
	flags.StringVarP(&lister.selector, "selector", "l", "", "Only list jobs with these labels, such as team=vision,env!=test")
	flags.StringVar(&lister.state, "status", "", "Only list jobs with this status ("+strings.Join(jobview.States, ", ")+")")
	flags.BoolVarP(&lister.watch, "watch", "w", false, "After listing the jobs, watch for changes")
	flags.Int64Var(&lister.pageSize, "chunk-size", 500, "Number of jobs to request at a time; 0 requests all at once")
	return command
}

func (lister *lister) complete(command *cobra.Command) (err error) {
	if lister.state != "" && !slices.ContainsFunc(jobview.States, func(state string) bool { return strings.EqualFold(state, lister.state) }) {
		return usageFailure(command, fmt.Sprintf("--status must be one of %s, not %q", strings.Join(jobview.States, ", "), lister.state))
	}
	if lister.matching, err = labels.Parse(lister.selector); err != nil {
		return usageFailure(command, fmt.Sprintf("--selector: %v", err))
	}
	if len(lister.names) > 0 && (lister.all || lister.selector != "") {
		return usageFailure(command, "--all-namespaces and --selector cannot be combined with job names")
	}
	if lister.namespace, err = lister.scope(lister.all); err != nil {
		return err
	}
	lister.outputFor = *lister.print.OutputFormat
	lister.wide = lister.outputFor == "wide"
	lister.humanly = (lister.wide || lister.outputFor == "") && *lister.print.TemplateFlags.TemplateArgument == ""
	if _, err := lister.print.ToPrinter(); err != nil {
		return usageFailure(command, err.Error())
	}
	if lister.all && lister.humanly {
		if err := lister.print.EnsureWithNamespace(); err != nil {
			return err
		}
	}
	lister.client, err = lister.environment.client()
	lister.models = newModels(lister.client)
	return err
}

func (lister *lister) run(ctx context.Context) error {
	printer, err := lister.print.ToPrinter()
	if err != nil {
		return err
	}
	if by := *lister.print.HumanReadableFlags.SortBy; by != "" && !lister.watch {
		printer = &get.SortingPrinter{Delegate: printer, SortField: by}
	}
	switch {
	case lister.watch:
		return lister.showChanges(ctx, printer)
	case lister.humanly:
		jobs, _, err := lister.read(ctx)
		if err != nil {
			return err
		}
		if len(jobs) == 0 && len(lister.names) > 0 {
			return lister.allOf(lister.missing, "found")
		}
		if len(jobs) == 0 {
			lister.say("%s", lister.nothing())
			return nil
		}
		if err := lister.printTable(ctx, printer.PrintObj, jobs); err != nil {
			return err
		}
	default:
		if err := lister.printObjects(ctx, printer.PrintObj); err != nil {
			return err
		}
	}
	return lister.allOf(lister.missing, "found")
}

// lacks records a job that does not exist; the others are still shown.
func (lister *lister) lacks(err error) bool {
	if !apierrors.IsNotFound(err) || lister.watch {
		return false
	}
	lister.missing = append(lister.missing, err)
	return true
}

func (lister *lister) nothing() string {
	what := "jobs"
	if len(lister.kinds) == 1 {
		what = string(lister.kinds[0].Kind) + "s"
	}
	if lister.namespace == "" {
		return fmt.Sprintf("No %s found.", what)
	}
	return fmt.Sprintf("No %s found in namespace %s.", what, lister.namespace)
}

// read returns all jobs in the order of kubectl, and the resource version of each
// kind's list.
func (lister *lister) read(ctx context.Context) (jobs []*view, versions map[*kind]string, err error) {
	versions = map[*kind]string{}
	for _, kind := range lister.kinds {
		if len(lister.names) > 0 && lister.watch {
			if versions[kind], err = versionOf(ctx, kind, lister.client, client.ListOptions{Namespace: lister.namespace}); err != nil {
				return nil, nil, err
			}
		}
		for _, name := range lister.names {
			seen, err := kind.Get(ctx, lister.client, lister.namespace, name)
			if lister.lacks(err) {
				continue
			}
			if err != nil {
				return nil, nil, err
			}
			jobs = append(jobs, seen)
		}
		if len(lister.names) > 0 {
			continue
		}
		versions[kind], err = lister.pages(ctx, kind.NewList, func(object runtime.Object) error {
			if seen := jobview.Of(object.(client.Object)); lister.wants(seen) {
				jobs = append(jobs, seen)
			}
			return nil
		})
		if err != nil {
			return nil, nil, err
		}
	}
	if len(lister.kinds) > 1 {
		slices.SortStableFunc(jobs, func(one, other *view) int {
			return strings.Compare(one.GetNamespace()+"/"+one.GetName(), other.GetNamespace()+"/"+other.GetName())
		})
	}
	return jobs, versions, nil
}

// pages calls see with every object of a list. It requests the next page while it
// processes one, and returns the resource version of the list.
func (lister *lister) pages(ctx context.Context, newList func() client.ObjectList, see func(runtime.Object) error) (string, error) {
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
			err := lister.client.List(ctx, list, &client.ListOptions{Namespace: lister.namespace, LabelSelector: lister.matching, Limit: lister.pageSize, Continue: next})
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
		if err := meta.EachListItem(page.list, see); err != nil {
			stop()
			for range arriving {
			}
			return "", err
		}
	}
	return version, nil
}

func (lister *lister) wants(seen *view) bool {
	return (lister.state == "" || strings.EqualFold(lister.state, seen.State())) &&
		(len(lister.names) == 0 || slices.Contains(lister.names, seen.GetName()))
}

// printObjects prints objects as the cluster returns them, unknown fields included.
func (lister *lister) printObjects(ctx context.Context, show func(runtime.Object, io.Writer) error) error {
	found := &unstructured.UnstructuredList{}
	found.SetAPIVersion("v1")
	found.SetKind("List")
	for _, kind := range lister.kinds {
		for _, name := range lister.names {
			object := &unstructured.Unstructured{}
			object.SetGroupVersionKind(kind.GVK)
			err := lister.client.Get(ctx, client.ObjectKey{Namespace: lister.namespace, Name: name}, object)
			if lister.lacks(err) {
				continue
			}
			if err != nil {
				return err
			}
			found.Items = append(found.Items, *object)
		}
		if len(lister.names) > 0 {
			continue
		}
		newList := func() client.ObjectList {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(kind.GVK.GroupVersion().WithKind(kind.GVK.Kind + "List"))
			return list
		}
		if _, err := lister.pages(ctx, newList, func(object runtime.Object) error {
			return lister.take(found, kind, object.(*unstructured.Unstructured))
		}); err != nil {
			return err
		}
	}
	if len(lister.missing) > 0 && len(found.Items) == 0 {
		return nil
	}
	if len(lister.names) == 1 {
		return show(&found.Items[0], lister.Out)
	}
	return show(found, lister.Out)
}

// take adds an object to the list if it has the wanted status.
func (lister *lister) take(found *unstructured.UnstructuredList, kind *kind, object *unstructured.Unstructured) error {
	if lister.state != "" {
		typed := kind.NewObject()
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, typed); err != nil {
			return err
		}
		if !lister.wants(jobview.Of(typed)) {
			return nil
		}
	}
	object.SetGroupVersionKind(kind.GVK)
	found.Items = append(found.Items, *object)
	return nil
}

func (lister *lister) printTable(ctx context.Context, show func(runtime.Object, io.Writer) error, jobs []*view) error {
	return show(lister.table(ctx, jobs, lister.clock.Now()), lister.Out)
}

// table returns jobs as a table for kubectl's printers.
func (lister *lister) table(ctx context.Context, jobs []*view, now time.Time) *metav1.Table {
	both := len(lister.kinds) > 1
	table := &metav1.Table{ColumnDefinitions: []metav1.TableColumnDefinition{column("Name", 0)}}
	if both {
		table.ColumnDefinitions = append(table.ColumnDefinitions, column("Kind", 0))
	}
	for _, name := range []string{"Status", "Workers", "Duration", "Age"} {
		table.ColumnDefinitions = append(table.ColumnDefinitions, column(name, 0))
	}
	for _, name := range []string{"GPU", "MPI", "Runtime", "Queue", "Failure", "Image"} {
		table.ColumnDefinitions = append(table.ColumnDefinitions, column(name, 1))
	}
	for _, seen := range jobs {
		cells := []any{seen.GetName()}
		if both {
			cells = append(cells, string(seen.Kind.Kind))
		}
		cells = append(cells, seen.State(), seen.Workers(), lasted(seen, now), age(now, seen.GetCreationTimestamp().Time))
		if lister.wide {
			cells = append(cells, lister.models.details(ctx, seen)...)
		}
		table.Rows = append(table.Rows, metav1.TableRow{Cells: cells, Object: runtime.RawExtension{Object: seen.Object}})
	}
	return table
}

// lasted returns the run time of a job as a cell.
func lasted(seen *view, now time.Time) string {
	ran, known := seen.Ran(now)
	if !known {
		return "-"
	}
	return ran.Round(time.Second).String()
}
