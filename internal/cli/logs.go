// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/kube/joblog"
)

// logReader is `logs`.
type logReader struct {
	*environment
	kind *kind
	name string

	launcher, all, initializer           bool
	worker, container                    string
	rank                                 int
	follow, previous, timestamps, prefix bool
	tail                                 int64
	since                                time.Duration
}

// newLogsCommand prints the logs of the pods of a job.
func newLogsCommand(env *environment, kind *kind) *cobra.Command {
	r := &logReader{environment: env, kind: kind}
	command := &cobra.Command{
		Long: `Print the logs of a job, by default those of its launcher.

Lines of several pods are merged by time. --follow also includes pods that start or
restart later, until the job has finished. If a pod was started several times, the
latest run is shown; --previous shows the run before.

--rank shows the lines of one MPI rank. The job must have been created with --tag-output
or with the annotation ` + training.AnnotationTagOutput + `: "true".`,
		Example: fmt.Sprintf(`  odh %[1]s logs hello
  odh %[1]s logs hello --follow --all
  odh %[1]s logs hello --worker 3 --tail 20
  odh %[1]s logs hello --rank 0 --since 10m`, kind.Command),
		Args: cobra.ExactArgs(1), ValidArgsFunction: env.completeNames(kind, one),
		RunE: func(command *cobra.Command, arguments []string) error {
			r.name = arguments[0]
			selection, err := r.selection(command)
			if err != nil {
				return err
			}
			return r.run(command.Context(), selection)
		},
	}
	r.addFlags(command)
	return command
}

func (r *logReader) addFlags(command *cobra.Command) {
	flags := command.Flags()
	flags.BoolVar(&r.launcher, "launcher", false, "Show the launcher (the default)")
	flags.StringVar(&r.worker, "worker", "", "Show one worker by its number, starting at 0; or launcher")
	flags.BoolVar(&r.all, "all", false, "Show the launcher and all workers, merged by time")
	for _, alias := range []string{"aggregate", "all-workers"} {
		flags.BoolVar(&r.all, alias, false, "Same as --all")
		flags.Lookup(alias).Hidden = true
	}
	flags.BoolVar(&r.initializer, "initializer", false, "Show the pod that downloads the model and the dataset; with --all, in addition to the others")
	flags.IntVar(&r.rank, "rank", 0, "Only show the lines of this MPI rank; the output must be tagged")
	flags.StringVarP(&r.container, "container", "c", "", "Show this container instead of the first one")
	flags.BoolVarP(&r.follow, "follow", "f", false, "Stream the logs until the job has finished")
	flags.Int64Var(&r.tail, "tail", -1, "Number of recent lines to show of each pod; -1 shows all")
	flags.DurationVar(&r.since, "since", 0, "Only show lines newer than this duration, such as 10m")
	flags.BoolVar(&r.timestamps, "timestamps", false, "Show the time of each line")
	flags.BoolVarP(&r.previous, "previous", "p", false, "Show the previous run of the container, or the pod before the latest one")
	flags.BoolVar(&r.prefix, "prefix", false, "Prefix each line with its pod; --all does this by default")
}

// selection returns the pods and lines that the flags select.
func (r *logReader) selection(command *cobra.Command) (joblog.Selection, error) {
	selection := joblog.Selection{Roles: []string{training.RoleLauncher}, Container: r.container}
	ranked := command.Flags().Changed("rank")
	usageError := func(message string) (joblog.Selection, error) { return selection, usageFailure(command, message) }
	if moreThanOne(r.launcher, r.all, r.worker != "") {
		return usageError("--launcher, --worker and --all are mutually exclusive")
	}
	switch {
	case ranked && (r.all || r.initializer || r.worker != "" && r.worker != training.RoleLauncher):
		return usageError("--rank only works with the log of the launcher, which has the lines of all ranks")
	case ranked && r.rank < 0:
		return usageError(fmt.Sprintf("--rank must be 0 or greater, not %d", r.rank))
	case r.follow && r.previous:
		return usageError("--follow and --previous are mutually exclusive: the previous run has finished")
	case r.tail < -1:
		return usageError(fmt.Sprintf("--tail must be a number of lines, or -1 for all lines, not %d", r.tail))
	case r.since < 0:
		return usageError(fmt.Sprintf("--since must be a positive duration such as 10m, not %s", r.since))
	case r.all:
		selection.Roles = []string{training.RoleLauncher, training.RoleWorker}
	case r.worker != "" && r.worker != training.RoleLauncher:
		number, err := strconv.ParseInt(r.worker, 10, 32)
		if err != nil || number < 0 {
			return usageError(fmt.Sprintf("--worker must be a number, starting at 0, or launcher, not %q", r.worker))
		}
		selection.Roles, selection.Worker = []string{training.RoleWorker}, new(int32(number))
	}
	if r.initializer && (r.launcher || r.all || r.worker != "") {
		selection.Roles = append(selection.Roles, training.RoleInitializer)
	} else if r.initializer {
		selection.Roles = []string{training.RoleInitializer}
	}
	if ranked {
		selection.Rank = &r.rank
	}
	return selection, nil
}

// moreThanOne reports whether more than one fact is true.
func moreThanOne(facts ...bool) bool {
	return len(slices.DeleteFunc(facts, func(fact bool) bool { return !fact })) > 1
}

func (r *logReader) run(ctx context.Context, selection joblog.Selection) error {
	namespace, err := r.namespace()
	if err != nil {
		return err
	}
	api, err := r.client()
	if err != nil {
		return err
	}
	j, err := r.kind.Get(ctx, api, namespace, r.name)
	if err != nil {
		return err
	}
	pods, err := r.core()
	if err != nil {
		return err
	}
	if selection.Rank != nil {
		selection.Tags = j.Tags(ctx, api)
		if r.follow && j.GetAnnotations()[training.AnnotationTagOutput] != "true" {
			r.say("%s does not tag its output (annotation %s); only lines that its command tags itself can be shown.", upperFirst(j.Named()), training.AnnotationTagOutput)
		}
	}
	model := j.Identity()
	last := model.Worker.Replicas - 1
	// Include the logs of workers beyond the current number of replicas.
	model.Worker.Replicas = math.MaxInt32
	printer := newLogPrinter(r.logs(), r.terminal, r.timestamps, r.prefix || len(selection.Roles) > 1)
	printer.width = max(printer.width, len(prefixOf(joblog.Line{Role: training.RoleWorker, Worker: max(last, 0)})))
	defer printer.flush()
	err = r.print(ctx, api, j, joblog.FromCluster(pods, model), selection, printer)
	printer.flush()
	return r.explainLogs(ctx, api, j, selection, err)
}

// print shows the lines and, with --follow, watches the job.
func (r *logReader) print(ctx context.Context, api client.WithWatch, j *view, source joblog.Source, selection joblog.Selection, printer *logPrinter) error {
	options := joblog.Options{Follow: r.follow, Previous: r.previous, Notify: func(text string) { r.say("%s", upperFirst(text)) }}
	if r.tail >= 0 {
		options.Tail = &r.tail
	}
	if r.since > 0 {
		options.Since = r.clock.Now().Add(-r.since)
	}
	watched := make(chan error, 1)
	if r.follow {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		ended := make(chan struct{})
		options.Ended = ended
		waiting := &waitNotice{environment: r.environment, printer: printer}
		go func() {
			defer close(ended)
			watched <- r.watchJob(ctx, api, j, waiting.see)
		}()
	}
	for line, err := range joblog.Stream(ctx, source, selection, options) {
		if err != nil {
			return err
		}
		if err := printer.print(line, r.follow); err != nil {
			return err
		}
	}
	if r.follow {
		return <-watched
	}
	return nil
}

// watchJob passes each change of a job to handle until the job has finished or is deleted.
// It retries on errors, because lines may still arrive.
func (r *logReader) watchJob(ctx context.Context, api client.WithWatch, j *view, handle func(*view) (bool, error)) error {
	for {
		err := followJob(ctx, r.kind, api, j.GetNamespace(), j.GetName(), handle)
		var f *failure
		if err == nil || ctx.Err() != nil || errors.As(err, &f) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(2 * pause):
		}
	}
}

// waitNotice prints what a job waits for, until its first line is printed.
type waitNotice struct {
	*environment
	printer *logPrinter
	printed string
}

func (w *waitNotice) see(j *view) (bool, error) {
	text := j.Explanation()
	if !j.Finished() && j.Phase != training.PhaseRunning && text != w.printed && !w.printer.started.Load() {
		w.say("Waiting for %s: %s", j.Named(), text)
		w.printed = text
	}
	return j.Finished(), nil
}
