package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// remover is `delete`.
type remover struct {
	*environment
	kind          *kind
	wait          bool
	force         bool
	ignoreMissing bool
	selector      string
	dryRun        string
	timeout       time.Duration
}

func newDeleteCommand(environment *environment, kind *kind) *cobra.Command {
	remover := &remover{environment: environment, kind: kind}
	command := &cobra.Command{
		Long:              "Delete jobs and all that belongs to them: pods, keys, network rules. What a job has stored on claims of its user's stays.",
		ValidArgsFunction: environment.completeNames(kind, many),
		RunE:              func(command *cobra.Command, names []string) error { return remover.run(command, names) },
	}
	flags := command.Flags()
	flags.BoolVar(&remover.wait, "wait", true, "wait until the job and its pods are gone")
	flags.BoolVar(&remover.force, "force", false, "do not wait for the pods to end by themselves")
	flags.Bool("confirm", true, "accepted for scripts; nothing is asked")
	_ = flags.MarkHidden("confirm")
	flags.BoolVar(&remover.ignoreMissing, "ignore-not-found", false, "it is no error if there is no such job")
	flags.StringVarP(&remover.selector, "selector", "l", "", "delete the jobs with these labels")
	flags.StringVar(&remover.dryRun, "dry-run", dryRunNone, "client only prints, server has the cluster judge it; nothing is deleted")
	flags.DurationVar(&remover.timeout, "timeout", 2*time.Minute, "how long --wait waits at most; 0 is for ever")
	return command
}

func (remover *remover) run(command *cobra.Command, names []string) error {
	if (len(names) == 0) == (remover.selector == "") {
		return usageFailure(command, "name jobs, or give a --selector")
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
	for _, name := range names {
		if err := remover.remove(ctx, from, namespace, name); err != nil {
			return err
		}
	}
	return nil
}

func selected(ctx context.Context, from client.Reader, kind *kind, namespace string, matching labels.Selector) (names []string, err error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.gvk.GroupVersion().WithKind(kind.gvk.Kind + "List"))
	err = from.List(ctx, list, &client.ListOptions{Namespace: namespace, LabelSelector: matching})
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, err
}

func (remover *remover) remove(ctx context.Context, from client.WithWatch, namespace, name string) error {
	seen, err := remover.kind.get(ctx, from, namespace, name)
	if apierrors.IsNotFound(err) && remover.ignoreMissing {
		return nil
	}
	if err != nil {
		return err
	}
	suffix, options := "", []client.DeleteOption{client.Preconditions{UID: new(seen.GetUID())}}
	// With the pods first, so that a job that is gone has left nothing behind.
	if remover.wait {
		options = append(options, client.PropagationPolicy(metav1.DeletePropagationForeground))
	}
	if remover.force {
		options = append(options, client.GracePeriodSeconds(0), client.PropagationPolicy(metav1.DeletePropagationBackground))
	}
	switch remover.dryRun {
	case dryRunClient:
		suffix = " (dry run)"
	case dryRunServer:
		suffix, options = " (server dry run)", append(options, client.DryRunAll)
	}
	if remover.dryRun != dryRunClient {
		if err := from.Delete(ctx, seen.Object, options...); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	if remover.wait && remover.dryRun == dryRunNone {
		if err := remover.awaitGone(ctx, from, seen); err != nil {
			return err
		}
	}
	fmt.Fprintf(remover.Out, "%s.%s %q deleted%s\n", remover.kind.command, remover.kind.gvk.Group, name, suffix)
	return nil
}

// awaitGone waits until a job is gone, or another one has its name.
func (remover *remover) awaitGone(ctx context.Context, from client.WithWatch, gone *view) error {
	for {
		seen, err := remover.kind.get(ctx, from, gone.GetNamespace(), gone.GetName())
		if apierrors.IsNotFound(err) || err == nil && seen.GetUID() != gone.GetUID() {
			return nil
		}
		if err != nil {
			return err
		}
		one := &watcher{WithWatch: from, list: remover.kind.newList(), options: client.ListOptions{
			Namespace: gone.GetNamespace(), FieldSelector: fields.OneTermEqualSelector("metadata.name", gone.GetName()),
		}}
		err = one.changes(ctx, seen.GetResourceVersion(), func(event watch.EventType, object client.Object) (bool, error) {
			return event == watch.Deleted && object.GetUID() == gone.GetUID(), nil
		})
		if ctx.Err() == context.DeadlineExceeded {
			return &failure{code: exitTimeout, message: gone.named() + " is being deleted, and its pods are not gone yet", reason: "Timeout", suggestions: []string{
				"See what is left: kubectl get pods -n " + gone.GetNamespace() + " -l training.kubeflow.org/job-name=" + gone.GetName(),
				"A node that is lost cannot confirm the end of its pods: --force does not wait for them",
			}}
		}
		if err == nil {
			return nil
		}
		if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			return err
		}
	}
}

// newSuspendCommand and newResumeCommand take a job from its nodes, and give it back.
func newSuspendCommand(environment *environment, kind *kind) *cobra.Command {
	return newSuspension(environment, kind, true, "suspended", "Suspend a job: its pods are deleted, the job stays. Resumed, it starts from its beginning.")
}

func newResumeCommand(environment *environment, kind *kind) *cobra.Command {
	return newSuspension(environment, kind, false, "resumed", "Resume a job that was suspended. It starts from its beginning, or from its own checkpoints.")
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
			seen, err := kind.get(command.Context(), to, namespace, arguments[0])
			if err != nil {
				return err
			}
			if seen.Finished() {
				return &failure{code: exitError, message: fmt.Sprintf("%s has ended (%s); nothing was changed", seen.named(), seen.Phase), reason: "Finished",
					suggestions: []string{"Create it anew, under another name or after deleting this one"}}
			}
			patch := fmt.Sprintf(`{"spec":{"suspend":%t}}`, suspend)
			if kind == mpiJobs {
				patch = fmt.Sprintf(`{"spec":{"runPolicy":{"suspend":%t}}}`, suspend)
			}
			if err := to.Patch(command.Context(), seen.Object, client.RawPatch(types.MergePatchType, []byte(patch)), client.FieldOwner(fieldManager)); err != nil {
				return err
			}
			fmt.Fprintf(environment.Out, "%s %s\n", seen.named(), done)
			return nil
		},
	}
	command.Flags().StringVar(&fieldManager, "field-manager", "odh", "who is written down as the author of the change")
	return command
}
