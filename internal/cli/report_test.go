// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2beta1"
)

// accountableJobs are jobs of several users, namespaces and queues, and one whose user has
// a name like a formula.
func accountableJobs() []client.Object {
	by := func(namespace, user, queue string, phase training.Phase, seconds ...any) func(*v2beta1.MPIJob) {
		return func(mpiJob *v2beta1.MPIJob) {
			mpiJob.Namespace, mpiJob.Annotations = namespace, map[string]string{training.AnnotationCreatedBy: user}
			mpiJob.Labels = nil
			if queue != "" {
				mpiJob.Labels = map[string]string{training.LabelQueue: queue}
			}
			mpiJob.Status.Progress = training.Progress{Phase: phase, Timeline: timeline(seconds...)}
		}
	}
	return append(someJobs(),
		mpiJobNamed("a", by("team-a", "ada", "gpus", training.PhaseRunning, training.StepSubmitted, 14400, training.StepScheduled, 10800, training.StepWorkersReached, 7200)),
		mpiJobNamed("b", by("team-a", "=cmd()", "gpus", training.PhaseFailed, training.StepSubmitted, 7200, training.StepScheduled, 7200, training.StepWorkersReached, 7200, training.StepFinished, 3600)),
		mpiJobNamed("c", by("team-b", "ada", "", training.PhasePending, training.StepSubmitted, 3600)),
		mpiJobNamed("d", func(mpiJob *v2beta1.MPIJob) {
			by("team-b", "eve", "", training.PhasePending, training.StepSubmitted, 3600)(mpiJob)
			mpiJob.Spec.RunPolicy.Suspend = new(true)
		}))
}

func TestReport(t *testing.T) {
	with := session{objects: accountableJobs()}
	checkGolden(t, "report", map[string]struct {
		session
		line string
	}{
		"default":          {with, "report"},
		"all namespaces":   {with, "report -A"},
		"by namespace":     {with, "report -A --by namespace"},
		"csv":              {with, "report -A --since 3h -o csv"},
		"json":             {with, "report -n team-a --by user -o json"},
		"yaml":             {with, "report -n team-b -o yaml"},
		"range":            {with, "report -A --by queue --from " + now.Add(-2*time.Hour).Format(time.RFC3339) + " --to " + now.Add(-time.Hour).Format(time.RFC3339)},
		"none":             {session{}, "report"},
		"unknown key":      {with, "report --by node"},
		"unknown output":   {with, "report -o picture"},
		"bad since":        {with, "report --since soon"},
		"bad from":         {with, "report --from yesterday"},
		"backwards":        {with, "report --from 2030-01-01"},
		"since and from":   {with, "report --since 1d --from 2026-01-01"},
		"unknown argument": {with, "report mnist"},
		"forbidden":        {session{objects: accountableJobs(), answers: forbidden()}, "report"},
	})
}
