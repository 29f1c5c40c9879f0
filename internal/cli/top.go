package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/trireme-mpi/trireme/internal/kube/jobview"
	podusage "github.com/trireme-mpi/trireme/internal/kube/usage"
)

// top is `top`.
type top struct {
	*environment
	lister *lister
	job    string

	all, watch, finished, noHeaders bool
	selector, kind, output          string
	every                           time.Duration
	// toldUnmeasured: the warning about the missing metrics API was printed.
	toldUnmeasured bool
}

// newTopCommand shows the requests and the usage of jobs.
func newTopCommand(environment *environment) *cobra.Command {
	top := &top{environment: environment}
	command := &cobra.Command{
		Use:   "top [JOB]",
		Short: "Show the resource requests, usage and waiting times of jobs",
		Long: `Show what jobs request, what they use, and what waiting costs.

GPU, CPU and MEMORY are the total requests of the launcher and the workers. CPU-USED and
MEMORY-USED come from the metrics API (metrics.k8s.io), "-" if it is not available.

WAITED is the time from Submitted to Scheduled, when every pod has a node. It increases
while a pod has no node, and includes the time in a queue or suspended.
GPU-S-IDLE are GPU-seconds allocated but not used: the job's GPUs times the time from
Scheduled to FirstRankUp, when mpirun has logged in to all workers. FirstRankUp is known
once the launcher has finished; until then WorkersReached, the start of mpirun, is used.
GPU-S-QUEUED (-o wide) are GPU-seconds requested but not allocated: the job's GPUs times
WAITED.

The last line is the total. Its requests and usage do not include finished jobs.`,
		Example: `  odh top
  odh top -A -o wide
  odh top trainjob/hello --watch`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: environment.completeJobs,
		RunE: func(command *cobra.Command, arguments []string) error {
			if err := top.complete(command, arguments); err != nil {
				return err
			}
			if top.watch {
				return top.repeat(command.Context())
			}
			return top.show(command.Context())
		},
	}
	flags := command.Flags()
	flags.BoolVarP(&top.all, "all-namespaces", "A", false, "Show jobs in all namespaces")
	flags.StringVarP(&top.selector, "selector", "l", "", "Only show jobs with these labels, such as team=vision,env!=test")
	flags.StringVar(&top.kind, "kind", "", "Only show jobs of this kind: trainjob or mpijob")
	flags.BoolVar(&top.finished, "finished", false, "Include finished jobs")
	flags.BoolVarP(&top.watch, "watch", "w", false, "Refresh the output until interrupted")
	flags.DurationVar(&top.every, "every", 2*time.Second, "Refresh interval of --watch")
	flags.StringVarP(&top.output, "output", "o", "", "Output format: wide, json or yaml")
	flags.BoolVar(&top.noHeaders, "no-headers", false, "Do not print the headers")
	return command
}

func (top *top) complete(command *cobra.Command, arguments []string) (err error) {
	if !slices.Contains([]string{"", "wide", "json", "yaml"}, top.output) {
		return usageFailure(command, fmt.Sprintf("--output must be wide, json or yaml, not %q", top.output))
	}
	if top.every <= 0 {
		return usageFailure(command, fmt.Sprintf("--every must be a positive duration such as 5s, not %s", top.every))
	}
	if len(arguments) > 0 && (top.all || top.selector != "" || top.kind != "") {
		return usageFailure(command, "--all-namespaces, --selector and --kind cannot be combined with a job")
	}
	top.lister = &lister{environment: top.environment, kinds: kinds, pageSize: 500}
	if top.kind != "" {
		only, err := kindNamed(top.kind)
		if err != nil {
			return err
		}
		top.lister.kinds = []*kind{only}
	}
	if len(arguments) > 0 {
		top.job = arguments[0]
	}
	if top.lister.matching, err = labels.Parse(top.selector); err != nil {
		return usageFailure(command, fmt.Sprintf("--selector: %v", err))
	}
	if top.lister.namespace, err = top.scope(top.all); err != nil {
		return err
	}
	top.lister.client, err = top.client()
	return err
}

// repeat refreshes the table until interrupted.
func (top *top) repeat(ctx context.Context) error {
	for {
		if top.terminal.live {
			// Move the cursor to the top left and clear the screen below it.
			control(top.Out, "\x1b[H\x1b[J")
		}
		if err := top.show(ctx); err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
		select {
		case <-ctx.Done():
			return exit(exitInterrupted)
		case <-time.After(top.every):
		}
		if !top.terminal.live && top.output != "json" && top.output != "yaml" {
			fmt.Fprintln(top.Out)
		}
	}
}

func (top *top) show(ctx context.Context) error {
	jobs, err := top.jobs(ctx)
	if err != nil {
		return err
	}
	if len(jobs) == 0 && (top.output == "" || top.output == "wide") {
		top.say("%s", top.lister.nothing())
		return nil
	}
	usages, err := top.usages(ctx, jobs)
	if err != nil {
		return err
	}
	return top.print(usages, top.Out)
}

// jobs returns the jobs that the flags select.
func (top *top) jobs(ctx context.Context) ([]*view, error) {
	if top.job != "" {
		seen, err := top.find(ctx, top.lister.client, top.lister.namespace, top.job)
		return []*view{seen}, err
	}
	jobs, _, err := top.lister.read(ctx)
	if top.finished {
		return jobs, err
	}
	return slices.DeleteFunc(jobs, func(seen *view) bool { return seen.Finished() }), err
}

func (top *top) usages(ctx context.Context, jobs []*view) ([]jobUsage, error) {
	used, err := top.measure(ctx)
	if err != nil {
		return nil, err
	}
	models := newModels(top.lister.client)
	usages := make([]jobUsage, 0, len(jobs))
	for _, seen := range jobs {
		made, err := seen.Model(ctx, models)
		if err != nil && !errors.Is(err, jobview.ErrNoRuntime) {
			return nil, err
		}
		usages = append(usages, usageOf(seen, made, used[jobKey(seen.Kind.Type(), seen.GetNamespace(), seen.GetName())], top.clock.Now()))
	}
	return usages, nil
}

// measure returns the usage of pods. It warns once if the metrics API is missing.
func (top *top) measure(ctx context.Context) (map[string]corev1.ResourceList, error) {
	pods, err := podusage.List(ctx, top.lister.client, client.InNamespace(top.lister.namespace))
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		if !top.toldUnmeasured {
			top.say("Resource usage is not available: the cluster's metrics API (metrics.k8s.io) does not respond (%v)", err)
		}
		top.toldUnmeasured = true
		return nil, nil
	}
	return measured(pods), nil
}

func (top *top) print(usages []jobUsage, to io.Writer) error {
	var written []byte
	var err error
	switch top.output {
	case "json":
		written, err = indentedJSON(reportOf(usages))
	case "yaml":
		if written, err = yaml.Marshal(reportOf(usages)); top.watch {
			written = append([]byte("---\n"), written...)
		}
	default:
		printer := printers.NewTablePrinter(printers.PrintOptions{Wide: top.output == "wide", WithNamespace: top.all, NoHeaders: top.noHeaders})
		aligned := printers.GetNewTabWriter(to)
		if err := printer.PrintObj(topTable(usages), aligned); err != nil {
			return err
		}
		return aligned.Flush()
	}
	if err == nil {
		_, err = to.Write(written)
	}
	return err
}
