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

// newLogsCommand shows what the pods of a job print.
func newLogsCommand(environment *environment, kind *kind) *cobra.Command {
	reader := &logReader{environment: environment, kind: kind}
	command := &cobra.Command{
		Long: `Show what a job prints: its launcher, unless other pods are asked for.

Lines of several pods come in the order of their time. With --follow, pods that are
started later, or anew, are read too, until the job has ended. Of pods that were
started several times, the newest is shown; --previous shows the one before.

--rank shows the lines of one MPI process. They can be told apart if the job has the
annotation ` + training.AnnotationTagOutput + `: "true".`,
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
	flags.BoolVar(&reader.launcher, "launcher", false, "the launcher, which is what is shown without any flag")
	flags.StringVar(&reader.worker, "worker", "", "one worker, by its number from 0; or launcher")
	flags.BoolVar(&reader.all, "all", false, "launcher and workers, merged by time")
	for _, alias := range []string{"aggregate", "all-workers"} {
		flags.BoolVar(&reader.all, alias, false, "the same as --all")
		flags.Lookup(alias).Hidden = true
	}
	flags.BoolVar(&reader.initializer, "initializer", false, "the pod that fetches model and dataset; with --all, that too")
	flags.IntVar(&reader.rank, "rank", 0, "only the lines of one MPI process, where the output is tagged")
	flags.StringVarP(&reader.container, "container", "c", "", "another container than the first")
	flags.BoolVarP(&reader.follow, "follow", "f", false, "go on until the job has ended")
	flags.Int64Var(&reader.tail, "tail", -1, "how many lines of each pod to begin with; -1 is all")
	flags.DurationVar(&reader.since, "since", 0, "only what is newer, such as 10m")
	flags.BoolVar(&reader.timestamps, "timestamps", false, "show when each line was written")
	flags.BoolVarP(&reader.previous, "previous", "p", false, "what ran before: the container's last run, or the pod before the newest")
	flags.BoolVar(&reader.prefix, "prefix", false, "say in front of each line which pod it is from; --all does so anyway")
}

// selection is what was asked for.
func (reader *logReader) selection(command *cobra.Command) (joblog.Selection, error) {
	selection := joblog.Selection{Roles: []string{training.RoleLauncher}, Container: reader.container}
	ranked := command.Flags().Changed("rank")
	wrong := func(message string) (joblog.Selection, error) { return selection, usageFailure(command, message) }
	if several(reader.launcher, reader.all, reader.worker != "") {
		return wrong("--launcher, --worker and --all exclude each other")
	}
	switch {
	case ranked && (reader.all || reader.initializer || reader.worker != "" && reader.worker != training.RoleLauncher):
		return wrong("--rank is about what the launcher prints: all ranks print there")
	case ranked && reader.rank < 0:
		return wrong(fmt.Sprintf("--rank %d: ranks are numbered from 0", reader.rank))
	case reader.follow && reader.previous:
		return wrong("--previous is what has ended, and cannot be followed")
	case reader.tail < -1:
		return wrong(fmt.Sprintf("--tail %d: it is a number of lines, or -1 for all", reader.tail))
	case reader.since < 0:
		return wrong(fmt.Sprintf("--since %s: it is how long ago, such as 10m", reader.since))
	case reader.all:
		selection.Roles = []string{training.RoleLauncher, training.RoleWorker}
	case reader.worker != "" && reader.worker != training.RoleLauncher:
		number, err := strconv.ParseInt(reader.worker, 10, 32)
		if err != nil || number < 0 {
			return wrong(fmt.Sprintf("--worker %q: it is a number from 0, or launcher", reader.worker))
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

// several tells whether more than one of them is so.
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
			reader.say("%s does not ask for its output to be tagged (annotation %s); only what its command tags itself can be shown.", upperFirst(seen.Named()), training.AnnotationTagOutput)
		}
	}
	made := seen.Identity()
	last := made.Worker.Replicas - 1
	// How many workers there should be does not matter for what they have printed.
	made.Worker.Replicas = math.MaxInt32
	show := newLogPrinter(reader.logs(), reader.terminal, reader.timestamps, reader.prefix || len(selection.Roles) > 1)
	show.width = max(show.width, len(prefixOf(joblog.Line{Role: training.RoleWorker, Worker: max(last, 0)})))
	defer show.flush()
	err = reader.print(ctx, from, seen, joblog.FromCluster(pods, made), selection, show)
	show.flush()
	return reader.explainLogs(ctx, from, seen, selection, err)
}

// print shows the lines, and while it follows watches how the job stands.
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

// watchJob shows how a job stands until it has ended or is gone. That it cannot be
// asked for a while changes nothing: its lines may still come.
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

// waitingWords says what a job waits for, as long as it has printed nothing.
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
