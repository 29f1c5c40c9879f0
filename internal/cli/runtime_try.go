package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// trial is `odh runtime test`: a job of two workers in which every rank prints a line.
type trial struct {
	*environment
	api       client.WithWatch
	namespace string
	runtime   *foundRuntime
	// log returns the output of the launcher.
	log func(ctx context.Context, pod string) (string, error)

	kind, image, cpu, memory, output string
	timeout                          time.Duration
	keep                             bool
}

const (
	trialWorkers = 2
	// cleanupPatience is how long the deletion of the job may take.
	cleanupPatience = 45 * time.Second
	// answer is the start of the line that each rank prints.
	answer = "odh-runtime-test rank "
)

// trialScript needs only a shell in the image, and runs as any user. The variables are
// those of Open MPI, Hydra and PMIx. It sleeps because Open MPI 5 may hang if processes
// exit at once.
const trialScript = `echo "` + answer + `${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-${PMIX_RANK:-?}}} of worker ${MPIJOB_WORKER_INDEX:-?}"; sleep 1`

func newRuntimeTestCommand(environment *environment) *cobra.Command {
	command, _ := newTrialCommand(environment)
	return command
}

func newTrialCommand(environment *environment) (*cobra.Command, *trial) {
	trial := &trial{environment: environment}
	command := &cobra.Command{
		Use: "test NAME", Short: "Test a runtime with a job of two workers, then delete the job",
		Long: `Test a runtime: create a TrainJob with a launcher and two workers from it, in which every rank prints a
line. Each step is reported: pods scheduled, image pulled, workers reached with the job's keys, ranks
started, every rank answered. The job is deleted at the end, also after Ctrl-C, unless --keep is set.

Workers request the resources of the runtime; --cpu and --memory replace all of them, GPUs included.

The exit code is 0 if the runtime works, 1 if it does not, 7 if the test timed out.`,
		Example: `  odh runtime test mpi-openmpi-cpu --image IMAGE
  odh runtime test mpi-openmpi-cpu --image IMAGE --cpu 100m --memory 128Mi --keep`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: environment.completeRuntimes,
		RunE: func(command *cobra.Command, arguments []string) error { return trial.prepare(command, arguments[0]) },
	}
	flags := command.Flags()
	flags.StringVar(&trial.kind, "kind", "", "Kind of the runtime: TrainingRuntime or ClusterTrainingRuntime (default TrainingRuntime, else ClusterTrainingRuntime)")
	flags.StringVar(&trial.image, "image", "", "Image of the launcher and the workers (default from the runtime)")
	flags.StringVar(&trial.cpu, "cpu", "", "CPUs per pod (default from the runtime)")
	flags.StringVar(&trial.memory, "memory", "", "Memory per pod (default from the runtime)")
	flags.DurationVar(&trial.timeout, "timeout", 2*time.Minute, "Maximum duration of the test")
	flags.BoolVar(&trial.keep, "keep", false, "Keep the job after the test")
	flags.StringVarP(&trial.output, "output", "o", "", "Output format: json or yaml")
	return command, trial
}

func (trial *trial) prepare(command *cobra.Command, name string) (err error) {
	if err := isDocument(command, trial.output); err != nil {
		return err
	}
	if kind := trial.kind; kind != "" && !strings.EqualFold(kind, string(v2alpha1.RuntimeKindNamespaced)) && !strings.EqualFold(kind, string(v2alpha1.RuntimeKindCluster)) {
		return usageFailure(command, fmt.Sprintf("--kind must be %s or %s, not %q", v2alpha1.RuntimeKindNamespaced, v2alpha1.RuntimeKindCluster, kind))
	}
	for _, quantity := range []string{trial.cpu, trial.memory} {
		if _, err := job.ParseQuantity(quantity); quantity != "" && err != nil {
			return usageFailure(command, fmt.Sprintf("%q is not a valid quantity: %v", quantity, err))
		}
	}
	if trial.namespace, err = trial.environment.namespace(); err != nil {
		return err
	}
	if trial.api, err = trial.client(); err != nil {
		return err
	}
	if trial.runtime, err = trial.runtimeNamed(command.Context(), trial.api, trial.namespace, name, trial.kind); err != nil {
		return err
	}
	if trial.image == "" {
		trial.image = imageOf(trial.runtime.spec)
	}
	if trial.image == "" {
		return usageFailure(command, fmt.Sprintf("runtime %q has no image: set one with --image IMAGE", name))
	}
	if trial.log == nil {
		trial.log = trial.podLog
	}
	return trial.run(command.Context())
}

// imageOf returns the image of a runtime's workers.
func imageOf(spec *v2alpha1.TrainingRuntimeSpec) string {
	for _, replicated := range spec.Template.Spec.ReplicatedJobs {
		if containers := replicated.Template.Spec.Containers; replicated.Name == v2alpha1.ReplicatedJobWorker && len(containers) > 0 {
			return containers[0].Image
		}
	}
	return ""
}

// trainJob returns the test job. Its deadline and TTL delete it even if this process is
// killed.
func (trial *trial) trainJob() *v2alpha1.TrainJob {
	made := &v2alpha1.TrainJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: trial.namespace, GenerateName: "runtime-test-"},
		Spec: v2alpha1.TrainJobSpec{
			RuntimeRef: v2alpha1.RuntimeRef{Kind: trial.runtime.kind, Name: trial.runtime.GetName()},
			Trainer:    v2alpha1.Trainer{Image: trial.image, NumNodes: new(int32(trialWorkers)), Command: []string{"sh", "-c", trialScript}},
		},
	}
	if !trial.keep {
		made.Spec.ActiveDeadlineSeconds = new(int64(trial.timeout/time.Second) + 60)
		made.Spec.TTLSecondsAfterFinished = new(int32(600))
	}
	requests := corev1.ResourceList{}
	for name, quantity := range map[corev1.ResourceName]string{corev1.ResourceCPU: trial.cpu, corev1.ResourceMemory: trial.memory} {
		if quantity != "" {
			requests[name] = resource.MustParse(quantity)
		}
	}
	if len(requests) > 0 {
		made.Spec.Trainer.ResourcesPerNode = &corev1.ResourceRequirements{Requests: requests}
		made.Spec.Launcher = &v2alpha1.Launcher{Resources: &corev1.ResourceRequirements{Requests: requests.DeepCopy()}}
	}
	return made
}

func (trial *trial) run(ctx context.Context) error {
	made := trial.trainJob()
	if err := trial.create(ctx, made); err != nil {
		return err
	}
	if !trial.keep {
		defer trial.cleanUp(ctx, made)
	}
	ranks := int(job.FromTrainJob(made, trial.runtime.spec, job.Defaults{}).WorldSize())
	limited, stop := context.WithTimeout(ctx, trial.timeout)
	defer stop()
	progress := &trialProgress{trial: trial, ranks: ranks, name: made.Name}
	progress.begin()
	err := followJob(limited, trainJobs, trial.api, trial.namespace, made.Name, func(seen *view) (bool, error) {
		return seen.Finished(), progress.see(limited, seen)
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
func (trial *trial) create(ctx context.Context, made *v2alpha1.TrainJob) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), cleanupPatience)
	defer stop()
	return trial.api.Create(ctx, made)
}

// cleanUp deletes the job, and waits until it and its pods are deleted.
func (trial *trial) cleanUp(ctx context.Context, made *v2alpha1.TrainJob) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), cleanupPatience)
	defer stop()
	err := client.IgnoreNotFound(trial.api.Delete(ctx, made, client.PropagationPolicy(metav1.DeletePropagationForeground)))
	for err == nil {
		if err = trial.api.Get(ctx, client.ObjectKeyFromObject(made), &v2alpha1.TrainJob{}); err != nil {
			break
		}
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-time.After(pause):
		}
	}
	if err != nil && !apierrors.IsNotFound(err) {
		trial.say("Warning: TrainJob %s was not deleted: %v", made.Name, err)
		trial.say("Delete it: %s trainjob delete %s -n %s", trial.calledAs, made.Name, made.Namespace)
	}
}

// podLog returns the output of a pod's first container.
func (trial *trial) podLog(ctx context.Context, pod string) (string, error) {
	core, err := trial.core()
	if err != nil {
		return "", err
	}
	stream, err := core.Pods(trial.namespace).GetLogs(pod, &corev1.PodLogOptions{}).Stream(ctx)
	if err != nil {
		return "", err
	}
	defer stream.Close()
	content, err := io.ReadAll(io.LimitReader(stream, maxManifest))
	return string(content), err
}

// ranksIn counts the ranks that have printed their line.
func ranksIn(log string) int {
	ranks := map[string]bool{}
	for line := range strings.Lines(log) {
		if _, rest, found := strings.Cut(line, answer); found {
			rank, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
			ranks[rank] = true
		}
	}
	return len(ranks)
}
