package cli

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// models reads jobs with all defaults. It reads a runtime that many jobs use only once,
// even if it does not exist.
type models struct {
	client.Reader
	runtimes map[string]cachedRuntime
}

// cachedRuntime is a cached response of the cluster.
type cachedRuntime struct {
	object client.Object
	err    error
}

func newModels(reader client.Reader) *models {
	return &models{Reader: reader, runtimes: map[string]cachedRuntime{}}
}

// Get caches runtimes.
func (m *models) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	question := fmt.Sprintf("%T %s", object, key)
	known, asked := m.runtimes[question]
	if !asked {
		known.err = m.Reader.Get(ctx, key, object, options...)
		known.object = object
		m.runtimes[question] = known
		return known.err
	}
	switch target := object.(type) {
	case *v2alpha1.ClusterTrainingRuntime:
		known.object.(*v2alpha1.ClusterTrainingRuntime).DeepCopyInto(target)
	case *v2alpha1.TrainingRuntime:
		known.object.(*v2alpha1.TrainingRuntime).DeepCopyInto(target)
	}
	return known.err
}

// details returns the cells of -o wide.
func (m *models) details(ctx context.Context, j *view) []any {
	gpus, mpi, image, runtime := "-", "-", "-", "-"
	if trainJob, ok := j.Object.(*v2alpha1.TrainJob); ok {
		runtime, image = trainJob.Spec.RuntimeRef.Name, orDash(trainJob.Spec.Trainer.Image)
	}
	if model, err := j.Model(ctx, m); err == nil {
		mpi, gpus = string(model.MPI), job.GPUs(requestsOf(model)).String()
		if containers := model.Worker.Template.Spec.Containers; len(containers) > 0 {
			image = orDash(containers[0].Image)
		}
	}
	return []any{gpus, mpi, runtime, orDash(j.GetLabels()[training.LabelQueue]), orDash(string(j.FailureReason)), image}
}
