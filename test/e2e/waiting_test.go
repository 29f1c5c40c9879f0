// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/kube/preflight"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

// waitsFor is a real cause, provoked.
type waitsFor struct {
	change func(*v2beta1.MPIJob)
	// prepare creates what the job needs, in its namespace, before it is created.
	prepare func(t *testing.T, job *theJob)
	want    preflight.WaitCause
	// object is the start of the object's name, message a part of the message.
	object, message string
	// truth is an error as long as the cluster does not show the cause.
	truth func(job *theJob, answer *preflight.Waiting) error
}

// pod changes the template of a role.
func pod(role v2beta1.MPIReplicaType, change func(*corev1.PodSpec)) func(*v2beta1.MPIJob) {
	return func(mpiJob *v2beta1.MPIJob) { change(&mpiJob.Spec.MPIReplicaSpecs[role].Template.Spec) }
}

func mounts(claim string) func(*v2beta1.MPIJob) {
	return pod(v2beta1.MPIReplicaTypeWorker, func(spec *corev1.PodSpec) {
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}})
		spec.Containers[0].VolumeMounts = append(spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "data", MountPath: "/data"})
	})
}

// unboundClaim creates a PVC that nobody provisions.
func unboundClaim(t *testing.T, job *theJob) {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: job.namespace, Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: new(""), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}},
	}
	if err := job.client.Create(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
}

// thePod returns the pod that an answer names.
func thePod(job *theJob, answer *preflight.Waiting) (*corev1.Pod, error) {
	for _, one := range job.pods("") {
		if "pod/"+one.Name == answer.Object {
			return &one, nil
		}
	}
	return nil, fmt.Errorf("there is no %s", answer.Object)
}

// ofPod checks the pod that an answer names.
func ofPod(is func(*corev1.Pod) bool) func(*theJob, *preflight.Waiting) error {
	return func(job *theJob, answer *preflight.Waiting) error {
		found, err := thePod(job, answer)
		if err == nil && !is(found) {
			err = fmt.Errorf("%s is not in that state: %+v", answer.Object, found.Status)
		}
		return err
	}
}

func waitingContainer(reason string) func(*corev1.Pod) bool {
	return func(one *corev1.Pod) bool {
		for _, status := range one.Status.ContainerStatuses {
			if status.State.Waiting != nil && strings.Contains(status.State.Waiting.Reason, reason) {
				return true
			}
		}
		return false
	}
}

func provoked() map[string]waitsFor {
	worker, launcher := v2beta1.MPIReplicaTypeWorker, v2beta1.MPIReplicaTypeLauncher
	return map[string]waitsFor{
		"a user": {change: func(mpiJob *v2beta1.MPIJob) { mpiJob.Spec.RunPolicy.Suspend = new(true) }, want: preflight.WaitSuspended, object: "mpijob/train", message: "suspended",
			truth: func(job *theJob, _ *preflight.Waiting) error {
				if pods := job.pods(""); len(pods) > 0 {
					return fmt.Errorf("%d pods exist", len(pods))
				}
				return nil
			}},
		"a queue without Kueue": {change: func(mpiJob *v2beta1.MPIJob) {
			mpiJob.Labels, mpiJob.Spec.RunPolicy.Suspend = map[string]string{training.LabelQueue: "main"}, new(true)
		}, want: preflight.WaitQueueUnmanaged, object: "localqueue/main", message: "Kueue is not installed"},
		"quota": {prepare: func(t *testing.T, job *theJob) { createQuota(t, job.client, quotaOfPods(job.namespace, "3")) },
			change: func(mpiJob *v2beta1.MPIJob) { mpiJob.Spec.RunPolicy.Suspend = new(true) }, want: preflight.WaitQuota, object: "resourcequota/small", message: "quota",
			truth: func(job *theJob, _ *preflight.Waiting) error {
				if wait := job.refresh().QuotaWait; wait == nil || wait.Name != "small" {
					return fmt.Errorf("the status has %+v", wait)
				}
				return nil
			}},
		"a PVC that is missing": {change: mounts("data"), want: preflight.WaitVolumeMissing, object: "persistentvolumeclaim/data", message: "missing"},
		"a PVC without volume":  {prepare: unboundClaim, change: mounts("data"), want: preflight.WaitVolume, object: "persistentvolumeclaim/data", message: "no PersistentVolume matches it"},
		"a gate": {change: pod(worker, func(spec *corev1.PodSpec) {
			spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/hold"}}
		}),
			want: preflight.WaitGates, object: "pod/train-worker-", message: "example.com/hold", truth: ofPod(func(one *corev1.Pod) bool { return len(one.Spec.SchedulingGates) == 1 })},
		"nodes": {change: pod(worker, func(spec *corev1.PodSpec) { spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("1000") }), want: preflight.WaitNodes, object: "pod/train-",
			message: "can run a worker, which requests 1k cpu", truth: ofPod(func(one *corev1.Pod) bool { return one.Spec.NodeName == "" })},
		"a node selector": {change: pod(worker, func(spec *corev1.PodSpec) { spec.NodeSelector = map[string]string{"zone": "none"} }), want: preflight.WaitNodes, object: "pod/train-",
			message: "no match for the node selector zone=none", truth: ofPod(func(one *corev1.Pod) bool { return one.Spec.NodeName == "" })},
		"an image": {change: pod(worker, func(spec *corev1.PodSpec) { spec.Containers[0].Image = "trireme.local/nothing:1" }), want: preflight.WaitImageFailing, object: "pod/train-worker-",
			message: "cannot pull image trireme.local/nothing:1", truth: ofPod(waitingContainer("Pull"))},
		"a ConfigMap": {change: pod(worker, func(spec *corev1.PodSpec) {
			spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "none"}, Key: "a"}}}}
		}), want: preflight.WaitContainer, object: "pod/train-worker-", message: `configmap "none" not found`, truth: ofPod(waitingContainer("CreateContainerConfigError"))},
		"a worker": {change: pod(worker, func(spec *corev1.PodSpec) {
			spec.InitContainers = []corev1.Container{{Name: "slow", Image: localImage, Command: []string{"sleep", "600"}, Resources: corev1.ResourceRequirements{Requests: small()}}}
		}), want: preflight.WaitWorkers, object: "pod/train-worker-", message: "0 of 2 workers are ready", truth: ofPod(func(one *corev1.Pod) bool { return one.Spec.NodeName != "" && one.Status.Phase == corev1.PodPending })},
		"a restart": {change: all(pod(launcher, func(spec *corev1.PodSpec) {
			spec.Containers[0].Command, spec.Containers[0].Args = []string{"mpirun", "false"}, nil
		}), func(mpiJob *v2beta1.MPIJob) {
			mpiJob.Spec.RunPolicy.BackoffLimit = new(int32(6))
		}), want: preflight.WaitRestart, object: "mpijob/train", message: "restart", truth: func(job *theJob, answer *preflight.Waiting) error {
			if restart := job.refresh().Restart; restart == nil || !restart.DueTime.Equal(answer.MayStart) {
				return fmt.Errorf("the restart is %+v, and the answer %v", restart, answer.MayStart)
			}
			return nil
		}},
	}
}

func all(changes ...func(*v2beta1.MPIJob)) func(*v2beta1.MPIJob) {
	return func(mpiJob *v2beta1.MPIJob) {
		for _, change := range changes {
			change(mpiJob)
		}
	}
}

// The answer to why a job waits is the cause that was provoked, about the right object, and
// the same for the command line, describe and the status of the objects.
func TestWhyAJobWaits(t *testing.T) {
	t.Parallel()
	for name, test := range provoked() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.check(t)
		})
	}
}

// check provokes the cause, and waits until odh names it.
func (test *waitsFor) check(t *testing.T) {
	t.Helper()
	api, namespace := newNamespace(t)
	mpiJob := implementations[1].job(2, waiting)
	mpiJob.Spec.RunPolicy.BackoffLimit = new(int32(0))
	test.change(mpiJob)
	if test.prepare != nil {
		test.prepare(t, &theJob{t: t, client: api, namespace: namespace})
	}
	job := submitTo(t, api, namespace, mpiJob)
	if test.want == preflight.WaitQuota {
		// It is accepted, and then there is less quota than it needs.
		job.until("it is suspended", time.Minute, func(training.Progress) bool { _, is := conditionsOf(job.object)["Suspended"]; return is })
		shrinkQuota(t, job)
		job.change(setSuspend(false))
	}
	answer := &preflight.Waiting{}
	eventually.Succeeds(t, "the answer is "+string(test.want), func() (err error) {
		if answer, err = job.waiting(); err != nil {
			return err
		}
		if answer == nil || answer.Cause != test.want || !strings.HasPrefix(answer.Object, test.object) || !strings.Contains(answer.Message, test.message) {
			return fmt.Errorf("the answer is %+v", answer)
		}
		if test.truth != nil {
			return test.truth(job, answer)
		}
		return nil
	})
	if test.want != preflight.WaitRestart {
		described, _ := odh(t, 0, job.namespace, "mpijob", "describe", "train")
		contains(t, described, "Waiting:", answer.Remedy)
	}
}

// On simulated nodes, a gang needs more GPUs than there are, and another one does not
// tolerate the taint of the nodes.
func TestWhyAGangWaitsForNodes(t *testing.T) {
	simulateNodes(t, 1)
	onSimulatedNodes := func(mpiJob *v2beta1.MPIJob) {
		for _, spec := range mpiJob.Spec.MPIReplicaSpecs {
			simulate(&spec.Template, forever)
		}
	}
	gpus := corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("1Gi"), gpuResource: resource.MustParse(fmt.Sprint(simulatedGPUs))}
	for name, test := range map[string]waitsFor{
		"GPUs": {change: all(onSimulatedNodes, func(mpiJob *v2beta1.MPIJob) { setResources(mpiJob, gpus) }),
			want: preflight.WaitNodes, object: "pod/train-", message: gpuResource, truth: isGang},
		"a taint": {change: all(onSimulatedNodes, pod(v2beta1.MPIReplicaTypeWorker, func(spec *corev1.PodSpec) { spec.Tolerations = nil })),
			want: preflight.WaitNodes, object: "pod/train-worker-", message: "taint", truth: isGang},
	} {
		t.Run(name, func(t *testing.T) { test.check(t) })
	}
}

// isGang checks what an answer says about the gang.
func isGang(job *theJob, answer *preflight.Waiting) error {
	found, err := thePod(job, answer)
	if err != nil {
		return err
	}
	scheduled := 0
	for _, one := range job.pods("") {
		if one.Spec.NodeName != "" {
			scheduled++
		}
	}
	if gang := answer.Gang; gang == nil || gang.Pods != 3 || gang.Scheduled != scheduled || gang.Pod != found.Name || found.Spec.NodeName != "" || gang.Lacks == "" {
		return fmt.Errorf("the gang is %+v, and %d pods are scheduled", gang, scheduled)
	}
	return nil
}

// waiting is what odh diagnose says that a job waits for.
func (job *theJob) waiting() (*preflight.Waiting, error) {
	command, stdout, stderr := odhCommand(job.t, job.namespace, "mpijob", "diagnose", "train", "-o", "json")
	_ = command.Run() // exits with 1 if something hinders the job
	var told struct{ Waiting *preflight.Waiting }
	if err := json.Unmarshal([]byte(stdout.String()), &told); err != nil {
		return nil, fmt.Errorf("%w: %s%s", err, stdout, stderr)
	}
	return told.Waiting, nil
}

// shrinkQuota leaves a quota for one pod.
func shrinkQuota(t *testing.T, job *theJob) {
	t.Helper()
	quota := quotaOfPods(job.namespace, "1")
	if err := job.client.Delete(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	createQuota(t, job.client, quotaOfPods(job.namespace, "1"))
}
