// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

// speaking has every rank print lines that say whose they are.
const speaking = `
from mpi4py import MPI
for i in range(3):
    print(f"I am {MPI.COMM_WORLD.rank}, line {i}", flush=True)
`

// The log of launcher, worker, all, and one rank, with every MPI. The workers are
// left running, and do not keep who follows from the job's end.
func TestLogsOfEveryMPI(t *testing.T) {
	for _, implementation := range implementations {
		t.Run(implementation.name, func(t *testing.T) {
			mpiJob := failFast(implementation.job(2, speaking))
			mpiJob.Annotations = map[string]string{training.AnnotationTagOutput: "true"}
			mpiJob.Spec.RunPolicy.CleanPodPolicy = new(training.CleanPodPolicyNone)
			job := submit(t, mpiJob)
			followed, _ := odh(t, 0, job.namespace, "mpijob", "logs", "train", "--follow", "--all")
			job.succeeds()

			launcher, _ := odh(t, 0, job.namespace, "mpijob", "logs", "train")
			for rank := range 4 {
				contains(t, launcher, fmt.Sprintf("I am %d, line 0", rank))
				lines, _ := odh(t, 0, job.namespace, "training", "logs", "mpijob", "train", "--rank", fmt.Sprint(rank))
				wantRank(t, lines, rank)
			}
			worker, _ := odh(t, 0, job.namespace, "mpijob", "logs", "train", "--worker", "1")
			contains(t, worker, "worker waits for its launcher")
			all, _ := odh(t, 0, job.namespace, "mpijob", "logs", "train", "--aggregate", "--timestamps")
			contains(t, all, "worker waits for its launcher", "launcher | ", "I am ")
			wantByTime(t, all)
			if got, want := sorted(followed), sorted(withoutTimes(all)); !slices.Equal(got, want) {
				t.Errorf("followed:\n%s\nread afterwards:\n%s", followed, all)
			}
			tail, _ := odh(t, 0, job.namespace, "mpijob", "logs", "train", "--tail", "2")
			if strings.Count(tail, "\n") != 2 || !strings.HasSuffix(launcher, tail) {
				t.Errorf("the last two lines are %q of\n%s", tail, launcher)
			}
			odh(t, 3, job.namespace, "mpijob", "logs", "train", "--worker", "2")
			odh(t, 3, job.namespace, "mpijob", "logs", "train", "-c", "other")
		})
	}
}

func wantRank(t *testing.T, lines string, rank int) {
	t.Helper()
	for i := range 3 {
		contains(t, lines, fmt.Sprintf("I am %d, line %d\n", rank, i))
	}
	if count := strings.Count(lines, "\n"); count != 3 {
		t.Errorf("%d lines of rank %d:\n%s", count, rank, lines)
	}
}

var timeInLine = regexp.MustCompile(`(?m)\| (\S+Z) `)

func withoutTimes(text string) string { return timeInLine.ReplaceAllString(text, "| ") }

func wantByTime(t *testing.T, text string) {
	t.Helper()
	var last time.Time
	for _, found := range timeInLine.FindAllStringSubmatch(text, -1) {
		at, err := time.Parse(time.RFC3339Nano, found[1])
		// The two streams of one container are stamped separately.
		if err != nil || at.Before(last.Add(-5*time.Millisecond)) {
			t.Errorf("%s comes after %s, %v:\n%s", at, last, err, text)
		}
		last = at
	}
}

func sorted(text string) []string {
	lines := strings.Split(text, "\n")
	slices.Sort(lines)
	return lines
}

// following is a command line that runs beside the test.
type following struct {
	t              *testing.T
	stdout, stderr *printed
	ended          chan error
}

func follow(t *testing.T, namespace string, arguments ...string) *following {
	t.Helper()
	command, stdout, stderr := odhCommand(t, namespace, arguments...)
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	running := &following{t: t, stdout: stdout, stderr: stderr, ended: make(chan error, 1)}
	go func() { running.ended <- command.Wait() }()
	return running
}

// end waits until it ends by itself.
func (running *following) end() (stdout, stderr string) {
	running.t.Helper()
	select {
	case err := <-running.ended:
		if err != nil {
			running.t.Fatalf("%v\n%s%s", err, running.stdout, running.stderr)
		}
	case <-time.After(2 * time.Minute):
		running.t.Fatal("it follows a job that has ended")
	}
	return running.stdout.String(), running.stderr.String()
}

// wantAttempts fails unless each attempt has printed each of its lines once.
func wantAttempts(t *testing.T, text string, attempts, lines int) {
	t.Helper()
	found := map[string]int{}
	for _, line := range regexp.MustCompile(`(?m)^launcher +\| (attempt \S+ line \d+)$`).FindAllStringSubmatch(text, -1) {
		found[line[1]]++
	}
	for line, times := range found {
		if times != 1 {
			t.Errorf("%q came %d times", line, times)
		}
	}
	if len(found) != attempts*lines {
		t.Errorf("%d different lines, want %d of each of %d attempts:\n%s", len(found), lines, attempts, text)
	}
}

// A launcher that fails once is restarted in another pod; every line of both runs
// comes, and comes once.
func TestLogsFollowALauncherThatIsRestarted(t *testing.T) {
	t.Parallel()
	mpiJob := implementations[1].job(2, "")
	mpiJob.Spec.RunPolicy.BackoffLimit = new(int32(3))
	launcher := &mpiJob.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeLauncher].Template.Spec
	launcher.Containers[0].Env = append(launcher.Containers[0].Env, corev1.EnvVar{Name: "RESTART", ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['" + training.LabelRestart + "']"},
	}})
	launcher.Containers[0].Command = []string{"bash", "-c", `attempt=$((RESTART + 1))
for i in $(seq 100); do echo attempt $attempt line $i; sleep 0.05; done; test $attempt = 2`}
	job := submit(t, mpiJob)
	running := follow(t, job.namespace, "mpijob", "logs", "train", "--all", "-f")
	job.waitForLog("attempt 2 line 1")
	before, _ := odh(t, 0, job.namespace, "mpijob", "logs", "train", "--previous", "--prefix")
	wantAttempts(t, before, 1, 100)
	output, _ := running.end()
	job.succeeds()
	wantAttempts(t, output, 2, 100)
	contains(t, output, "worker-0", "attempt 1 line 100", "attempt 2 line 1")
}

// A TrainJob that fails is started anew as a whole: all pods go, and others come.
func TestLogsFollowATrainJobThatIsStartedAnew(t *testing.T) {
	t.Parallel()
	trainJob := implementations[1].trainJob(2, `
import os, time
from mpi4py import MPI
if MPI.COMM_WORLD.rank == 0:
    begun = time.time_ns()
    for i in range(1, 51):
        print(f"attempt {begun} line {i}", flush=True)
        time.sleep(0.02)
    # Lines that nobody has read are gone with the pods, which go at once.
    time.sleep(5)
    os._exit(3)
MPI.COMM_WORLD.barrier()
`)
	trainJob.Spec.BackoffLimit = new(int32(1))
	job := submit(t, trainJob)
	output, notes := follow(t, job.namespace, "trainjob", "logs", "train", "--all", "-f").end()
	if ended := job.refresh(); ended.Phase != training.PhaseFailed {
		t.Errorf("it follows no longer although the job is %s", ended.Phase)
	}
	wantAttempts(t, output, 2, 50)
	contains(t, output, "worker-1", "line 50", "worker-1", "line 50")
	contains(t, notes, "was restarted")
}

// Who follows a job that has no pods is told what it waits for; who does not is
// told why there is nothing.
func TestLogsBeforeThereArePods(t *testing.T) {
	t.Parallel()
	trainJob := implementations[1].trainJob(2, speaking)
	trainJob.Spec.Suspend = new(true)
	job := submit(t, trainJob)
	job.until("the operator has seen it", time.Minute, func(progress training.Progress) bool { return progress.Phase != "" })
	_, words := odh(t, 3, job.namespace, "trainjob", "logs", "train")
	contains(t, words, "Error: trainjob/train has no pods yet", "Details: ", "uspend")
	running := follow(t, job.namespace, "trainjob", "logs", "train", "-f", "--prefix")
	running.stderr.waitFor(t, "Waiting for trainjob/train: ")
	job.change(setSuspend(false))
	output, _ := running.end()
	contains(t, output, "launcher | ", "I am ")
	if count := strings.Count(output, "I am "); count != 12 {
		t.Errorf("%d lines of 12:\n%s", count, output)
	}
}

// What fetches model and dataset is read like any other pod, before there are others.
func TestLogsOfInitializers(t *testing.T) {
	t.Parallel()
	api, namespace := newNamespace(t)
	serveStorage(t, api, namespace)
	trainJob := implementations[1].trainJob(2, speaking)
	trainJob.Spec.Initializer = &v2alpha1.Initializer{
		Dataset: from("s3://data/digits"), Model: from("hf://team/net"), Storage: &v2alpha1.InitializerStorage{Size: new(resource.MustParse("10Mi"))},
	}
	job := submitTo(t, api, namespace, trainJob)
	output, _ := follow(t, namespace, "trainjob", "logs", "train", "--all", "--initializer", "-f").end()
	job.succeeds()
	contains(t, output, "dataset ", "launcher | ", "I am ")
	contains(t, output, "model ", "launcher | ", "I am ")
	fetched, _ := odh(t, 0, namespace, "trainjob", "logs", "train", "--initializer", "-c", "model")
	if fetched == "" || strings.Contains(fetched, "I am") {
		t.Errorf("the initializer's log is %q", fetched)
	}
}

// Pods that were deleted with the job's end, and why.
func TestLogsOfPodsThatAreGone(t *testing.T) {
	t.Parallel()
	mpiJob := failFast(implementations[1].job(2, speaking))
	mpiJob.Spec.RunPolicy.CleanPodPolicy = new(training.CleanPodPolicyAll)
	job := submit(t, mpiJob)
	job.succeeds()
	eventually.Succeeds(t, "the pods are gone", func() error {
		if pods := job.pods(""); len(pods) > 0 {
			return fmt.Errorf("%d are there", len(pods))
		}
		return nil
	})
	_, words := odh(t, 3, job.namespace, "mpijob", "logs", "train")
	contains(t, words, "Error: the pods of mpijob/train were deleted", "Details: cleanPodPolicy is All")
	odh(t, 3, job.namespace, "mpijob", "logs", "train", "--follow")
	odh(t, 3, job.namespace, "mpijob", "logs", "nobody")
}

// Lines that are not tagged cannot be told apart, and it is said what to do.
func TestLogsOfARankWithoutTags(t *testing.T) {
	t.Parallel()
	job := submit(t, failFast(implementations[1].job(2, speaking)))
	job.succeeds()
	_, words := odh(t, 1, job.namespace, "mpijob", "logs", "train", "--rank", "0")
	contains(t, words, "Error: no line has a rank tag", "Suggestions:", training.AnnotationTagOutput)
}
