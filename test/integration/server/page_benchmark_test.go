// SPDX-License-Identifier: Apache-2.0

//go:build web

package server

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/testing/player"
)

const (
	pageNamespaces = 20
	pageJobs       = 5000
)

// BenchmarkPage measures the dashboard with 5,000 jobs of both kinds in 20 namespaces, in a
// browser: the time until the list is painted, until a change is, and the heap of the tab after
// 10,000 changes. Goals: 2 s, 1 s, and a heap that does not grow. `make bench-web` runs it.
func BenchmarkPage(b *testing.B) {
	cluster := startCluster(b)
	token := cluster.administrator(b)
	namespaces := make([]string, pageNamespaces)
	for i := range namespaces {
		namespaces[i] = fmt.Sprintf("bench-%02d", i)
		if err := cluster.client.Create(b.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespaces[i]}}); err != nil {
			b.Fatal(err)
		}
	}
	cluster.fillPage(b, namespaces)
	server := cluster.startPageServer(b)
	for b.Loop() {
		output := cluster.browse(b, server, "bench", "TOKEN="+token, "API="+strings.TrimSuffix(cluster.environment.Config.Host, "/"), fmt.Sprintf("JOBS=%d", pageJobs))
		b.Log(output)
		lines := strings.Split(strings.TrimSpace(output), "\n")
		var measured map[string]float64
		if err := json.Unmarshal([]byte(lines[len(lines)-1]), &measured); err != nil {
			b.Fatalf("%v\n%s", err, output)
		}
		for unit, value := range measured {
			b.ReportMetric(value, unit)
		}
	}
}

// fillPage creates as many TrainJobs as MPIJobs, named job-0000 and so on, which run.
func (cluster *cluster) fillPage(b *testing.B, namespaces []string) {
	b.Helper()
	var creations errgroup.Group
	creations.SetLimit(32)
	for i := range pageJobs {
		creations.Go(func() error {
			namespace, name := namespaces[i%len(namespaces)], fmt.Sprintf("job-%04d", i)
			progress := training.Progress{Phase: training.PhaseRunning, ReadyWorkers: "2/2", ReadyWorkerCount: 2, WorkerCount: 2}
			if i/len(namespaces)%2 == 0 {
				job := player.TrainJob(namespace, name)
				if err := cluster.client.Create(b.Context(), job); err != nil {
					return err
				}
				job.Status = v2alpha1.TrainJobStatus{StartTime: new(metav1.Now()), Progress: progress}
				return cluster.client.Status().Update(b.Context(), job)
			}
			job := player.MPIJob(name, func(job *v2beta1.MPIJob) { job.Namespace = namespace })
			if err := cluster.client.Create(b.Context(), job); err != nil {
				return err
			}
			job.Status.StartTime, job.Status.Progress = new(metav1.Now()), progress
			return cluster.client.Status().Update(b.Context(), job)
		})
	}
	if err := creations.Wait(); err != nil {
		b.Fatal(err)
	}
}
