// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

var (
	onlyMPIJob   = []job.Kind{job.KindMPIJob}
	onlyTrainJob = []job.Kind{job.KindTrainJob}
)

const (
	secondWorker = "Worker 1 (pod {worker 1} on node node-1)"
	theLauncher  = "The launcher (pod {launcher} on node node-launcher)"
	itsLog       = "kubectl logs {worker 1} -c main -n team"
)

// onWorker changes the second worker's pod.
func onWorker(options ...podOption) func(*scene) {
	return func(scene *scene) { scene.worker(1, options...) }
}

// workerFailures are workers that fail, are terminated or are deleted.
var workerFailures = []failureRow{
	{
		name: "killed for its memory", happen: onWorker(outOfMemory(50)),
		reason: training.FailureWorker, subject: secondWorker,
		cause: "exceeded its memory limit of 4Gi and was killed (OOMKilled, exit code 137)", advice: "Raise the memory limit of the workers, or reduce the batch size",
	},
	{
		name: "killed for its memory, the phase changes later", happen: onWorker(exitsFirst(137, "OOMKilled", "", 50)),
		reason: training.FailureWorker, subject: secondWorker, cause: "OOMKilled", advice: "Raise the memory limit of the workers",
	},
	{
		name: "exited with an error", happen: onWorker(exits(1, "Error", "", 50)),
		reason: training.FailureWorker, subject: secondWorker, cause: "exited with code 1", advice: itsLog,
	},
	{
		name: "killed by a signal", happen: onWorker(exits(139, "Error", "", 50)),
		reason: training.FailureWorker, subject: secondWorker, cause: "was killed by signal 11 (exit code 139)", advice: itsLog,
	},
	{
		name: "its command is missing", happen: onWorker(exits(128, "StartError", `exec: "/sshd": no such file or directory`, 50)),
		reason: training.FailureWorker, subject: secondWorker, cause: `could not be started: exec: "/sshd": no such file or directory`,
		advice: "The command must exist in the image",
	},
	{
		name:   "its volume cannot be mounted",
		happen: onWorker(exits(128, "StartError", `error mounting "/var/lib/kubelet/pods/7/volumes/data" to rootfs at "/data": not a directory`, 50)),
		reason: training.FailureWorker, subject: secondWorker, cause: `could not be started: error mounting`, advice: "Check the volume and its mount in the pod template",
	},
	{
		name: "its init container failed", start: pullsImage, happen: onWorker(initExits("unpack", 3, "Error", "", 50)),
		reason: training.FailureWorker, subject: secondWorker, cause: "exited with code 3 in its container unpack", advice: "kubectl logs {worker 1} -c unpack -n team",
	},
	{
		name: "evicted by its kubelet", happen: onWorker(terminatedByNode("Evicted", "The node was low on resource: memory. ", 50)),
		reason: training.FailureWorker, subject: secondWorker, cause: "was evicted from its node: The node was low on resource: memory", advice: "requests as high as its limits",
	},
	{
		name: "evicted by its kubelet, containers terminated and condition set", happen: onWorker(
			disrupted("TerminationByKubelet", "The node was low on resource: memory.", 50), exits(137, "Error", "", 51),
			terminatedByNode("Evicted", "The node was low on resource: memory.", 51)),
		reason: training.FailureWorker, subject: secondWorker, cause: "was evicted from its node", advice: "requests as high as its limits",
	},
	{
		name: "its pod's own deadline", happen: onWorker(terminatedByNode("DeadlineExceeded", "Pod was active on the node longer than the specified deadline", 50)),
		reason: training.FailureWorker, subject: secondWorker, cause: "longer than its pod's activeDeadlineSeconds", advice: "Raise or remove it in the pod template",
	},
	{
		name: "node lost", happen: onWorker(terminatedByNode("NodeLost", "Node node-1 which was running pod is unresponsive", 50)),
		reason: training.FailureWorker, subject: secondWorker, cause: "lost its node: Node node-1 which was running pod is unresponsive", advice: "Start the job again",
	},
	{
		name: "node shut down", happen: onWorker(terminatedByNode("Terminated", "Pod was terminated in response to imminent node shutdown.", 50)),
		reason: training.FailureWorker, subject: secondWorker, cause: "lost its node: Pod was terminated in response to imminent node shutdown", advice: "Start the job again",
	},
	{
		name: "refused by its node", start: pullsImage, happen: onWorker(terminatedByNode("OutOfcpu", "Node didn't have enough resource: cpu", 50)),
		reason: training.FailureWorker, subject: secondWorker, cause: "was refused by its node: OutOfcpu Node didn't have enough resource: cpu", advice: "kubectl describe node node-1",
	},
	{
		name: "refused by its node without a message", start: pullsImage, happen: onWorker(terminatedByNode("UnexpectedAdmissionError", "", 50), func(pod *corev1.Pod) { pod.Spec.NodeName = "" }),
		reason: training.FailureWorker, subject: "Worker 1 (pod {worker 1})", cause: "was refused by its node: UnexpectedAdmissionError", advice: "kubectl describe pod {worker 1} -n team",
	},
	{
		name: "preempted", happen: onWorker(disrupted("PreemptionByScheduler", "default-scheduler: preempting to accommodate a higher priority pod", 50)),
		reason: training.FailureWorker, subject: secondWorker, cause: "is being removed from its node: default-scheduler: preempting to accommodate a higher priority pod", advice: "higher priority class",
	},
	{
		name: "preempted and terminated", happen: onWorker(
			disrupted("PreemptionByScheduler", "default-scheduler: preempting to accommodate a higher priority pod", 50), deleted(50), exits(143, "Error", "", 51)),
		reason: training.FailureWorker, subject: secondWorker, cause: "preempting to accommodate a higher priority pod", advice: "higher priority class",
	},
	{
		name: "drained", happen: onWorker(disrupted("EvictionByEvictionAPI", "Eviction API: evicting", 50), deleted(50)),
		reason: training.FailureWorker, subject: secondWorker, cause: "is being removed from its node: Eviction API: evicting", advice: "Its node is being drained. Start the job again",
	},
	{
		name: "its node got a taint", happen: onWorker(disrupted("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint", 50), deleted(50)),
		reason: training.FailureWorker, subject: secondWorker, cause: "Taint manager: deleting due to NoExecute taint", advice: "a taint that the job does not tolerate",
	},
	{
		name: "its node was deleted", happen: onWorker(
			disrupted("DeletionByPodGC", "PodGC: node no longer exists", 50), func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed }),
		reason: training.FailureWorker, subject: secondWorker, cause: "PodGC: node no longer exists", advice: "Start the job again",
	},
	{
		name: "failed without a reason", happen: onWorker(func(pod *corev1.Pod) { pod.Status.Phase, pod.Status.ContainerStatuses = corev1.PodFailed, nil }),
		reason: training.FailureWorker, subject: secondWorker, cause: "failed: Kubernetes does not say why", advice: "kubectl describe pod {worker 1} -n team",
	},
	{
		name: "deleted by a user", kinds: onlyMPIJob, happen: onWorker(deleted(50)),
		reason: training.FailureWorker, subject: secondWorker, cause: "was deleted while the job ran", advice: "Start the job again",
	},
	{
		name: "deleted by a user and terminated", happen: onWorker(deleted(50), exits(143, "Error", "", 51)),
		reason: training.FailureWorker, subject: secondWorker, cause: "was deleted while the job ran", advice: "Start the job again",
	},
	{
		name: "vanished", kinds: onlyMPIJob, happen: func(scene *scene) { scene.observed.Workers = scene.observed.Workers[:1] },
		reason: training.FailureWorker, subject: "Worker 1 (pod {worker 1})", cause: "is missing: it was deleted, or its node was lost", advice: "Start the job again",
	},
}

// later sets the clock before the change, so that a timeout is exceeded.
func later(second float64, happen func(*scene)) func(*scene) {
	return func(scene *scene) {
		scene.setTime(second)
		happen(scene)
	}
}

const (
	impatient   = scheduled + 300
	pullFailure = "Failed to pull image: not found"
)

// waitingFailures are pods that never start.
var waitingFailures = []failureRow{
	{
		name: "a worker's image is missing", start: pullsImage, happen: later(impatient, onWorker(waits("ImagePullBackOff", pullFailure))),
		reason: training.FailureWorker, subject: secondWorker, cause: "cannot pull its image registry.example.com/train:1: " + pullFailure, advice: "imagePullSecrets",
	},
	{
		name: "a worker's image could not be pulled just now", start: pullsImage, happen: later(impatient, onWorker(waits("ErrImagePull", pullFailure))),
		reason: training.FailureWorker, subject: secondWorker, cause: pullFailure, advice: "imagePullSecrets",
	},
	{
		name: "the launcher's image is missing", start: pullsImage,
		happen: later(impatient, func(scene *scene) { scene.launcher(waits("ImagePullBackOff", pullFailure)) }),
		reason: training.FailureLauncher, subject: theLauncher, cause: pullFailure, advice: "Check the image's name and tag",
	},
	{
		name: "no such name of an image", start: pullsImage, happen: onWorker(waits("InvalidImageName", `couldn't parse image name "A:B:C"`)),
		reason: training.FailureWorker, subject: secondWorker, cause: `couldn't parse image name "A:B:C"`, advice: "Correct the image's name",
	},
	{
		name: "no such name of the launcher's image", start: pullsImage,
		happen: func(scene *scene) { scene.launcher(waits("InvalidImageName", `couldn't parse image name "A:B:C"`)) },
		reason: training.FailureLauncher, subject: theLauncher, cause: `couldn't parse image name "A:B:C"`, advice: "Correct the image's name",
	},
	{
		name: "the image must be on the node and is not", start: pullsImage, happen: onWorker(waits("ErrImageNeverPull", "image is not present with pull policy of Never")),
		reason: training.FailureWorker, subject: secondWorker, cause: "not present with pull policy of Never", advice: "imagePullPolicy",
	},
	{
		name: "a Secret is missing", start: pullsImage, happen: later(impatient, onWorker(waits("CreateContainerConfigError", `secret "token" not found`))),
		reason: training.FailureWorker, subject: secondWorker, cause: `cannot be started: secret "token" not found`, advice: "Create the Secret or ConfigMap",
	},
	{
		name: "a Secret of the launcher is missing", start: pullsImage,
		happen: later(impatient, func(scene *scene) {
			scene.launcher(waits("CreateContainerConfigError", `secret "token" not found`))
		}),
		reason: training.FailureLauncher, subject: theLauncher, cause: `cannot be started: secret "token" not found`, advice: "Create the Secret or ConfigMap",
	},
	{
		name: "a worker crashes more often than it may", kinds: onlyMPIJob,
		options: []option{backoffLimit(2), restartPolicies(corev1.RestartPolicyOnFailure, corev1.RestartPolicyOnFailure)}, happen: onWorker(crashes(3, 3, 50)),
		reason: training.FailureWorker, subject: secondWorker, cause: "exited with code 3, 3 times so far (CrashLoopBackOff)", advice: "kubectl logs --previous {worker 1} -c main -n team",
	},
	{
		name: "a worker has crashed too often, before the kubelet reports it", kinds: onlyMPIJob,
		options: []option{backoffLimit(2), restartPolicies(corev1.RestartPolicyOnFailure, corev1.RestartPolicyOnFailure)},
		happen: onWorker(crashes(3, 3, 50), func(pod *corev1.Pod) {
			status := &pod.Status.ContainerStatuses[0]
			status.State = corev1.ContainerState{Terminated: status.LastTerminationState.Terminated}
		}),
		reason: training.FailureWorker, subject: secondWorker, cause: "exited with code 3, 3 times so far (CrashLoopBackOff)", advice: "kubectl logs --previous {worker 1} -c main -n team",
	},
	{
		name: "a worker crashes and nothing is known of how", kinds: onlyMPIJob,
		options: []option{restartPolicies(corev1.RestartPolicyOnFailure, corev1.RestartPolicyOnFailure)},
		happen:  onWorker(waits("CrashLoopBackOff", ""), func(pod *corev1.Pod) { pod.Status.ContainerStatuses[0].RestartCount = 1 }),
		reason:  training.FailureWorker, subject: secondWorker, cause: "crashes repeatedly", advice: itsLog,
	},
}
