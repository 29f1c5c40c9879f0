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
func (v *view) exitedWell() bool {
	if v.launcher == nil {
		return false
	}
	status := mainStatus(v.launcher)
	if status == nil || status.State.Terminated == nil {
		return false
	}
	ended := status.State.Terminated
	if isExitLost(ended) {
		return v.launcher.Status.Reason == "" && saysItEndedWell(ended)
	}
	return v.launcher.Status.Phase != corev1.PodFailed && ended.ExitCode == 0
}

// isExitLost tells whether nobody knows how a container ended, because its node's
// container runtime was not there when it did. The exit code is invented then.
func isExitLost(ended *corev1.ContainerStateTerminated) bool {
	return ended.Reason == "Unknown" || ended.Reason == "ContainerStatusUnknown"
}

// saysItEndedWell: the agent's last word outlives a container runtime.
func saysItEndedWell(ended *corev1.ContainerStateTerminated) bool {
	report := reportOf(ended)
	return report != nil && report.Reason == "" && report.ExitCode == 0 && report.Hosts.Expected > 0
}

// wasStopped tells whether the launcher's command ended because its pod was
// deleted: then a 0 means that it knows how to stop, and not that it is done.
func (v *view) wasStopped() bool {
	ended := v.launcherEnd()
	return ended != nil && wasDeletedBy(v.launcher, ended.FinishedAt.Time)
}

// launcherFailure is the failure of a job by its launcher.
func (v *view) launcherFailure() *failure {
	if v.launcher == nil {
		return nil
	}
	ended, found := v.launcherEnd(), troubleWith(v.launcher)
	lostPlace := found != nil && found.ended && found.exit == nil
	if ended != nil && ended.ExitCode != 0 && !lostPlace {
		return v.launcherExit(ended)
	}
	// Nobody ends a pod that has no node, and its finalizer keeps it.
	if found == nil && v.launcher.DeletionTimestamp != nil && !isPlaced(v.launcher) {
		found = deletion(v.launcher)
	}
	// How its command ended was judged above.
	if found == nil || found.exit != nil && found.exit == ended {
		return nil
	}
	if !v.fatal(found) {
		return nil
	}
	return v.failureOf(found, training.FailureLauncher, rankLauncher)
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
func (v *view) launcherExit(ended *corev1.ContainerStateTerminated) *failure {
	name := v.launcherContainer().Name
	found := &trouble{pod: v.launcher, ended: true, exit: ended, reason: ended.Reason, at: ended.FinishedAt.Time}
	if found.isAftermath() {
		return v.failureOf(found, training.FailureLauncher, rankLauncher)
	}
	// A program may leave what looks like a report.
	if report := reportOf(ended); report != nil && isFailureReason(report.Reason) && ended.Reason != "OOMKilled" {
		failure := &failure{at: found.at, rank: rankLauncher, restarts: true, cause: ended.Reason}
		failure.reason, failure.message, failure.process = v.reported(report, found.at)
		return failure
	}
	found.cause, found.advice = exited(v.launcher, name, ended)
	reason := training.FailureTraining
	// What ended it came from outside of it.
	if name == plan.GateContainer || isExitLost(ended) || ended.Reason == "OOMKilled" || ended.Reason == "StartError" || ended.Reason == "ContainerCannotRun" ||
		ended.ExitCode > 128 && ended.ExitCode < 160 {
		reason = training.FailureLauncher
	}
	return v.failureOf(found, reason, rankLauncher)
}

// reported is the agent's report, joined with what is known of the pod it names.
func (v *view) reported(report *protocol.Report, at time.Time) (training.FailureReason, string, *training.FailedProcess) {
	reason := training.FailureReason(report.Reason)
	pod := v.byHost(report.Host)
	for _, named := range []*corev1.Pod{pod, v.byHost(report.Peer)} {
		if named == nil {
			continue
		}
		if found := explanation(named, reason, at); found != nil {
			return training.FailureWorker, v.sentence(found), nil
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
	who := v.who(pod)
	named := report.Rank != nil && (pod != v.launcher || v.isLauncherHost(report.Host))
	if named {
		who = fmt.Sprintf("rank %d on %s", *report.Rank, who)
	}
	what := ": " + orElse(trimmed(report.Message), "the run failed")
	if named && report.RankExitCode != nil && report.Error != "" {
		what = fmt.Sprintf(" exited with code %d: %s", *report.RankExitCode, trimmed(mpi.SafeLine(report.Error)))
	}
	return reason, fmt.Sprintf("%s%s. %s", capital(who), what, advice), failedProcess(report)
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
func explanation(pod *corev1.Pod, reported training.FailureReason, at time.Time) *trouble {
	found := troubleWith(pod)
	lost := reported == training.FailureWorker
	if lost && (found == nil && pod.DeletionTimestamp != nil || found != nil && found.isAftermath()) && wasDeletedBy(pod, at) {
		return deletion(pod)
	}
	if found == nil || !found.ended || found.isAftermath() || found.at.Sub(at) > explanationPatience {
		return nil
	}
	return found
}

// byHost is the worker of a host's name.
func (v *view) byHost(host string) *corev1.Pod {
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
