// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
)

// details returns the cells of -o wide.
func details(ctx context.Context, runtimes *jobview.RuntimeCache, j *view) []any {
	gpus, mpi, image, runtime := "-", "-", "-", "-"
	if trainJob, ok := j.Object.(*v2alpha1.TrainJob); ok {
		runtime, image = trainJob.Spec.RuntimeRef.Name, orDash(trainJob.Spec.Trainer.Image)
	}
	if model, err := j.Model(ctx, runtimes); err == nil {
		mpi, gpus = string(model.MPI), job.GPUs(model.TotalRequests()).String()
		if containers := model.Worker.Template.Spec.Containers; len(containers) > 0 {
			image = orDash(containers[0].Image)
		}
	}
	return []any{gpus, mpi, runtime, orDash(j.GetLabels()[training.LabelQueue]), orDash(string(j.FailureReason)), image}
}
