// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/nodes"
)

// refused is an object that the API server refuses before any pod exists.
func refused(refusal Refusal) func(*scene) {
	return func(scene *scene) {
		scene.observed.Launchers, scene.observed.Workers = nil, nil
		scene.observed.Refusal = &refusal
	}
}

// refusedUntil is an object that the API server refuses now and at this later second.
func refusedUntil(second float64, refusal Refusal) func(*scene) {
	return func(scene *scene) {
		if len(scene.observed.Workers) > 0 {
			scene.observed.Workers = scene.observed.Workers[:1]
		}
		scene.forgetPods()
		scene.observed.Refusal = &refusal
		scene.storeVerdict()
		scene.setTime(second)
		scene.observed.Refusal = &refusal
	}
}

const exceeded = `pods "train-worker-0" is forbidden: exceeded quota: compute, requested: pods=1, used: pods=8, limited: pods=8`

// refusedFailures are objects that the API server refuses.
var refusedFailures = []failureRow{
	{
		name: "a quota refuses a worker for longer than the job may wait", start: nothing,
		happen: refusedUntil(present+60, Refusal{Role: training.RoleWorker, Object: "Pod train-worker-1", Message: exceeded, Quota: true, QuotaName: "compute"}),
		reason: training.FailureResourceQuota, subject: "Pod train-worker-1 could not be created", cause: exceeded + ". The quota was exceeded for 1m0s", advice: "kubectl describe quota -n team",
	},
	{
		name: "PodSecurity refuses a worker", start: nothing,
		happen: refused(Refusal{Role: training.RoleWorker, Object: "Pod train-worker-0", Message: `pods "train-worker-0" is forbidden: violates PodSecurity "restricted:latest"`}),
		reason: training.FailureWorker, subject: "Pod train-worker-0 could not be created", cause: `violates PodSecurity "restricted:latest"`, advice: "Change the job",
	},
	{
		name: "PodSecurity refuses the launcher", start: nothing,
		happen: refused(Refusal{Role: training.RoleLauncher, Object: "Pod train-launcher-r0", Message: `pods "x" is forbidden: violates PodSecurity "restricted:latest"`}),
		reason: training.FailureLauncher, subject: "Pod train-launcher-r0", cause: `violates PodSecurity "restricted:latest"`, advice: "Change the job",
	},
	{
		name: "an object is not valid", start: nothing,
		happen: refused(Refusal{Object: "JobSet train", Message: `JobSet.jobset.x-k8s.io "train" is invalid: spec.network: Invalid value`}),
		reason: training.FailureLauncher, subject: "JobSet train could not be created", cause: "spec.network: Invalid value", advice: "Change the job",
	},
	{
		name: "a name is taken", start: nothing,
		happen: refused(Refusal{Object: "ConfigMap train-hostfile", Message: "an object with this name exists that does not belong to the job. Delete it, or give the job another name"}),
		reason: training.FailureLauncher, subject: "ConfigMap train-hostfile", cause: "does not belong to the job", advice: "Delete it, or give the job another name",
	},
	{
		name: "another PodGroup has another number of pods", start: nothing,
		happen: refused(Refusal{Object: "PodGroup train", Message: "PodGroup minMember mismatch: expected 3, got 2"}),
		reason: training.FailureLauncher, subject: "PodGroup train", cause: "PodGroup minMember mismatch: expected 3, got 2", advice: "Change the job",
	},
}

// nothing is a pod that was just created.
func nothing(*corev1.Pod) {}

// withoutPods removes all pods and sets the workload.
func withoutPods(workload Workload) func(*scene) {
	return func(scene *scene) {
		scene.observed.Launchers, scene.observed.Workers, scene.observed.Workload = nil, nil, workload
	}
}

// deletionFailures are jobs whose objects are deleted.
var deletionFailures = []failureRow{
	{
		name: "the JobSet is deleted", kinds: onlyTrainJob, happen: withoutPods(Workload{}),
		reason: training.FailureLauncher, subject: "The JobSet train was deleted while the job ran, and with it the launcher (pod {launcher})", cause: "was deleted", advice: "Start the job again",
	},
	{
		name: "the launcher's Job is deleted", kinds: onlyMPIJob,
		happen: func(scene *scene) { scene.observed.Launchers, scene.observed.Workload = nil, Workload{} },
		reason: training.FailureLauncher, subject: "The Job train-launcher was deleted while the job ran, and with it the launcher (pod {launcher})", cause: "was deleted", advice: "Start the job again",
	},
	{
		name: "the JobSet is deleted and its pods exit", kinds: onlyTrainJob,
		happen: func(scene *scene) {
			scene.observed.Workload = Workload{}
			scene.everyPod(deleted(50), exits(143, "Error", "", 51))
		},
		reason: training.FailureLauncher, subject: "The JobSet train", cause: "was deleted while the job ran", advice: "Start the job again",
	},
	{
		name: "the launcher's Job is deleted and its pod exits", kinds: onlyMPIJob,
		happen: func(scene *scene) {
			scene.observed.Workload = Workload{}
			scene.launcher(deleted(50), exits(143, "Error", "", 51))
		},
		reason: training.FailureLauncher, subject: "The Job train-launcher", cause: "was deleted while the job ran", advice: "Start the job again",
	},
	{
		name:   "the launcher's pod is deleted",
		happen: func(scene *scene) { scene.observed.Launchers = nil },
		reason: training.FailureLauncher, subject: "The launcher (pod {launcher})", cause: "is missing: it was deleted, or its node was lost", advice: "Start the job again",
	},
	{
		name:   "a worker's pod is deleted",
		happen: func(scene *scene) { scene.observed.Workers = scene.observed.Workers[:1] },
		reason: training.FailureWorker, subject: "Worker 1 (pod {worker 1})", cause: "is missing: it was deleted, or its node was lost", advice: "Start the job again",
	},
	{
		name: "a worker is deleted, and the other one was deleted because of it",
		happen: func(scene *scene) {
			scene.worker(0, deleted(51), exits(143, "Error", "", 51))
			scene.observed.Workers = scene.observed.Workers[:1]
		},
		reason: training.FailureWorker, subject: "Worker 1 (pod {worker 1})", cause: "was deleted while the job ran", advice: "Start the job again",
	},
	{
		name: "the JobSet was deleted, and one worker with it", kinds: onlyTrainJob,
		happen: func(scene *scene) {
			scene.observed.Workload = Workload{}
			scene.worker(0, deleted(51), exits(143, "Error", "", 51))
			scene.observed.Workers = scene.observed.Workers[:1]
		},
		reason: training.FailureLauncher, subject: "The JobSet train was deleted while the job ran", cause: "was deleted", advice: "Start the job again",
	},
	{
		name: "a worker is being deleted, and the other one, deleted because of it, exited first",
		happen: func(scene *scene) {
			scene.worker(0, deleted(51), exits(143, "Error", "", 51))
			scene.worker(1, deleted(50))
		},
		reason: training.FailureWorker, subject: secondWorker, cause: "was deleted while the job ran", advice: "Start the job again",
	},
	{
		name: "two workers were deleted in the same second, one because of the other",
		happen: func(scene *scene) {
			scene.worker(0, deleted(50), exits(143, "Error", "", 50)).ResourceVersion = "1002"
			scene.worker(1, deleted(50), exits(143, "Error", "", 50)).ResourceVersion = "999"
		},
		reason: training.FailureWorker, subject: secondWorker, cause: "was deleted while the job ran", advice: "Start the job again",
	},
}

func (sc *scene) forgetPods() {
	for _, progress := range []*training.Progress{&sc.trainJob.Status.Progress, &sc.mpiJob.Status.Progress} {
		progress.LauncherPodStatus, progress.WorkerPodStatuses = nil, nil
	}
}

const fromDeadline = "Deadline exceeded: the job ran for longer than activeDeadlineSeconds, 100. When it was stopped, "

// pastDeadline is a job that exceeds its deadline with pods in this state.
func pastDeadline(happen func(*scene)) func(*scene) {
	return later(scheduled+100, happen)
}

// timeoutFailures are jobs that exceed a timeout.
var timeoutFailures = []failureRow{
	{
		name: "not all scheduled", start: unschedulable(noGPUs), options: []option{deadline(100)},
		happen: later(created+300, func(scene *scene) { scene.freeNodes = 2; scene.worker(0, onNode(scheduled)) }),
		reason: training.FailureGangSchedulingTimeout, subject: "The first pod that is not scheduled is worker 1 (pod {worker 1})",
		cause:  "Gang scheduling timeout: Requested 3 pods, only 2 nodes available with sufficient resources. After 5m0s: 1 of 3 pods are scheduled; scheduler: " + noGPUs + ".",
		advice: "Request fewer or smaller workers",
	},
	{
		name: "the scheduler names no resource", start: unschedulable("minCount (3) cannot be satisfied"),
		happen: later(created+300, func(scene *scene) {
			scene.unfitNodes = map[nodes.Reason]int{{Kind: nodes.TooSmall, Detail: "nvidia.com/gpu"}: 5, {Kind: nodes.TooFull, Detail: "cpu"}: 2,
				{Kind: nodes.Cordoned}: 2, {Kind: nodes.AffinityMismatch}: 1}
		}),
		reason: training.FailureGangSchedulingTimeout, subject: "worker 0 (pod {worker 0})",
		cause:  "only 0 nodes available with sufficient resources (5 too small: nvidia.com/gpu; 2 cordoned; 2 too full: cpu). After 5m0s",
		advice: "Request fewer or smaller workers",
	},
	{
		name: "not all scheduled in spite of a scale-up", start: unschedulable(noGPUs),
		happen: later(created+3600, func(scene *scene) { scene.scalesUp = true }),
		reason: training.FailureGangSchedulingTimeout, subject: "worker 0 (pod {worker 0})",
		cause: "Requested 3 pods, only 0 nodes available with sufficient resources. After 1h0m0s", advice: "retry when other jobs have finished",
	},
	{
		name: "workers were not ready", start: starts, options: []option{deadline(100)},
		happen: pastDeadline(func(scene *scene) { scene.worker(0, runs) }),
		reason: training.FailureWorker, subject: secondWorker, cause: fromDeadline + "not all workers were ready: 1 of 2 workers are ready", advice: "Raise activeDeadlineSeconds",
	},
	{
		name: "a worker still got its image", start: pullsImage, options: []option{deadline(100)},
		happen: pastDeadline(onWorker(waits("ImagePullBackOff", pullFailure))),
		reason: training.FailureWorker, subject: secondWorker, cause: pullFailure, advice: "Raise activeDeadlineSeconds",
	},
	{
		name: "a worker had no pod", options: []option{deadline(100)},
		happen: pastDeadline(func(scene *scene) { scene.observed.Workers = scene.observed.Workers[:1]; scene.forgetPods() }),
		reason: training.FailureWorker, subject: "Worker 1 has no pod", cause: "not all workers were ready", advice: "Raise activeDeadlineSeconds",
	},
	{
		name: "the launcher had not reached them", options: []option{deadline(100)},
		happen: pastDeadline(onLauncher(starts)),
		reason: training.FailureSSHConnection, subject: theLauncher,
		cause: fromDeadline + "all workers were ready, but the launcher had not reached all of them", advice: "Raise activeDeadlineSeconds",
	},
	{
		name: "the command still ran", options: []option{deadline(100)}, happen: pastDeadline(func(*scene) {}),
		reason: training.FailureTraining, subject: "kubectl logs {launcher} -n team",
		cause: fromDeadline + "the launcher had reached all 2 workers and its command was still running", advice: "MPI hangs: the last lines of its log say where",
	},
}

// initializingJob is a job with only the initializer's pod.
func initializingJob(options ...podOption) func(*scene) {
	return func(scene *scene) {
		withoutPods(Workload{})(scene)
		scene.forgetPods()
		if len(options) > 0 {
			scene.observed.Initializers = []*corev1.Pod{scene.newPod(training.RoleInitializer, 0, options...)}
		}
	}
}

const theInitializer = "The initializer (pod {initializer} on node node-launcher)"

// initializerFailures are jobs whose initializer fails.
var initializerFailures = []failureRow{
	{
		name: "nothing at the address", options: []option{withInitializer},
		happen: initializingJob(runs, exits(1, "Error", "s3://data/set: no such bucket; correct storageUri", 50)),
		reason: training.FailureTraining, subject: theInitializer, cause: "failed: s3://data/set: no such bucket", advice: "correct storageUri",
	},
	{
		name: "failed without a message", options: []option{withInitializer}, happen: initializingJob(runs, exits(2, "Error", "", 50)),
		reason: training.FailureTraining, subject: theInitializer, cause: "exited with code 2", advice: "kubectl logs {initializer} -c dataset -n team",
	},
	{
		name: "killed for its memory", options: []option{withInitializer}, happen: initializingJob(runs, outOfMemory(50)),
		reason: training.FailureTraining, subject: theInitializer, cause: "exceeded its memory limit", advice: "kubectl logs {initializer} -c dataset -n team",
	},
	{
		name: "its image is missing", options: []option{withInitializer}, happen: later(impatient, initializingJob(pullsImage, waits("ImagePullBackOff", pullFailure))),
		reason: training.FailureTraining, subject: theInitializer, cause: "cannot pull its image registry.example.com/train:1: " + pullFailure, advice: "imagePullSecrets",
	},
	{
		name: "its Secret is missing", options: []option{withInitializer}, happen: later(impatient, initializingJob(pullsImage, waits("CreateContainerConfigError", `secret "s3" not found`))),
		reason: training.FailureTraining, subject: theInitializer, cause: `secret "s3" not found`, advice: "Create the Secret or ConfigMap",
	},
	{
		name: "it crashes more often than the kubelet may restart it", options: []option{withInitializer}, happen: initializingJob(runs, crashes(1, 3, 50)),
		reason: training.FailureTraining, subject: theInitializer, cause: "exited with code 1, 3 times so far (CrashLoopBackOff)", advice: "kubectl logs --previous {initializer} -c dataset -n team",
	},
	{
		name: "it is evicted", options: []option{withInitializer}, happen: initializingJob(runs, terminatedByNode("Evicted", "The node was low on resource: memory.", 50)),
		reason: training.FailureTraining, subject: theInitializer, cause: "was evicted from its node", advice: "requests as high as its limits",
	},
	{
		name: "no such name of its image", options: []option{withInitializer}, happen: initializingJob(pullsImage, waits("InvalidImageName", `couldn't parse image name "A:B:C"`)),
		reason: training.FailureTraining, subject: theInitializer, cause: `couldn't parse image name "A:B:C"`, advice: "Correct the image's name",
	},
	{
		name: "a quota refuses it for longer than the job may wait", options: []option{withInitializer},
		happen: func(scene *scene) {
			initializingJob()(scene)
			refusedUntil(present+60, Refusal{Role: training.RoleInitializer, Object: "Pod train-initializer-r0", Message: exceeded, Quota: true, QuotaName: "compute"})(scene)
		},
		reason: training.FailureResourceQuota, subject: "Pod train-initializer-r0 could not be created", cause: "exceeded quota: compute", advice: "kubectl describe quota -n team",
	},
	{
		name: "PodSecurity refuses it", options: []option{withInitializer},
		happen: func(scene *scene) {
			initializingJob()(scene)
			scene.observed.Refusal = &Refusal{Role: training.RoleInitializer, Object: "Pod train-initializer-r0", Message: `pods "x" is forbidden: violates PodSecurity "restricted:latest"`}
		},
		reason: training.FailureLauncher, subject: "Pod train-initializer-r0 could not be created", cause: "violates PodSecurity", advice: "Change the job",
	},
}
