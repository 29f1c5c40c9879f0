// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/bench/report"
)

//go:embed horovod.py
var horovodProgram string

const horovodGroup = "training with Keras and Horovod, real pods, a core a rank"

// measureHorovod trains with one and with two ranks. An MPIJob has at least two
// workers, so one of them has nothing to do when there is one rank.
func (bench *bench) measureHorovod(ctx context.Context) error {
	// Its image takes long to compile: only who asks for this part waits for it.
	if _, err := shell(ctx, "bin/cluster image mpi horovod"); err != nil {
		return err
	}
	if err := bench.cluster.choose(ctx, trireme); err != nil {
		return err
	}
	for round := range bench.settings.rounds {
		for _, ranks := range []int{1, 2} {
			if err := bench.trainHorovod(ctx, fmt.Sprintf("horovod-%d-%d", ranks, round), ranks); err != nil {
				return err
			}
		}
	}
	return nil
}

func (bench *bench) trainHorovod(ctx context.Context, name string, ranks int) error {
	job := []client.Object{horovodJob(name, ranks)}
	if err := bench.cluster.Create(ctx, job[0]); err != nil {
		return err
	}
	if err := bench.allSucceed(ctx, job); err != nil {
		return fmt.Errorf("%w\n%s", err, bench.launcherLog(ctx, restricted, name))
	}
	speed, err := readHorovod(bench.launcherLog(ctx, restricted, name))
	if err != nil {
		return err
	}
	progress("horovod, %d ranks: %.0f samples/s, load %s", ranks, speed, loadAverage())
	bench.report.Add(report.Result{Group: horovodGroup, Case: fmt.Sprintf("%d ranks", ranks), Contestant: asMPIJob, Measure: "speed", Unit: "samples/s"}, speed)
	return bench.removeAll(ctx, job)
}

func horovodJob(name string, ranks int) *v2beta1.MPIJob {
	mpiJob := ourMPIJob(name, 2)
	launcher := &mpiJob.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeLauncher].Template.Spec.Containers[0]
	worker := &mpiJob.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeWorker].Template.Spec.Containers[0]
	launcher.Image, worker.Image = "trireme.local/horovod:0.28.1", "trireme.local/horovod:0.28.1"
	launcher.Command = []string{"mpirun", "-np", fmt.Sprint(ranks), "--bind-to", "none", "python3", "-c", horovodProgram}
	worker.Env = []corev1.EnvVar{{Name: "OMP_NUM_THREADS", Value: "1"}, {Name: "OMPI_MCA_mpi_yield_when_idle", Value: "1"}}
	// Whoever asks for a larger part of the machine gets it, also while others are busy.
	worker.Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("300m"), "memory": resource.MustParse("512Mi")}
	return mpiJob
}

// readHorovod reads samples a second.
func readHorovod(log string) (speed float64, err error) {
	for line := range strings.Lines(log) {
		if _, err := fmt.Sscanf(line, "horovod %g", &speed); err == nil {
			return speed, nil
		}
	}
	return 0, fmt.Errorf("the training does not say how fast it was:\n%s", log)
}
