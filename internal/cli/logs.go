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
func newLogsCommand(environment *environment, kind *kind) *cobra.Command {
	reader := &logReader{environment: environment, kind: kind}
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
		Args: cobra.ExactArgs(1), ValidArgsFunction: environment.completeNames(kind, one),
		RunE: func(command *cobra.Command, arguments []string) error {
			reader.name = arguments[0]
			selection, err := reader.selection(command)
			if err != nil {
				return err
			}
			return reader.run(command.Context(), selection)
		},
	}
	reader.addFlags(command)
	return command
}

func (reader *logReader) addFlags(command *cobra.Command) {
	flags := command.Flags()
	flags.BoolVar(&reader.launcher, "launcher", false, "Show the launcher (the default)")
	flags.StringVar(&reader.worker, "worker", "", "Show one worker by its number, starting at 0; or launcher")
	flags.BoolVar(&reader.all, "all", false, "Show the launcher and all workers, merged by time")
	for _, alias := range []string{"aggregate", "all-workers"} {
		flags.BoolVar(&reader.all, alias, false, "Same as --all")
		flags.Lookup(alias).Hidden = true
	}
	flags.BoolVar(&reader.initializer, "initializer", false, "Show the pod that downloads the model and the dataset; with --all, in addition to the others")
	flags.IntVar(&reader.rank, "rank", 0, "Only show the lines of this MPI rank; the output must be tagged")
	flags.StringVarP(&reader.container, "container", "c", "", "Show this container instead of the first one")
	flags.BoolVarP(&reader.follow, "follow", "f", false, "Stream the logs until the job has finished")
	flags.Int64Var(&reader.tail, "tail", -1, "Number of recent lines to show of each pod; -1 shows all")
	flags.DurationVar(&reader.since, "since", 0, "Only show lines newer than this duration, such as 10m")
	flags.BoolVar(&reader.timestamps, "timestamps", false, "Show the time of each line")
	flags.BoolVarP(&reader.previous, "previous", "p", false, "Show the previous run of the container, or the pod before the latest one")
	flags.BoolVar(&reader.prefix, "prefix", false, "Prefix each line with its pod; --all does this by default")
}

// selection returns the pods and lines that the flags select.
func (reader *logReader) selection(command *cobra.Command) (joblog.Selection, error) {
	selection := joblog.Selection{Roles: []string{training.RoleLauncher}, Container: reader.container}
	ranked := command.Flags().Changed("rank")
	wrong := func(message string) (joblog.Selection, error) { return selection, usageFailure(command, message) }
	if several(reader.launcher, reader.all, reader.worker != "") {
		return wrong("--launcher, --worker and --all are mutually exclusive")
	}
	switch {
	case ranked && (reader.all || reader.initializer || reader.worker != "" && reader.worker != training.RoleLauncher):
		return wrong("--rank only works with the log of the launcher, which has the lines of all ranks")
	case ranked && reader.rank < 0:
		return wrong(fmt.Sprintf("--rank must be 0 or greater, not %d", reader.rank))
	case reader.follow && reader.previous:
		return wrong("--follow and --previous are mutually exclusive: the previous run has finished")
	case reader.tail < -1:
		return wrong(fmt.Sprintf("--tail must be a number of lines, or -1 for all lines, not %d", reader.tail))
	case reader.since < 0:
		return wrong(fmt.Sprintf("--since must be a positive duration such as 10m, not %s", reader.since))
	case reader.all:
		selection.Roles = []string{training.RoleLauncher, training.RoleWorker}
	case reader.worker != "" && reader.worker != training.RoleLauncher:
		number, err := strconv.ParseInt(reader.worker, 10, 32)
		if err != nil || number < 0 {
			return wrong(fmt.Sprintf("--worker must be a number, starting at 0, or launcher, not %q", reader.worker))
		}
		selection.Roles, selection.Worker = []string{training.RoleWorker}, new(int32(number))
	}
	if reader.initializer && (reader.launcher || reader.all || reader.worker != "") {
		selection.Roles = append(selection.Roles, training.RoleInitializer)
	} else if reader.initializer {
		selection.Roles = []string{training.RoleInitializer}
	}
	if ranked {
		selection.Rank = &reader.rank
	}
	return selection, nil
}

// several reports whether more than one fact is true.
func several(facts ...bool) bool {
	return len(slices.DeleteFunc(facts, func(fact bool) bool { return !fact })) > 1
}

func (reader *logReader) run(ctx context.Context, selection joblog.Selection) error {
	namespace, err := reader.namespace()
	if err != nil {
		return err
	}
	from, err := reader.client()
	if err != nil {
		return err
	}
	seen, err := reader.kind.Get(ctx, from, namespace, reader.name)
	if err != nil {
		return err
	}
	pods, err := reader.core()
	if err != nil {
		return err
	}
	if selection.Rank != nil {
		selection.Tags = seen.Tags(ctx, from)
		if reader.follow && seen.GetAnnotations()[training.AnnotationTagOutput] != "true" {
			reader.say("%s does not tag its output (annotation %s); only lines that its command tags itself can be shown.", upperFirst(seen.Named()), training.AnnotationTagOutput)
		}
	}
	made := seen.Identity()
	last := made.Worker.Replicas - 1
	// Include the logs of workers beyond the current number of replicas.
	made.Worker.Replicas = math.MaxInt32
	show := newLogPrinter(reader.logs(), reader.terminal, reader.timestamps, reader.prefix || len(selection.Roles) > 1)
	show.width = max(show.width, len(prefixOf(joblog.Line{Role: training.RoleWorker, Worker: max(last, 0)})))
	defer show.flush()
	err = reader.print(ctx, from, seen, joblog.FromCluster(pods, made), selection, show)
	show.flush()
	return reader.explainLogs(ctx, from, seen, selection, err)
}

// print shows the lines and, with --follow, watches the job.
func (reader *logReader) print(ctx context.Context, from client.WithWatch, seen *view, source joblog.Source, selection joblog.Selection, show *logPrinter) error {
	options := joblog.Options{Follow: reader.follow, Previous: reader.previous, Notify: func(text string) { reader.say("%s", upperFirst(text)) }}
	if reader.tail >= 0 {
		options.Tail = &reader.tail
	}
	if reader.since > 0 {
		options.Since = reader.clock.Now().Add(-reader.since)
	}
	watched := make(chan error, 1)
	if reader.follow {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		ended := make(chan struct{})
		options.Ended = ended
		waiting := &waitingWords{environment: reader.environment, show: show}
		go func() {
			defer close(ended)
			watched <- reader.watchJob(ctx, from, seen, waiting.see)
		}()
	}
	for line, err := range joblog.Stream(ctx, source, selection, options) {
		if err != nil {
			return err
		}
		if err := show.print(line, reader.follow); err != nil {
			return err
		}
	}
	if reader.follow {
		return <-watched
	}
	return nil
}

// watchJob passes each change of a job to see until the job has finished or is deleted.
// It retries on errors, because lines may still arrive.
func (reader *logReader) watchJob(ctx context.Context, from client.WithWatch, seen *view, see func(*view) (bool, error)) error {
	for {
		err := followJob(ctx, reader.kind, from, seen.GetNamespace(), seen.GetName(), see)
		var told *failure
		if err == nil || ctx.Err() != nil || errors.As(err, &told) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(2 * pause):
		}
	}
}

// waitingWords prints what a job waits for, until its first line is printed.
type waitingWords struct {
	*environment
	show *logPrinter
	said string
}

func (words *waitingWords) see(seen *view) (bool, error) {
	text := seen.Explanation()
	if !seen.Finished() && seen.Phase != training.PhaseRunning && text != words.said && !words.show.begun.Load() {
		words.say("Waiting for %s: %s", seen.Named(), text)
		words.said = text
	}
	return seen.Finished(), nil
}
