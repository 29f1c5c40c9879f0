// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/bench/report"
)

const (
	// simulatedNodes is enough for a job of 64 workers with a node of GPUs for each,
	// and for fifty small ones.
	simulatedNodes = 70
	// simulatedRun is how long a simulated launcher runs.
	simulatedRun = time.Second
)

// simulate makes the pods of a template simulated ones. Nothing runs in them.
func simulate(template corev1.PodTemplateSpec, run time.Duration) corev1.PodTemplateSpec {
	template.Spec.NodeSelector = map[string]string{"trireme.local/fake-node": "true"}
	template.Spec.Tolerations = []corev1.Toleration{{Key: "kwok.x-k8s.io/node", Operator: corev1.TolerationOpExists}}
	if run > 0 {
		template.Annotations = map[string]string{"trireme.local/simulated-run": run.String()}
	}
	return template
}

func simulatedRuntime() *v2alpha1.TrainingRuntime {
	return runtimeOf("simulated", simulate(podTemplate("launcher", nil, nil), simulatedRun), simulate(podTemplate("worker", nil, nil), 0))
}

// simulatedJob is a job of either kind, by its number.
func simulatedJob(name string, number int, workers int32) client.Object {
	if number%2 == 0 {
		return mpiJob(restricted, name, workers, simulate(podTemplate("launcher", nil, mpirun(workers)), simulatedRun), simulate(podTemplate("worker", nil, nil), 0))
	}
	trainJob := ourTrainJob(name, workers)
	trainJob.Spec.RuntimeRef.Name = "simulated"
	return trainJob
}

// simulated prepares the cluster for simulated jobs.
func (bench *bench) simulated(ctx context.Context) error {
	if err := bench.cluster.choose(ctx, trireme); err != nil {
		return err
	}
	if err := bench.cluster.simulateNodes(ctx, simulatedNodes); err != nil {
		return err
	}
	return bench.makeRuntime(ctx, simulatedRuntime())
}

// measureCrowds submits many jobs of both kinds at once.
func (bench *bench) measureCrowds(ctx context.Context) error {
	if err := bench.simulated(ctx); err != nil {
		return err
	}
	var submissions []float64
	for round := range bench.settings.rounds {
		for _, count := range []int{10, 20, 50} {
			took, err := bench.crowd(ctx, fmt.Sprintf("crowd-%d-%d", count, round), count)
			if err != nil {
				return err
			}
			submissions = append(submissions, took...)
		}
	}
	bench.goal(report.AtMost("submission of a job, 10, 20 and 50 at once, p90, s", percentile(submissions, 90), 10))
	return nil
}

// crowd returns how long each submission took.
func (bench *bench) crowd(ctx context.Context, name string, count int) ([]float64, error) {
	jobs := make([]client.Object, count)
	took := make([]float64, count)
	for i := range jobs {
		jobs[i] = simulatedJob(fmt.Sprintf("%s-%d", name, i), i, 2)
	}
	began := time.Now()
	err := inParallel(count, func(i int) error {
		before := time.Now()
		defer func() { took[i] = time.Since(before).Seconds() }()
		return bench.cluster.Create(ctx, jobs[i])
	})
	if err != nil {
		return nil, err
	}
	if err := bench.allSucceed(ctx, jobs); err != nil {
		return nil, err
	}
	var running time.Time
	for _, job := range jobs {
		running = later(running, bench.watcher.job(job.GetName()).running)
	}
	result := report.Result{Group: "jobs at once, simulated nodes", Case: fmt.Sprintf("%d jobs of 2 workers", count), Contestant: "Trireme", Unit: "s"}
	result.Measure = "submission, p90"
	bench.report.Add(result, percentile(took, 90))
	result.Measure = "first submission to all running"
	bench.report.Add(result, running.Sub(began).Seconds())
	progress("crowd  %2d jobs: submission p90 %.3f s, all run after %.3f s, load %s", count, percentile(took, 90), running.Sub(began).Seconds(), loadAverage())
	return took, bench.removeAll(ctx, jobs)
}

// measureSizes measures how soon all workers of one job have their places, and how
// soon it says that it runs.
func (bench *bench) measureSizes(ctx context.Context) error {
	if err := bench.simulated(ctx); err != nil {
		return err
	}
	slowest := 0.0
	for round := range bench.settings.rounds {
		for _, workers := range []int32{2, 4, 8, 16, 32, 64} {
			for kind := range 2 {
				placed, err := bench.size(ctx, fmt.Sprintf("size-%d-%d-%d", workers, kind, round), kind, workers)
				if err != nil {
					return err
				}
				if workers == 8 {
					slowest = max(slowest, placed)
				}
			}
		}
	}
	bench.goal(report.AtMost("gang of 8 workers on simulated nodes placed, both kinds, the slowest, s", slowest, 30))
	return nil
}

// size returns when the last worker had its place.
func (bench *bench) size(ctx context.Context, name string, kind int, workers int32) (float64, error) {
	job := simulatedJob(name, kind, workers)
	began := time.Now()
	if err := bench.cluster.Create(ctx, job); err != nil {
		return 0, err
	}
	if err := bench.allSucceed(ctx, []client.Object{job}); err != nil {
		return 0, err
	}
	_, pods := bench.watcher.podsOf(name)
	if len(pods) != int(workers) {
		return 0, fmt.Errorf("%s has %d workers", name, len(pods))
	}
	var placed time.Time
	for _, pod := range pods {
		placed = later(placed, pod.placed)
	}
	running := bench.watcher.job(name).running
	result := report.Result{Group: "one job, simulated nodes", Case: fmt.Sprintf("%d workers", workers), Contestant: []string{asMPIJob, asTrainJob}[kind], Unit: "s"}
	result.Measure = "submit to all workers placed"
	bench.report.Add(result, placed.Sub(began).Seconds())
	result.Measure = "submit to status Running"
	bench.report.Add(result, running.Sub(began).Seconds())
	progress("size   %2d workers, %-16s placed after %.3f s, runs after %.3f s, load %s", workers, result.Contestant, placed.Sub(began).Seconds(), running.Sub(began).Seconds(), loadAverage())
	return placed.Sub(began).Seconds(), bench.removeAll(ctx, []client.Object{job})
}

// allSucceed waits for the end of jobs.
func (bench *bench) allSucceed(ctx context.Context, jobs []client.Object) error {
	return until(ctx, "the jobs succeed", func() (bool, error) {
		for _, job := range jobs {
			seen := bench.watcher.job(job.GetName())
			if !seen.failed.IsZero() {
				return false, fmt.Errorf("%s has failed", job.GetName())
			}
			if seen.succeeded.IsZero() {
				return false, nil
			}
		}
		return true, nil
	})
}

// removeAll removes jobs of ours, and waits until all pods of the namespace are gone.
func (bench *bench) removeAll(ctx context.Context, jobs []client.Object) error {
	if err := inParallel(len(jobs), func(i int) error {
		return client.IgnoreNotFound(bench.cluster.Delete(ctx, jobs[i], client.PropagationPolicy(metav1.DeletePropagationBackground)))
	}); err != nil {
		return err
	}
	return until(ctx, "the pods are gone", func() (bool, error) {
		var pods corev1.PodList
		err := bench.cluster.List(ctx, &pods, client.InNamespace(restricted))
		return len(pods.Items) == 0, err
	})
}

// inParallel does something as often as asked, sixteen at a time.
func inParallel(count int, do func(i int) error) error {
	failures := make([]error, count)
	turns := make(chan struct{}, 16)
	var all sync.WaitGroup
	for i := range count {
		all.Go(func() {
			turns <- struct{}{}
			failures[i] = do(i)
			<-turns
		})
	}
	all.Wait()
	return errors.Join(failures...)
}
