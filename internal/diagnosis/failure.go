package diagnosis

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/trireme-mpi/trireme/api/training"
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
	// stopped: nothing has ended by itself; the job is ended now.
	stopped bool
	// doubtful: it looks like somebody's deletion, and a cache may not know yet
	// whose and what for.
	doubtful bool
	// pod that failed, if it is one that is there.
	pod *corev1.Pod
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
	if found := view.launcherFailure(); found != nil {
		failures = append(failures, *found)
	}
	if len(failures) == 0 {
		return view.missing(previous)
	}
	first := slices.MinFunc(failures, func(a, b failure) int {
		return cmp.Or(cmp.Compare(a.at.Unix(), b.at.Unix()), cmp.Compare(a.rank, b.rank))
	})
	// Whoever deletes the whole deletes its pods: then the whole is what to name.
	if first.doubtful && !view.seen.Workload.Exists {
		if missing := view.missing(previous); missing != nil {
			return missing
		}
	}
	if earlier := view.deletedBefore(&first, previous); earlier != nil {
		return earlier
	}
	return &first
}

// deletedBefore is the failure by the worker that was deleted first, where the one
// that is seen to have failed was deleted too: whoever makes the pods deletes the
// others when one is missing, and they may end before it does.
func (view *view) deletedBefore(first *failure, previous Previous) *failure {
	if !first.doubtful || first.reason != training.FailureWorker || first.pod == nil || previous.Suspended {
		return nil
	}
	if seen := view.seenDeletedFirst(); seen != nil {
		return &failure{reason: training.FailureWorker, at: first.at, doubtful: true, pod: seen, message: view.sentence(deletion(seen))}
	}
	isOfThisAttempt := func(status training.WorkerPodStatus) bool { return status.Name == first.pod.Name }
	if slices.ContainsFunc(previous.WorkerPodStatuses, isOfThisAttempt) {
		for _, status := range previous.WorkerPodStatuses {
			if status.Name != "" && view.workers[status.Index] == nil {
				return &failure{reason: training.FailureWorker, at: first.at, doubtful: true,
					message: fmt.Sprintf("Worker %d (pod %s) was deleted while the job ran. Start the job again.", status.Index, status.Name)}
			}
		}
	}
	deleted := slices.DeleteFunc(view.inOrder(), func(pod *corev1.Pod) bool { return pod.DeletionTimestamp == nil })
	earliest := slices.MinFunc(append(deleted, first.pod), compareDeletions)
	if earliest == first.pod {
		return nil
	}
	return &failure{reason: training.FailureWorker, at: first.at, doubtful: true, pod: earliest, message: view.sentence(deletion(earliest))}
}

// seenDeletedFirst is the worker of this attempt whose deletion was seen before
// that of others; nil if none was seen.
func (view *view) seenDeletedFirst() *corev1.Pod {
	for _, pod := range view.seen.Deleted {
		index, known := WorkerIndex(view.job, pod)
		there := view.workers[index]
		if known && AttemptOf(pod) >= view.attempt && (there == nil || there.UID == pod.UID) {
			return pod
		}
	}
	return nil
}

// compareDeletions orders deletions of the same second by what was written last of
// each pod.
func compareDeletions(a, b *corev1.Pod) int {
	if order := cmp.Compare(deletedAt(a).Unix(), deletedAt(b).Unix()); order != 0 {
		return order
	}
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	if err != nil {
		return 0
	}
	return order
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
	advice := "Change what the job asks for, or what refuses it, and create the job again."
	if refused.Quota {
		found.reason = training.FailureResourceQuota
		advice = fmt.Sprintf("Wait until other jobs of the namespace have ended, ask for less, or have the quota raised: kubectl describe quota -n %s.", view.job.Namespace)
	}
	found.message = fmt.Sprintf("%s could not be created: %s. %s", refused.Object, trimmed(refused.Message), advice)
	return found
}

// trimmed is a text to which a full stop can be added.
func trimmed(text string) string { return strings.TrimRight(text, ". \n") }

// workerFailure is the failure of a job by one of its workers.
func (view *view) workerFailure(pod *corev1.Pod) *failure {
	found := troubleWith(pod)
	// JobSet itself says if it misses a pod.
	if found == nil && pod.DeletionTimestamp != nil && view.job.Kind == job.KindMPIJob {
		found = deletion(pod)
	}
	if found == nil || !view.fatal(found) {
		return nil
	}
	return view.failureOf(found, training.FailureWorker, rankWorker)
}

// failureOf is the failure of a job by the trouble of one of its pods.
func (view *view) failureOf(found *trouble, reason training.FailureReason, rank int) *failure {
	aftermath := found.isAftermath()
	if aftermath {
		found = deletion(found.pod)
	}
	if aftermath && rank == rankWorker {
		rank = rankAftermath
	}
	return &failure{reason: reason, message: view.sentence(found), at: found.at, rank: rank, stopped: !found.ended, doubtful: aftermath, pod: found.pod}
}

// sentence tells the whole of a pod's trouble.
func (view *view) sentence(found *trouble) string {
	return fmt.Sprintf("%s %s. %s", capital(view.who(found.pod)), trimmed(found.cause), found.advice)
}

func capital(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// fatal tells whether a job with a pod in such trouble has failed.
func (view *view) fatal(found *trouble) bool {
	limit := view.job.Lifetime.BackoffLimit
	gaveUp := view.seen.Workload.Failed != ""
	switch {
	case found.ended:
		// JobSet begins the whole anew as often as the job allows it.
		return view.job.Kind == job.KindMPIJob || view.attempt >= limit || gaveUp
	case found.forGood:
		return true
	case found.reason == crashLoop:
		return restarts(found.pod) > limit || gaveUp
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

// missing is the failure of a job whose parts are gone.
func (view *view) missing(previous Previous) *failure {
	switch {
	case view.seen.Workload.Failed != "":
		return view.workloadFailure(previous)
	case previous.Suspended:
		// What was there before is gone on purpose.
		return nil
	case !view.seen.Workload.Exists && view.knownLauncher(previous) != "":
		return &failure{reason: training.FailureLauncher, at: view.seen.Now, doubtful: true,
			message: fmt.Sprintf("The %s was deleted while the job ran, and with it the launcher (pod %s). Start the job again.", view.workloadName(), view.knownLauncher(previous))}
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

// knownLauncher is the name of the launcher's pod, now or before.
func (view *view) knownLauncher(previous Previous) string {
	switch {
	case view.launcher != nil:
		return view.launcher.Name
	case previous.LauncherPodStatus != nil:
		return previous.LauncherPodStatus.Name
	}
	return ""
}

func (view *view) workloadName() string {
	names := plan.NamesOf(view.job)
	if view.job.Kind == job.KindMPIJob {
		return "Job " + names.Launcher
	}
	return "JobSet " + names.JobSet
}

// workloadFailure is the failure of a job whose JobSet or Job gave up, where no
// pod is left to say why: what was known of the pods is all there is.
func (view *view) workloadFailure(previous Previous) *failure {
	found := &failure{reason: training.FailureLauncher, at: view.seen.Workload.FailedAt}
	if known := previous.LauncherPodStatus; known != nil && isFailureReason(known.Reason) {
		found.reason, found.message = training.FailureReason(known.Reason), known.Message
		return found
	}
	if message := view.lostWorker(previous); message != "" && !view.launcherFailedFirst() {
		found.reason, found.message = training.FailureWorker, message
		return found
	}
	who := "The launcher"
	if name := view.knownLauncher(previous); name != "" {
		who = fmt.Sprintf("The launcher (pod %s)", name)
	}
	found.message = fmt.Sprintf("%s ended unexpectedly: %s. Look at its events: kubectl get events -n %s.", who, trimmed(view.seen.Workload.Failed), view.job.Namespace)
	return found
}

// lostWorker tells of the worker that was deleted first, as far as it is known.
func (view *view) lostWorker(previous Previous) string {
	if seen := view.seenDeletedFirst(); seen != nil {
		return view.sentence(deletion(seen))
	}
	for _, worker := range previous.WorkerPodStatuses {
		pod := view.workers[worker.Index]
		if worker.Name != "" && (pod == nil || pod.DeletionTimestamp != nil) {
			return fmt.Sprintf("Worker %d (pod %s) was deleted while the job ran. Start the job again.", worker.Index, worker.Name)
		}
	}
	return ""
}

// launcherFailedFirst: JobSet names the first of its Jobs that failed, and then
// deletes the others.
func (view *view) launcherFailedFirst() bool {
	return view.job.Kind == job.KindTrainJob && strings.Contains(view.seen.Workload.Failed, fmt.Sprintf("first failed job: %s-%s-", view.job.Name, training.RoleLauncher))
}

func isFailureReason(text string) bool {
	return slices.Contains([]training.FailureReason{
		training.FailureGangSchedulingTimeout, training.FailureLauncher, training.FailureWorker, training.FailureSSHConnection,
		training.FailureMPIInitialization, training.FailureTraining, training.FailureResourceQuota,
	}, training.FailureReason(text))
}
