// SPDX-License-Identifier: Apache-2.0

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
	cache map[string]cachedRuntime
}

// cachedRuntime is a cached response of the cluster.
type cachedRuntime struct {
	object client.Object
	err    error
}

func newModels(reader client.Reader) *models {
	return &models{Reader: reader, cache: map[string]cachedRuntime{}}
}

// Get caches runtimes.
func (m *models) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	id := fmt.Sprintf("%T %s", object, key)
	entry, cached := m.cache[id]
	if !cached {
		entry.err = m.Reader.Get(ctx, key, object, options...)
		entry.object = object
		m.cache[id] = entry
		return entry.err
	}
	switch target := object.(type) {
	case *v2alpha1.ClusterTrainingRuntime:
		entry.object.(*v2alpha1.ClusterTrainingRuntime).DeepCopyInto(target)
	case *v2alpha1.TrainingRuntime:
		entry.object.(*v2alpha1.TrainingRuntime).DeepCopyInto(target)
	}
	return entry.err
}

// details returns the cells of -o wide.
func (m *models) details(ctx context.Context, j *view) []any {
	gpus, mpi, image, runtime := "-", "-", "-", "-"
	if trainJob, ok := j.Object.(*v2alpha1.TrainJob); ok {
		runtime, image = trainJob.Spec.RuntimeRef.Name, orDash(trainJob.Spec.Trainer.Image)
	}
	if model, err := j.Model(ctx, m); err == nil {
		mpi, gpus = string(model.MPI), job.GPUs(model.TotalRequests()).String()
		if containers := model.Worker.Template.Spec.Containers; len(containers) > 0 {
			image = orDash(containers[0].Image)
		}
	}
	return []any{gpus, mpi, runtime, orDash(j.GetLabels()[training.LabelQueue]), orDash(string(j.FailureReason)), image}
}
