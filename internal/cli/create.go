package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
)

// Ways to try a creation out.
const (
	dryRunNone   = "none"
	dryRunClient = "client"
	dryRunServer = "server"
)

// checkDryRun refuses other words: what was meant as a trial must not be done.
func checkDryRun(command *cobra.Command, word string) error {
	switch word {
	case dryRunNone, dryRunClient, dryRunServer:
		return nil
	default:
		return usageFailure(command, fmt.Sprintf("--dry-run %q: there are none, client and server", word))
	}
}

// creator is `create`.
type creator struct {
	*environment
	kind  *kind
	flags jobFlags
	print *genericclioptions.PrintFlags

	file         string
	fromStdin    bool
	dryRun       string
	fieldManager string
	wait         bool
	follow       bool
	timeout      time.Duration
}

func newCreateCommand(environment *environment, kind *kind) *cobra.Command {
	creator := &creator{environment: environment, kind: kind, print: genericclioptions.NewPrintFlags("created").WithTypeSetter(scheme())}
	command := &cobra.Command{
		Long: fmt.Sprintf("Create a %s from a file, from standard input, or from flags. Nothing is created unless all of it is right.", kind.Kind),
		Args: func(command *cobra.Command, arguments []string) error {
			if len(beforeDashes(command, arguments)) > 1 {
				return fmt.Errorf("one NAME at most; a command of more words stands behind --")
			}
			return nil
		},
		RunE: func(command *cobra.Command, arguments []string) error { return creator.run(command, arguments) },
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
	}
	set := command.Flags()
	set.SetNormalizeFunc(nameFlag(kind))
	creator.flags.add(set, kind)
	creator.print.AddFlags(command)
	set.StringVarP(&creator.file, "filename", "f", "", "file with the job, or - for standard input (also --from-file)")
	set.BoolVar(&creator.fromStdin, "from-stdin", false, "the same as -f -")
	set.StringVar(&creator.dryRun, "dry-run", dryRunNone, "client only prints what would be sent, server has the cluster judge it; nothing is stored")
	set.Lookup("dry-run").NoOptDefVal = dryRunClient
	set.StringVar(&creator.fieldManager, "field-manager", "odh", "who is written down as the author of the fields")
	set.BoolVar(&creator.wait, "wait", false, "wait until the job has ended; exit code 6 if it fails")
	set.BoolVar(&creator.follow, "follow", false, "show how the job comes up, and then its output, until it has ended; Ctrl-C leaves it running")
	set.DurationVar(&creator.timeout, "timeout", 0, "how long --wait and --follow wait at most, such as 30m; 0 is for ever")
	if kind == trainJobs {
		_ = command.RegisterFlagCompletionFunc("runtime", environment.completeRuntimes)
	}
	return command
}

// beforeDashes are the arguments that do not belong to the job's command.
func beforeDashes(command *cobra.Command, arguments []string) []string {
	if dash := command.ArgsLenAtDash(); dash >= 0 {
		return arguments[:dash]
	}
	return arguments
}

func (creator *creator) run(command *cobra.Command, arguments []string) error {
	ctx := command.Context()
	names := beforeDashes(command, arguments)
	object, err := creator.read(command, names, arguments[len(names):])
	if err != nil {
		return err
	}
	if err := creator.place(object); err != nil {
		return err
	}
	printed, err := creator.printer()
	if err != nil {
		return usageFailure(command, err.Error())
	}
	if creator.dryRun == dryRunClient {
		if creator.namesResources(object) {
			creator.say("Resources that no flag names are those of the runtime; --dry-run=server shows them.")
		}
		err = creator.judge(object, creator.kind)
	} else {
		err = creator.send(ctx, object)
	}
	if err != nil {
		return err
	}
	if err := printed.PrintObj(object, creator.Out); err != nil || creator.dryRun != dryRunNone {
		return err
	}
	return creator.accompany(ctx, object)
}

// read is the job that is asked for, from a file or from flags.
func (creator *creator) read(command *cobra.Command, names, words []string) (*unstructured.Unstructured, error) {
	if err := checkDryRun(command, creator.dryRun); err != nil {
		return nil, err
	}
	name := ""
	if len(names) > 0 {
		name = names[0]
	}
	if creator.fromStdin {
		creator.file = "-"
	}
	if creator.file == "" {
		if name == "" && creator.flags.image == "" && len(words) == 0 {
			return nil, usageFailure(command, "either --from-file, --from-stdin, or inline parameters must be specified")
		}
		command, err := creator.flags.words(words)
		if err != nil {
			return nil, err
		}
		object, err := creator.flags.build(creator.kind, name, command)
		if err != nil {
			return nil, err
		}
		return asUnstructured(object, creator.kind)
	}
	if described := changed(command, creator.kind); len(described) > 0 || len(words) > 0 {
		return nil, usageFailure(command, fmt.Sprintf("the job is in %s; it cannot be described by flags as well: %s", creator.file, strings.Join(append(described, words...), " ")))
	}
	object, err := creator.manifest(creator.file, creator.kind)
	if err == nil && name != "" {
		object.SetName(name)
		object.SetGenerateName("")
	}
	return object, err
}

// changed are the flags that describe a job, of those that were given.
func changed(command *cobra.Command, kind *kind) (given []string) {
	describing := (&cobra.Command{}).Flags()
	(&jobFlags{}).add(describing, kind)
	describing.VisitAll(func(flag *pflag.Flag) {
		if command.Flags().Changed(flag.Name) {
			given = append(given, "--"+flag.Name)
		}
	})
	return given
}

// place puts the job into its namespace, as kubectl does: a namespace that is asked
// for must be that of the file.
func (creator *creator) place(object *unstructured.Unstructured) error {
	namespace, enforced, err := creator.config.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		if creator.dryRun == dryRunClient {
			return nil
		}
		return noCluster(err)
	}
	if written := object.GetNamespace(); written != "" && enforced && written != namespace {
		return inputFailure(fmt.Sprintf("the job belongs to namespace %q, and --namespace says %q", written, namespace))
	}
	if object.GetNamespace() == "" {
		object.SetNamespace(namespace)
	}
	return nil
}

// send creates the job, or has the cluster say what would come of it.
func (creator *creator) send(ctx context.Context, object *unstructured.Unstructured) error {
	to, err := creator.client()
	if err != nil {
		return err
	}
	if err := creator.resolveRuntime(ctx, to, object); err != nil {
		return err
	}
	if err := creator.completeResources(ctx, to, object); err != nil {
		return err
	}
	options := []client.CreateOption{client.FieldOwner(creator.fieldManager)}
	if creator.dryRun == dryRunServer {
		options = append(options, client.DryRunAll)
	}
	// Every field was known here. One that the cluster does not know would be lost.
	err = client.WithFieldValidation(to, metav1.FieldValidationStrict).Create(ctx, object, options...)
	if apierrors.IsBadRequest(err) && strings.Contains(err.Error(), "unknown field") {
		return olderServer(creator.kind, err)
	}
	return err
}

// olderServer is a cluster that does not know a field that we do.
func olderServer(kind *kind, err error) *failure {
	refused := notServed(err.Error())
	refused.message = fmt.Sprintf("the cluster serves an older %s, without fields that this job uses; nothing was created", kind.Kind)
	refused.reason = "ServerTooOld"
	return refused
}

// resolveRuntime finds which runtime a bare name on the command line means: the
// namespace's own comes first.
func (creator *creator) resolveRuntime(ctx context.Context, from client.Reader, object *unstructured.Unstructured) error {
	if creator.kind != trainJobs || creator.file != "" || strings.Contains(creator.flags.runtime, "/") {
		return nil
	}
	var own v2alpha1.TrainingRuntime
	err := from.Get(ctx, client.ObjectKey{Namespace: object.GetNamespace(), Name: creator.flags.runtime}, &own)
	if err == nil {
		return unstructured.SetNestedField(object.Object, string(v2alpha1.RuntimeKindNamespaced), "spec", "runtimeRef", "kind")
	}
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil
	}
	return err
}

// namesResources tells whether flags name resources of a TrainJob's workers.
func (creator *creator) namesResources(object *unstructured.Unstructured) bool {
	_, found, _ := unstructured.NestedMap(object.Object, "spec", "trainer", "resourcesPerNode")
	return found && creator.kind == trainJobs && creator.file == ""
}

// completeResources takes the resources that no flag names from the runtime: a job's
// resources replace all of the runtime's, and --cpu must not drop the GPUs.
func (creator *creator) completeResources(ctx context.Context, from client.Reader, object *unstructured.Unstructured) error {
	if !creator.namesResources(object) {
		return nil
	}
	var trainJob v2alpha1.TrainJob
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &trainJob); err != nil {
		return err
	}
	spec, err := jobview.RuntimeOf(ctx, from, &trainJob)
	switch {
	case errors.Is(err, jobview.ErrNoRuntime):
		return nil // Admission says so.
	case apierrors.IsForbidden(err):
		creator.say("Warning: you may not read runtime %s, so workers get only the resources that flags name.", trainJob.Spec.RuntimeRef.Name)
		return nil
	case err != nil:
		return err
	}
	completed, err := runtime.DefaultUnstructuredConverter.ToUnstructured(job.CompletedResources(trainJob.Spec.Trainer.ResourcesPerNode, spec))
	if err != nil {
		return err
	}
	return unstructured.SetNestedMap(object.Object, completed, "spec", "trainer", "resourcesPerNode")
}

func (creator *creator) printer() (printers.ResourcePrinter, error) {
	switch creator.dryRun {
	case dryRunClient:
		if err := creator.print.Complete("%s (dry run)"); err != nil {
			return nil, err
		}
	case dryRunServer:
		if err := creator.print.Complete("%s (server dry run)"); err != nil {
			return nil, err
		}
	}
	return creator.print.ToPrinter()
}

// accompany stays with the job, if that is asked for.
func (creator *creator) accompany(ctx context.Context, object *unstructured.Unstructured) error {
	if !creator.wait && !creator.follow {
		return nil
	}
	ctx, stop := limited(ctx, creator.timeout)
	defer stop()
	var err error
	if creator.follow {
		err = creator.watchRun(ctx, creator.kind, object.GetNamespace(), object.GetName())
	} else {
		// The job was printed, maybe for a program to read; how it ended is talk.
		err = creator.awaitEnd(ctx, creator.ErrOut, creator.kind, object.GetNamespace(), object.GetName())
	}
	if errors.Is(err, context.Canceled) {
		creator.detach(object.GetNamespace(), object.GetName())
		return exit(exitInterrupted)
	}
	return err
}

// detach says how to come back to a job that goes on.
func (creator *creator) detach(namespace, name string) {
	at := fmt.Sprintf("%s %s %%s %s -n %s", creator.calledAs, creator.kind.Command, name, namespace)
	creator.say("\nDetached. %s/%s goes on.", creator.kind.Command, name)
	creator.say("  Its output again:  "+at+" --follow", "logs")
	creator.say("  How it stands:     "+at, "describe")
	creator.say("  End it:            "+at, "delete")
}
