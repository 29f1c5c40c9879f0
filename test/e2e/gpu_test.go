// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/kube/preflight"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

// showDevices prints what each rank was given and what it sees, and keeps its GPU.
const showDevices = `
import glob, os, time
from mpi4py import MPI
seen = " ".join(sorted(os.path.basename(path) for path in glob.glob("/dev/GPU-*")))
for line in MPI.COMM_WORLD.gather(f"allocated {os.environ.get('ALLOCATED_DEVICES')}, sees {seen}") or []:
    print(line, flush=True)
time.sleep(600)
`

// A device plugin of the tests gives the node two GPUs. Each worker sees the one that was
// allocated to it, and a job that finds none waits, and says for what.
func TestGPUsAreAllocatedOnce(t *testing.T) {
	needsLocalCluster(t, "a device plugin is started on the node")
	startDevicePlugin(t, 2)
	first := submit(t, withGPU(implementations[1].job(2, showDevices)))
	first.waitForLog("allocated GPU-1, sees GPU-1")
	if log := first.log(); !strings.Contains(log, "allocated GPU-0, sees GPU-0\n") {
		t.Errorf("the workers do not see one GPU each:\n%s", log)
	}
	second := submit(t, withGPU(implementations[1].job(2, showDevices)))
	eventually.Succeeds(t, "the second job says what it waits for", func() error {
		answer, err := second.waiting()
		if err != nil {
			return err
		}
		if answer == nil || answer.Cause != preflight.WaitNodes || !strings.Contains(answer.Message, "nvidia.com/gpu") {
			return fmt.Errorf("the answer is %+v", answer)
		}
		return nil
	})
	stdout, _ := odh(t, 1, second.namespace, "diagnose", "mpijob/train")
	contains(t, stdout, "nvidia.com/gpu")
	first.delete()
	second.waitForLog("allocated GPU-1, sees GPU-1")
	second.delete()
}

// withGPU is a job with one rank and one GPU for each worker.
func withGPU(mpiJob *v2beta1.MPIJob) *v2beta1.MPIJob {
	mpiJob.Spec.SlotsPerWorker = new(int32(1))
	launcher := &mpiJob.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeLauncher].Template.Spec.Containers[0]
	launcher.Command[2] = fmt.Sprint(*mpiJob.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeWorker].Replicas)
	worker := &mpiJob.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeWorker].Template.Spec.Containers[0]
	worker.Resources.Limits = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}
	return failFast(mpiJob)
}

// delete deletes the job, and waits until its pods no longer hold their devices.
func (job *theJob) delete() {
	job.t.Helper()
	if err := client.IgnoreNotFound(job.client.Delete(job.t.Context(), job.object)); err != nil {
		job.t.Fatal(err)
	}
	eventually.Succeeds(job.t, "the pods are deleted", func() error {
		if pods := job.pods(""); len(pods) > 0 {
			return fmt.Errorf("%d pods", len(pods))
		}
		return nil
	})
}

// startDevicePlugin runs the plugin of the tests until the test ends, and waits until the
// node has its devices. Then the node has none again.
func startDevicePlugin(t *testing.T, count int) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "deviceplugin")
	build := exec.Command("go", "build", "-o", program, ".")
	build.Dir = filepath.Join(repository, "test/e2e/deviceplugin")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the device plugin: %v\n%s", err, output)
	}
	node := os.Getenv("TRIREME_CLUSTER_NAME")
	// The kubelet sees this folder as /var/lib/kubelet/device-plugins.
	directory := filepath.Join("/var/lib", node+"-cluster", "hidden/kubelet/device-plugins")
	plugin := exec.Command(program, "-directory", directory, "-devices", fmt.Sprint(count))
	plugin.Stderr = os.Stderr
	if err := plugin.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = plugin.Process.Signal(os.Interrupt)
		_ = plugin.Wait()
		awaitGPUs(t, node, "0")
	})
	awaitGPUs(t, node, fmt.Sprint(count))
}

func awaitGPUs(t *testing.T, node, want string) {
	t.Helper()
	eventually.Succeeds(t, "the node has "+want+" GPUs", func() error {
		output, err := shell(`bin/cluster kubectl get node ` + node + ` --output 'jsonpath={.status.allocatable.nvidia\.com/gpu}'`)
		if err == nil && output != want {
			err = errors.New("it has " + output)
		}
		return err
	})
}
