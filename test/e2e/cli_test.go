// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

// buildOdh builds the command line once.
var buildOdh = sync.OnceValue(func() error {
	output, err := shell("make odh")
	if err != nil {
		return errors.New(output)
	}
	return nil
})

// printed is what a command has printed so far, and may be read while it runs.
type printed struct {
	mutex sync.Mutex
	text  bytes.Buffer
}

func (printed *printed) Write(text []byte) (int, error) {
	printed.mutex.Lock()
	defer printed.mutex.Unlock()
	return printed.text.Write(text)
}

func (printed *printed) String() string {
	printed.mutex.Lock()
	defer printed.mutex.Unlock()
	return printed.text.String()
}

// waitFor waits until a text is among it.
func (printed *printed) waitFor(t *testing.T, text string) {
	t.Helper()
	eventually.Succeeds(t, "it prints "+text, func() error {
		if said := printed.String(); !strings.Contains(said, text) {
			return fmt.Errorf("it has printed %q", said)
		}
		return nil
	})
}

// odhCommand is a command line that talks to the cluster of the tests.
func odhCommand(t *testing.T, namespace string, arguments ...string) (command *exec.Cmd, stdout, stderr *printed) {
	t.Helper()
	if err := buildOdh(); err != nil {
		t.Fatal(err)
	}
	settings, err := shell("bin/cluster env")
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := regexp.MustCompile(`KUBECONFIG=(\S+)`).FindStringSubmatch(settings)
	if kubeconfig == nil {
		t.Fatalf("no kubeconfig in %q", settings)
	}
	command = exec.CommandContext(t.Context(), "bin/odh", append([]string{"-n", namespace}, arguments...)...)
	command.Dir = repository
	command.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig[1])
	stdout, stderr = &printed{}, &printed{}
	command.Stdout, command.Stderr = stdout, stderr
	return command, stdout, stderr
}

// odh runs a command line, and fails the test unless it exits with a code.
func odh(t *testing.T, wantCode int, namespace string, arguments ...string) (stdout, stderr string) {
	t.Helper()
	command, out, errOut := odhCommand(t, namespace, arguments...)
	var exited *exec.ExitError
	if err := command.Run(); err != nil && !errors.As(err, &exited) {
		t.Fatal(err)
	}
	if code := command.ProcessState.ExitCode(); code != wantCode {
		t.Fatalf("odh %s: exit code %d, want %d\n%s%s", strings.Join(arguments, " "), code, wantCode, out, errOut)
	}
	return out.String(), errOut.String()
}

// contains fails unless a text has every part, in this order.
func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	rest := text
	for _, part := range parts {
		_, after, found := strings.Cut(rest, part)
		if !found {
			t.Errorf("no %q, in its place, in\n%s", part, text)
			return
		}
		rest = after
	}
}

// smallTrainJob are the flags of a job that fits beside others.
var smallTrainJob = []string{"--runtime", "mpi-openmpi-cpu", "--nodes", "2", "--slots", "1", "--image", testImage("openmpi:5"), "--cpu", "10m", "--memory", "64Mi"}

func TestOdhFollowsARealJob(t *testing.T) {
	t.Parallel()
	_, namespace := newNamespace(t)
	stdout, stderr := odh(t, 0, namespace, append(append([]string{"training", "create", "trainjob", "hello"}, smallTrainJob...),
		"--follow", "--timeout", "3m", "--", "sh", "-c", "echo rank $OMPI_COMM_WORLD_RANK is here; sleep 1")...)
	contains(t, stdout, "trainjob.kubeflow.org/hello created")
	for _, line := range []string{"rank 0 is here", "rank 1 is here"} {
		contains(t, stdout, line)
	}
	contains(t, stderr, "Submitted", "Scheduled", "trainjob/hello Succeeded after", "WorkersReached", "Finished")

	// Events are told after the status is, and not by the same request.
	eventually.Succeeds(t, "the operator has told of the end", func() error {
		if stdout, _ = odh(t, 0, namespace, "trainjob", "describe", "hello"); !strings.Contains(stdout, "JobSucceeded") {
			return errors.New(stdout)
		}
		return nil
	})
	contains(t, stdout, "State:     Succeeded after", "Timeline:", "Finished", "Pods:", "launcher", "worker 0", "worker 1", "Resources:", "Events:", "JobSucceeded")
	stdout, _ = odh(t, 0, namespace, "training", "list", "-o", "wide")
	contains(t, stdout, "hello", "TrainJob", "Succeeded", "OpenMPI", "mpi-openmpi-cpu", testImage("openmpi:5"))
	odh(t, 0, namespace, "trainjob", "wait", "hello")
	odh(t, 0, namespace, "trainjob", "delete", "hello")
	wantNoPods(t, namespace)
}

func wantNoPods(t *testing.T, namespace string) {
	t.Helper()
	api, err := jobClient()
	if err != nil {
		t.Fatal(err)
	}
	var pods corev1.PodList
	if err := api.List(t.Context(), &pods, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	if len(pods.Items) > 0 {
		t.Errorf("%d pods are left", len(pods.Items))
	}
}

func TestOdhTellsOfAFailure(t *testing.T) {
	t.Parallel()
	_, namespace := newNamespace(t)
	fails := append(append([]string{"trainjob", "create", "fails"}, smallTrainJob...), "--follow", "--", "sh", "-c", "echo something is wrong; exit 3")
	stdout, stderr := odh(t, 6, namespace, fails...)
	contains(t, stdout, "something is wrong")
	contains(t, stderr, "trainjob/fails Failed", "Error: trainjob/fails failed", "Reason: TrainingError", "Details: ", "Suggestions:", "1. ", "Documentation: ")
	_, stderr = odh(t, 6, namespace, "mpijob", "create", "fails-too", "--image", testImage("openmpi:5"), "--cpu", "10m", "--memory", "64Mi", "--mpi", "OpenMPI", "--backoff-limit", "0", "--wait", "--", "false")
	contains(t, stderr, "Error: mpijob/fails-too failed", "Reason: TrainingError")
	odh(t, 6, namespace, "trainjob", "wait", "fails")
	stdout, _ = odh(t, 0, namespace, "trainjob", "describe", "fails")
	contains(t, stdout, "State:     Failed", "Failure:", "TrainingError")
}

// Ctrl-C leaves the job alone, and says how to come back to it.
func TestOdhDetaches(t *testing.T) {
	t.Parallel()
	api, namespace := newNamespace(t)
	command, stdout, stderr := odhCommand(t, namespace, append(append([]string{"trainjob", "create", "long"}, smallTrainJob...),
		"--follow", "--", "sh", "-c", "echo it runs; sleep 600")...)
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	stdout.waitFor(t, "it runs")
	_ = command.Process.Signal(os.Interrupt)
	_ = command.Wait()
	if code := command.ProcessState.ExitCode(); code != 130 {
		t.Errorf("exit code %d, want 130", code)
	}
	contains(t, stderr.String(), "Detached. trainjob/long is still running.", "odh trainjob logs long -n "+namespace+" --follow")
	// Ranks print before the kubelet has told that their workers are ready.
	long := &theJob{t: t, client: api, namespace: namespace, object: &v2alpha1.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "long"}}}
	long.until("it goes on", time.Minute, func(progress training.Progress) bool {
		return progress.Phase == training.PhaseRunning && progress.ReadyWorkers == "2/2"
	})
	stdoutText, _ := odh(t, 0, namespace, "trainjob", "describe", "long")
	contains(t, stdoutText, "State:     Running for", "2/2 workers ready", "allocated", "cpu")
	odh(t, 0, namespace, "trainjob", "suspend", "long")
	stdoutText, _ = odh(t, 0, namespace, "trainjob", "get", "long", "--no-headers")
	contains(t, stdoutText, "Suspended")
	odh(t, 0, namespace, "trainjob", "resume", "long")
	odh(t, 0, namespace, "trainjob", "wait", "long", "--for", "running", "--timeout", "2m")
	odh(t, 7, namespace, "trainjob", "wait", "long", "--timeout", "1s")
	odh(t, 0, namespace, "trainjob", "delete", "long")
	wantNoPods(t, namespace)
}

// A job that the quota has no room for is not created, and the exit code says why.
func TestOdhAndQuota(t *testing.T) {
	t.Parallel()
	api, namespace := newNamespace(t)
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "small"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"requests.cpu": resource.MustParse("1")}}}
	createQuota(t, api, quota)
	eventually.Succeeds(t, "admission knows the quota", func() error {
		command, _, stderr := odhCommand(t, namespace, "mpijob", "create", "large", "--image", testImage("openmpi:5"), "--cpu", "2", "--dry-run=server", "--", "true")
		if _ = command.Run(); command.ProcessState.ExitCode() != 5 {
			return errors.New(stderr.String())
		}
		return nil
	})
	_, stderr := odh(t, 5, namespace, "mpijob", "create", "large", "--image", testImage("openmpi:5"), "--cpu", "2", "--", "true")
	contains(t, stderr, "Error: ", "Reason: ResourceQuotaExceeded", "Details: ", "Suggestions:")
	odh(t, 3, namespace, "mpijob", "get", "large")
}
