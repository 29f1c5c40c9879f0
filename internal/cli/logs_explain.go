// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/internal/kube/joblog"
)

// explainLogs explains why there are no logs.
func (r *logReader) explainLogs(ctx context.Context, api client.Reader, j *view, selection joblog.Selection, err error) error {
	var noPods *joblog.NoPodsError
	var notStarted *joblog.NotStartedError
	var unknownContainer *joblog.UnknownContainerError
	var noPrevious *joblog.NoPreviousError
	var untagged *joblog.UntaggedError
	switch {
	case r.follow && errors.Is(err, context.Canceled):
		return exit(exitInterrupted)
	case errors.As(err, &noPods):
		if now, err := r.kind.Get(ctx, api, j.GetNamespace(), j.GetName()); err == nil {
			j = now
		}
		return r.noPods(j, selection, cleanPodPolicy(ctx, api, j))
	case errors.As(err, &notStarted):
		return &failure{code: exitNotFound, message: j.Named() + " has no logs yet", reason: "NotStarted", details: notStarted.Reasons,
			suggestions: []string{"Wait for its logs: " + r.commandFor(j, "logs") + " --follow", "See why it is waiting: " + r.commandFor(j, "diagnose")}}
	case errors.As(err, &unknownContainer):
		return &failure{code: exitNotFound, message: err.Error(), reason: "NotFound", details: []string{fmt.Sprintf("The containers are %s", strings.Join(unknownContainer.Known, ", "))}}
	case errors.As(err, &noPrevious):
		return &failure{code: exitNotFound, message: fmt.Sprintf("%s has no previous run", j.Named()), reason: "NotFound",
			suggestions: []string{"See the current logs: " + r.commandFor(j, "logs")}}
	case errors.As(err, &untagged):
		return r.untagged(j, untagged)
	default:
		return err
	}
}

func (r *logReader) commandFor(j *view, verb string) string {
	return fmt.Sprintf("%s %s %s %s -n %s", r.calledAs, j.Kind.Command, verb, j.GetName(), j.GetNamespace())
}

func (r *logReader) untagged(j *view, err *joblog.UntaggedError) *failure {
	f := &failure{code: exitError, message: err.Error(), reason: "NotTagged", page: "cli.md"}
	if j.GetAnnotations()[training.AnnotationTagOutput] == "true" {
		f.details = []string{"The job requests tags, but they cannot be added because of how its command starts mpirun"}
		f.suggestions = []string{"Add mpirun's own flag to the command: --tag-output for Open MPI, -prepend-rank for MPICH and Intel MPI"}
		return f
	}
	f.suggestions = []string{
		"Create the job with --tag-output, or with the annotation " + training.AnnotationTagOutput + `: "true"; a running job cannot be changed`,
		"See the lines of all ranks: " + r.commandFor(j, "logs"),
	}
	return f
}

// noPods explains why there are no pods.
func (r *logReader) noPods(j *view, selection joblog.Selection, policy training.CleanPodPolicy) *failure {
	f := &failure{code: exitNotFound, page: "cli.md"}
	describe := "See the status of the job: " + r.commandFor(j, "describe")
	switch {
	case selection.Worker != nil && !hasWorker(j, *selection.Worker):
		f.message, f.reason = fmt.Sprintf("%s has no worker %d", j.Named(), *selection.Worker), "NotFound"
		f.details = []string{fmt.Sprintf("Its workers are numbered from 0 to %d", j.Identity().Worker.Replicas-1)}
	case selection.Roles[0] == training.RoleInitializer && !hasInitializer(j):
		f.message, f.reason = j.Named()+" has no initializer", "NotFound"
	case j.Finished():
		f.message, f.reason = fmt.Sprintf("the pods of %s were deleted, and their logs with them", j.Named()), "PodsGone"
		f.details = []string{whyDeleted(policy)}
		f.suggestions = append([]string{describe}, keepAdvice(policy)...)
	default:
		f.message, f.reason = j.Named()+" has no pods yet", "NoPods"
		f.details = []string{j.Explanation()}
		f.suggestions = []string{"Wait for them: " + r.commandFor(j, "logs") + " --follow", describe}
	}
	return f
}

func hasWorker(j *view, number int32) bool {
	replicas := j.Identity().Worker.Replicas
	return replicas == 0 || number < replicas
}

func hasInitializer(j *view) bool {
	trainJob, isTrainJob := j.Object.(*v2alpha1.TrainJob)
	return isTrainJob && trainJob.Spec.Initializer != nil
}

// keepAdvice suggests the cleanPodPolicy that keeps the pods of a later job.
func keepAdvice(policy training.CleanPodPolicy) []string {
	switch policy {
	case training.CleanPodPolicyAll:
		return []string{"Keep finished pods, such as the launcher, next time: cleanPodPolicy: Running"}
	case training.CleanPodPolicyRunning:
		return []string{"Keep all pods next time: cleanPodPolicy: None"}
	default:
		return nil
	}
}

// whyDeleted explains why a finished job has no pods.
func whyDeleted(policy training.CleanPodPolicy) string {
	switch policy {
	case training.CleanPodPolicyAll:
		return "cleanPodPolicy is All: all pods are deleted when the job has finished"
	case training.CleanPodPolicyNone:
		return "cleanPodPolicy is None, so the operator did not delete them: a user did, or their node was removed"
	default:
		return "cleanPodPolicy is Running: pods that were still running when the job finished, such as workers, are deleted"
	}
}

func cleanPodPolicy(ctx context.Context, api client.Reader, j *view) training.CleanPodPolicy {
	if model, err := j.Model(ctx, api); err == nil {
		return model.Lifetime.CleanPodPolicy
	}
	return training.CleanPodPolicyRunning
}
