// SPDX-License-Identifier: Apache-2.0

package jobservice

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
	"github.com/trireme-mpi/trireme/internal/kube/runtimecheck"
	"github.com/trireme-mpi/trireme/internal/server/apierror"
	"github.com/trireme-mpi/trireme/internal/server/auth"
)

// runtimeTestTimeout is how long the job of a test may take. It includes pulling an image.
const runtimeTestTimeout = 5 * time.Minute

// RuntimeTest says how a runtime is tested.
type RuntimeTest struct {
	// Kind is TrainingRuntime or ClusterTrainingRuntime.
	Kind string `json:"kind"`
	// Runtime is its name.
	Runtime string `json:"runtime"`
	// Image of the pods; default: that of the runtime.
	Image string `json:"image,omitempty"`
	// CPU and Memory of each pod; default: the resources of the runtime.
	CPU    string `json:"cpu,omitempty"`
	Memory string `json:"memory,omitempty"`
}

// TestRuntime creates the job that tests a runtime, with the caller's own permissions. Its
// TTL deletes it.
func (s *Service) TestRuntime(ctx context.Context, namespace string, test RuntimeTest) (*runtimecheck.TrialReport, error) {
	ref := v2alpha1.RuntimeRef{Kind: v2alpha1.RuntimeKind(test.Kind), Name: test.Runtime}
	if ref.Kind != v2alpha1.RuntimeKindNamespaced && ref.Kind != v2alpha1.RuntimeKindCluster {
		return nil, apierror.Invalid("kind", "%q is not TrainingRuntime or ClusterTrainingRuntime", test.Kind)
	}
	trial := runtimecheck.Trial{Runtime: ref, Image: test.Image, CPU: test.CPU, Memory: test.Memory, Timeout: runtimeTestTimeout}
	if wrong, is := errors.AsType[*runtimecheck.QuantityError](trial.Validate()); is {
		return nil, apierror.Invalid(wrong.Field, "%v", wrong)
	}
	caller := auth.CallerFrom(ctx)
	key, object, spec := jobview.RuntimeToRead(namespace, ref)
	if err := caller.Client.Get(ctx, key, object); err != nil {
		return nil, err
	}
	trainJob, err := trial.Job(namespace, spec)
	if errors.Is(err, runtimecheck.ErrNoImage) {
		return nil, apierror.Invalid("image", "is required, because the runtime has no image")
	}
	if err != nil {
		return nil, err
	}
	if err := caller.Client.Create(ctx, trainJob, fieldOwner); err != nil {
		return nil, err
	}
	auth.RecordFrom(ctx).Name = trainJob.Name
	return s.reportOf(ctx, jobview.Of(trainJob))
}

// RuntimeTestReport returns how far the test of a runtime has come, or its result.
func (s *Service) RuntimeTestReport(ctx context.Context, namespace, name string) (*runtimecheck.TrialReport, error) {
	view, err := s.view(ctx, JobRef{Kind: jobview.TrainJobs, Namespace: namespace, Name: name})
	if err != nil {
		return nil, err
	}
	if !runtimecheck.IsTrial(view.Object.(*v2alpha1.TrainJob)) {
		return nil, apierror.New(http.StatusNotFound, "NotFound", fmt.Sprintf("TrainJob %q is not the test of a runtime", name), "Use the name of a job that POST runtimetests returned")
	}
	return s.reportOf(ctx, view)
}

func (s *Service) reportOf(ctx context.Context, view *jobview.View) (*runtimecheck.TrialReport, error) {
	trainJob := view.Object.(*v2alpha1.TrainJob)
	from := auth.CallerFrom(ctx).Client
	model, err := view.Model(ctx, from)
	if errors.Is(err, jobview.ErrNoRuntime) {
		return nil, apierror.New(http.StatusNotFound, "NotFound", fmt.Sprintf("The runtime %q, which TrainJob %q tests, was deleted", trainJob.Spec.RuntimeRef.Name, trainJob.Name), "Test another runtime")
	}
	if err != nil {
		return nil, err
	}
	state := runtimecheck.State{Job: view, Ranks: int(model.WorldSize())}
	// Without permission to list pods, the status of the job is enough.
	if state.Pods, err = podsOf(ctx, from, view); err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if view.Phase == training.PhaseSucceeded {
		if state.Answered, err = s.answers(ctx, view); err != nil {
			state.LogError = apierror.From(err).Message
		}
	}
	ref := trainJob.Spec.RuntimeRef
	report := &runtimecheck.TrialReport{
		Runtime: ref.Name, Kind: string(ref.Kind), Namespace: trainJob.Namespace, Job: trainJob.Name, Image: trainJob.Spec.Trainer.Image, Finished: view.Finished(),
		Steps: state.Steps(view.Finished()),
	}
	report.Works = report.Finished && runtimecheck.Works(report.Steps)
	return report, nil
}

// answers counts the ranks that have printed their line.
func (s *Service) answers(ctx context.Context, view *jobview.View) (int, error) {
	ref := JobRef{Kind: view.Kind, Namespace: view.GetNamespace(), Name: view.GetName()}
	lines, err := s.Logs(ctx, ref, LogOptions{Role: training.RoleLauncher})
	if err != nil {
		return 0, err
	}
	answers := runtimecheck.Answers{}
	for line, err := range lines {
		if err != nil {
			return len(answers), err
		}
		answers.Read(line.Text)
	}
	return len(answers), nil
}
