// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/engine/mpi"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
)

// launcherSucceeded reports whether the launcher's command has exited with code 0.
func (v *view) launcherSucceeded() bool {
	if v.launcher == nil {
		return false
	}
	status := mainStatus(v.launcher)
	if status == nil || status.State.Terminated == nil {
		return false
	}
	ended := status.State.Terminated
	if isExitUnknown(ended) {
		return v.launcher.Status.Reason == "" && reportsSuccess(ended)
	}
	return v.launcher.Status.Phase != corev1.PodFailed && ended.ExitCode == 0
}

// isExitUnknown reports whether a container terminated while the container runtime of
// its node was down. The exit code in its status is then made up.
func isExitUnknown(ended *corev1.ContainerStateTerminated) bool {
	return ended.Reason == "Unknown" || ended.Reason == "ContainerStatusUnknown"
}

// reportsSuccess reports whether the agent's report shows that the command succeeded.
// The report survives a restart of the container runtime, the exit code does not.
func reportsSuccess(ended *corev1.ContainerStateTerminated) bool {
	report := reportOf(ended)
	return report != nil && report.Reason == "" && report.ExitCode == 0 && report.Hosts.Expected > 0
}

// wasLauncherDeleted reports whether the launcher's command exited because its pod was
// deleted. Exit code 0 then means a clean shutdown, not that the training completed.
func (v *view) wasLauncherDeleted() bool {
	ended := v.launcherEnd()
	return ended != nil && wasDeletedBy(v.launcher, ended.FinishedAt.Time)
}

// launcherFailure is the failure of the job because of its launcher; nil if the
// launcher has not failed.
func (v *view) launcherFailure() *jobFailure {
	if v.launcher == nil {
		return nil
	}
	ended, problem := v.launcherEnd(), problemOf(v.launcher)
	terminatedByKubernetes := problem != nil && problem.ended && problem.exit == nil
	if ended != nil && ended.ExitCode != 0 && !terminatedByKubernetes {
		return v.launcherExit(ended)
	}
	// No kubelet terminates a pod without a node, and its finalizer keeps the pod.
	if problem == nil && v.launcher.DeletionTimestamp != nil && !isScheduled(v.launcher) {
		problem = deletionProblem(v.launcher)
	}
	// The exit of the command was handled above.
	if problem == nil || problem.exit != nil && problem.exit == ended {
		return nil
	}
	if !v.isFatal(problem) {
		return nil
	}
	return v.failureOf(problem, training.FailureLauncher, precedenceLauncher)
}

// launcherContainer is the status of the container that decides over the launcher: the
// gate if it failed, otherwise the one with the launcher's command.
func (v *view) launcherContainer() *corev1.ContainerStatus {
	if v.launcher == nil {
		return nil
	}
	statuses := v.launcher.Status.InitContainerStatuses
	for i := range statuses {
		if ended := lastEnd(&statuses[i]); ended != nil && ended.ExitCode != 0 && statuses[i].Name == plan.GateContainer {
			return &statuses[i]
		}
	}
	return mainStatus(v.launcher)
}

// launcherEnd is the latest termination of the launcher's command; nil if there is none.
func (v *view) launcherEnd() *corev1.ContainerStateTerminated {
	if status := v.launcherContainer(); status != nil {
		return lastEnd(status)
	}
	return nil
}

// reportOf is the report that the agent left in the container's termination message.
func reportOf(ended *corev1.ContainerStateTerminated) *protocol.Report {
	report := &protocol.Report{}
	if ended == nil || json.Unmarshal([]byte(ended.Message), report) != nil {
		return nil
	}
	return report
}

// launcherExit is the failure of a launcher whose command exited with an error.
func (v *view) launcherExit(ended *corev1.ContainerStateTerminated) *jobFailure {
	name := v.launcherContainer().Name
	problem := &podProblem{pod: v.launcher, ended: true, exit: ended, reason: ended.Reason, at: ended.FinishedAt.Time}
	if problem.isDueToDeletion() {
		return v.failureOf(problem, training.FailureLauncher, precedenceLauncher)
	}
	// A program can write a termination message that looks like a report.
	if report := reportOf(ended); report != nil && isFailureReason(report.Reason) && ended.Reason != "OOMKilled" {
		failure := &jobFailure{at: problem.at, precedence: precedenceLauncher, retryable: true, cause: ended.Reason}
		failure.reason, failure.message, failure.process = v.reported(report, problem.at)
		return failure
	}
	problem.cause, problem.advice = explainExit(v.launcher, name, ended)
	reason := training.FailureTraining
	// The command was terminated from outside.
	if name == plan.GateContainer || isExitUnknown(ended) || ended.Reason == "OOMKilled" || ended.Reason == "StartError" || ended.Reason == "ContainerCannotRun" ||
		ended.ExitCode > 128 && ended.ExitCode < 160 {
		reason = training.FailureLauncher
	}
	return v.failureOf(problem, reason, precedenceLauncher)
}

// reported combines the agent's report with the status of the pod that it names.
func (v *view) reported(report *protocol.Report, at time.Time) (training.FailureReason, string, *training.FailedProcess) {
	reason := training.FailureReason(report.Reason)
	pod := v.workerByHost(report.Host)
	for _, named := range []*corev1.Pod{pod, v.workerByHost(report.Peer)} {
		if named == nil {
			continue
		}
		if problem := workerProblem(named, reason, at); problem != nil {
			return training.FailureWorker, v.problemMessage(problem), nil
		}
	}
	advice := "See the launcher's log: " + logCommand(v.launcher, v.launcherContainer().Name) + "."
	if report.Trouble == protocol.PortsBlocked {
		advice = fmt.Sprintf("kubectl get networkpolicy -n %s lists the policies of the namespace.", v.job.Namespace)
	}
	if pod == nil {
		pod = v.launcher
	} else if len(report.Hosts.Missing) > 1 {
		// The report is about several hosts; this is the first of them.
		pod, advice = v.launcher, describeAdvice(pod)
	} else if reason == training.FailureTraining && wasKilled(report) {
		// A program does not send SIGKILL to itself. With cgroup v1 the kernel kills only
		// the process that is out of memory, and the pod keeps running.
		reason, advice = training.FailureWorker, killedAdvice(pod)
	} else if reason == training.FailureWorker || reason == training.FailureSSHConnection {
		advice = describeAdvice(pod)
	}
	if reason == training.FailureTraining {
		advice = gpuAdvice(mpi.GPUFaultOf(slices.Concat(report.LastLines, []string{report.Error})...)) + advice
	}
	subject := v.podTitle(pod)
	named := report.Rank != nil && (pod != v.launcher || v.isLauncherHost(report.Host))
	if named {
		subject = fmt.Sprintf("rank %d on %s", *report.Rank, subject)
	}
	description := ": " + orElse(withoutPeriod(report.Message), "the run failed")
	if named && report.RankExitCode != nil && report.Error != "" {
		description = fmt.Sprintf(" exited with code %d: %s", *report.RankExitCode, withoutPeriod(mpi.SafeLine(report.Error)))
	}
	return reason, fmt.Sprintf("%s%s. %s", capitalized(subject), description, advice), failedProcess(report)
}

// failedProcess is the failed process that a report describes. A program can forge a
// report, so all texts are truncated.
func failedProcess(report *protocol.Report) *training.FailedProcess {
	if report.Rank == nil && report.RankExitCode == nil && report.Signal == 0 && report.Error == "" && len(report.LastLines) == 0 {
		return nil
	}
	process := &training.FailedProcess{
		Rank: int32Of(report.Rank), Host: mpi.SafeLine(report.Host), ExitCode: int32Of(report.RankExitCode),
		Error: mpi.SafeLine(report.Error), LastLines: mpi.SafeLines(report.LastLines),
	}
	if report.Signal != 0 {
		process.Signal = int32Of(&report.Signal)
	}
	return process
}

func int32Of(number *int) *int32 {
	if number == nil || int(int32(*number)) != *number {
		return nil
	}
	return new(int32(*number))
}

func wasKilled(report *protocol.Report) bool { return report.Signal == int(syscall.SIGKILL) }

// gpuAdvice is what a GPU's fault means and what to do, followed by a space; empty without
// a fault.
func gpuAdvice(fault mpi.GPUFault) string {
	switch fault {
	case mpi.GPUOutOfMemory:
		return "The GPU is out of memory: reduce the batch size or the model, or use GPUs with more memory. "
	case mpi.GPUDriverMissing:
		return "The container has no NVIDIA driver: request nvidia.com/gpu for the workers; if they have it, the node's container runtime does not add the driver's libraries (CDI). "
	case mpi.GPUDriverMismatch:
		return "The image's CUDA and the node's driver do not fit: use an image for the CUDA version that nvidia-smi shows on the node, or update the driver. "
	case mpi.GPUNotSupported:
		return "The program was not compiled for this type of GPU: use a build of the framework for it, or nodes with another type. "
	case mpi.GPUNotVisible:
		return "The program sees no GPU: request nvidia.com/gpu for the workers, and do not set CUDA_VISIBLE_DEVICES. "
	}
	return ""
}

// killedAdvice is the advice for a process that was killed while its pod kept running.
func killedAdvice(pod *corev1.Pod) string {
	if len(pod.Spec.Containers) == 0 {
		return describeAdvice(pod)
	}
	container, limit := pod.Spec.Containers[0].Name, ""
	if memory := memoryLimit(pod, container); memory != "" {
		limit = ": its memory limit is " + memory
	}
	return fmt.Sprintf("Most likely out of memory%s. %s", limit, memoryAdvice(pod, container))
}

// workerProblem is the problem of a worker's pod that explains why the launcher, which
// exited at the given time, lost its connection to it.
func workerProblem(pod *corev1.Pod, reported training.FailureReason, at time.Time) *podProblem {
	problem := problemOf(pod)
	lost := reported == training.FailureWorker
	if lost && (problem == nil && pod.DeletionTimestamp != nil || problem != nil && problem.isDueToDeletion()) && wasDeletedBy(pod, at) {
		return deletionProblem(pod)
	}
	if problem == nil || !problem.ended || problem.isDueToDeletion() || problem.at.Sub(at) > workerStatusTimeout {
		return nil
	}
	return problem
}

// workerByHost is the pod of the worker with this host name.
func (v *view) workerByHost(host string) *corev1.Pod {
	host, _, _ = strings.Cut(host, ".")
	for index, pod := range v.workers {
		if host != "" && plan.WorkerHost(v.job, index) == host {
			return pod
		}
	}
	return nil
}

func (v *view) isLauncherHost(host string) bool {
	host, _, _ = strings.Cut(host, ".")
	return host == plan.NamesOf(v.job).LauncherHost
}
