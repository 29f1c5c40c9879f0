// SPDX-License-Identifier: Apache-2.0

package jobview

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
)

// Row is the summary of a job in a list.
type Row struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	// Runtime of a TrainJob; empty for an MPIJob.
	Runtime     string `json:"runtime,omitempty"`
	RuntimeKind string `json:"runtimeKind,omitempty"`
	Framework   string `json:"framework"`
	// Status in one word: Submitted, Queued, Suspended, Pending, Restarting, Running,
	// Succeeded, Failed, Deleting.
	Status string `json:"status"`
	// Phase is the operator's: Pending, Running, Succeeded, Failed.
	Phase          string         `json:"phase,omitempty"`
	Message        string         `json:"message,omitempty"`
	FailureReason  string         `json:"failureReason,omitempty"`
	CreationTime   metav1.Time    `json:"creationTime"`
	StartTime      *metav1.Time   `json:"startTime"`
	CompletionTime *metav1.Time   `json:"completionTime"`
	NumNodes       int32          `json:"numNodes"`
	ReadyWorkers   string         `json:"readyWorkers,omitempty"`
	Queue          string         `json:"queue,omitempty"`
	LauncherStatus string         `json:"launcherStatus,omitempty"`
	WorkerStatuses []WorkerStatus `json:"workerStatuses"`
	// TrainerStatus is the progress that the training reports.
	TrainerStatus *training.TrainerStatus `json:"trainerStatus,omitempty"`
	// Ranks summarizes the MPI processes.
	Ranks *training.Ranks `json:"ranks,omitempty"`
}

// WorkerStatus is the status of one worker.
type WorkerStatus struct {
	Index  int32  `json:"index"`
	Status string `json:"status"`
}

// frameworkMPI is the framework of both kinds.
const frameworkMPI = "MPI"

// Row returns the summary of the job.
func (view *View) Row() *Row {
	row := &Row{
		Kind: string(view.Kind.Kind), Namespace: view.GetNamespace(), Name: view.GetName(), UID: string(view.GetUID()),
		Framework: frameworkMPI, Status: view.State(), Phase: string(view.Phase), Message: view.Explanation(), FailureReason: string(view.FailureReason),
		CreationTime: view.GetCreationTimestamp(), StartTime: view.StartTime, CompletionTime: view.CompletionTime,
		NumNodes: view.Identity().Worker.Replicas, ReadyWorkers: view.ReadyWorkers, Queue: view.GetLabels()[training.LabelQueue],
		WorkerStatuses: []WorkerStatus{}, TrainerStatus: view.TrainerStatus, Ranks: view.Ranks,
	}
	if trainJob, is := view.Object.(*v2alpha1.TrainJob); is {
		row.Runtime, row.RuntimeKind = trainJob.Spec.RuntimeRef.Name, string(trainJob.Spec.RuntimeRef.Kind)
	}
	if view.LauncherPodStatus != nil {
		row.LauncherStatus = view.LauncherPodStatus.Phase
	}
	for i := range view.WorkerPodStatuses {
		row.WorkerStatuses = append(row.WorkerStatuses, WorkerStatus{Index: view.WorkerPodStatuses[i].Index, Status: view.WorkerPodStatuses[i].Phase})
	}
	return row
}

// Duration returns how long a job has been running, or ran, as 5m30s; empty if it has
// not started.
func (row *Row) Duration(now time.Time) string {
	if row.StartTime == nil {
		return ""
	}
	if row.CompletionTime != nil {
		now = row.CompletionTime.Time
	}
	return max(now.Sub(row.StartTime.Time), 0).Round(time.Second).String()
}
