// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/internal/operator"
)

const (
	// submitters are how many jobs are submitted at a time.
	submitters = 16
	// patience is how long a contestant may need for all pods.
	patience = 15 * time.Minute
	// warmUp is a job before the first that counts: leases are taken, caches filled,
	// webhooks known.
	warmUp        = "warm-up"
	warmUpWorkers = 2
)

// A load is jobs that are submitted together.
type load struct{ jobs, workers int }

func (load load) String() string { return fmt.Sprintf("%d x %d", load.jobs, load.workers) }

func (load load) pods() int { return load.jobs * (load.workers + 1) }

// An outcome is what one contestant needed for one load.
type outcome struct {
	submitted, allPods float64 // seconds
	requests           requests
	cpu, kubernetesCPU float64 // seconds
	peak               float64 // MiB
	jobBytes           int
}

// open starts a cluster with a contestant's controllers, which have had a job already.
func open(ctx context.Context, place place, contestant contestant) (*cluster, error) {
	running, err := startCluster(place, contestant)
	if err != nil {
		return nil, err
	}
	if err := running.begin(ctx, place, contestant); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", contestant.name, err), running.stop())
	}
	return running, nil
}

func (cluster *cluster) begin(ctx context.Context, place place, contestant contestant) error {
	if err := cluster.startManager(place); err != nil {
		return err
	}
	if err := contestant.start(ctx, place, cluster); err != nil {
		return err
	}
	if contestant.recorded == "" {
		if err := cluster.warm(ctx, contestant); err != nil {
			return err
		}
	}
	return cluster.untilManaged(ctx)
}

// untilManaged waits until kube-controller-manager has seen to a namespace, and to what
// else it does at its start.
func (cluster *cluster) untilManaged(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	err := poll(ctx, 200*time.Millisecond, func() error {
		_, err := cluster.clientset.CoreV1().ConfigMaps("default").Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		return err
	})
	if err != nil {
		return err
	}
	_, err = cluster.untilQuiet(ctx)
	return err
}

func (cluster *cluster) warm(ctx context.Context, contestant contestant) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := cluster.createNamespace(ctx, warmUp); err != nil {
		return err
	}
	pods, err := cluster.watchPods(ctx, warmUp)
	if err != nil {
		return err
	}
	defer pods.stop()
	// The API server learns of new webhooks a moment later, the operator of runtimes.
	err = poll(ctx, 200*time.Millisecond, func() error {
		job, err := contestant.kind.job(warmUp, warmUp, warmUpWorkers)
		if err != nil {
			return fatal{err}
		}
		return cluster.client.Create(ctx, job)
	})
	if err != nil {
		return fmt.Errorf("the first job: %w", err)
	}
	if _, err = pods.until(ctx, warmUpWorkers+1); err != nil {
		return fmt.Errorf("the first job: %w", err)
	}
	return nil
}

// createManifest creates an object that a webhook of a moment ago judges.
func (cluster *cluster) createManifest(ctx context.Context, manifest string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return poll(ctx, 200*time.Millisecond, func() error {
		object, err := parse(manifest)
		if err != nil {
			return fatal{err}
		}
		return cluster.client.Create(ctx, object)
	})
}

// measure submits a load in a namespace of its own, and waits until every pod is
// there and the controllers have come to rest.
func (cluster *cluster) measure(ctx context.Context, contestant contestant, load load, recorded recording) (outcome, error) {
	namespace := fmt.Sprintf("load-%d-%d", load.jobs, load.workers)
	if err := cluster.createNamespace(ctx, namespace); err != nil {
		return outcome{}, err
	}
	submissions, err := cluster.prepare(contestant, namespace, load, recorded)
	if err != nil {
		return outcome{}, err
	}
	pods, err := cluster.watchPods(ctx, namespace)
	if err != nil {
		return outcome{}, err
	}
	defer pods.stop()
	// All is at rest since the load before, or since the first job.
	requestsBefore, err := cluster.contestantRequests(ctx)
	if err != nil {
		return outcome{}, err
	}
	usedBefore, err := cluster.usage()
	if err != nil {
		return outcome{}, err
	}
	kubernetesBefore, err := cluster.kubernetesCPU()
	if err != nil {
		return outcome{}, err
	}
	var result outcome
	if result.submitted, result.allPods, err = submit(ctx, submissions, pods, load.pods()); err != nil {
		return outcome{}, err
	}
	// Until the last pod: to ask whether there is rest is work, too.
	kubernetes, err := cluster.kubernetesCPU()
	if err != nil {
		return outcome{}, err
	}
	result.kubernetesCPU = kubernetes - kubernetesBefore
	requestsAfter, err := cluster.untilQuiet(ctx)
	if err != nil {
		return outcome{}, err
	}
	used, err := cluster.usage()
	if err != nil {
		return outcome{}, err
	}
	result.requests, result.cpu, result.peak = requestsAfter.minus(requestsBefore), used.cpu-usedBefore.cpu, used.peak
	result.jobBytes, err = cluster.sizeOf(ctx, contestant, namespace)
	return result, err
}

// submit runs the submissions, a few at a time, and tells after how many seconds the
// last was taken, and the last pod there.
func submit(ctx context.Context, submissions []func(context.Context) error, pods *podCount, want int) (submitted, allPods float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	start := time.Now()
	group, groupContext := errgroup.WithContext(ctx)
	group.SetLimit(submitters)
	sent := make(chan error, 1)
	go func() {
		for _, submission := range submissions {
			group.Go(func() error { return submission(groupContext) })
		}
		err := group.Wait()
		submitted = time.Since(start).Seconds()
		if err != nil {
			cancel()
		}
		sent <- err
	}()
	end, err := pods.until(ctx, want)
	return submitted, end.Sub(start).Seconds(), errors.Join(<-sent, err)
}

// prepare makes what is submitted before the clock runs. A bare client goes on with
// what a controller would make of the job.
func (cluster *cluster) prepare(contestant contestant, namespace string, load load, recorded recording) ([]func(context.Context) error, error) {
	bare, err := cluster.bare()
	if err != nil {
		return nil, err
	}
	var submissions []func(context.Context) error
	for i := range load.jobs {
		name := jobName(i)
		job, err := contestant.kind.job(namespace, name, load.workers)
		if err != nil {
			return nil, err
		}
		if contestant.recorded == "" {
			submissions = append(submissions, func(ctx context.Context) error { return cluster.client.Create(ctx, job) })
			continue
		}
		objects, err := recorded.copy(namespace, name)
		if err != nil {
			return nil, err
		}
		submissions = append(submissions, func(ctx context.Context) error {
			if err := cluster.client.Create(ctx, job); err != nil {
				return err
			}
			return objects.create(ctx, bare, job.GetUID())
		})
	}
	return submissions, nil
}

// bare is a client whose requests are the contestant's, and not the benchmark's own.
func (cluster *cluster) bare() (client.Client, error) {
	return client.New(unlimited(cluster.environment.Config), client.Options{Scheme: operator.Scheme()})
}

// jobName is as long as the name that recordings are made under.
func jobName(index int) string { return fmt.Sprintf("job-%08d", index) }

// sizeOf is how many bytes the first job has in the end, with its status.
func (cluster *cluster) sizeOf(ctx context.Context, contestant contestant, namespace string) (int, error) {
	job, err := contestant.kind.job(namespace, jobName(0), 1)
	if err != nil {
		return 0, err
	}
	found := &unstructured.Unstructured{}
	found.SetGroupVersionKind(job.GroupVersionKind())
	if err := cluster.client.Get(ctx, client.ObjectKeyFromObject(job), found); err != nil {
		return 0, err
	}
	found.SetManagedFields(nil)
	text, err := json.Marshal(found)
	return len(text), err
}

func progress(format string, values ...any) {
	fmt.Fprintf(os.Stderr, time.Now().Format(time.TimeOnly)+" "+format+"\n", values...)
}
