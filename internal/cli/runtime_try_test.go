// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/internal/kube/runtimecheck"
	"github.com/trireme-mpi/trireme/internal/testing/goldenfile"
)

// becomes is a cluster that sets this status on every created job.
func becomes(change func(*v2alpha1.TrainJob)) func(client.WithWatch) client.WithWatch {
	return func(api client.WithWatch) client.WithWatch {
		return interceptor.NewClient(api, interceptor.Funcs{Create: func(ctx context.Context, api client.WithWatch, object client.Object, options ...client.CreateOption) error {
			job := object.(*v2alpha1.TrainJob)
			job.Name, job.GenerateName, job.CreationTimestamp = job.GenerateName+"abcde", "", ago(600)
			change(job)
			return api.Create(ctx, object, options...)
		}})
	}
}

// A complete test of a runtime, up to the deletion of its job.
func TestTrial(t *testing.T) {
	works := func(job *v2alpha1.TrainJob) {
		succeeded(job)
		job.Status.LauncherPodStatus.Name = "launcher"
	}
	broken := func(job *v2alpha1.TrainJob) {
		job.Status.Timeline = timeline(training.StepSubmitted, 600, training.StepScheduled, 598, training.StepPodsReady, 590)
		job.Status.Phase, job.Status.FailureReason, job.Status.FailureMessage = training.PhaseFailed, training.FailureSSHConnection, "The launcher could not reach worker 1 (connection refused)."
	}
	for name, test := range map[string]struct {
		change  func(*v2alpha1.TrainJob)
		line    string
		ranks   int
		logErr  error
		on      terminal
		wantJob bool
	}{
		"works":            {change: works, line: "", ranks: 8},
		"works colourful":  {change: works, ranks: 8, on: colourful},
		"works json":       {change: works, line: "-o json", ranks: 8},
		"works kept":       {change: works, line: "--keep", ranks: 8, wantJob: true},
		"a rank is silent": {change: works, ranks: 7},
		"no log":           {change: works, logErr: errors.New("may not get pods/log")},
		"broken":           {change: broken},
		"broken narrow":    {change: broken, on: narrow},
		"broken yaml":      {change: broken, line: "-o yaml"},
		"too slow":         {change: waiting, line: "--timeout 2s"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errOut bytes.Buffer
			env := newEnvironment(genericiooptions.IOStreams{Out: &out, ErrOut: &errOut})
			env.clock, env.terminal = clocktesting.NewFakePassiveClock(now), test.on
			plain := fake.NewClientBuilder().WithScheme(scheme()).WithObjects(runtimeNamed("mpi-openmpi-cpu")).Build()
			env.cluster = becomes(test.change)(plain)
			t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
			command, trial := newTrialCommand(env)
			trial.log = func(_ context.Context, pod string) (string, error) {
				text := ""
				for rank := range test.ranks {
					text += fmt.Sprintf("%s%d of worker 0\n", runtimecheck.AnswerPrefix, rank)
				}
				return text, test.logErr
			}
			command.SetArgs(append([]string{"mpi-openmpi-cpu", "--image", "quay.io/team/train:7"}, strings.Fields(test.line)...))
			command.SilenceUsage, command.SilenceErrors = true, true
			err := command.ExecuteContext(t.Context())
			shown := fmt.Sprintf("$ odh runtime test mpi-openmpi-cpu --image quay.io/team/train:7 %s\n%s--- stderr\n%s--- %v\n", test.line, out.String(), errOut.String(), err)
			goldenfile.Check(t, filepath.Join("testdata", "trial", strings.ReplaceAll(name, " ", "-")+".golden.txt"), []byte(shown))
			var left v2alpha1.TrainJobList
			if err := plain.List(t.Context(), &left); err != nil || (len(left.Items) == 1) != test.wantJob {
				t.Errorf("%d jobs are left, %v", len(left.Items), err)
			}
		})
	}
}

// Ctrl-C deletes the job.
func TestTrialIsInterrupted(t *testing.T) {
	var out, errOut bytes.Buffer
	env := newEnvironment(genericiooptions.IOStreams{Out: &out, ErrOut: &errOut})
	plain := fake.NewClientBuilder().WithScheme(scheme()).WithObjects(runtimeNamed("mpi-openmpi-cpu")).Build()
	env.cluster = becomes(waiting)(plain)
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	ctx, interrupt := context.WithCancel(t.Context())
	time.AfterFunc(200*time.Millisecond, interrupt)
	if code := run(ctx, env, []string{"runtime", "test", "mpi-openmpi-cpu", "--image", "x"}); code != exitInterrupted {
		t.Errorf("exit code %d: %s", code, errOut.String())
	}
	var left v2alpha1.TrainJobList
	if err := plain.List(t.Context(), &left); err != nil || len(left.Items) > 0 {
		t.Errorf("%d jobs are left, %v", len(left.Items), err)
	}
}

// Ctrl-C during the create request: the job is deleted.
func TestTrialIsInterruptedAtOnce(t *testing.T) {
	var out, errOut bytes.Buffer
	env := newEnvironment(genericiooptions.IOStreams{Out: &out, ErrOut: &errOut})
	plain := fake.NewClientBuilder().WithScheme(scheme()).WithObjects(runtimeNamed("mpi-openmpi-cpu")).Build()
	ctx, interrupt := context.WithCancel(t.Context())
	env.cluster = interceptor.NewClient(plain, interceptor.Funcs{Create: func(ctx context.Context, api client.WithWatch, object client.Object, options ...client.CreateOption) error {
		object.SetName("runtime-test-abcde")
		if err := api.Create(ctx, object, options...); err != nil {
			return err
		}
		interrupt()
		return ctx.Err()
	}})
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	if code := run(ctx, env, []string{"runtime", "test", "mpi-openmpi-cpu", "--image", "x"}); code != exitInterrupted {
		t.Errorf("exit code %d: %s", code, errOut.String())
	}
	var left v2alpha1.TrainJobList
	if err := plain.List(t.Context(), &left); err != nil || len(left.Items) > 0 {
		t.Errorf("%d jobs are left, %v", len(left.Items), err)
	}
}
