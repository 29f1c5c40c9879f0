// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
)

func (outcome outcome) wantOK(t testing.TB) outcome {
	t.Helper()
	if outcome.code != 0 {
		t.Fatalf("exit code %d\n%s", outcome.code, outcome.stderr)
	}
	return outcome
}

// One API server for all that needs nothing else; each test has its namespace.
func TestWithTheJobAPIs(t *testing.T) {
	cluster := startCluster(t)
	t.Run("errors", cluster.testErrors)
	t.Run("creation", cluster.testCreation)
	t.Run("pages", cluster.testPages)
	t.Run("completion", cluster.testCompletion)
	t.Run("watch", cluster.testWatch)
	t.Run("interrupted", cluster.testInterrupted)
}

func (cluster *cluster) testCreation(t *testing.T) {
	namespace := cluster.namespace(t)
	odh := func(stdin string, arguments ...string) outcome {
		return run(t, cluster.kubeconfig, stdin, append([]string{"-n", namespace}, arguments...)...)
	}
	t.Run("a trial on the server stores nothing", func(t *testing.T) {
		got := odh(goodJob, "trainjob", "create", "-f", "-", "--dry-run=server", "-o", "yaml").wantOK(t)
		if !strings.Contains(got.stdout, "uid:") {
			t.Errorf("the server has not answered:\n%s", got.stdout)
		}
		if got := cluster.jobs(t, namespace); got != 0 {
			t.Errorf("%d jobs, want none", got)
		}
	})
	t.Run("the author of the fields", func(t *testing.T) {
		odh(goodJob, "trainjob", "create", "-f", "-", "--field-manager", "pipeline").wantOK(t)
		var made v2alpha1.TrainJob
		if err := cluster.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "good"}, &made); err != nil {
			t.Fatal(err)
		}
		if len(made.ManagedFields) != 1 || made.ManagedFields[0].Manager != "pipeline" {
			t.Errorf("managed fields %v", made.ManagedFields)
		}
	})
	t.Run("what is printed can be created again", func(t *testing.T) {
		printed := odh("", "trainjob", "create", "again", "--runtime", "mpi-openmpi-cpu", "--image", "i", "--gpus", "2", "--dry-run=client", "-o", "yaml", "--", "python", "train.py").wantOK(t)
		odh(printed.stdout, "trainjob", "create", "-f", "-").wantOK(t)
		printed = odh("", "mpijob", "create", "old-style", "--image", "i", "--dry-run=client", "-o", "json", "--", "./solve").wantOK(t)
		odh(printed.stdout, "mpijob", "create", "-f", "-").wantOK(t)
	})
	t.Run("delete", func(t *testing.T) {
		// Nobody collects garbage here; that delete waits for pods is tested on a cluster.
		odh("", "trainjob", "delete", "again", "--force").wantOK(t)
		odh("", "trainjob", "get", "again").wantError(t, 3, "NotFound")
	})
	t.Run("suspend and resume", func(t *testing.T) {
		odh("", "mpijob", "suspend", "old-style").wantOK(t)
		if got := odh("", "mpijob", "get", "old-style", "-o", "jsonpath={.spec.runPolicy.suspend}"); got.stdout != "true" {
			t.Errorf("suspend is %q", got.stdout)
		}
		odh("", "training", "resume", "mpijob", "old-style").wantOK(t)
		if got := odh("", "mpijob", "get", "old-style", "-o", "jsonpath={.spec.runPolicy.suspend}"); got.stdout != "false" {
			t.Errorf("suspend is %q", got.stdout)
		}
	})
}

// fill creates many jobs, a few at a time.
func (cluster *cluster) fill(t testing.TB, namespace string, count int) {
	t.Helper()
	var creations errgroup.Group
	creations.SetLimit(32)
	for i := range count {
		creations.Go(func() error {
			made := trainJob(namespace, fmt.Sprintf("job-%05d", i))
			if err := cluster.client.Create(t.Context(), made); err != nil {
				return err
			}
			made.Status = ranWell(made.Name)
			return cluster.client.Status().Update(t.Context(), made)
		})
	}
	if err := creations.Wait(); err != nil {
		t.Fatal(err)
	}
}

// ranWell is the status of a job of two workers at its end.
func ranWell(name string) v2alpha1.TrainJobStatus {
	status := v2alpha1.TrainJobStatus{StartTime: new(metav1.Now()), CompletionTime: new(metav1.Now()), Progress: training.Progress{
		Phase: training.PhaseSucceeded, ReadyWorkers: "2/2", ReadyWorkerCount: 2, WorkerCount: 2, Duration: "10s",
		LauncherPodStatus: &training.PodStatus{Name: name + "-launcher-0-0-abcde", Node: "node-1", Phase: "Succeeded"},
	}}
	for _, step := range []training.TimelineStep{training.StepSubmitted, training.StepAdmitted, training.StepScheduled, training.StepPodsReady,
		training.StepWorkersReached, training.StepFirstRankUp, training.StepFinished} {
		status.Timeline = append(status.Timeline, training.TimelineEntry{Step: step, Time: metav1.Now()})
	}
	for index := range int32(2) {
		status.WorkerPodStatuses = append(status.WorkerPodStatuses, training.WorkerPodStatus{Index: index,
			PodStatus: training.PodStatus{Name: fmt.Sprintf("%s-worker-0-%d-abcde", name, index), Node: "node-1", Phase: "Running"}})
	}
	for _, question := range []string{v2alpha1.ConditionGangScheduling, v2alpha1.ConditionWorkersReady, v2alpha1.ConditionLauncherReady,
		v2alpha1.ConditionTrainingComplete, v2alpha1.ConditionSuspended, v2alpha1.ConditionFailed} {
		status.Conditions = append(status.Conditions, metav1.Condition{Type: question, Status: metav1.ConditionTrue, Reason: "Tested",
			Message: "A sentence of about the length that the operator writes into a condition", LastTransitionTime: metav1.Now()})
	}
	return status
}

func (cluster *cluster) testPages(t *testing.T) {
	namespace := cluster.namespace(t)
	const count = 1101
	cluster.fill(t, namespace, count)
	for _, arguments := range [][]string{{"--no-headers"}, {"-o", "name"}, {"-o", "name", "--chunk-size", "7"}, {"-o", "name", "--chunk-size", "0"}} {
		t.Run(strings.Join(arguments, " "), func(t *testing.T) {
			got := run(t, cluster.kubeconfig, "", append([]string{"trainjob", "get", "-n", namespace}, arguments...)...).wantOK(t)
			lines := strings.Split(strings.TrimSpace(got.stdout), "\n")
			slices.Sort(lines)
			if lines = slices.Compact(lines); len(lines) != count {
				t.Errorf("%d different jobs, want %d", len(lines), count)
			}
		})
	}
}

// Names are offered as they are on the cluster, by odh itself and as a plugin.
func (cluster *cluster) testCompletion(t *testing.T) {
	namespace := cluster.namespace(t)
	cluster.fill(t, namespace, 3)
	plugins := t.TempDir()
	for _, name := range []string{"kubectl-trireme", "oc-trireme", "kubectl_complete-trireme"} {
		if err := os.Symlink(odh, filepath.Join(plugins, name)); err != nil {
			t.Fatal(err)
		}
	}
	kubectl := filepath.Join(cluster.environment.BinaryAssetsDirectory, "kubectl")
	t.Setenv("PATH", plugins+":"+os.Getenv("PATH"))
	want := "job-00000\njob-00001\njob-00002\n"
	for name, complete := range map[string]func() outcome{
		"odh": func() outcome {
			return run(t, cluster.kubeconfig, "", "__complete", "trainjob", "describe", "-n", namespace, "job")
		},
		"plugin": func() outcome {
			return runProgram(t, kubectl, cluster.kubeconfig, "", "__complete", "trireme", "trainjob", "describe", "-n", namespace, "job")
		},
		"namespace": func() outcome {
			return run(t, cluster.kubeconfig, "", "__complete", "trainjob", "get", "-n", namespace[:len(namespace)-1])
		},
	} {
		t.Run(name, func(t *testing.T) {
			want := want
			if name == "namespace" {
				want = namespace + "\n"
			}
			// Whoever presses Tab is not kept waiting: on a machine that is too busy, nothing
			// is offered.
			got := complete().wantOK(t)
			for tries := 1; tries < 10 && !strings.HasPrefix(got.stdout, want); tries++ {
				got = complete().wantOK(t)
			}
			if !strings.HasPrefix(got.stdout, want) {
				t.Errorf("offered:\n%s", got.stdout)
			}
		})
	}
	t.Run("kubectl calls the plugin", func(t *testing.T) {
		got := runProgram(t, kubectl, cluster.kubeconfig, "", "trireme", "trainjob", "get", "nope", "-n", namespace)
		got.wantError(t, 3, "NotFound")
		if !strings.Contains(got.stderr, "kubectl trireme training list") {
			t.Errorf("the plugin does not call itself as the user did:\n%s", got.stderr)
		}
	})
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		t.Run(shell, func(t *testing.T) {
			if got := run(t, "none", "", "completion", shell).wantOK(t); !strings.Contains(got.stdout, "odh") {
				t.Error("there is no script")
			}
		})
	}
}

// A watch shows what there is and then each change, in columns that stay.
func (cluster *cluster) testWatch(t *testing.T) {
	namespace := cluster.namespace(t)
	made := trainJob(namespace, "watched")
	if err := cluster.client.Create(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), odh, "training", "list", "-n", namespace, "-w")
	command.Env = append(os.Environ(), "KUBECONFIG="+cluster.kubeconfig)
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(output)
	next := func(want string) {
		t.Helper()
		if !lines.Scan() || !strings.Contains(strings.Join(strings.Fields(lines.Text()), " "), want) {
			t.Fatalf("the line is %q, want %q", lines.Text(), want)
		}
	}
	next("NAME KIND STATUS")
	next("watched TrainJob Submitted 0/2")
	made.Status = v2alpha1.TrainJobStatus{Progress: training.Progress{Phase: training.PhaseRunning, ReadyWorkers: "2/2", ReadyWorkerCount: 2, WorkerCount: 2}}
	if err := cluster.client.Status().Update(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	next("watched TrainJob Running 2/2")
	if err := cluster.client.Create(t.Context(), trainJob(namespace, "another")); err != nil {
		t.Fatal(err)
	}
	next("another TrainJob Submitted")
	interrupt(t, command)
}

// interrupt presses Ctrl-C, and wants the code of that.
func interrupt(t *testing.T, command *exec.Cmd) {
	t.Helper()
	_ = command.Process.Signal(os.Interrupt)
	done := make(chan error, 1)
	go func() { done <- command.Wait() }()
	select {
	case <-done:
		if code := command.ProcessState.ExitCode(); code != 130 {
			t.Errorf("exit code %d, want 130", code)
		}
	case <-time.After(time.Minute):
		t.Fatal("the command does not end")
	}
}

// Ctrl-C leaves the job that was created, at whatever moment. What was printed for
// programs is nothing but that.
func (cluster *cluster) testInterrupted(t *testing.T) {
	for _, mode := range []string{"--wait", "--follow"} {
		t.Run(mode, func(t *testing.T) {
			namespace := cluster.namespace(t)
			command := exec.CommandContext(t.Context(), odh, "trainjob", "create", "-n", namespace, "-f", "-", mode, "-o", "name")
			command.Env = append(os.Environ(), "KUBECONFIG="+cluster.kubeconfig)
			command.Stdin = strings.NewReader(goodJob)
			var talk bytes.Buffer
			command.Stderr = &talk
			output, err := command.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := command.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(output)
			if !lines.Scan() || lines.Text() != "trainjob.kubeflow.org/good" {
				t.Fatalf("the name is %q", lines.Text())
			}
			interrupt(t, command)
			if lines.Scan() {
				t.Errorf("after the name there is %q", lines.Text())
			}
			if want := "odh trainjob describe good -n " + namespace; !strings.Contains(talk.String(), "Detached. trainjob/good is still running.") || !strings.Contains(talk.String(), want) {
				t.Errorf("nothing says how to come back:\n%s", talk.String())
			}
			if got := cluster.jobs(t, namespace); got != 1 {
				t.Errorf("%d jobs, want the one", got)
			}
		})
	}
}
