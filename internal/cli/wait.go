// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/trireme-mpi/trireme/api/training"
)

// newWaitCommand is `wait`.
func newWaitCommand(env *environment, kind *kind) *cobra.Command {
	var timeout time.Duration
	var until string
	command := &cobra.Command{
		Long: "Wait until a job has finished or, with --for running, until it is running. The exit code is 0 on success, 6 if the job failed, 7 if the wait timed out.",
		Example: fmt.Sprintf(`  odh %[1]s wait hello --timeout 30m
  odh %[1]s wait hello --for running`, kind.Command),
		Args: cobra.ExactArgs(1), ValidArgsFunction: env.completeNames(kind, one),
		RunE: func(command *cobra.Command, arguments []string) error {
			if !slices.Contains(goals, strings.ToLower(until)) {
				return usageFailure(command, fmt.Sprintf("--for must be %s, not %q", strings.Join(goals, " or "), until))
			}
			namespace, err := env.namespace()
			if err != nil {
				return err
			}
			ctx, stop := withTimeout(command.Context(), timeout)
			defer stop()
			if strings.EqualFold(until, goalRunning) {
				return env.awaitRunning(ctx, kind, namespace, arguments[0])
			}
			return env.awaitFinished(ctx, env.Out, kind, namespace, arguments[0])
		},
	}
	command.Flags().DurationVar(&timeout, "timeout", 0, "Maximum time to wait, such as 30m; 0 means no limit")
	command.Flags().StringVar(&until, "for", goalFinished, "State to wait for: "+strings.Join(goals, " or "))
	return command
}

// Values of --for.
const (
	goalFinished = "finished"
	goalRunning  = "running"
)

var goals = []string{goalFinished, goalRunning}

// withTimeout returns a context with a timeout, unless the timeout is 0.
func withTimeout(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout > 0 {
		return context.WithTimeout(ctx, timeout)
	}
	return context.WithCancel(ctx)
}

// awaitFinished waits until a job has finished, and prints its result.
func (e *environment) awaitFinished(ctx context.Context, to io.Writer, kind *kind, namespace, name string) error {
	var last *view
	err := e.await(ctx, kind, namespace, name, func(j *view) bool {
		last = j
		return j.Finished()
	})
	if err != nil {
		return err
	}
	if last.Phase == training.PhaseFailed {
		return e.jobFailed(last)
	}
	fmt.Fprintf(to, "%s %s\n", last.Named(), strings.ToLower(string(last.Phase)))
	return nil
}

func (e *environment) awaitRunning(ctx context.Context, kind *kind, namespace, name string) error {
	var last *view
	err := e.await(ctx, kind, namespace, name, func(j *view) bool {
		last = j
		return j.Phase == training.PhaseRunning || j.Finished()
	})
	switch {
	case err != nil:
		return err
	case last.Phase == training.PhaseFailed:
		return e.jobFailed(last)
	}
	fmt.Fprintf(e.Out, "%s %s\n", last.Named(), strings.ToLower(string(last.Phase)))
	return nil
}

// await watches a job until done returns true.
func (e *environment) await(ctx context.Context, kind *kind, namespace, name string, done func(*view) bool) error {
	api, err := e.client()
	if err != nil {
		return err
	}
	var last *view
	err = followJob(ctx, kind, api, namespace, name, func(j *view) (bool, error) {
		last = j
		return done(j), nil
	})
	if errors.Is(err, context.DeadlineExceeded) && last != nil {
		return e.timedOut(last)
	}
	return err
}

func (e *environment) timedOut(last *view) *failure {
	return &failure{code: exitTimeout, message: fmt.Sprintf("%s is still %s", last.Named(), last.State()), reason: "Timeout", details: []string{last.Explanation()},
		suggestions: []string{fmt.Sprintf("Find the cause: %s diagnose %s -n %s", e.calledAs, last.Named(), last.GetNamespace()), "Wait longer: --timeout 1h"}}
}

// jobFailed returns the failure of the job as the failure of the command.
func (e *environment) jobFailed(last *view) *failure {
	return &failure{code: exitJobFailed, message: last.Named() + " failed", reason: string(last.FailureReason), details: []string{last.FailureMessage}, page: "failures.md",
		suggestions: []string{
			fmt.Sprintf("See its logs: %s %s logs %s -n %s", e.calledAs, last.Kind.Command, last.GetName(), last.GetNamespace()),
			fmt.Sprintf("Find the cause: %s diagnose %s -n %s", e.calledAs, last.Named(), last.GetNamespace()),
		}}
}
