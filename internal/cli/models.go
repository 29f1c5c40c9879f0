package cli

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/internal/job"
)

// models are the jobs with every default. A runtime that many jobs are made from is
// read once.
type models struct {
	client.Reader
	runtimes map[string]client.Object
}

func newModels(reader client.Reader) *models {
	return &models{Reader: reader, runtimes: map[string]client.Object{}}
}

// Get remembers runtimes.
func (models *models) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	known := models.runtimes[key.String()]
	switch into := object.(type) {
	case *v2alpha1.ClusterTrainingRuntime:
		if runtime, ok := known.(*v2alpha1.ClusterTrainingRuntime); ok {
			runtime.DeepCopyInto(into)
			return nil
		}
	case *v2alpha1.TrainingRuntime:
		if runtime, ok := known.(*v2alpha1.TrainingRuntime); ok {
			runtime.DeepCopyInto(into)
			return nil
		}
	}
	err := models.Reader.Get(ctx, key, object, options...)
	if err == nil {
		models.runtimes[key.String()] = object
	}
	return err
}

// details are the cells of -o wide.
func (models *models) details(ctx context.Context, seen *view) []any {
	gpus, mpi, image, runtime := "-", "-", "-", "-"
	if trainJob, ok := seen.Object.(*v2alpha1.TrainJob); ok {
		runtime, image = trainJob.Spec.RuntimeRef.Name, orDash(trainJob.Spec.Trainer.Image)
	}
	if made, err := seen.model(ctx, models); err == nil {
		mpi, gpus = string(made.MPI), totalGPUs(made)
		if containers := made.Worker.Template.Spec.Containers; len(containers) > 0 {
			image = orDash(containers[0].Image)
		}
	}
	return []any{gpus, mpi, runtime, orDash(seen.GetLabels()[training.LabelQueue]), orDash(string(seen.FailureReason)), image}
}

// totalGPUs is how many GPUs a job asks for, in all.
func totalGPUs(made *job.Job) string {
	total := job.GPUs(job.Requests(&made.Launcher.Template.Spec))
	worker := job.GPUs(job.Requests(&made.Worker.Template.Spec))
	for range made.Worker.Replicas {
		total.Add(*worker)
	}
	return total.String()
}
