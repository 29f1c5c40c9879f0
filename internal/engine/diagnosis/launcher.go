package diagnosis

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/engine/mpi"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
)

// exitedWell tells whether the launcher's command has ended with 0.
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

// isExitLost tells whether nobody knows how a container ended, because its node's
// container runtime was not there when it did. The exit code is invented then.
func isExitUnknown(ended *corev1.ContainerStateTerminated) bool {
	return ended.Reason == "Unknown" || ended.Reason == "ContainerStatusUnknown"
}

// saysItEndedWell: the agent's last word outlives a container runtime.
func reportsSuccess(ended *corev1.ContainerStateTerminated) bool {
	report := reportOf(ended)
	return report != nil && report.Reason == "" && report.ExitCode == 0 && report.Hosts.Expected > 0
}

// wasStopped tells whether the launcher's command ended because its pod was
// deleted: then a 0 means that it knows how to stop, and not that it is done.
func (v *view) wasLauncherDeleted() bool {
	ended := v.launcherEnd()
	return ended != nil && wasDeletedBy(v.launcher, ended.FinishedAt.Time)
}

// launcherFailure is the failure of a job by its launcher.
func (v *view) launcherFailure() *jobFailure {
	if v.launcher == nil {
		return nil
	}
	ended, problem := v.launcherEnd(), problemOf(v.launcher)
	terminatedByKubernetes := problem != nil && problem.ended && problem.exit == nil
	if ended != nil && ended.ExitCode != 0 && !terminatedByKubernetes {
		return v.launcherExit(ended)
	}
	// Nobody ends a pod that has no node, and its finalizer keeps it.
	if problem == nil && v.launcher.DeletionTimestamp != nil && !isScheduled(v.launcher) {
		problem = deletionProblem(v.launcher)
	}
	// How its command ended was judged above.
	if problem == nil || problem.exit != nil && problem.exit == ended {
		return nil
	}
	if !v.isFatal(problem) {
		return nil
	}
	return v.failureOf(problem, training.FailureLauncher, precedenceLauncher)
}

// launcherContainer is the state of the container that decides: a gate that was
// not passed, or the launcher's command.
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

// launcherEnd is how the launcher's command ended, now or the last time.
func (v *view) launcherEnd() *corev1.ContainerStateTerminated {
	if status := v.launcherContainer(); status != nil {
		return lastEnd(status)
	}
	return nil
}

// reportOf is what the agent said when a container ended.
func reportOf(ended *corev1.ContainerStateTerminated) *protocol.Report {
	report := &protocol.Report{}
	if ended == nil || json.Unmarshal([]byte(ended.Message), report) != nil {
		return nil
	}
	return report
}

// launcherExit explains a launcher whose command ended with an error.
func (v *view) launcherExit(ended *corev1.ContainerStateTerminated) *jobFailure {
	name := v.launcherContainer().Name
	problem := &podProblem{pod: v.launcher, ended: true, exit: ended, reason: ended.Reason, at: ended.FinishedAt.Time}
	if problem.isDueToDeletion() {
		return v.failureOf(problem, training.FailureLauncher, precedenceLauncher)
	}
	// A program may leave what looks like a report.
	if report := reportOf(ended); report != nil && isFailureReason(report.Reason) && ended.Reason != "OOMKilled" {
		failure := &jobFailure{at: problem.at, precedence: precedenceLauncher, retryable: true, cause: ended.Reason}
		failure.reason, failure.message, failure.process = v.reported(report, problem.at)
		return failure
	}
	problem.cause, problem.advice = explainExit(v.launcher, name, ended)
	reason := training.FailureTraining
	// What ended it came from outside of it.
	if name == plan.GateContainer || isExitUnknown(ended) || ended.Reason == "OOMKilled" || ended.Reason == "StartError" || ended.Reason == "ContainerCannotRun" ||
		ended.ExitCode > 128 && ended.ExitCode < 160 {
		reason = training.FailureLauncher
	}
	return v.failureOf(problem, reason, precedenceLauncher)
}

// reported is the agent's report, joined with what is known of the pod it names.
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
		// It is about several hosts, of which this is the first.
		pod, advice = v.launcher, describeAdvice(pod)
	} else if reason == training.FailureTraining && wasKilled(report) {
		// No program does that to itself. Where memory is counted by control groups of
		// the first version the kernel ends one process, and the pod goes on.
		reason, advice = training.FailureWorker, killedAdvice(pod)
	} else if reason == training.FailureWorker || reason == training.FailureSSHConnection {
		advice = describeAdvice(pod)
	}
	subject := v.podTitle(pod)
	named := report.Rank != nil && (pod != v.launcher || v.isLauncherHost(report.Host))
	if named {
		subject = fmt.Sprintf("rank %d on %s", *report.Rank, subject)
	}
	event := ": " + orElse(withoutPeriod(report.Message), "the run failed")
	if named && report.RankExitCode != nil && report.Error != "" {
		event = fmt.Sprintf(" exited with code %d: %s", *report.RankExitCode, withoutPeriod(mpi.SafeLine(report.Error)))
	}
	return reason, fmt.Sprintf("%s%s. %s", capitalized(subject), event, advice), failedProcess(report)
}

// failedProcess is what a report says of the process that failed. A program may leave
// what looks like a report, so nothing in it is trusted to be short.
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

// killedAdvice is for a process that was killed in a pod that runs.
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

// explanation is what the pod of a worker says of why the launcher, which ended
// at a certain time, has lost it.
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

// byHost is the worker of a host's name.
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
