// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
)

// implementation is an MPI that the local images have.
type implementation struct {
	name  string
	mpi   v2beta1.MPIImplementation
	image string
}

var implementations = []implementation{
	{"Open MPI 4", "OpenMPI", testImage("openmpi:4")},
	{"Open MPI 5", "OpenMPI", testImage("openmpi:5")},
	{"MPICH", "MPICH", testImage("mpich:4")},
	{"Intel MPI", "IntelMPI", testImage("intelmpi:2021")},
}

// someImplementations are two that differ most, or all in make test-all.
func someImplementations() []implementation {
	if isThorough() {
		return implementations
	}
	return implementations[1:3]
}

// allreduce prints what the ranks have in sum, once, and how many hosts there are.
const allreduce = `
import socket
from mpi4py import MPI
world = MPI.COMM_WORLD
total = world.allreduce(world.rank + 1)
hosts = len(set(world.allgather(socket.gethostname())))
if world.rank == 0:
    print(f"{world.size} ranks on {hosts} hosts, sum {total}", flush=True)
`

// job is an MPIJob that runs a Python program on workers with two slots.
func (of implementation) job(workers int32, program string) *v2beta1.MPIJob {
	command := []string{"mpirun", "-np", fmt.Sprint(workers * 2), "python3", "-c", program}
	return &v2beta1.MPIJob{Spec: v2beta1.MPIJobSpec{
		SlotsPerWorker:    new(int32(2)),
		MPIImplementation: of.mpi,
		MPIReplicaSpecs: map[v2beta1.MPIReplicaType]*v2beta1.ReplicaSpec{
			v2beta1.MPIReplicaTypeLauncher: {Template: of.template("launcher", command)},
			v2beta1.MPIReplicaTypeWorker:   {Replicas: &workers, Template: of.template("worker", nil)},
		},
	}}
}

func (of implementation) template(name string, command []string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		TerminationGracePeriodSeconds: new(int64(2)),
		Containers: []corev1.Container{{
			Name: name, Image: of.image, Command: command, ImagePullPolicy: corev1.PullIfNotPresent,
			SecurityContext: &corev1.SecurityContext{ReadOnlyRootFilesystem: new(true)},
			Resources:       corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("10m"), "memory": resource.MustParse("32Mi")}},
		}},
	}}
}

// Any image without an sshd, a random user, no capability, a read-only root. Two runs in
// a row on the same workers: the first leaves nothing that the second stumbles over.
func TestMPIRunsAnywhere(t *testing.T) {
	t.Parallel()
	for i, implementation := range implementations {
		methods := []plan.Method{plan.ImageVolume}
		// How the agent gets into a pod does not depend on the MPI.
		if i == 0 || isThorough() {
			methods = append(methods, plan.InitContainer)
		}
		for _, method := range methods {
			t.Run(implementation.name+" by "+string(method), func(t *testing.T) {
				mpiJob := implementation.job(4, allreduce)
				count := repeat(mpiJob, 2)
				run := newRun(t, mpiJob)
				run.delivery = method
				run.startWorkers()
				run.startLauncher()
				ended := wantRuns(t, run, count)
				if ended.Hosts.Expected != 4 || ended.Hosts.Reached != 4 || ended.Timings.Connect <= 0 || ended.Timings.Total <= 0 {
					t.Errorf("the report says %s", ended.message)
				}
			})
		}
	}
}

// repeat makes the launcher run its command again and again, and returns how
// often: REPETITIONS, or a few times.
func repeat(mpiJob *v2beta1.MPIJob, few int) int {
	count := few
	if asked, err := strconv.Atoi(os.Getenv("REPETITIONS")); err == nil {
		count = asked
	}
	container := &mpiJob.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeLauncher].Template.Spec.Containers[0]
	loop := fmt.Sprintf(`for i in $(seq %d); do timeout 60 "$@" || { echo "run $i ended with $?"; exit 1; }; done`, count)
	container.Command = append([]string{"bash", "-c", loop, "runs"}, container.Command...)
	return count
}

// wantRuns waits until all runs have ended, and fails unless all ended well.
func wantRuns(t *testing.T, run *run, count int) outcome {
	t.Helper()
	ended := run.end(time.Duration(count)*10*time.Second + 2*time.Minute)
	if well := strings.Count(ended.log, "8 ranks on 4 hosts, sum 36"); ended.exitCode != 0 || well != count {
		t.Errorf("exit code %d, and %d of %d runs ended well:\n%s\n%s", ended.exitCode, well, count, ended.log, run.describe())
	}
	t.Logf("%d runs in %.1f s", count, ended.Timings.Total)
	return ended
}

// Many runs in a row, on the same workers: none hangs.
func TestRunsInARow(t *testing.T) {
	if !isThorough() {
		t.Skip("it takes minutes, and TestMPIRunsAnywhere has two runs in a row: make test-all runs it")
	}
	for _, implementation := range implementations {
		t.Run(implementation.name, func(t *testing.T) {
			mpiJob := implementation.job(4, allreduce)
			count := repeat(mpiJob, 5)
			run := newRun(t, mpiJob)
			run.startWorkers()
			run.startLauncher()
			wantRuns(t, run, count)
		})
	}
}

// Every line says which rank it is from, on request.
func TestTaggedOutput(t *testing.T) {
	t.Parallel()
	for _, implementation := range implementations {
		t.Run(implementation.name, func(t *testing.T) {
			mpiJob := implementation.job(2, "from mpi4py import MPI; print('I am', MPI.COMM_WORLD.rank, flush=True)")
			mpiJob.Annotations = map[string]string{training.AnnotationTagOutput: "true"}
			run := newRun(t, mpiJob)
			run.startWorkers()
			run.startLauncher()
			ended := run.end(2 * time.Minute)
			for rank := range 4 {
				// [1,2]<stdout>: with Open MPI, [2] with the others.
				line := regexp.MustCompile(fmt.Sprintf(`(?m)^\[(1,)?%d\](<stdout>:)? ?I am %d$`, rank, rank))
				if !line.MatchString(ended.log) {
					t.Errorf("no line of rank %d with its tag in:\n%s", rank, ended.log)
				}
			}
		})
	}
}
