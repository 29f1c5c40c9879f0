// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

// setResources changes what a job asks for its workers.
func setResources(object client.Object, list corev1.ResourceList) {
	limited := corev1.ResourceRequirements{Requests: list, Limits: list}
	switch object := object.(type) {
	case *v2alpha1.TrainJob:
		object.Spec.Trainer.ResourcesPerNode = &limited
	case *v2beta1.MPIJob:
		object.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeWorker].Template.Spec.Containers[0].Resources = limited
	}
}

// setImage changes the image of the workers.
func setImage(object client.Object, image string) {
	switch object := object.(type) {
	case *v2alpha1.TrainJob:
		object.Spec.Trainer.Image = image
	case *v2beta1.MPIJob:
		object.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeWorker].Template.Spec.Containers[0].Image = image
	}
}

func setEnv(object client.Object, name, value string) {
	variable := corev1.EnvVar{Name: name, Value: value}
	switch object := object.(type) {
	case *v2alpha1.TrainJob:
		object.Spec.Trainer.Env = append(object.Spec.Trainer.Env, variable)
	case *v2beta1.MPIJob:
		for _, role := range object.Spec.MPIReplicaSpecs {
			container := &role.Template.Spec.Containers[0]
			container.Env = append(container.Env, variable)
		}
	}
}

// bothFail runs a test on jobs of either kind.
func bothFail(t *testing.T, workers int32, program string, test func(t *testing.T, object client.Object)) {
	for kind, object := range both(workers, program) {
		t.Run(kind, func(t *testing.T) { test(t, object) })
	}
}

func TestTheTrainingRaises(t *testing.T) {
	t.Parallel()
	bothFail(t, 2, "from mpi4py import MPI\nraise ValueError('loss is nan')", func(t *testing.T, object client.Object) {
		job := submit(t, object)
		t.Log(job.fails(training.FailureTraining, "exit").FailureMessage)
		// The message sends people to the launcher's log: it must still be there when
		// everything has come to rest.
		time.Sleep(3 * time.Second)
		if log := job.log(); !strings.Contains(log, "loss is nan") {
			t.Errorf("the launcher's log says %q\n%s", log, job.describe())
		}
	})
}

func TestTheImageHasNoMPI(t *testing.T) {
	t.Parallel()
	bothFail(t, 2, "", func(t *testing.T, object client.Object) {
		command := []string{"mpiexec.hydra", "-n", "4", "hostname"}
		switch object := object.(type) {
		case *v2alpha1.TrainJob:
			object.Spec.Trainer.Command = command
		case *v2beta1.MPIJob:
			object.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeLauncher].Template.Spec.Containers[0].Command = command
		}
		ended := submit(t, object).fails(training.FailureMPIInitialization, "the image has no mpiexec.hydra")
		t.Log(ended.FailureMessage)
	})
}

func TestTheWorkersHaveNoMPI(t *testing.T) {
	t.Parallel()
	mpiJob := failFast(implementations[1].job(2, ""))
	mpiJob.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeLauncher].Template.Spec.Containers[0].Command = []string{"mpirun", "--prefix", "/nowhere", "-np", "4", "hostname"}
	ended := submit(t, mpiJob).fails(training.FailureMPIInitialization, "could not start the MPI daemon", "train-worker-")
	t.Log(ended.FailureMessage)
}

func TestAWorkerRunsOutOfMemory(t *testing.T) {
	t.Parallel()
	bothFail(t, 2, hungry, func(t *testing.T, object client.Object) {
		setResources(object, corev1.ResourceList{"cpu": resource.MustParse("200m"), "memory": resource.MustParse("160Mi")})
		ended := submit(t, object).fails(training.FailureWorker, "orker 1", "memory")
		t.Log(ended.FailureMessage)
	})
}

func TestTheLauncherIsKilled(t *testing.T) {
	t.Parallel()
	bothFail(t, 2, waiting, func(t *testing.T, object client.Object) {
		job := submit(t, object)
		job.waitForLog("all ranks are up")
		pod := job.pods(training.RoleLauncher)[0]
		// Nothing in the container can kill its first process: this machine can.
		if output, err := shell("kill -9 " + processOf(t, pod.Spec.Hostname, job.namespace, protocol.Path+"\x00launch")); err != nil {
			t.Fatalf("%v: %s", err, output)
		}
		ended := job.fails(training.FailureLauncher, "launcher", pod.Name, "signal 9")
		t.Log(ended.FailureMessage)
	})
}

func TestSSHIsBlocked(t *testing.T) {
	t.Parallel()
	bothFail(t, 2, allreduce, func(t *testing.T, object client.Object) {
		setEnv(object, protocol.GateTimeoutVariable, "3s")
		// A worker that listens on another port than it is called on is as good as blocked.
		block := func(template *corev1.PodTemplateSpec) {
			template.Spec.Containers[0].Env = append(template.Spec.Containers[0].Env, corev1.EnvVar{Name: protocol.PortVariable, Value: "2223"})
		}
		job := submitBlocked(t, object, block)
		ended := job.fails(training.FailureSSHConnection, "cannot reach 2 of 2 workers")
		t.Log(ended.FailureMessage)
	})
}

// submitBlocked submits a job whose workers are changed.
func submitBlocked(t *testing.T, object client.Object, change func(*corev1.PodTemplateSpec)) *theJob {
	t.Helper()
	api, namespace := newNamespace(t)
	switch object := object.(type) {
	case *v2beta1.MPIJob:
		change(&object.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeWorker].Template)
	case *v2alpha1.TrainJob:
		runtime := runtimeFor(namespace, v2alpha1.MPIImplementationOpenMPI)
		change(&runtime.Spec.Template.Spec.ReplicatedJobs[1].Template)
		if err := api.Create(t.Context(), runtime); err != nil {
			t.Fatal(err)
		}
	}
	return submitTo(t, api, namespace, object)
}

func TestAGangThatCannotFit(t *testing.T) {
	t.Parallel()
	bothFail(t, 2, allreduce, func(t *testing.T, object client.Object) {
		setResources(object, corev1.ResourceList{"cpu": resource.MustParse("100"), "memory": resource.MustParse("64Mi")})
		api, namespace := newNamespace(t)
		if mpiJob, isMPIJob := object.(*v2beta1.MPIJob); isMPIJob {
			mpiJob.Spec.RunPolicy.SchedulingPolicy = &v2beta1.SchedulingPolicy{ScheduleTimeoutSeconds: new(int32(20))}
		} else {
			runtime := runtimeFor(namespace, v2alpha1.MPIImplementationOpenMPI)
			runtime.Spec.PodGroupPolicy = &v2alpha1.PodGroupPolicy{Native: &v2alpha1.GangPolicy{ScheduleTimeoutSeconds: new(int32(20))}}
			if err := api.Create(t.Context(), runtime); err != nil {
				t.Fatal(err)
			}
		}
		job := submitTo(t, api, namespace, object)
		// At a later attempt, the scheduler of 1.37 no longer names the resource.
		job.until("the scheduler's words are in a condition", time.Minute, func(training.Progress) bool {
			return strings.Contains(fmt.Sprint(job.object), "0 of 3 pods are scheduled; scheduler: ") && strings.Contains(fmt.Sprint(job.object), "Insufficient cpu")
		})
		ended := job.fails(training.FailureGangSchedulingTimeout,
			"Gang scheduling timeout: Requested 3 pods, only 0 nodes available with sufficient resources (", "too small: cpu", "0 of 3 pods are scheduled; scheduler: ")
		t.Log(ended.FailureMessage)
		eventually.Succeeds(t, "its pods are gone", func() error {
			if left := len(job.pods("")); left > 0 {
				return fmt.Errorf("%d pods are left", left)
			}
			return nil
		})
	})
}

func TestAnImageThatIsNotThere(t *testing.T) {
	t.Parallel()
	bothFail(t, 2, allreduce, func(t *testing.T, object client.Object) {
		setImage(object, "trireme.local/nothing:1")
		job := submit(t, object)
		job.until("a worker's status says ImagePullBackOff", time.Minute, func(progress training.Progress) bool {
			for _, worker := range progress.WorkerPodStatuses {
				if strings.HasPrefix(worker.Reason, "ImagePull") || worker.Reason == "ErrImagePull" {
					t.Log(worker.Message)
					return strings.Contains(worker.Message, "cannot pull its image trireme.local/nothing:1") && strings.Contains(worker.Message, worker.Name) && strings.Contains(worker.Message, "Check the image's name")
				}
			}
			return false
		})
	})
}

func TestAWorkerCrashesAgainAndAgain(t *testing.T) {
	t.Parallel()
	mpiJob := implementations[1].job(2, allreduce)
	worker := mpiJob.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeWorker]
	worker.RestartPolicy = v2beta1.RestartPolicyOnFailure
	worker.Template.Spec.Containers[0].Command = []string{"sh", "-c", "echo no sshd here; exit 3"}
	for _, role := range mpiJob.Spec.MPIReplicaSpecs {
		role.Template.Spec.SecurityContext = &corev1.PodSecurityContext{
			RunAsNonRoot: new(true), RunAsUser: new(int64(1000)), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		}
		role.Template.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}
	}
	mpiJob.Spec.RunPolicy.BackoffLimit = new(int32(1))
	job := submit(t, mpiJob)
	// Kubelet says so at its next look after a crash, which may come after the next
	// start, until the pauses between starts are longer than those between looks.
	job.until("a worker's status says CrashLoopBackOff", 3*time.Minute, func(progress training.Progress) bool {
		for _, status := range progress.WorkerPodStatuses {
			if status.Reason == "CrashLoopBackOff" {
				return strings.Contains(status.Message, "exited with code 3") && strings.Contains(status.Message, "kubectl logs --previous")
			}
		}
		return false
	})
	t.Log(job.fails(training.FailureWorker, "CrashLoopBackOff", "exited with code 3", "train-worker-").FailureMessage)
}

func TestAWorkerIsEvicted(t *testing.T) {
	t.Parallel()
	bothFail(t, 2, waiting, func(t *testing.T, object client.Object) {
		job := submit(t, object)
		job.waitForLog("all ranks are up")
		// The kubelet here has nothing more to say of a worker that is ready: it would
		// take back what is written in its name.
		job.until("its workers are ready", time.Minute, func(progress training.Progress) bool { return progress.ReadyWorkers == "2/2" })
		evicted := job.worker(0).Name
		eventually.Succeeds(t, "a worker is evicted", func() error {
			if isFinished(job.refresh()) {
				return nil
			}
			var pod corev1.Pod
			if err := job.client.Get(t.Context(), client.ObjectKey{Namespace: job.namespace, Name: evicted}, &pod); err != nil {
				return err
			}
			// As the kubelet of a node without memory writes it. This one may take it back, so it
			// is written until the operator has seen it.
			pod.Status.Phase, pod.Status.Reason, pod.Status.Message = corev1.PodFailed, "Evicted", "The node was low on resource: memory."
			if err := job.client.Status().Update(t.Context(), &pod); err != nil {
				return err
			}
			return errors.New("the operator has not seen it")
		})
		ended := job.fails(training.FailureWorker, evicted, "evicted", "low on resource: memory", "requests as high as its limits")
		t.Log(ended.FailureMessage)
	})
}

func TestAWorkerIsDrained(t *testing.T) {
	t.Parallel()
	bothFail(t, 2, waiting, func(t *testing.T, object client.Object) {
		job := submit(t, object)
		job.waitForLog("all ranks are up")
		pod := job.worker(0)
		if output, err := shell(fmt.Sprintf(`bin/cluster kubectl create -f - --raw /api/v1/namespaces/%[1]s/pods/%[2]s/eviction <<END
{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":%[2]q,"namespace":%[1]q}}
END`, job.namespace, pod.Name)); err != nil {
			t.Fatalf("%v: %s", err, output)
		}
		t.Log(job.fails(training.FailureWorker, pod.Name).FailureMessage)
	})
}

func TestAWorkerIsDeleted(t *testing.T) {
	t.Parallel()
	bothFail(t, 2, waiting, func(t *testing.T, object client.Object) {
		job := submit(t, object)
		job.waitForLog("all ranks are up")
		pod := job.worker(1)
		if err := job.client.Delete(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		t.Log(job.fails(training.FailureWorker, pod.Spec.Hostname).FailureMessage)
	})
}

// A run that hangs ends by its deadline, and says where it stood. The deadline is long
// enough for pods to start on a busy machine.
func TestARunThatHangs(t *testing.T) {
	t.Parallel()
	bothFail(t, 2, "import time\nfrom mpi4py import MPI\nprint('up', flush=True)\ntime.sleep(600)", func(t *testing.T, object client.Object) {
		switch object := object.(type) {
		case *v2alpha1.TrainJob:
			object.Spec.ActiveDeadlineSeconds = new(int64(60))
		case *v2beta1.MPIJob:
			object.Spec.RunPolicy.ActiveDeadlineSeconds = new(int64(60))
		}
		job := submit(t, object)
		ended := job.fails(training.FailureTraining, "Deadline exceeded", "activeDeadlineSeconds, 60", "had reached all 2 workers", "kubectl logs")
		t.Log(ended.FailureMessage)
		eventually.Succeeds(t, "no pod runs", func() error {
			for _, pod := range job.pods("") {
				if pod.Status.Phase == corev1.PodRunning {
					return fmt.Errorf("pod %s runs", pod.Name)
				}
			}
			return nil
		})
	})
}
