// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

// Every MPI, as either kind, from submit to finish.
func TestJobsRun(t *testing.T) {
	t.Parallel()
	for _, implementation := range implementations {
		t.Run(implementation.name+" as MPIJob", func(t *testing.T) {
			wantSum(t, submit(t, implementation.job(2, allreduce)), "4 ranks on 2 hosts, sum 10")
		})
		t.Run(implementation.name+" as TrainJob", func(t *testing.T) {
			api, namespace := newNamespace(t)
			if err := api.Create(t.Context(), runtimeFor(namespace, v2alpha1.MPIImplementation(implementation.mpi))); err != nil {
				t.Fatal(err)
			}
			trainJob := implementation.trainJob(2, allreduce)
			trainJob.Spec.RuntimeRef = v2alpha1.RuntimeRef{Kind: v2alpha1.RuntimeKindNamespaced, Name: "runtime"}
			wantSum(t, submitTo(t, api, namespace, trainJob), "4 ranks on 2 hosts, sum 10")
		})
	}
}

// wantSum fails unless a job ended well, said so, and left what it should.
func wantSum(t *testing.T, job *theJob, line string) {
	t.Helper()
	ended := job.succeeds()
	if log := job.log(); !strings.Contains(log, line) {
		t.Errorf("the launcher does not say %q:\n%s", line, log)
	}
	if ended.ReadyWorkers != "2/2" || len(ended.WorkerPodStatuses) != 2 || ended.LauncherPodStatus == nil || ended.Duration == "" {
		t.Errorf("the status is %+v", ended)
	}
	steps := []training.TimelineStep{}
	for i, entry := range ended.Timeline {
		steps = append(steps, entry.Step)
		if i > 0 && entry.Time.Before(&ended.Timeline[i-1].Time) {
			t.Errorf("%s was before %s", entry.Step, ended.Timeline[i-1].Step)
		}
	}
	if want := []training.TimelineStep{"Submitted", "Admitted", "Scheduled", "PodsReady", "WorkersReached", "FirstRankUp", "Finished"}; !slices.Equal(steps, want) {
		t.Errorf("the timeline has %v, want %v", steps, want)
	}
	eventually.Succeeds(t, "workers and keys are gone, the launcher's pod stays", func() error {
		var secrets corev1.SecretList
		if err := job.client.List(t.Context(), &secrets, client.InNamespace(job.namespace)); err != nil {
			return err
		}
		workers, launchers := job.pods(training.RoleWorker), job.pods(training.RoleLauncher)
		if len(secrets.Items) != 0 || len(workers) != 0 || len(launchers) != 1 || launchers[0].Status.Phase != corev1.PodSucceeded {
			return fmt.Errorf("%d Secrets, %d workers, %d launchers are left", len(secrets.Items), len(workers), len(launchers))
		}
		return nil
	})
}

// The launcher runs ranks too.
func TestTheLauncherIsAWorker(t *testing.T) {
	t.Parallel()
	for _, implementation := range someImplementations() {
		t.Run(implementation.name, func(t *testing.T) {
			mpiJob := implementation.job(2, allreduce)
			mpiJob.Spec.RunLauncherAsWorker = new(true)
			mpiJob.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeLauncher].Template.Spec.Containers[0].Command[2] = "6"
			job := submit(t, mpiJob)
			job.succeeds()
			if log := job.log(); !strings.Contains(log, "6 ranks on 3 hosts, sum 21") {
				t.Errorf("the launcher says:\n%s", log)
			}
		})
	}
}

// What mpi-operator's users find in their pods.
func TestDiscoverHostsAndEnvironment(t *testing.T) {
	t.Parallel()
	mpiJob := implementations[0].job(2, allreduce)
	mpiJob.Spec.LauncherCreationPolicy = v2beta1.LauncherCreationPolicyWaitForWorkersReady
	mpiJob.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeLauncher].Template.Spec.Containers[0].Command = []string{
		"sh", "-c", `/etc/mpi/discover_hosts.sh; echo "$MPIJOB_NAME $MPIJOB_ROLE $MPIJOB_WORLD_SIZE $K_MPI_JOB_ROLE"; mpirun -np 2 --map-by node sh -c 'echo "$MPIJOB_ROLE $MPIJOB_WORKER_INDEX"'`,
	}
	job := submit(t, mpiJob)
	job.succeeds()
	log := job.log()
	for _, line := range []string{"train-worker-0:2", "train-worker-1:2", "train launcher 4 launcher", "worker 0", "worker 1"} {
		if !strings.Contains(log, line+"\n") {
			t.Errorf("the launcher does not say %q:\n%s", line, log)
		}
	}
}

// The program runs for long enough to be suspended before it ends by itself.
func TestSuspendAndResume(t *testing.T) {
	t.Parallel()
	bothFail(t, 2, "import time\nfrom mpi4py import MPI\nMPI.COMM_WORLD.Barrier()\nprint('all ranks are up', flush=True)\ntime.sleep(20)\nMPI.COMM_WORLD.Barrier()", func(t *testing.T, object client.Object) {
		setSuspend(true)(object)
		job := submit(t, object)
		job.until("it says that it is suspended", time.Minute, func(training.Progress) bool { _, is := conditionsOf(job.object)["Suspended"]; return is })
		if pods := job.pods(""); len(pods) != 0 {
			t.Fatalf("a suspended job has %d pods", len(pods))
		}
		job.change(setSuspend(false))
		job.waitForLog("all ranks are up")
		job.change(setSuspend(true))
		job.until("it says that it is suspended, and has no start", time.Minute, func(progress training.Progress) bool {
			_, is := conditionsOf(job.object)["Suspended"]
			return is && len(progress.Timeline) == 1 && progress.Phase == training.PhasePending && len(job.pods("")) == 0
		})
		job.change(setSuspend(false))
		job.succeeds()
	})
}

func TestCleanPodPolicy(t *testing.T) {
	t.Parallel()
	for policy, want := range map[training.CleanPodPolicy]string{
		training.CleanPodPolicyNone: "launcher Succeeded, worker Running, worker Running", training.CleanPodPolicyRunning: "launcher Succeeded", training.CleanPodPolicyAll: "",
	} {
		t.Run(string(policy), func(t *testing.T) {
			mpiJob := implementations[1].job(2, allreduce)
			mpiJob.Spec.CleanPodPolicy = &policy
			job := submit(t, mpiJob)
			job.succeeds()
			eventually.Succeeds(t, "what is left of its pods", func() error {
				var left []string
				for _, pod := range job.pods("") {
					left = append(left, fmt.Sprintf("%s %s", pod.Labels[training.LabelReplicaType], pod.Status.Phase))
				}
				slices.Sort(left)
				if got := strings.Join(left, ", "); got != want {
					return fmt.Errorf("it is %q, want %q", got, want)
				}
				return nil
			})
		})
	}
}

// The job itself goes, with everything that belongs to it.
func TestTTL(t *testing.T) {
	t.Parallel()
	bothFail(t, 2, allreduce, func(t *testing.T, object client.Object) {
		switch object := object.(type) {
		case *v2alpha1.TrainJob:
			object.Spec.TTLSecondsAfterFinished = new(int32(2))
		case *v2beta1.MPIJob:
			object.Spec.RunPolicy.TTLSecondsAfterFinished = new(int32(2))
		}
		job := submit(t, object)
		wantNothingLeft(t, job)
	})
}

// wantNothingLeft waits until nothing of a job is in its namespace.
func wantNothingLeft(t *testing.T, job *theJob) {
	t.Helper()
	eventually.Succeeds(t, "nothing is left", func() error {
		output, err := shell(fmt.Sprintf("bin/cluster kubectl get -n %s trainjobs,mpijobs,jobsets,jobs,pods,services,secrets,configmaps,pvc,networkpolicies,controllerrevisions,podgroups.scheduling.k8s.io -o name | grep -v kube-root-ca || true", job.namespace))
		if err != nil || strings.TrimSpace(output) != "" {
			return fmt.Errorf("there is still: %v %s", err, output)
		}
		return nil
	})
}

// As people use it: wait, get -w, delete in the foreground.
func TestKubectlWaitAndDelete(t *testing.T) {
	t.Parallel()
	bothFail(t, 2, waiting, func(t *testing.T, object client.Object) {
		job := submit(t, object)
		kind, running := "trainjob", "WorkersReady"
		if _, isMPIJob := object.(*v2beta1.MPIJob); isMPIJob {
			kind, running = "mpijob", "Running"
		}
		kubectl(t, fmt.Sprintf("wait -n %s %s/train --for=condition=%s --timeout=60s", job.namespace, kind, running))
		kubectl(t, fmt.Sprintf("wait -n %s %s/train --for=jsonpath='{.status.phase}'=Running --timeout=60s", job.namespace, kind))
		wantWatched(t, job, kind, "Running", "2/2")
		// In the foreground: when it is gone, everything is.
		kubectl(t, fmt.Sprintf("delete -n %s %s/train --cascade=foreground --timeout=60s", job.namespace, kind))
		if pods := job.pods(""); len(pods) != 0 {
			t.Errorf("%d pods are left", len(pods))
		}
		wantNothingLeft(t, job)
	})
}

// wantWatched fails unless kubectl get -w prints a line with these words, now or later.
func wantWatched(t *testing.T, job *theJob, kind string, words ...string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), clusterTool(), "kubectl", "get", "-n", job.namespace, kind, "train", "-w")
	command.Dir = repository
	said := &printed{}
	command.Stdout, command.Stderr = said, said
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = command.Process.Kill(); _ = command.Wait() }()
	eventually.Succeeds(t, "kubectl get -w tells of it", func() error {
		for line := range strings.Lines(said.String()) {
			if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) }) {
				return nil
			}
		}
		return fmt.Errorf("it prints:\n%s", said)
	})
}

// A runtime that changes is for later jobs.
func TestARuntimeIsKept(t *testing.T) {
	t.Parallel()
	trainJob := implementations[1].trainJob(1, allreduce)
	trainJob.Spec.Suspend = new(true)
	job := submit(t, trainJob)
	job.until("it has kept its runtime", time.Minute, func(progress training.Progress) bool { return progress.Phase == training.PhasePending })
	runtime := &v2alpha1.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Namespace: job.namespace, Name: "runtime"}}
	if err := job.client.Delete(t.Context(), runtime); err != nil {
		t.Fatal(err)
	}
	job.change(setSuspend(false))
	job.succeeds()
}

// A claim that the user brings outlives the job, and the next one finds what was
// written to it.
func TestACheckpointOutlivesItsJob(t *testing.T) {
	t.Parallel()
	api, namespace := newNamespace(t)
	if err := api.Create(t.Context(), claim(namespace, "checkpoints")); err != nil {
		t.Fatal(err)
	}
	train := func(name, program string) *theJob {
		trainJob := implementations[1].trainJob(1, program)
		trainJob.Name = name
		trainJob.Spec.Trainer.Volumes = []corev1.Volume{{Name: "checkpoints", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "checkpoints"},
		}}}
		trainJob.Spec.Trainer.VolumeMounts = []corev1.VolumeMount{{Name: "checkpoints", MountPath: "/checkpoints"}}
		return submitTo(t, api, namespace, trainJob)
	}
	first := train("first", "from mpi4py import MPI\nif MPI.COMM_WORLD.rank == 0: open('/checkpoints/step', 'w').write('epoch 7')")
	first.succeeds()
	if err := api.Delete(t.Context(), first.object); err != nil {
		t.Fatal(err)
	}
	second := train("second", "from mpi4py import MPI\nprint('resumes from', open('/checkpoints/step').read(), flush=True)")
	second.succeeds()
	if log := second.log(); !strings.Contains(log, "resumes from epoch 7") {
		t.Errorf("the second job says:\n%s", log)
	}
}

func claim(namespace, name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse("10Mi")}},
		},
	}
}

// A launcher that fails is started anew, as often as the job allows.
func TestBackoff(t *testing.T) {
	t.Parallel()
	api, namespace := newNamespace(t)
	if err := api.Create(t.Context(), claim(namespace, "attempts")); err != nil {
		t.Fatal(err)
	}
	// Fails the first time, and ends well the second.
	program := "import os, sys\nfrom mpi4py import MPI\nif os.path.exists('/attempts/one'): sys.exit(0)\nMPI.COMM_WORLD.Barrier()\nopen('/attempts/one', 'w')\nos._exit(1)"
	trainJob := implementations[1].trainJob(1, program)
	trainJob.Spec.BackoffLimit = new(int32(1))
	trainJob.Spec.Trainer.Volumes = []corev1.Volume{{Name: "attempts", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "attempts"},
	}}}
	trainJob.Spec.Trainer.VolumeMounts = []corev1.VolumeMount{{Name: "attempts", MountPath: "/attempts"}}
	submitTo(t, api, namespace, trainJob).succeeds()
}

// A job of another operator is not touched.
func TestJobsOfAnotherOperator(t *testing.T) {
	t.Parallel()
	mpiJob := implementations[1].job(2, allreduce)
	mpiJob.Spec.RunPolicy.ManagedBy = new(training.ManagedByMultiKueue)
	job := submit(t, mpiJob)
	time.Sleep(3 * time.Second)
	var jobs batchv1.JobList
	if err := job.client.List(t.Context(), &jobs, client.InNamespace(job.namespace)); err != nil {
		t.Fatal(err)
	}
	if progress := job.refresh(); progress.Phase != "" || len(jobs.Items)+len(job.pods("")) > 0 {
		t.Errorf("it has the phase %q, %d Jobs and %d pods", progress.Phase, len(jobs.Items), len(job.pods("")))
	}
}
