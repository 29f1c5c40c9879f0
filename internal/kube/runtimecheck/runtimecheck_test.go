// SPDX-License-Identifier: Apache-2.0

package runtimecheck

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
)

var submitted = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

func after(seconds int) metav1.Time {
	return metav1.NewTime(submitted.Add(time.Duration(seconds) * time.Second))
}

func TestSteps(t *testing.T) {
	pod := func(state corev1.ContainerState) corev1.Pod {
		return corev1.Pod{
			Spec:   corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}},
			Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "main", State: state}}},
		}
	}
	running := func(seconds int) corev1.Pod {
		return pod(corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: after(seconds)}})
	}
	ended := pod(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{StartedAt: after(20)}})
	entry := func(step training.TimelineStep, seconds int) training.TimelineEntry {
		return training.TimelineEntry{Step: step, Time: after(seconds)}
	}
	scheduled := []training.TimelineEntry{entry(training.StepSubmitted, 0), entry(training.StepScheduled, 2)}
	reached := append(scheduled[:2:2], entry(training.StepPodsReady, 10), entry(training.StepWorkersReached, 12))
	whole := append(reached[:4:4], entry(training.StepFirstRankUp, 13), entry(training.StepFinished, 14))
	for name, test := range map[string]struct {
		timeline []training.TimelineEntry
		phase    training.Phase
		pods     []corev1.Pod
		answered int
		logError string
		final    bool
		want     string
	}{
		"just submitted":               {want: "ok 0s, not reached, not reached, not reached, not reached, not reached"},
		"scheduled":                    {timeline: scheduled, want: "ok 0s, ok 2s, not reached, not reached, not reached, not reached"},
		"some pods have started":       {timeline: scheduled, pods: []corev1.Pod{ended, running(15), pod(corev1.ContainerState{})}, want: "ok 0s, ok 2s, not reached, not reached, not reached, not reached"},
		"all pods have started":        {timeline: scheduled, pods: []corev1.Pod{ended, running(15), running(10)}, want: "ok 0s, ok 2s, ok 20s, not reached, not reached, not reached"},
		"a pod is missing":             {timeline: scheduled, pods: []corev1.Pod{ended, running(15)}, want: "ok 0s, ok 2s, not reached, not reached, not reached, not reached"},
		"workers were reached":         {timeline: reached, want: "ok 0s, ok 2s, ok 10s, ok 12s, not reached, not reached"},
		"workers could not be reached": {timeline: scheduled, phase: training.PhaseFailed, final: true, want: "ok 0s, ok 2s, fail, not reached, not reached, not reached"},
		"MPI did not start":            {timeline: reached, phase: training.PhaseFailed, final: true, want: "ok 0s, ok 2s, ok 10s, ok 12s, fail, not reached"},
		"every rank answered":          {timeline: whole, phase: training.PhaseSucceeded, answered: 8, final: true, want: "ok 0s, ok 2s, ok 10s, ok 12s, ok 13s, ok 14s, works"},
		"a rank did not answer":        {timeline: whole, phase: training.PhaseSucceeded, answered: 7, final: true, want: "ok 0s, ok 2s, ok 10s, ok 12s, ok 13s, fail (The job succeeded, but not every rank printed its line.)"},
		"no log":                       {timeline: whole, phase: training.PhaseSucceeded, logError: "forbidden", final: true, want: "ok 0s, ok 2s, ok 10s, ok 12s, ok 13s, not known (The job succeeded, but the output of its ranks cannot be read: forbidden), works"},
	} {
		t.Run(name, func(t *testing.T) {
			job := &v2alpha1.TrainJob{ObjectMeta: metav1.ObjectMeta{Name: "try", CreationTimestamp: after(0)}}
			job.Status.Timeline, job.Status.Phase = test.timeline, test.phase
			state := State{Job: jobview.Of(job), Pods: test.pods, Answered: test.answered, Ranks: 8, LogError: test.logError}
			steps := state.Steps(test.final)
			var got []string
			for _, step := range steps {
				text := strings.TrimSpace(step.Result + " " + step.After)
				if step.Message != "" && test.phase == training.PhaseSucceeded {
					text += " (" + step.Message + ")"
				}
				got = append(got, text)
			}
			if Works(steps) {
				got = append(got, "works")
			}
			if diff := cmp.Diff(test.want, strings.Join(got, ", ")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnswers(t *testing.T) {
	answers := Answers{}
	for _, line := range []string{"warning: something", AnswerPrefix + "0 of worker 0", "[1,1]<stdout>: " + AnswerPrefix + "1 of worker 0\r", AnswerPrefix + "1 of worker 1", "bye"} {
		answers.Read(line)
	}
	if diff := cmp.Diff(Answers{"0": true, "1": true}, answers); diff != "" {
		t.Error(diff)
	}
}

func runtimeWith(image string) *v2alpha1.TrainingRuntimeSpec {
	worker := v2alpha1.ReplicatedJob{Name: v2alpha1.ReplicatedJobWorker, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: image}}}}}
	return &v2alpha1.TrainingRuntimeSpec{Template: v2alpha1.RuntimeTemplate{Spec: v2alpha1.RuntimeTemplateSpec{ReplicatedJobs: []v2alpha1.ReplicatedJob{worker}}}}
}

func TestJob(t *testing.T) {
	trial := Trial{Runtime: v2alpha1.RuntimeRef{Kind: v2alpha1.RuntimeKindCluster, Name: "r"}, Timeout: 2 * time.Minute}
	made, err := trial.Job("team", runtimeWith("x:1"))
	if err != nil {
		t.Fatal(err)
	}
	if made.Spec.Trainer.ResourcesPerNode != nil || *made.Spec.Trainer.NumNodes != 2 || *made.Spec.ActiveDeadlineSeconds != 180 || *made.Spec.TTLSecondsAfterFinished != 600 || made.Namespace != "team" || made.Spec.Trainer.Image != "x:1" || made.Spec.RuntimeRef.Name != "r" {
		t.Errorf("%+v", made.Spec)
	}
	if !IsTrial(made) || IsTrial(&v2alpha1.TrainJob{}) {
		t.Error("the job of a test is not told from others")
	}
	trial.CPU, trial.Keep, trial.Image = "50m", true, "y:2"
	kept, err := trial.Job("team", runtimeWith(""))
	if err != nil {
		t.Fatal(err)
	}
	if cpu := kept.Spec.Trainer.ResourcesPerNode.Requests[corev1.ResourceCPU]; cpu.String() != "50m" || kept.Spec.TTLSecondsAfterFinished != nil || kept.Spec.ActiveDeadlineSeconds != nil || kept.Spec.Launcher == nil || kept.Spec.Trainer.Image != "y:2" {
		t.Errorf("%+v", kept.Spec)
	}
	if _, err := (&Trial{}).Job("team", runtimeWith("")); !errors.Is(err, ErrNoImage) {
		t.Errorf("a job without an image: %v", err)
	}
}

func TestValidate(t *testing.T) {
	for name, test := range map[string]struct {
		trial Trial
		want  string
	}{
		"nothing": {Trial{}, ""}, "both": {Trial{CPU: "100m", Memory: "1Gi"}, ""}, "wrong CPU": {Trial{CPU: "many"}, "cpu"}, "wrong memory": {Trial{Memory: "1 GB"}, "memory"},
	} {
		got := ""
		if wrong, is := errors.AsType[*QuantityError](test.trial.Validate()); is {
			got = wrong.Field
		}
		if got != test.want {
			t.Errorf("%s: %q is wrong, want %q", name, got, test.want)
		}
	}
}

func TestDocument(t *testing.T) {
	const head = `{"apiVersion":"kubeflow.org/v2alpha1","kind":"ClusterTrainingRuntime","metadata":{"name":"mpi"},"spec":`
	for name, test := range map[string]struct{ document, want string }{
		"another kind":     {`{"apiVersion":"v1","kind":"Pod"}`, "kind"},
		"an unknown field": {head + `{"mpi":1}}`, "spec.mpi"},
		"a wrong type":     {head + `3}`, ""},
		"a wrong value":    {head + `{"mlPolicy":{"mpiImplementation":"Other"}}}`, "spec.mlPolicy.mpiImplementation"},
	} {
		found := Document([]byte(test.document))
		var fields []string
		for _, fault := range found.Errors {
			fields = append(fields, fault.Field)
		}
		if !cmp.Equal(fields[:1], []string{test.want}) && !strings.Contains(strings.Join(fields, " "), test.want) {
			t.Errorf("%s: errors of %q, want %q", name, fields, test.want)
		}
	}
}
