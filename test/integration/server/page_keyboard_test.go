// SPDX-License-Identifier: Apache-2.0

//go:build web

package server

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/internal/testing/player"
)

// All pages of the dashboard can be used without a mouse, and at 200 % zoom.
func TestPageWithoutAMouse(t *testing.T) {
	cluster := startCluster(t)
	const namespace = "team-ada"
	runtime := &v2alpha1.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "mine"}, Spec: player.RuntimeSpec()}
	for _, object := range []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, runtime} {
		if err := cluster.client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	for name, phase := range map[string]training.Phase{"train": training.PhaseRunning, "failed": training.PhaseFailed} {
		job := player.TrainJob(namespace, name)
		if err := cluster.client.Create(t.Context(), job); err != nil {
			t.Fatal(err)
		}
		job.Status = v2alpha1.TrainJobStatus{StartTime: new(metav1.Now()), Progress: training.Progress{
			Phase: phase, ReadyWorkers: "2/2", ReadyWorkerCount: 2, WorkerCount: 2,
			LauncherPodStatus: &training.PodStatus{Name: name + "-launcher", Node: "node-1", Phase: string(phase)},
		}}
		if phase == training.PhaseFailed {
			job.Status.FailureReason, job.Status.FailureMessage = training.FailureLauncher, "The launcher failed with exit code 1"
		}
		if err := cluster.client.Status().Update(t.Context(), job); err != nil {
			t.Fatal(err)
		}
	}
	cluster.browse(t, cluster.startPageServer(t), "test-keyboard", "TOKEN="+cluster.administrator(t), "NAMESPACE="+namespace)
}
