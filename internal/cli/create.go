// SPDX-License-Identifier: Apache-2.0

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

// Values of --dry-run.
const (
	dryRunNone   = "none"
	dryRunClient = "client"
	dryRunServer = "server"
)

// checkDryRun refuses unknown values, so that a mistyped dry run changes nothing.
func checkDryRun(command *cobra.Command, value string) error {
	switch value {
	case dryRunNone, dryRunClient, dryRunServer:
		return nil
	default:
		return usageFailure(command, fmt.Sprintf("--dry-run must be none, client or server, not %q", value))
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

func newCreateCommand(env *environment, kind *kind) *cobra.Command {
	c := &creator{environment: env, kind: kind, print: genericclioptions.NewPrintFlags("created").WithTypeSetter(scheme())}
	article, flags := "a", "--runtime mpi-openmpi-cpu --image IMAGE --nodes 2"
	if kind == mpiJobs {
		article, flags = "an", "--image IMAGE --workers 2"
	}
	command := &cobra.Command{
		Long: fmt.Sprintf("Create %s %s from a file, from standard input, or from flags. All fields are checked before anything is created.", article, kind.Kind),
		Example: fmt.Sprintf(`  odh %[1]s create -f job.yaml --wait
  odh %[1]s create hello %[2]s --follow -- python train.py
  odh %[1]s create hello %[2]s --dry-run=client -o yaml -- python train.py`, kind.Command, flags),
		Args: func(command *cobra.Command, arguments []string) error {
			if len(argumentsBeforeDashes(command, arguments)) > 1 {
				return fmt.Errorf("at most one NAME is allowed; put the command after --")
			}
			return nil
		},
		RunE: func(command *cobra.Command, arguments []string) error { return c.run(command, arguments) },
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
	}
	set := command.Flags()
	set.SetNormalizeFunc(nameFlag(kind))
	c.flags.add(set, kind)
	c.print.AddFlags(command)
	set.StringVarP(&c.file, "filename", "f", "", "File that contains the job, or - for standard input (also --from-file)")
	set.BoolVar(&c.fromStdin, "from-stdin", false, "Read the job from standard input; same as -f -")
	set.StringVar(&c.dryRun, "dry-run", dryRunNone, "One of none, client, server: client only prints the job, server also validates it in the cluster")
	set.Lookup("dry-run").NoOptDefVal = dryRunClient
	set.StringVar(&c.fieldManager, "field-manager", "odh", "Name of the field manager")
	set.BoolVar(&c.wait, "wait", false, "Wait until the job has finished; exit with code 6 if it fails")
	set.BoolVar(&c.follow, "follow", false, "Show the progress of the job and then its output, until it has finished; Ctrl-C leaves the job running")
	set.DurationVar(&c.timeout, "timeout", 0, "Maximum time that --wait and --follow wait, such as 30m; 0 means no limit")
	if kind == trainJobs {
		_ = command.RegisterFlagCompletionFunc("runtime", env.completeRuntimes)
	}
	return command
}

// argumentsBeforeDashes returns the arguments before --, where the job's command starts.
func argumentsBeforeDashes(command *cobra.Command, arguments []string) []string {
	if dash := command.ArgsLenAtDash(); dash >= 0 {
		return arguments[:dash]
	}
	return arguments
}

func (c *creator) run(command *cobra.Command, arguments []string) error {
	ctx := command.Context()
	names := argumentsBeforeDashes(command, arguments)
	object, err := c.read(command, names, arguments[len(names):])
	if err != nil {
		return err
	}
	if err := c.setNamespace(object); err != nil {
		return err
	}
	printer, err := c.printer()
	if err != nil {
		return usageFailure(command, err.Error())
	}
	if c.dryRun == dryRunClient {
		if c.setsResources(object) {
			c.say("Resources that are not set by a flag come from the runtime; use --dry-run=server to see them.")
		}
		err = c.validate(object, c.kind)
	} else {
		err = c.send(ctx, object)
	}
	if err != nil {
		return err
	}
	if err := printer.PrintObj(object, c.Out); err != nil || c.dryRun != dryRunNone {
		return err
	}
	return c.waitOrFollow(ctx, object)
}

// read returns the job to create, from a file or from flags.
func (c *creator) read(command *cobra.Command, names, afterDashes []string) (*unstructured.Unstructured, error) {
	if err := checkDryRun(command, c.dryRun); err != nil {
		return nil, err
	}
	name := ""
	if len(names) > 0 {
		name = names[0]
	}
	if c.fromStdin {
		c.file = "-"
	}
	if c.file == "" {
		if name == "" && c.flags.image == "" && len(afterDashes) == 0 {
			return nil, usageFailure(command, "either --from-file, --from-stdin, or inline parameters must be specified")
		}
		command, err := c.flags.commandLine(afterDashes)
		if err != nil {
			return nil, err
		}
		object, err := c.flags.build(c.kind, name, command)
		if err != nil {
			return nil, err
		}
		return asUnstructured(object, c.kind)
	}
	if flags := changedFlags(command, c.kind); len(flags) > 0 || len(afterDashes) > 0 {
		return nil, usageFailure(command, fmt.Sprintf("the job comes from %s and cannot also be set by flags: %s", c.file, strings.Join(append(flags, afterDashes...), " ")))
	}
	object, err := c.manifest(c.file, c.kind)
	if err == nil && name != "" {
		object.SetName(name)
		object.SetGenerateName("")
	}
	return object, err
}

// changedFlags returns the flags on the command line that describe a job.
func changedFlags(command *cobra.Command, kind *kind) (changed []string) {
	describing := (&cobra.Command{}).Flags()
	(&jobFlags{}).add(describing, kind)
	describing.VisitAll(func(flag *pflag.Flag) {
		if command.Flags().Changed(flag.Name) {
			changed = append(changed, "--"+flag.Name)
		}
	})
	return changed
}

// setNamespace sets the namespace of the job, as kubectl does: --namespace must match the
// namespace in the file.
func (c *creator) setNamespace(object *unstructured.Unstructured) error {
	namespace, enforced, err := c.config.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		if c.dryRun == dryRunClient {
			return nil
		}
		return kubeconfigFailure(err)
	}
	if inFile := object.GetNamespace(); inFile != "" && enforced && inFile != namespace {
		return inputFailure(fmt.Sprintf("the namespace of the job, %q, does not match --namespace %q", inFile, namespace))
	}
	if object.GetNamespace() == "" {
		object.SetNamespace(namespace)
	}
	return nil
}

// send creates the job, or submits it as a server dry run.
func (c *creator) send(ctx context.Context, object *unstructured.Unstructured) error {
	api, err := c.client()
	if err != nil {
		return err
	}
	if err := c.resolveRuntime(ctx, api, object); err != nil {
		return err
	}
	if err := c.completeResources(ctx, api, object); err != nil {
		return err
	}
	options := []client.CreateOption{client.FieldOwner(c.fieldManager)}
	if c.dryRun == dryRunServer {
		options = append(options, client.DryRunAll)
	}
	// Strict: a field that the cluster does not know would be dropped silently.
	err = client.WithFieldValidation(api, metav1.FieldValidationStrict).Create(ctx, object, options...)
	if apierrors.IsBadRequest(err) && strings.Contains(err.Error(), "unknown field") {
		return olderServerFailure(c.kind, err)
	}
	return err
}

// olderServerFailure reports a cluster that does not know a field of the job.
func olderServerFailure(kind *kind, err error) *failure {
	refused := notServedFailure(err.Error())
	refused.message = fmt.Sprintf("the cluster serves an older version of %s that lacks fields of this job; nothing was created", kind.Kind)
	refused.reason = "ServerTooOld"
	return refused
}

// resolveRuntime finds the kind of a runtime given by name only: a runtime of the
// namespace takes precedence.
func (c *creator) resolveRuntime(ctx context.Context, api client.Reader, object *unstructured.Unstructured) error {
	if c.kind != trainJobs || c.file != "" || strings.Contains(c.flags.runtime, "/") {
		return nil
	}
	var namespaceRuntime v2alpha1.TrainingRuntime
	err := api.Get(ctx, client.ObjectKey{Namespace: object.GetNamespace(), Name: c.flags.runtime}, &namespaceRuntime)
	if err == nil {
		return unstructured.SetNestedField(object.Object, string(v2alpha1.RuntimeKindNamespaced), "spec", "runtimeRef", "kind")
	}
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil
	}
	return err
}

// setsResources reports whether flags set resources of a TrainJob's workers.
func (c *creator) setsResources(object *unstructured.Unstructured) bool {
	_, found, _ := unstructured.NestedMap(object.Object, "spec", "trainer", "resourcesPerNode")
	return found && c.kind == trainJobs && c.file == ""
}

// completeResources adds the runtime's resources that no flag sets. The resources of
// a job replace all of the runtime's, and --cpu must not drop the GPUs.
func (c *creator) completeResources(ctx context.Context, api client.Reader, object *unstructured.Unstructured) error {
	if !c.setsResources(object) {
		return nil
	}
	var trainJob v2alpha1.TrainJob
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &trainJob); err != nil {
		return err
	}
	spec, err := jobview.RuntimeOf(ctx, api, &trainJob)
	switch {
	case errors.Is(err, jobview.ErrNoRuntime):
		return nil // Admission reports it.
	case apierrors.IsForbidden(err):
		c.say("Warning: you have no permission to read runtime %s, so workers get only the resources set by flags.", trainJob.Spec.RuntimeRef.Name)
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

func (c *creator) printer() (printers.ResourcePrinter, error) {
	switch c.dryRun {
	case dryRunClient:
		if err := c.print.Complete("%s (dry run)"); err != nil {
			return nil, err
		}
	case dryRunServer:
		if err := c.print.Complete("%s (server dry run)"); err != nil {
			return nil, err
		}
	}
	return c.print.ToPrinter()
}

// waitOrFollow implements --wait and --follow.
func (c *creator) waitOrFollow(ctx context.Context, object *unstructured.Unstructured) error {
	if !c.wait && !c.follow {
		return nil
	}
	ctx, stop := withTimeout(ctx, c.timeout)
	defer stop()
	var err error
	if c.follow {
		err = c.watchRun(ctx, c.kind, object.GetNamespace(), object.GetName())
	} else {
		// stdout has the created job, which a program may parse, so the result goes to stderr.
		err = c.awaitFinished(ctx, c.ErrOut, c.kind, object.GetNamespace(), object.GetName())
	}
	if errors.Is(err, context.Canceled) {
		c.detach(object.GetNamespace(), object.GetName())
		return exit(exitInterrupted)
	}
	return err
}

// detach prints how to get back to a job that is still running.
func (c *creator) detach(namespace, name string) {
	format := fmt.Sprintf("%s %s %%s %s -n %s", c.calledAs, c.kind.Command, name, namespace)
	c.say("\nDetached. %s/%s is still running.", c.kind.Command, name)
	c.say("  Follow its output:  "+format+" --follow", "logs")
	c.say("  Show its status:    "+format, "describe")
	c.say("  Delete it:          "+format, "delete")
}
