// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

// examplesFolder is where mpi-operator's module has its examples.
var examplesFolder = sync.OnceValues(func() (string, error) {
	folder, err := shell("go list -m -f '{{.Dir}}' github.com/kubeflow/mpi-operator")
	return filepath.Join(strings.TrimSpace(folder), "examples/v2beta1"), err
})

// piProgram is what mpi-operator's example computes, in the language that the local
// images have.
const piProgram = `
from mpi4py import MPI
world = MPI.COMM_WORLD
steps = 100000
part = sum(4 / (1 + ((i + 0.5) / steps) ** 2) for i in range(world.rank, steps, world.size)) / steps
total = world.reduce(part)
if world.rank == 0:
    print(f"{world.size} workers, pi is approximately {total:.4f}", flush=True)
`

const piLine = "2 workers, pi is approximately 3.1416"

// piExample is an example of mpi-operator's, with a local image and a program that it
// has. Its sshd is started in the same way, with settings that mpi-operator's image
// has built in and this one gets from a ConfigMap.
func piExample(t *testing.T, file, image, program string) *v2beta1.MPIJob {
	t.Helper()
	folder, err := examplesFolder()
	if err != nil {
		t.Fatal(err)
	}
	content, err := shell("cat " + filepath.Join(folder, file))
	if err != nil {
		t.Fatal(err)
	}
	var mpiJob v2beta1.MPIJob
	if err := yaml.UnmarshalStrict([]byte(content), &mpiJob); err != nil {
		t.Fatal(err)
	}
	// A failure is not tried again, and a job is there until it was looked at.
	mpiJob.Spec.RunPolicy.TTLSecondsAfterFinished = nil
	failFast(&mpiJob)
	for role, replica := range mpiJob.Spec.MPIReplicaSpecs {
		pod := &replica.Template.Spec
		prepare(pod, preparedImages["user 1000"].user)
		container := &pod.Containers[0]
		container.Image, container.ImagePullPolicy = image, corev1.PullIfNotPresent
		container.Resources = corev1.ResourceRequirements{Requests: small()}
		if role == v2beta1.MPIReplicaTypeWorker {
			settings := len(container.Args) - 1
			if container.Args[settings] != "/home/mpiuser/.sshd_config" {
				t.Fatalf("the worker is started with %q", container.Args)
			}
			container.Args[settings] = "/etc/prepared/sshd_user"
			continue
		}
		programAt := len(container.Args) - 1
		if container.Args[programAt] != "/home/mpiuser/pi" {
			t.Fatalf("the launcher is started with %q", container.Args)
		}
		container.Args = append(container.Args[:programAt], "python3", "-c", program)
	}
	return &mpiJob
}

// sshdNamespace is one that images with an sshd of their own can run in.
func sshdNamespace(t *testing.T) (client.WithWatch, string) {
	t.Helper()
	api, namespace := newNamespaceOf(t, "privileged")
	if err := api.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "prepared"}, Data: maps.Clone(prepared)}); err != nil {
		t.Fatal(err)
	}
	return api, namespace
}

// migrated replaces an MPIJob of the cluster by what it becomes.
func migrated(t *testing.T, mpiJob *theJob) *theJob {
	t.Helper()
	name := mpiJob.object.GetName()
	status, _ := odh(t, 0, mpiJob.namespace, "migrate", "status")
	contains(t, status, name, "new runtime")
	objects, report := odh(t, 0, mpiJob.namespace, "migrate", "--from-cluster", name, "--check")
	contains(t, report, "becomes TrainJob "+name, "only starts an sshd")
	manifest := filepath.Join(t.TempDir(), "trainjob.yaml")
	if err := os.WriteFile(manifest, []byte(objects), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := mpiJob.client.Delete(t.Context(), mpiJob.object, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
		t.Fatal(err)
	}
	eventually.Succeeds(t, "the MPIJob is gone", func() error {
		err := mpiJob.client.Get(t.Context(), client.ObjectKeyFromObject(mpiJob.object), &v2beta1.MPIJob{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there: %w", err)
	})
	kubectl(t, "create --validate=strict -f "+manifest)
	trainJob := &v2alpha1.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: mpiJob.namespace, Name: name}}
	return &theJob{t: t, client: mpiJob.client, namespace: mpiJob.namespace, object: trainJob}
}

// mpi-operator's examples run as they are, with an sshd in the image, and as what
// they become, without.
func TestMigratedJobsRun(t *testing.T) {
	t.Parallel()
	for name, example := range map[string]struct{ file, image string }{
		"Open MPI 4": {"pi/pi.yaml", testImage("openmpi:4")},
		"Open MPI 5": {"pi/pi.yaml", testImage("openmpi:5")},
		"Intel MPI":  {"pi/pi-intel.yaml", testImage("intelmpi:2021")},
		"MPICH":      {"pi/pi-mpich.yaml", testImage("mpich:4")},
	} {
		t.Run(name, func(t *testing.T) {
			api, namespace := sshdNamespace(t)
			before := submitTo(t, api, namespace, piExample(t, example.file, example.image, piProgram))
			before.succeeds()
			if log := before.log(); !strings.Contains(log, piLine) {
				t.Errorf("the MPIJob says:\n%s", log)
			}
			after := migrated(t, before)
			after.succeeds()
			if log := after.log(); !strings.Contains(log, piLine) {
				t.Errorf("the TrainJob says:\n%s", log)
			}
		})
	}
}

// A job that fails does so for the same reason as either kind.
func TestMigratedJobsFail(t *testing.T) {
	t.Parallel()
	const program = "import sys\nfrom mpi4py import MPI\nMPI.COMM_WORLD.Barrier()\nsys.exit(7 if MPI.COMM_WORLD.rank == 1 else 0)"
	api, namespace := sshdNamespace(t)
	before := submitTo(t, api, namespace, piExample(t, "pi/pi.yaml", testImage("openmpi:5"), program))
	endedBefore, codeBefore := before.fails(training.FailureTraining), launcherCode(before)
	after := migrated(t, before)
	endedAfter, codeAfter := after.fails(training.FailureTraining), launcherCode(after)
	if endedBefore.Phase != endedAfter.Phase || endedBefore.FailureReason != endedAfter.FailureReason || codeBefore != 7 || codeAfter != 7 {
		t.Errorf("the MPIJob ended as %s with %s and exit code %d, the TrainJob as %s with %s and %d",
			endedBefore.Phase, endedBefore.FailureReason, codeBefore, endedAfter.Phase, endedAfter.FailureReason, codeAfter)
	}
}

// launcherCode is the exit code of the launcher's command.
func launcherCode(job *theJob) int32 {
	job.t.Helper()
	for _, pod := range job.pods(training.RoleLauncher) {
		for _, status := range pod.Status.ContainerStatuses {
			if status.State.Terminated != nil {
				return status.State.Terminated.ExitCode
			}
		}
	}
	job.t.Fatalf("no launcher has ended\n%s", job.describe())
	return 0
}
