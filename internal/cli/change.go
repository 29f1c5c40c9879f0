package cli

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// remover is `delete`.
type remover struct {
	*environment
	kind          *kind
	wait          bool
	force         bool
	ignoreMissing bool
	confirm       bool
	selector      string
	dryRun        string
	timeout       time.Duration
}

func newDeleteCommand(environment *environment, kind *kind) *cobra.Command {
	remover := &remover{environment: environment, kind: kind}
	command := &cobra.Command{
		Long: "Delete jobs with their pods, SSH keys and NetworkPolicies. Data on your persistent volume claims is kept.",
		Example: fmt.Sprintf(`  odh %[1]s delete hello
  odh %[1]s delete -l team=vision --dry-run=server`, kind.Command),
		ValidArgsFunction: environment.completeNames(kind, many),
		RunE:              func(command *cobra.Command, names []string) error { return remover.run(command, names) },
	}
	flags := command.Flags()
	flags.BoolVar(&remover.wait, "wait", true, "Wait until the job and its pods are deleted")
	flags.BoolVar(&remover.force, "force", false, "Delete the job without waiting for its pods to terminate")
	flags.BoolVar(&remover.confirm, "confirm", true, "Has no effect: delete does not ask for confirmation")
	_ = flags.MarkHidden("confirm")
	flags.BoolVar(&remover.ignoreMissing, "ignore-not-found", false, `Treat "not found" as success`)
	flags.StringVarP(&remover.selector, "selector", "l", "", "Delete the jobs with these labels, such as team=vision,env!=test")
	flags.StringVar(&remover.dryRun, "dry-run", dryRunNone, "One of none, client, server: client only prints the jobs, server also validates the request in the cluster")
	flags.Lookup("dry-run").NoOptDefVal = dryRunClient
	flags.DurationVar(&remover.timeout, "timeout", 2*time.Minute, "Maximum time that --wait waits; 0 means no limit")
	return command
}

func (remover *remover) run(command *cobra.Command, names []string) error {
	if (len(names) == 0) == (remover.selector == "") {
		return usageFailure(command, "specify either job names or --selector")
	}
	// A user who sets this expects a confirmation prompt before anything is deleted.
	if !remover.confirm {
		return usageFailure(command, "--confirm=false is not supported: delete does not ask for confirmation; use --dry-run=server to see what it would delete")
	}
	if command.Flags().Changed("confirm") {
		remover.say("Warning: --confirm has no effect: delete does not ask for confirmation.")
	}
	if err := checkDryRun(command, remover.dryRun); err != nil {
		return err
	}
	matching, err := labels.Parse(remover.selector)
	if err != nil {
		return usageFailure(command, fmt.Sprintf("--selector: %v", err))
	}
	namespace, err := remover.namespace()
	if err != nil {
		return err
	}
	from, err := remover.client()
	if err != nil {
		return err
	}
	ctx, stop := limited(command.Context(), remover.timeout)
	defer stop()
	if remover.selector != "" {
		if names, err = selected(ctx, from, remover.kind, namespace, matching); err != nil {
			return err
		}
		if len(names) == 0 {
			remover.say("No %ss found in namespace %s.", remover.kind.Kind, namespace)
		}
	}
	return remover.removeAll(ctx, from, namespace, names)
}

// removeAll deletes all jobs and then waits for them. An error with one job does not
// stop the deletion of the others.
func (remover *remover) removeAll(ctx context.Context, from client.WithWatch, namespace string, names []string) error {
	var going []*view
	var failures []error
	for _, name := range names {
		switch seen, err := remover.remove(ctx, from, namespace, name); {
		case apierrors.IsNotFound(err) && remover.ignoreMissing:
		case err != nil:
			failures = append(failures, err)
		default:
			going = append(going, seen)
		}
	}
	waits := make([]error, len(going))
	if remover.wait && remover.dryRun == dryRunNone {
		// Concurrently, so that one slow job does not use up the time of the others.
		var waiting sync.WaitGroup
		for i, seen := range going {
			waiting.Go(func() { waits[i] = remover.awaitGone(ctx, from, seen) })
		}
		waiting.Wait()
	}
	suffix := map[string]string{dryRunClient: " (dry run)", dryRunServer: " (server dry run)"}[remover.dryRun]
	for i, seen := range going {
		if waits[i] != nil {
			failures = append(failures, waits[i])
			continue
		}
		fmt.Fprintf(remover.Out, "%s.%s %q deleted%s\n", remover.kind.Command, remover.kind.GVK.Group, seen.GetName(), suffix)
	}
	return remover.allOf(failures, "deleted")
}

func selected(ctx context.Context, from client.Reader, kind *kind, namespace string, matching labels.Selector) (names []string, err error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GVK.GroupVersion().WithKind(kind.GVK.Kind + "List"))
	err = from.List(ctx, list, &client.ListOptions{Namespace: namespace, LabelSelector: matching})
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, err
}

// remove requests the deletion of a job.
func (remover *remover) remove(ctx context.Context, from client.WithWatch, namespace, name string) (*view, error) {
	seen, err := remover.kind.Get(ctx, from, namespace, name)
	if err != nil || remover.dryRun == dryRunClient {
		return seen, err
	}
	options := []client.DeleteOption{client.Preconditions{UID: new(seen.GetUID())}}
	// Foreground: the job is only deleted after its pods.
	if remover.wait {
		options = append(options, client.PropagationPolicy(metav1.DeletePropagationForeground))
	}
	if remover.force {
		options = append(options, client.GracePeriodSeconds(0), client.PropagationPolicy(metav1.DeletePropagationBackground))
	}
	if remover.dryRun == dryRunServer {
		options = append(options, client.DryRunAll)
	}
	return seen, client.IgnoreNotFound(from.Delete(ctx, seen.Object, options...))
}

// awaitGone waits until a job is deleted, or a new job has its name.
func (remover *remover) awaitGone(ctx context.Context, from client.WithWatch, gone *view) error {
	err := followJob(ctx, remover.kind, from, gone.GetNamespace(), gone.GetName(), func(seen *view) (bool, error) {
		return seen.GetUID() != gone.GetUID(), nil
	})
	var end *failure
	switch {
	case apierrors.IsNotFound(err), errors.As(err, &end) && end.reason == reasonDeleted:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return &failure{code: exitTimeout, message: gone.Named() + " is being deleted, but some of its pods still exist", reason: "Timeout", suggestions: []string{
			"List the remaining pods: kubectl get pods -n " + gone.GetNamespace() + " -l training.kubeflow.org/job-name=" + gone.GetName(),
			"Pods on a lost node never finish terminating: use --force to not wait for them",
		}}
	}
	return err
}

func newSuspendCommand(environment *environment, kind *kind) *cobra.Command {
	return newSuspension(environment, kind, true, "suspended", "Suspend a job: delete its pods and keep the job. When resumed, it starts from the beginning or from its own checkpoints.")
}

func newResumeCommand(environment *environment, kind *kind) *cobra.Command {
	return newSuspension(environment, kind, false, "resumed", "Resume a suspended job. It starts from the beginning or from its own checkpoints.")
}

func newSuspension(environment *environment, kind *kind, suspend bool, done, long string) *cobra.Command {
	var fieldManager string
	command := &cobra.Command{
		Long: long, Args: cobra.ExactArgs(1), ValidArgsFunction: environment.completeNames(kind, one),
		RunE: func(command *cobra.Command, arguments []string) error {
			namespace, err := environment.namespace()
			if err != nil {
				return err
			}
			to, err := environment.client()
			if err != nil {
				return err
			}
			seen, err := kind.Get(command.Context(), to, namespace, arguments[0])
			if err != nil {
				return err
			}
			if seen.Finished() {
				return &failure{code: exitError, message: fmt.Sprintf("%s has already finished (%s); nothing was changed", seen.Named(), seen.Phase), reason: "Finished",
					suggestions: []string{"Create a new job under another name, or delete this one first"}}
			}
			if err := to.Patch(command.Context(), seen.Object, kind.Suspension(suspend), client.FieldOwner(fieldManager)); err != nil {
				return err
			}
			fmt.Fprintf(environment.Out, "%s %s\n", seen.Named(), done)
			return nil
		},
	}
	command.Flags().StringVar(&fieldManager, "field-manager", "odh", "Name of the field manager")
	return command
}
