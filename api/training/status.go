// SPDX-License-Identifier: Apache-2.0

package training

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Phase is the summary of a job's status.
// +kubebuilder:validation:Enum=Pending;Running;Succeeded;Failed
type Phase string

const (
	// PhasePending: the job is accepted and not all of its pods are running.
	PhasePending Phase = "Pending"
	// PhaseRunning: launcher and workers are running.
	PhaseRunning Phase = "Running"
	// PhaseSucceeded: the launcher completed with exit code 0. Terminal.
	PhaseSucceeded Phase = "Succeeded"
	// PhaseFailed: the job failed; failureReason has the reason. Terminal.
	PhaseFailed Phase = "Failed"
)

// FailureReason is the root cause of a failure.
// +kubebuilder:validation:Enum=GangSchedulingTimeout;LauncherFailed;WorkerFailed;SSHConnectionFailed;MPIInitializationFailed;TrainingError;ResourceQuotaExceeded
type FailureReason string

const (
	// FailureGangSchedulingTimeout: not all pods were scheduled in time.
	FailureGangSchedulingTimeout FailureReason = "GangSchedulingTimeout"
	// FailureLauncher: the launcher's pod failed, not its command: out of memory,
	// evicted, image not found.
	FailureLauncher FailureReason = "LauncherFailed"
	// FailureWorker: a worker's pod failed before anything else did.
	FailureWorker FailureReason = "WorkerFailed"
	// FailureSSHConnection: the launcher could not reach a worker.
	FailureSSHConnection FailureReason = "SSHConnectionFailed"
	// FailureMPIInitialization: workers were reached, but MPI did not start on them.
	FailureMPIInitialization FailureReason = "MPIInitializationFailed"
	// FailureTraining: the command ran and failed.
	FailureTraining FailureReason = "TrainingError"
	// FailureResourceQuota: the namespace's quota refused a pod.
	FailureResourceQuota FailureReason = "ResourceQuotaExceeded"
)

// CauseStalled is the failureCause of a job that was stopped because its ranks made no
// progress.
const CauseStalled = "Stalled"

// Progress is the part of the status that both kinds share.
type Progress struct {
	// phase is the summary of the status: Pending, Running, Succeeded or Failed.
	// Succeeded and Failed are final.
	// +optional
	Phase Phase `json:"phase,omitempty"`

	// readyWorkers is the number of ready workers and of all workers, such as 3/4.
	// +optional
	ReadyWorkers string `json:"readyWorkers,omitempty"`

	// workerCount is the number of workers that the job has.
	// +optional
	WorkerCount int32 `json:"workerCount,omitempty"`

	// readyWorkerCount is the number of workers that are ready.
	// +optional
	ReadyWorkerCount int32 `json:"readyWorkerCount,omitempty"`

	// launcherPodStatus is the state of the launcher's pod.
	// +optional
	LauncherPodStatus *PodStatus `json:"launcherPodStatus,omitempty"`

	// workerPodStatuses is the state of each worker's pod.
	// +listType=map
	// +listMapKey=index
	// +optional
	WorkerPodStatuses []WorkerPodStatus `json:"workerPodStatuses,omitempty"`

	// failureReason is the root cause of the failure.
	// +optional
	FailureReason FailureReason `json:"failureReason,omitempty"`

	// failureMessage names the pod or rank that failed, the cause, and what to do.
	// +optional
	FailureMessage string `json:"failureMessage,omitempty"`

	// failureCause is what Kubernetes reports for the pod that failed, such as OOMKilled,
	// Evicted or ImagePullBackOff, or Stalled if the ranks made no progress. It is empty
	// where no pod failed.
	// +optional
	FailureCause string `json:"failureCause,omitempty"`

	// failedProcess is the process that failed, with its last output. It is set if
	// the launcher's output names the process.
	// +optional
	FailedProcess *FailedProcess `json:"failedProcess,omitempty"`

	// restart is set after the job was restarted because of a failure, or while a
	// restart is due.
	// +optional
	Restart *Restart `json:"restart,omitempty"`

	// quotaWait is set while a ResourceQuota of the namespace refuses pods of the job
	// and the job waits for free quota.
	// +optional
	QuotaWait *QuotaWait `json:"quotaWait,omitempty"`

	// duration is the time from startTime to completionTime, such as 5m30s. It is set
	// when the job has finished.
	// +optional
	Duration string `json:"duration,omitempty"`

	// timeline is when the job reached each step.
	// +listType=map
	// +listMapKey=step
	// +optional
	Timeline []TimelineEntry `json:"timeline,omitempty"`

	// trainerStatus is the progress that the training reports.
	// +optional
	TrainerStatus *TrainerStatus `json:"trainerStatus,omitempty"`

	// ranks summarizes the MPI processes of the job, as its agents see them.
	// +optional
	Ranks *Ranks `json:"ranks,omitempty"`

	// observedGeneration is the generation of the job that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// TrainerStatus is the progress of a training. Its fields have the names of Kubeflow
// Trainer's progress protocol.
type TrainerStatus struct {
	// step is the last step that the training has completed.
	// +optional
	Step *int64 `json:"step,omitempty"`

	// totalSteps is the number of steps of the training, if it is known.
	// +optional
	TotalSteps *int64 `json:"totalSteps,omitempty"`

	// progressPercentage is how much of the training is completed, from 0 to 100.
	// +optional
	ProgressPercentage *int32 `json:"progressPercentage,omitempty"`

	// estimatedRemainingSeconds is how long the training still takes. If the training
	// does not report it, it is estimated from the time that the last steps took.
	// +optional
	EstimatedRemainingSeconds *int64 `json:"estimatedRemainingSeconds,omitempty"`

	// metrics are the last values that the training reported, such as its loss. At most
	// 256.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	// +optional
	Metrics []TrainerMetric `json:"metrics,omitempty"`

	// lastUpdatedTime is when the training last reported progress.
	// +optional
	LastUpdatedTime *metav1.Time `json:"lastUpdatedTime,omitempty"`
}

// TrainerMetric is a value that a training reports.
type TrainerMetric struct {
	// name of the metric, at most 64 characters.
	// +kubebuilder:validation:MaxLength=64
	// +required
	Name string `json:"name"`

	// value of the metric as text, at most 64 characters.
	// +kubebuilder:validation:MaxLength=64
	// +required
	Value string `json:"value"`
}

// Ranks summarizes the MPI processes of a job.
type Ranks struct {
	// running is the number of ranks whose process exists.
	// +required
	Running int32 `json:"running"`

	// total is the number of ranks that the job has slots for.
	// +required
	Total int32 `json:"total"`

	// odd are the ranks that a stalled or slow job waits for, at most 16.
	// +listType=map
	// +listMapKey=rank
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Odd []OddRank `json:"odd,omitempty"`
}

// OddRank is a rank that differs from the others.
type OddRank struct {
	// rank of the process in MPI_COMM_WORLD.
	// +required
	Rank int32 `json:"rank"`

	// host that the rank runs on, as the hostfile names it.
	// +optional
	Host string `json:"host,omitempty"`

	// doing is what the rank does: Computing, SpinningInMPI, Sleeping or Stopped. It is
	// empty if that is not known.
	// +optional
	Doing string `json:"doing,omitempty"`

	// waitsFor is the wait channel of the kernel that the rank sleeps in, or the peer of
	// the connection that it waits for.
	// +optional
	WaitsFor string `json:"waitsFor,omitempty"`
}

// FailedProcess is the process that failed, as mpirun and the program report it.
// Secrets are redacted.
type FailedProcess struct {
	// rank of the process in MPI_COMM_WORLD.
	// +optional
	Rank *int32 `json:"rank,omitempty"`

	// host that the process ran on, as the hostfile names it.
	// +optional
	Host string `json:"host,omitempty"`

	// exitCode of the process.
	// +optional
	ExitCode *int32 `json:"exitCode,omitempty"`

	// signal that killed the process.
	// +optional
	Signal *int32 `json:"signal,omitempty"`

	// error is the line of the program's output that names the error, such as a Python
	// exception.
	// +optional
	Error string `json:"error,omitempty"`

	// lastLines are the last lines that the program wrote: at most 5 lines and 1 KiB. Of a
	// Python traceback they are the innermost frame and the exception.
	// +listType=atomic
	// +optional
	LastLines []string `json:"lastLines,omitempty"`
}

// Restart is the number of restarts of a job, and the cause of the last one.
type Restart struct {
	// count is the number of restarts, including one that is due. Its maximum is
	// backoffLimit.
	// +required
	Count int32 `json:"count"`

	// reason of the last failure.
	// +required
	Reason FailureReason `json:"reason"`

	// message names the pod or rank of the last failure, the cause, and what to do.
	// +optional
	Message string `json:"message,omitempty"`

	// dueTime is when the restart is due: 10 seconds after the first failure, twice
	// as long after each further failure, at most 6 minutes. The restart also waits
	// until the old pods are deleted.
	// +required
	DueTime metav1.Time `json:"dueTime"`
}

// QuotaWait is a ResourceQuota that a job waits for.
type QuotaWait struct {
	// name of the ResourceQuota; empty if the API server does not say.
	// +optional
	Name string `json:"name,omitempty"`

	// since is when the quota first refused a pod of the job. The job fails with
	// ResourceQuotaExceeded if the quota is still exceeded after the configured time
	// (60 seconds).
	// +required
	Since metav1.Time `json:"since"`

	// message of the API server.
	// +optional
	Message string `json:"message,omitempty"`
}

// PodStatus is the state of one pod.
type PodStatus struct {
	// name of the pod.
	// +optional
	Name string `json:"name,omitempty"`

	// node of the pod.
	// +optional
	Node string `json:"node,omitempty"`

	// phase of the pod: Pending, Running, Succeeded, Failed or Unknown.
	// +optional
	Phase string `json:"phase,omitempty"`

	// reason why the pod waits or failed, such as OOMKilled or ImagePullBackOff.
	// +optional
	Reason string `json:"reason,omitempty"`

	// message with details about the reason.
	// +optional
	Message string `json:"message,omitempty"`
}

// WorkerPodStatus is the state of one worker's pod.
type WorkerPodStatus struct {
	// index of the worker, from 0.
	// +required
	Index int32 `json:"index"`

	PodStatus `json:",inline"`
}

// TimelineEntry is a step that a job has reached.
type TimelineEntry struct {
	// step that was reached. WorkersReached: the launcher has logged in to every
	// worker and has checked the ports that MPI uses. FirstRankUp: the first rank has
	// been started, as the agents report while the job runs. Without such a report, it
	// is set when the launcher has finished, to the time when mpirun had logged in to
	// the last worker; it is then missing if the workers run the sshd of their image.
	// +required
	Step TimelineStep `json:"step"`

	// time when the step was reached.
	// +required
	Time metav1.Time `json:"time"`
}

// TimelineStep is a step from submission to the end of a job.
// +kubebuilder:validation:Enum=Submitted;Admitted;Scheduled;PodsReady;WorkersReached;FirstRankUp;Finished
type TimelineStep string

const (
	// StepSubmitted: the job was created.
	StepSubmitted TimelineStep = "Submitted"
	// StepAdmitted: the job is not suspended, and not waiting in a queue.
	StepAdmitted TimelineStep = "Admitted"
	// StepScheduled: every pod has a node.
	StepScheduled TimelineStep = "Scheduled"
	// StepPodsReady: every worker is ready.
	StepPodsReady TimelineStep = "PodsReady"
	// StepWorkersReached: the launcher has logged in to every worker, and has checked the
	// ports that MPI uses.
	StepWorkersReached TimelineStep = "WorkersReached"
	// StepFirstRankUp: the first rank has been started or, if that was not reported, mpirun
	// has logged in to the last worker.
	StepFirstRankUp TimelineStep = "FirstRankUp"
	// StepFinished: the job has finished.
	StepFinished TimelineStep = "Finished"
)
