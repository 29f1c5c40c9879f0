package diagnosis

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/agent"
	"github.com/trireme-mpi/trireme/internal/job"
	"github.com/trireme-mpi/trireme/internal/plan"
)

// failure is why a job has failed.
type failure struct {
	reason  training.FailureReason
	message string
	at      time.Time
	// rank orders failures of the same second: what a launcher says of its end
	// comes after what ended it, and before what its end brought about.
	rank int
	// doubtful: a cache may be behind.
	doubtful bool
}

const (
	rankWorker = iota
	rankLauncher
	rankAftermath
)

// firstFailure is the first cause of a failure that the job will not recover
// from; nil if there is none.
func (view *view) firstFailure(previous Previous) *failure {
	if refused := view.refusal(); refused != nil {
		return refused
	}
	var failures []failure
	for _, pod := range view.inOrder() {
		if found := view.workerFailure(pod); found != nil {
			failures = append(failures, *found)
		}
	}
	if found := view.launcherFailure(previous); found != nil {
		failures = append(failures, *found)
	}
	if len(failures) == 0 {
		return view.missing(previous)
	}
	first := slices.MinFunc(failures, func(a, b failure) int {
		return cmp.Or(cmp.Compare(a.at.Unix(), b.at.Unix()), cmp.Compare(a.rank, b.rank))
	})
	return &first
}

// refusal is the failure of a job one of whose pods the API server did not take.
func (view *view) refusal() *failure {
	refused := view.seen.Refusal
	if refused == nil {
		return nil
	}
	found := &failure{at: view.seen.Now, reason: training.FailureLauncher}
	if refused.Role == training.RoleWorker {
		found.reason = training.FailureWorker
	}
	found.message = fmt.Sprintf("%s could not be created: %s.", refused.Object, strings.TrimSuffix(refused.Message, "."))
	if refused.Quota {
		found.reason = training.FailureResourceQuota
		found.message += fmt.Sprintf(" Wait until other jobs of the namespace have ended, ask for less, or have the quota raised: kubectl describe quota -n %s.", view.job.Namespace)
	}
	return found
}

// workerFailure is the failure of a job by one of its workers.
func (view *view) workerFailure(pod *corev1.Pod) *failure {
	found := troubleWith(pod)
	if found == nil && pod.DeletionTimestamp != nil && view.job.Kind == job.KindMPIJob {
		found = view.deleted(pod)
	}
	if found == nil || !view.fatal(found) {
		return nil
	}
	rank := rankWorker
	if pod.DeletionTimestamp != nil && !holds(pod, corev1.DisruptionTarget) {
		rank = rankAftermath
	}
	return &failure{reason: training.FailureWorker, message: view.sentence(found), at: found.at, rank: rank, doubtful: found.doubtful}
}

// deleted is the trouble of a pod that somebody deletes.
func (view *view) deleted(pod *corev1.Pod) *trouble {
	grace := int64(0)
	if pod.DeletionGracePeriodSeconds != nil {
		grace = *pod.DeletionGracePeriodSeconds
	}
	return &trouble{
		pod: pod, reason: "Deleted", ended: true, doubtful: true,
		cause: "was deleted while the job ran", advice: "Start the job again.",
		at: pod.DeletionTimestamp.Add(-time.Duration(grace) * time.Second),
	}
}

// sentence tells the whole of a pod's trouble.
func (view *view) sentence(found *trouble) string {
	return fmt.Sprintf("%s %s. %s", capital(view.who(found.pod)), strings.TrimSuffix(found.cause, "."), found.advice)
}

func capital(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// fatal tells whether a job with a pod in such trouble has failed.
func (view *view) fatal(found *trouble) bool {
	limit := view.job.Lifetime.BackoffLimit
	switch {
	case found.ended:
		// JobSet begins the whole anew as often as the job allows it.
		return view.job.Kind == job.KindMPIJob || view.attempt >= limit || view.seen.Workload.Failed != ""
	case found.forGood:
		return true
	case found.reason == "CrashLoopBackOff":
		return restarts(found.pod) > limit
	default:
		return view.seen.Now.Sub(found.at) >= view.seen.ImagePatience
	}
}

func restarts(pod *corev1.Pod) (most int32) {
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		most = max(most, status.RestartCount)
	}
	return most
}

// launcherFailure is the failure of a job by its launcher.
func (view *view) launcherFailure(previous Previous) *failure {
	if view.launcher == nil {
		return nil
	}
	if ended := view.launcherEnd(); ended != nil && ended.ExitCode != 0 && view.launcherGaveUp() {
		found := view.launcherExit(ended)
		found.rank = rankLauncher
		return found
	}
	found := troubleWith(view.launcher)
	if found == nil || found.exit != nil {
		return nil
	}
	if found.ended && !view.launcherGaveUp() || !found.ended && !view.fatal(found) {
		return nil
	}
	return &failure{reason: training.FailureLauncher, message: view.sentence(found), at: found.at, rank: rankLauncher}
}

// launcherGaveUp tells whether no other launcher will be tried.
func (view *view) launcherGaveUp() bool {
	if view.seen.Workload.Failed != "" {
		return true
	}
	if view.job.Kind == job.KindTrainJob {
		return view.attempt >= view.job.Lifetime.BackoffLimit
	}
	return count(view.seen.Launchers).Failed > view.job.Lifetime.BackoffLimit ||
		view.job.Lifetime.BackoffLimit == 0 && view.launcher.Spec.RestartPolicy == corev1.RestartPolicyNever
}

// launcherEnd is how the launcher's command ended, now or the last time. A gate
// in front of it counts as part of it.
func (view *view) launcherEnd() *corev1.ContainerStateTerminated {
	if view.launcher == nil {
		return nil
	}
	for _, status := range view.launcher.Status.InitContainerStatuses {
		if ended := lastEnd(&status); ended != nil && ended.ExitCode != 0 && status.Name == plan.GateContainer {
			return ended
		}
	}
	if status := mainStatus(view.launcher); status != nil {
		return lastEnd(status)
	}
	return nil
}

func lastEnd(status *corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	if status.State.Terminated != nil {
		return status.State.Terminated
	}
	return status.LastTerminationState.Terminated
}

// reportOf is what the agent said when a container ended.
func reportOf(ended *corev1.ContainerStateTerminated) *agent.Report {
	report := &agent.Report{}
	if ended == nil || json.Unmarshal([]byte(ended.Message), report) != nil {
		return nil
	}
	return report
}

// launcherExit explains a launcher whose command ended with an error.
func (view *view) launcherExit(ended *corev1.ContainerStateTerminated) *failure {
	found := &failure{at: ended.FinishedAt.Time, reason: training.FailureTraining}
	report := reportOf(ended)
	if report != nil && report.Reason != "" && ended.Reason != "OOMKilled" {
		found.reason, found.message = training.FailureReason(report.Reason), view.reported(report)
		return found
	}
	status := mainStatus(view.launcher)
	cause, advice := exited(view.launcher, status, ended)
	found.message = view.sentence(&trouble{pod: view.launcher, cause: cause, advice: advice})
	// What ended it came from outside of it.
	if ended.Reason == "OOMKilled" || ended.Reason == "StartError" || ended.Reason == "ContainerCannotRun" || ended.ExitCode > 128 && ended.ExitCode < 160 {
		found.reason = training.FailureLauncher
	}
	return found
}

// reported is the agent's report, joined with what is known of the pod it names.
func (view *view) reported(report *agent.Report) string {
	pod := view.byHost(report.Host)
	if pod == nil || len(report.Hosts.Missing) > 1 {
		// It is about several hosts, or about none.
		return report.Message
	}
	who := view.who(pod)
	if report.Rank != nil {
		who = fmt.Sprintf("rank %d on %s", *report.Rank, who)
	}
	message := fmt.Sprintf("%s: %s", capital(who), report.Message)
	// Where memory is counted by control groups of the first version the kernel
	// ends one process, and Kubernetes does not notice.
	if limit := memoryLimit(pod, pod.Spec.Containers[0].Name); strings.Contains(report.Message, "signal 9") && limit != "" {
		message += fmt.Sprintf(". A process that is killed so has most often used more memory than its container's limit of %s. %s", limit, memoryAdvice(pod))
	}
	return message
}

// byHost is the worker of a host's name.
func (view *view) byHost(host string) *corev1.Pod {
	host, _, _ = strings.Cut(host, ".")
	for index, pod := range view.workers {
		if host != "" && plan.WorkerHost(view.job, index) == host {
			return pod
		}
	}
	return nil
}

// missing is the failure of a job whose parts are gone.
func (view *view) missing(previous Previous) *failure {
	workload := "The JobSet"
	if view.job.Kind == job.KindMPIJob {
		workload = "The launcher's Job"
	}
	knewLauncher := previous.LauncherPodStatus != nil && previous.LauncherPodStatus.Name != ""
	switch {
	case view.seen.Workload.Failed != "":
		return view.workloadFailure(previous)
	case !view.seen.Workload.Exists && knewLauncher:
		return &failure{reason: training.FailureLauncher, at: view.seen.Now, doubtful: true,
			message: workload + " was deleted while the job ran: the launcher ended unexpectedly. Start the job again."}
	case view.job.Kind == job.KindTrainJob:
		return nil
	}
	for _, status := range previous.WorkerPodStatuses {
		if status.Name != "" && view.workers[status.Index] == nil {
			return &failure{reason: training.FailureWorker, at: view.seen.Now, doubtful: true,
				message: fmt.Sprintf("Worker %d (pod %s) is gone: somebody deleted it, or its node was lost. Start the job again.", status.Index, status.Name)}
		}
	}
	return nil
}

// workloadFailure is the failure of a job whose JobSet or Job gave up, where no
// pod is left to say why: what was known of the pods is all there is.
func (view *view) workloadFailure(previous Previous) *failure {
	found := &failure{reason: training.FailureLauncher, at: view.seen.Workload.FailedAt}
	if known := previous.LauncherPodStatus; known != nil && isFailureReason(known.Reason) {
		found.reason, found.message = training.FailureReason(known.Reason), known.Message
		return found
	}
	for _, worker := range previous.WorkerPodStatuses {
		pod := view.workers[worker.Index]
		if worker.Name != "" && (pod == nil || pod.DeletionTimestamp != nil) {
			found.reason = training.FailureWorker
			found.message = fmt.Sprintf("Worker %d (pod %s) was deleted while the job ran. Start the job again.", worker.Index, worker.Name)
			return found
		}
	}
	found.message = fmt.Sprintf("The launcher ended unexpectedly: %s. Look at its events: kubectl get events -n %s.",
		strings.TrimSuffix(view.seen.Workload.Failed, "."), view.job.Namespace)
	return found
}

func isFailureReason(text string) bool {
	return slices.Contains([]training.FailureReason{
		training.FailureGangSchedulingTimeout, training.FailureLauncher, training.FailureWorker, training.FailureSSHConnection,
		training.FailureMPIInitialization, training.FailureTraining, training.FailureResourceQuota,
	}, training.FailureReason(text))
}
