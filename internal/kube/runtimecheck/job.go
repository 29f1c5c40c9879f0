// SPDX-License-Identifier: Apache-2.0

// Package runtimecheck tests the runtimes of TrainJobs, for the command line and the
// server: it validates a document, and makes and follows a small job that uses a runtime.
package runtimecheck

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

const (
	// Workers of a test job.
	Workers = 2
	// AnswerPrefix is the start of the line that each rank prints.
	AnswerPrefix = "odh-runtime-test rank "
	// script needs only a shell in the image, and runs as any user. The variables are those
	// of Open MPI, Hydra and PMIx. It sleeps because Open MPI 5 may hang if processes exit at
	// once.
	script = `echo "` + AnswerPrefix + `${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-${PMIX_RANK:-?}}} of worker ${MPIJOB_WORKER_INDEX:-?}"; sleep 1`
)

// Trial is the test of a runtime: a job of two workers in which every rank prints a line.
type Trial struct {
	Runtime v2alpha1.RuntimeRef
	// Image of the launcher and the workers; empty takes that of the runtime.
	Image string
	// CPU and Memory of each pod replace the runtime's resources, if one of them is set.
	CPU, Memory string
	Timeout     time.Duration
	// Keep the job after the test.
	Keep bool
}

// QuantityError is a value of CPU or Memory that is not a quantity.
type QuantityError struct {
	// Field is cpu or memory.
	Field, Value string
	Cause        error
}

func (e *QuantityError) Error() string {
	return fmt.Sprintf("%q is not a valid quantity: %v", e.Value, e.Cause)
}

func (e *QuantityError) Unwrap() error { return e.Cause }

// Validate returns a QuantityError if CPU or Memory is not a quantity.
func (t *Trial) Validate() error {
	for _, each := range []struct{ field, value string }{{"cpu", t.CPU}, {"memory", t.Memory}} {
		if _, err := job.ParseQuantity(each.value); each.value != "" && err != nil {
			return &QuantityError{each.field, each.value, err}
		}
	}
	return nil
}

// ErrNoImage is returned if neither the runtime nor the test has an image.
var ErrNoImage = errors.New("the runtime has no image")

// Job returns the job of a valid test. Its deadline and TTL delete it even if the program
// that created it is killed.
func (t *Trial) Job(namespace string, runtime *v2alpha1.TrainingRuntimeSpec) (*v2alpha1.TrainJob, error) {
	image := cmp.Or(t.Image, ImageOf(runtime))
	if image == "" {
		return nil, ErrNoImage
	}
	trainJob := &v2alpha1.TrainJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "runtime-test-"},
		Spec: v2alpha1.TrainJobSpec{
			RuntimeRef: t.Runtime,
			Trainer:    v2alpha1.Trainer{Image: image, NumNodes: new(int32(Workers)), Command: []string{"sh", "-c", script}},
		},
	}
	if !t.Keep {
		trainJob.Spec.ActiveDeadlineSeconds = new(int64(t.Timeout/time.Second) + 60)
		trainJob.Spec.TTLSecondsAfterFinished = new(int32(600))
	}
	requests := corev1.ResourceList{}
	for name, quantity := range map[corev1.ResourceName]string{corev1.ResourceCPU: t.CPU, corev1.ResourceMemory: t.Memory} {
		if quantity != "" {
			requests[name] = resource.MustParse(quantity)
		}
	}
	if len(requests) > 0 {
		trainJob.Spec.Trainer.ResourcesPerNode = &corev1.ResourceRequirements{Requests: requests}
		trainJob.Spec.Launcher = &v2alpha1.Launcher{Resources: &corev1.ResourceRequirements{Requests: requests.DeepCopy()}}
	}
	return trainJob, nil
}

// IsTrial tells whether a job is the test of a runtime.
func IsTrial(trainJob *v2alpha1.TrainJob) bool {
	return slices.Equal(trainJob.Spec.Trainer.Command, []string{"sh", "-c", script})
}

// ImageOf returns the image of a runtime's workers.
func ImageOf(spec *v2alpha1.TrainingRuntimeSpec) string {
	for _, replicated := range spec.Template.Spec.ReplicatedJobs {
		if containers := replicated.Template.Spec.Containers; replicated.Name == v2alpha1.ReplicatedJobWorker && len(containers) > 0 {
			return containers[0].Image
		}
	}
	return ""
}

// Answers collects the ranks that have printed their line.
type Answers map[string]bool

// Read reads a line of the launcher's log.
func (a Answers) Read(line string) {
	if _, rest, found := strings.Cut(line, AnswerPrefix); found {
		rank, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
		a[rank] = true
	}
}
