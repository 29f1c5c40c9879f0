// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/kube/runtimecheck"
)

// trial is `odh runtime test`: a job of two workers in which every rank prints a line.
type trial struct {
	*environment
	api       client.WithWatch
	namespace string
	runtime   *runtimeObject
	// log returns the output of the launcher.
	log func(ctx context.Context, pod string) (string, error)

	kind, output string
	runtimecheck.Trial
}

// cleanupTimeout is how long the deletion of the job may take.
const cleanupTimeout = 45 * time.Second

func newRuntimeTestCommand(env *environment) *cobra.Command {
	command, _ := newTrialCommand(env)
	return command
}

func newTrialCommand(env *environment) (*cobra.Command, *trial) {
	t := &trial{environment: env}
	command := &cobra.Command{
		Use: "test NAME", Short: "Test a runtime with a job of two workers, then delete the job",
		Long: `Test a runtime: create a TrainJob with a launcher and two workers from it, in which every rank prints a
line. Each step is reported: pods scheduled, image pulled, workers reached with the job's keys, ranks
started, every rank answered. The job is deleted at the end, also after Ctrl-C, unless --keep is set.

Workers request the resources of the runtime; --cpu and --memory replace all of them, GPUs included.

The exit code is 0 if the runtime works, 1 if it does not, 7 if the test timed out.`,
		Example: `  odh runtime test mpi-openmpi-cpu --image IMAGE
  odh runtime test mpi-openmpi-cpu --image IMAGE --cpu 100m --memory 128Mi --keep`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: env.completeRuntimes,
		RunE: func(command *cobra.Command, arguments []string) error { return t.prepare(command, arguments[0]) },
	}
	flags := command.Flags()
	flags.StringVar(&t.kind, "kind", "", "Kind of the runtime: TrainingRuntime or ClusterTrainingRuntime (default TrainingRuntime, else ClusterTrainingRuntime)")
	flags.StringVar(&t.Image, "image", "", "Image of the launcher and the workers (default from the runtime)")
	flags.StringVar(&t.CPU, "cpu", "", "CPUs per pod (default from the runtime)")
	flags.StringVar(&t.Memory, "memory", "", "Memory per pod (default from the runtime)")
	flags.DurationVar(&t.Timeout, "timeout", 2*time.Minute, "Maximum duration of the test")
	flags.BoolVar(&t.Keep, "keep", false, "Keep the job after the test")
	flags.StringVarP(&t.output, "output", "o", "", "Output format: json or yaml")
	return command, t
}

func (t *trial) prepare(command *cobra.Command, name string) (err error) {
	if err := checkDocumentOutput(command, t.output); err != nil {
		return err
	}
	if kind := t.kind; kind != "" && !strings.EqualFold(kind, string(v2alpha1.RuntimeKindNamespaced)) && !strings.EqualFold(kind, string(v2alpha1.RuntimeKindCluster)) {
		return usageFailure(command, fmt.Sprintf("--kind must be %s or %s, not %q", v2alpha1.RuntimeKindNamespaced, v2alpha1.RuntimeKindCluster, kind))
	}
	if err := t.Validate(); err != nil {
		return usageFailure(command, err.Error())
	}
	if t.namespace, err = t.environment.namespace(); err != nil {
		return err
	}
	if t.api, err = t.client(); err != nil {
		return err
	}
	if t.runtime, err = t.runtimeNamed(command.Context(), t.api, t.namespace, name, t.kind); err != nil {
		return err
	}
	t.Runtime = v2alpha1.RuntimeRef{Kind: t.runtime.kind, Name: name}
	if t.Image = cmp.Or(t.Image, runtimecheck.ImageOf(t.runtime.spec)); t.Image == "" {
		return usageFailure(command, fmt.Sprintf("runtime %q has no image: set one with --image IMAGE", name))
	}
	if t.log == nil {
		t.log = t.podLog
	}
	return t.run(command.Context())
}

func (t *trial) run(ctx context.Context) error {
	trainJob, err := t.Job(t.namespace, t.runtime.spec)
	if err != nil {
		return err
	}
	if err := t.create(ctx, trainJob); err != nil {
		return err
	}
	if !t.Keep {
		defer t.cleanUp(ctx, trainJob)
	}
	ranks := int(job.FromTrainJob(trainJob, t.runtime.spec, job.Defaults{}).WorldSize())
	limited, stop := context.WithTimeout(ctx, t.Timeout)
	defer stop()
	progress := &trialProgress{trial: t, ranks: ranks, name: trainJob.Name}
	progress.begin()
	err = followJob(limited, trainJobs, t.api, t.namespace, trainJob.Name, func(j *view) (bool, error) {
		return j.Finished(), progress.see(limited, j)
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	timedOut := errors.Is(err, context.DeadlineExceeded) || limited.Err() != nil
	if err != nil && !timedOut {
		return err
	}
	return progress.end(ctx, timedOut)
}

// create creates the job. Ctrl-C does not cancel the request: a job that is created
// after that could not be deleted, because its name would not be known.
func (t *trial) create(ctx context.Context, trainJob *v2alpha1.TrainJob) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer stop()
	return t.api.Create(ctx, trainJob)
}

// cleanUp deletes the job, and waits until it and its pods are deleted.
func (t *trial) cleanUp(ctx context.Context, trainJob *v2alpha1.TrainJob) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer stop()
	err := client.IgnoreNotFound(t.api.Delete(ctx, trainJob, client.PropagationPolicy(metav1.DeletePropagationForeground)))
	for err == nil {
		if err = t.api.Get(ctx, client.ObjectKeyFromObject(trainJob), &v2alpha1.TrainJob{}); err != nil {
			break
		}
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-time.After(pause):
		}
	}
	if err != nil && !apierrors.IsNotFound(err) {
		t.say("Warning: TrainJob %s was not deleted: %v", trainJob.Name, err)
		t.say("Delete it: %s trainjob delete %s -n %s", t.calledAs, trainJob.Name, trainJob.Namespace)
	}
}

// podLog returns the output of a pod's first container.
func (t *trial) podLog(ctx context.Context, pod string) (string, error) {
	core, err := t.core()
	if err != nil {
		return "", err
	}
	stream, err := core.Pods(t.namespace).GetLogs(pod, &corev1.PodLogOptions{}).Stream(ctx)
	if err != nil {
		return "", err
	}
	defer stream.Close()
	content, err := io.ReadAll(io.LimitReader(stream, maxManifest))
	return string(content), err
}

// ranksIn counts the ranks that have printed their line.
func ranksIn(log string) int {
	answers := runtimecheck.Answers{}
	for line := range strings.Lines(log) {
		answers.Read(line)
	}
	return len(answers)
}
