// SPDX-License-Identifier: Apache-2.0

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
	// warnedNoMetrics: the warning about the missing metrics API was printed.
	warnedNoMetrics bool
}

// newTopCommand shows the requests and the usage of jobs.
func newTopCommand(env *environment) *cobra.Command {
	t := &top{environment: env}
	command := &cobra.Command{
		Use:   "top [JOB]",
		Short: "Show the resource requests, usage and waiting times of jobs",
		Long: `Show what jobs request, what they use, and what waiting costs.

GPU, CPU and MEMORY are the total requests of the launcher and the workers. CPU-USED and
MEMORY-USED come from the metrics API (metrics.k8s.io), "-" if it is not available.

WAITED is the time from Submitted to Scheduled, when every pod has a node. It increases
while a pod has no node, and includes the time in a queue or suspended.
GPU-S-IDLE are GPU-seconds allocated but not used: the job's GPUs times the time from
Scheduled to FirstRankUp, when the first rank has started. If that is not
known, WorkersReached is used, the start of mpirun.
GPU-S-QUEUED (-o wide) are GPU-seconds requested but not allocated: the job's GPUs times
WAITED.

The last line is the total. Its requests and usage do not include finished jobs.`,
		Example: `  odh top
  odh top -A -o wide
  odh top trainjob/hello --watch`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: env.completeJobs,
		RunE: func(command *cobra.Command, arguments []string) error {
			if err := t.complete(command, arguments); err != nil {
				return err
			}
			if t.watch {
				return t.repeat(command.Context())
			}
			return t.show(command.Context())
		},
	}
	flags := command.Flags()
	flags.BoolVarP(&t.all, "all-namespaces", "A", false, "Show jobs in all namespaces")
	flags.StringVarP(&t.selector, "selector", "l", "", "Only show jobs with these labels, such as team=vision,env!=test")
	flags.StringVar(&t.kind, "kind", "", "Only show jobs of this kind: trainjob or mpijob")
	flags.BoolVar(&t.finished, "finished", false, "Include finished jobs")
	flags.BoolVarP(&t.watch, "watch", "w", false, "Refresh the output until interrupted")
	flags.DurationVar(&t.every, "every", 2*time.Second, "Refresh interval of --watch")
	flags.StringVarP(&t.output, "output", "o", "", "Output format: wide, json or yaml")
	flags.BoolVar(&t.noHeaders, "no-headers", false, "Do not print the headers")
	return command
}

func (t *top) complete(command *cobra.Command, arguments []string) (err error) {
	if !slices.Contains([]string{"", "wide", "json", "yaml"}, t.output) {
		return usageFailure(command, fmt.Sprintf("--output must be wide, json or yaml, not %q", t.output))
	}
	if t.every <= 0 {
		return usageFailure(command, fmt.Sprintf("--every must be a positive duration such as 5s, not %s", t.every))
	}
	if len(arguments) > 0 && (t.all || t.selector != "" || t.kind != "") {
		return usageFailure(command, "--all-namespaces, --selector and --kind cannot be combined with a job")
	}
	t.lister = &lister{environment: t.environment, kinds: kinds, pageSize: 500}
	if t.kind != "" {
		only, err := kindNamed(t.kind)
		if err != nil {
			return err
		}
		t.lister.kinds = []*kind{only}
	}
	if len(arguments) > 0 {
		t.job = arguments[0]
	}
	if t.lister.matching, err = labels.Parse(t.selector); err != nil {
		return usageFailure(command, fmt.Sprintf("--selector: %v", err))
	}
	if t.lister.namespace, err = t.scope(t.all); err != nil {
		return err
	}
	t.lister.client, err = t.client()
	return err
}

// repeat refreshes the table until interrupted.
func (t *top) repeat(ctx context.Context) error {
	for {
		if t.terminal.live {
			// Move the cursor to the top left and clear the screen below it.
			control(t.Out, "\x1b[H\x1b[J")
		}
		if err := t.show(ctx); err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
		select {
		case <-ctx.Done():
			return exit(exitInterrupted)
		case <-time.After(t.every):
		}
		if !t.terminal.live && t.output != "json" && t.output != "yaml" {
			fmt.Fprintln(t.Out)
		}
	}
}

func (t *top) show(ctx context.Context) error {
	jobs, err := t.jobs(ctx)
	if err != nil {
		return err
	}
	if len(jobs) == 0 && (t.output == "" || t.output == "wide") {
		t.say("%s", t.lister.noneFound())
		return nil
	}
	usages, err := t.usages(ctx, jobs)
	if err != nil {
		return err
	}
	return t.print(usages, t.Out)
}

// jobs returns the jobs that the flags select.
func (t *top) jobs(ctx context.Context) ([]*view, error) {
	if t.job != "" {
		j, err := t.find(ctx, t.lister.client, t.lister.namespace, t.job)
		return []*view{j}, err
	}
	jobs, _, err := t.lister.read(ctx)
	if t.finished {
		return jobs, err
	}
	return slices.DeleteFunc(jobs, func(j *view) bool { return j.Finished() }), err
}

func (t *top) usages(ctx context.Context, jobs []*view) ([]jobUsage, error) {
	used, err := t.measure(ctx)
	if err != nil {
		return nil, err
	}
	models := jobview.NewRuntimeCache(t.lister.client)
	usages := make([]jobUsage, 0, len(jobs))
	for _, j := range jobs {
		model, err := j.Model(ctx, models)
		if err != nil && !errors.Is(err, jobview.ErrNoRuntime) {
			return nil, err
		}
		usages = append(usages, usageOf(j, model, used[jobKey(j.Kind.Type(), j.GetNamespace(), j.GetName())], t.clock.Now()))
	}
	return usages, nil
}

// measure returns the usage of pods. It warns once if the metrics API is missing.
func (t *top) measure(ctx context.Context) (map[string]corev1.ResourceList, error) {
	pods, err := podusage.List(ctx, t.lister.client, client.InNamespace(t.lister.namespace))
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		if !t.warnedNoMetrics {
			t.say("Resource usage is not available: the cluster's metrics API (metrics.k8s.io) does not respond (%v)", err)
		}
		t.warnedNoMetrics = true
		return nil, nil
	}
	return measured(pods), nil
}

func (t *top) print(usages []jobUsage, to io.Writer) error {
	var content []byte
	var err error
	switch t.output {
	case "json":
		content, err = indentedJSON(reportOf(usages))
	case "yaml":
		if content, err = yaml.Marshal(reportOf(usages)); t.watch {
			content = append([]byte("---\n"), content...)
		}
	default:
		printer := printers.NewTablePrinter(printers.PrintOptions{Wide: t.output == "wide", WithNamespace: t.all, NoHeaders: t.noHeaders})
		aligned := printers.GetNewTabWriter(to)
		if err := printer.PrintObj(topTable(usages), aligned); err != nil {
			return err
		}
		return aligned.Flush()
	}
	if err == nil {
		_, err = to.Write(content)
	}
	return err
}
