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
func (reader *logReader) explainLogs(ctx context.Context, from client.Reader, seen *view, selection joblog.Selection, err error) error {
	var none *joblog.NoPodsError
	var waiting *joblog.NotStartedError
	var container *joblog.UnknownContainerError
	var before *joblog.NoPreviousError
	var untagged *joblog.UntaggedError
	switch {
	case reader.follow && errors.Is(err, context.Canceled):
		return exit(exitInterrupted)
	case errors.As(err, &none):
		if now, err := reader.kind.Get(ctx, from, seen.GetNamespace(), seen.GetName()); err == nil {
			seen = now
		}
		return reader.noPods(seen, selection, cleanPodPolicy(ctx, from, seen))
	case errors.As(err, &waiting):
		return &failure{code: exitNotFound, message: seen.Named() + " has no logs yet", reason: "NotStarted", details: waiting.Reasons,
			suggestions: []string{"Wait for its logs: " + reader.again(seen, "logs") + " --follow", "See why it is waiting: " + reader.again(seen, "diagnose")}}
	case errors.As(err, &container):
		return &failure{code: exitNotFound, message: err.Error(), reason: "NotFound", details: []string{fmt.Sprintf("The containers are %s", strings.Join(container.Known, ", "))}}
	case errors.As(err, &before):
		return &failure{code: exitNotFound, message: fmt.Sprintf("%s has no previous run", seen.Named()), reason: "NotFound",
			suggestions: []string{"See the current logs: " + reader.again(seen, "logs")}}
	case errors.As(err, &untagged):
		return reader.untagged(seen, untagged)
	default:
		return err
	}
}

func (reader *logReader) again(seen *view, verb string) string {
	return fmt.Sprintf("%s %s %s %s -n %s", reader.calledAs, seen.Kind.Command, verb, seen.GetName(), seen.GetNamespace())
}

func (reader *logReader) untagged(seen *view, err *joblog.UntaggedError) *failure {
	told := &failure{code: exitError, message: err.Error(), reason: "NotTagged", page: "cli.md"}
	if seen.GetAnnotations()[training.AnnotationTagOutput] == "true" {
		told.details = []string{"The job requests tags, but they cannot be added because of how its command starts mpirun"}
		told.suggestions = []string{"Add mpirun's own flag to the command: --tag-output for Open MPI, -prepend-rank for MPICH and Intel MPI"}
		return told
	}
	told.suggestions = []string{
		"Create the job with --tag-output, or with the annotation " + training.AnnotationTagOutput + `: "true"; a running job cannot be changed`,
		"See the lines of all ranks: " + reader.again(seen, "logs"),
	}
	return told
}

// noPods explains why there are no pods.
func (reader *logReader) noPods(seen *view, selection joblog.Selection, policy training.CleanPodPolicy) *failure {
	told := &failure{code: exitNotFound, page: "cli.md"}
	describe := "See the status of the job: " + reader.again(seen, "describe")
	switch {
	case selection.Worker != nil && !hasWorker(seen, *selection.Worker):
		told.message, told.reason = fmt.Sprintf("%s has no worker %d", seen.Named(), *selection.Worker), "NotFound"
		told.details = []string{fmt.Sprintf("Its workers are numbered from 0 to %d", seen.Identity().Worker.Replicas-1)}
	case selection.Roles[0] == training.RoleInitializer && !hasInitializer(seen):
		told.message, told.reason = seen.Named()+" has no initializer", "NotFound"
	case seen.Finished():
		told.message, told.reason = fmt.Sprintf("the pods of %s were deleted, and their logs with them", seen.Named()), "PodsGone"
		told.details = []string{whyGone(policy)}
		told.suggestions = append([]string{describe}, howToKeep(policy)...)
	default:
		told.message, told.reason = seen.Named()+" has no pods yet", "NoPods"
		told.details = []string{seen.Explanation()}
		told.suggestions = []string{"Wait for them: " + reader.again(seen, "logs") + " --follow", describe}
	}
	return told
}

func hasWorker(seen *view, number int32) bool {
	known := seen.Identity().Worker.Replicas
	return known == 0 || number < known
}

func hasInitializer(seen *view) bool {
	trainJob, isTrainJob := seen.Object.(*v2alpha1.TrainJob)
	return isTrainJob && trainJob.Spec.Initializer != nil
}

// howToKeep suggests the cleanPodPolicy that keeps the pods of a later job.
func howToKeep(policy training.CleanPodPolicy) []string {
	switch policy {
	case training.CleanPodPolicyAll:
		return []string{"Keep finished pods, such as the launcher, next time: cleanPodPolicy: Running"}
	case training.CleanPodPolicyRunning:
		return []string{"Keep all pods next time: cleanPodPolicy: None"}
	default:
		return nil
	}
}

// whyGone explains why a finished job has no pods.
func whyGone(policy training.CleanPodPolicy) string {
	switch policy {
	case training.CleanPodPolicyAll:
		return "cleanPodPolicy is All: all pods are deleted when the job has finished"
	case training.CleanPodPolicyNone:
		return "cleanPodPolicy is None, so the operator did not delete them: a user did, or their node was removed"
	default:
		return "cleanPodPolicy is Running: pods that were still running when the job finished, such as workers, are deleted"
	}
}

func cleanPodPolicy(ctx context.Context, from client.Reader, seen *view) training.CleanPodPolicy {
	if made, err := seen.Model(ctx, from); err == nil {
		return made.Lifetime.CleanPodPolicy
	}
	return training.CleanPodPolicyRunning
}
