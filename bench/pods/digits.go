// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/bench/report"
)

//go:embed digits.py
var digitsProgram string

const (
	digitsGroup = "training of the digits, real pods, two cores for all ranks"
	digitsSpeed = "speed"
	digitsShare = "MPI's share of a step"
)

// measureDigits trains the demonstration's network on 1, 2 and 4 workers.
func (bench *bench) measureDigits(ctx context.Context) error {
	if err := bench.cluster.choose(ctx, trireme); err != nil {
		return err
	}
	program, err := os.ReadFile(repository + "/demo/train.py")
	if err != nil {
		return err
	}
	if err := bench.cluster.make(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: restricted, Name: "digits"},
		Data: map[string]string{"train.py": string(program), "digits.py": digitsProgram}}); err != nil {
		return err
	}
	if err := bench.makeRuntime(ctx, openMPIRuntime()); err != nil {
		return err
	}
	for round := range bench.settings.rounds {
		for _, lesson := range lessons {
			if err := bench.trainDigits(ctx, fmt.Sprintf("digits-%d-%d-%d", lesson.batch, lesson.workers, round), lesson); err != nil {
				return err
			}
		}
	}
	bench.judgeDigits()
	return nil
}

// lesson is a training on so many workers, with so many digits in a batch of all of them.
type lesson struct{ workers, batch int }

// Batches: the demonstration's is small, and MPI is called often. The other one is
// all digits: one message an epoch.
const (
	smallBatch = 128
	largeBatch = 1437
)

var lessons = []lesson{{1, smallBatch}, {2, smallBatch}, {4, smallBatch}, {1, largeBatch}, {2, largeBatch}, {4, largeBatch}}

func (lesson lesson) String() string {
	return fmt.Sprintf("%d workers, batch of %d", lesson.workers, lesson.batch)
}

func (bench *bench) trainDigits(ctx context.Context, name string, lesson lesson) error {
	trainJob := digitsJob(name, lesson)
	if err := bench.cluster.Create(ctx, trainJob); err != nil {
		return err
	}
	if err := bench.allSucceed(ctx, []client.Object{trainJob}); err != nil {
		return fmt.Errorf("%w\n%s", err, bench.launcherLog(ctx, restricted, name))
	}
	speed, share, err := readDigits(bench.launcherLog(ctx, restricted, name))
	if err != nil {
		return err
	}
	progress("digits %s: %.0f samples/s, MPI %.1f %% of a step, load %s", lesson, speed, 100*share, loadAverage())
	result := report.Result{Group: digitsGroup, Case: lesson.String(), Contestant: asTrainJob, Measure: digitsSpeed, Unit: "samples/s"}
	bench.report.Add(result, speed)
	result.Measure, result.Unit = digitsShare, "%"
	bench.report.Add(result, 100*share)
	return bench.removeAll(ctx, []client.Object{trainJob})
}

func digitsJob(name string, lesson lesson) *v2alpha1.TrainJob {
	trainJob := ourTrainJob(name, int32(lesson.workers))
	trainer := &trainJob.Spec.Trainer
	trainer.Image = "trireme.local/digits:1"
	trainer.Command = []string{"mpirun", "-np", fmt.Sprint(lesson.workers), "--bind-to", "none", "python3", "-m", "mpi4py", "/bench/digits.py"}
	trainer.Env = []corev1.EnvVar{{Name: "OMP_NUM_THREADS", Value: "1"}, {Name: "OMPI_MCA_mpi_yield_when_idle", Value: "1"}, {Name: "BATCH", Value: fmt.Sprint(lesson.batch)}}
	// Whoever asks for a larger part of the machine gets it, also while others are busy.
	trainer.ResourcesPerNode.Requests = corev1.ResourceList{"cpu": resource.MustParse("300m"), "memory": resource.MustParse("128Mi")}
	trainer.Volumes = []corev1.Volume{{Name: "script", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "digits"}}}}}
	trainer.VolumeMounts = []corev1.VolumeMount{{Name: "script", MountPath: "/bench", ReadOnly: true}}
	return trainJob
}

// readDigits reads samples a second and MPI's share.
func readDigits(log string) (speed, share float64, err error) {
	for line := range strings.Lines(log) {
		if words := strings.Fields(line); len(words) == 3 && words[0] == "digits" {
			if speed, err = strconv.ParseFloat(words[1], 64); err != nil {
				return 0, 0, err
			}
			share, err = strconv.ParseFloat(words[2], 64)
			return speed, share, err
		}
	}
	return 0, 0, fmt.Errorf("the training does not say how fast it was:\n%s", log)
}

// judgeDigits: there are two cores, so two workers are the most that can scale.
func (bench *bench) judgeDigits() {
	median := func(lesson lesson, measure string) float64 {
		result, _ := bench.report.Find(digitsGroup, lesson.String(), asTrainJob, measure)
		return result.Median()
	}
	for _, lesson := range lessons {
		if lesson.workers == 1 {
			continue
		}
		alone := lesson
		alone.workers = 1
		efficiency := 100 * median(lesson, digitsSpeed) / median(alone, digitsSpeed) / float64(lesson.workers)
		bench.report.Add(report.Result{Group: digitsGroup, Case: lesson.String(), Contestant: asTrainJob, Measure: "scaling efficiency", Unit: "%"}, efficiency)
		if lesson.workers == 2 {
			bench.goal(report.AtLeast("scaling efficiency of the digits on two cores, "+lesson.String()+", %", efficiency, 90))
			bench.goal(report.AtMost("MPI's share of a step of the digits on two cores, "+lesson.String()+", %", median(lesson, digitsShare), 15))
		}
	}
}
