// SPDX-License-Identifier: Apache-2.0

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

func newDeleteCommand(env *environment, kind *kind) *cobra.Command {
	r := &remover{environment: env, kind: kind}
	command := &cobra.Command{
		Long: "Delete jobs with their pods, SSH keys and NetworkPolicies. Data on your persistent volume claims is kept.",
		Example: fmt.Sprintf(`  odh %[1]s delete hello
  odh %[1]s delete -l team=vision --dry-run=server`, kind.Command),
		ValidArgsFunction: env.completeNames(kind, many),
		RunE:              func(command *cobra.Command, names []string) error { return r.run(command, names) },
	}
	flags := command.Flags()
	flags.BoolVar(&r.wait, "wait", true, "Wait until the job and its pods are deleted")
	flags.BoolVar(&r.force, "force", false, "Delete the job without waiting for its pods to terminate")
	flags.BoolVar(&r.confirm, "confirm", true, "Has no effect: delete does not ask for confirmation")
	_ = flags.MarkHidden("confirm")
	flags.BoolVar(&r.ignoreMissing, "ignore-not-found", false, `Treat "not found" as success`)
	flags.StringVarP(&r.selector, "selector", "l", "", "Delete the jobs with these labels, such as team=vision,env!=test")
	flags.StringVar(&r.dryRun, "dry-run", dryRunNone, "One of none, client, server: client only prints the jobs, server also validates the request in the cluster")
	flags.Lookup("dry-run").NoOptDefVal = dryRunClient
	flags.DurationVar(&r.timeout, "timeout", 2*time.Minute, "Maximum time that --wait waits; 0 means no limit")
	return command
}

func (r *remover) run(command *cobra.Command, names []string) error {
	if (len(names) == 0) == (r.selector == "") {
		return usageFailure(command, "specify either job names or --selector")
	}
	// A user who sets this expects a confirmation prompt before anything is deleted.
	if !r.confirm {
		return usageFailure(command, "--confirm=false is not supported: delete does not ask for confirmation; use --dry-run=server to see what it would delete")
	}
	if command.Flags().Changed("confirm") {
		r.say("Warning: --confirm has no effect: delete does not ask for confirmation.")
	}
	if err := checkDryRun(command, r.dryRun); err != nil {
		return err
	}
	matching, err := labels.Parse(r.selector)
	if err != nil {
		return usageFailure(command, fmt.Sprintf("--selector: %v", err))
	}
	namespace, err := r.namespace()
	if err != nil {
		return err
	}
	api, err := r.client()
	if err != nil {
		return err
	}
	ctx, stop := withTimeout(command.Context(), r.timeout)
	defer stop()
	if r.selector != "" {
		if names, err = selected(ctx, api, r.kind, namespace, matching); err != nil {
			return err
		}
		if len(names) == 0 {
			r.say("No %ss found in namespace %s.", r.kind.Kind, namespace)
		}
	}
	return r.removeAll(ctx, api, namespace, names)
}

// removeAll deletes all jobs and then waits for them. An error with one job does not
// stop the deletion of the others.
func (r *remover) removeAll(ctx context.Context, api client.WithWatch, namespace string, names []string) error {
	var deleting []*view
	var failures []error
	for _, name := range names {
		switch j, err := r.remove(ctx, api, namespace, name); {
		case apierrors.IsNotFound(err) && r.ignoreMissing:
		case err != nil:
			failures = append(failures, err)
		default:
			deleting = append(deleting, j)
		}
	}
	waitErrors := make([]error, len(deleting))
	if r.wait && r.dryRun == dryRunNone {
		// Concurrently, so that one slow job does not use up the time of the others.
		var waits sync.WaitGroup
		for i, j := range deleting {
			waits.Go(func() { waitErrors[i] = r.awaitDeletion(ctx, api, j) })
		}
		waits.Wait()
	}
	suffix := map[string]string{dryRunClient: " (dry run)", dryRunServer: " (server dry run)"}[r.dryRun]
	for i, j := range deleting {
		if waitErrors[i] != nil {
			failures = append(failures, waitErrors[i])
			continue
		}
		fmt.Fprintf(r.Out, "%s.%s %q deleted%s\n", r.kind.Command, r.kind.GVK.Group, j.GetName(), suffix)
	}
	return r.joinFailures(failures, "deleted")
}

func selected(ctx context.Context, api client.Reader, kind *kind, namespace string, matching labels.Selector) (names []string, err error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GVK.GroupVersion().WithKind(kind.GVK.Kind + "List"))
	err = api.List(ctx, list, &client.ListOptions{Namespace: namespace, LabelSelector: matching})
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, err
}

// remove requests the deletion of a job.
func (r *remover) remove(ctx context.Context, api client.WithWatch, namespace, name string) (*view, error) {
	j, err := r.kind.Get(ctx, api, namespace, name)
	if err != nil || r.dryRun == dryRunClient {
		return j, err
	}
	options := []client.DeleteOption{client.Preconditions{UID: new(j.GetUID())}}
	// Foreground: the job is only deleted after its pods.
	if r.wait {
		options = append(options, client.PropagationPolicy(metav1.DeletePropagationForeground))
	}
	if r.force {
		options = append(options, client.GracePeriodSeconds(0), client.PropagationPolicy(metav1.DeletePropagationBackground))
	}
	if r.dryRun == dryRunServer {
		options = append(options, client.DryRunAll)
	}
	return j, client.IgnoreNotFound(api.Delete(ctx, j.Object, options...))
}

// awaitDeletion waits until a job is deleted, or a new job has its name.
func (r *remover) awaitDeletion(ctx context.Context, api client.WithWatch, target *view) error {
	err := followJob(ctx, r.kind, api, target.GetNamespace(), target.GetName(), func(j *view) (bool, error) {
		return j.GetUID() != target.GetUID(), nil
	})
	var end *failure
	switch {
	case apierrors.IsNotFound(err), errors.As(err, &end) && end.reason == reasonDeleted:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return &failure{code: exitTimeout, message: target.Named() + " is being deleted, but some of its pods still exist", reason: "Timeout", suggestions: []string{
			"List the remaining pods: kubectl get pods -n " + target.GetNamespace() + " -l training.kubeflow.org/job-name=" + target.GetName(),
			"Pods on a lost node never finish terminating: use --force to not wait for them",
		}}
	}
	return err
}

func newSuspendCommand(env *environment, kind *kind) *cobra.Command {
	return newSuspension(env, kind, true, "suspended", "Suspend a job: delete its pods and keep the job. When resumed, it starts from the beginning or from its own checkpoints.")
}

func newResumeCommand(env *environment, kind *kind) *cobra.Command {
	return newSuspension(env, kind, false, "resumed", "Resume a suspended job. It starts from the beginning or from its own checkpoints.")
}

func newSuspension(env *environment, kind *kind, suspend bool, done, long string) *cobra.Command {
	var fieldManager string
	command := &cobra.Command{
		Long: long, Args: cobra.ExactArgs(1), ValidArgsFunction: env.completeNames(kind, one),
		RunE: func(command *cobra.Command, arguments []string) error {
			namespace, err := env.namespace()
			if err != nil {
				return err
			}
			api, err := env.client()
			if err != nil {
				return err
			}
			j, err := kind.Get(command.Context(), api, namespace, arguments[0])
			if err != nil {
				return err
			}
			if j.Finished() {
				return &failure{code: exitError, message: fmt.Sprintf("%s has already finished (%s); nothing was changed", j.Named(), j.Phase), reason: "Finished",
					suggestions: []string{"Create a new job under another name, or delete this one first"}}
			}
			if err := api.Patch(command.Context(), j.Object, kind.Suspension(suspend), client.FieldOwner(fieldManager)); err != nil {
				return err
			}
			fmt.Fprintf(env.Out, "%s %s\n", j.Named(), done)
			return nil
		},
	}
	command.Flags().StringVar(&fieldManager, "field-manager", "odh", "Name of the field manager")
	return command
}
