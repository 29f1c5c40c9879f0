// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
)

// record is what an annotation of a JobSet of Kubeflow's Trainer has of the job: the
// status of a JobSet has no room for it. It is kept small: an object has 256 KiB for all
// annotations, and a job a thousand workers.
type record struct {
	training.Progress
	// Workers are the indexes of the workers that had a pod.
	Workers        []indexRange      `json:"workers,omitempty"`
	Hosts          *job.TrainerHosts `json:"hosts,omitempty"`
	StartTime      *metav1.Time      `json:"startTime,omitempty"`
	CompletionTime *metav1.Time      `json:"completionTime,omitempty"`
	Suspended      bool              `json:"suspended,omitempty"`
	Stalled        *Condition        `json:"stalled,omitempty"`
	// Waiting says what a pending job waits for.
	Waiting string `json:"waiting,omitempty"`
}

// indexRange is a first and a last index.
type indexRange [2]int32

// maxStatuses is how many statuses of workers with a problem a record has.
const maxStatuses = 16

// maxRecorded bounds the workers that a forged record can name.
const maxRecorded = 1 << 16

// recordOf reads the record of a JobSet. Users can write annotations: what is not a
// record is none.
func recordOf(set *jobset.JobSet) (found record) {
	if json.Unmarshal([]byte(set.Annotations[training.AnnotationRecord]), &found) != nil {
		return record{}
	}
	return found
}

// RecordedHosts are the settings of MPI that a job has started with; nil if it has not.
func RecordedHosts(set *jobset.JobSet) *job.TrainerHosts { return recordOf(set).Hosts }

// FromJobSet reads what is recorded of a JobSet of Kubeflow's Trainer.
func FromJobSet(set *jobset.JobSet) Previous {
	found := recordOf(set)
	previous := Previous{
		Progress: found.Progress, StartTime: found.StartTime, CompletionTime: found.CompletionTime, Submitted: set.CreationTimestamp,
		Suspended: found.Suspended, Queued: found.Suspended,
	}
	previous.WorkerPodStatuses = found.workerStatuses(set)
	if found.Stalled != nil {
		previous.Stalled = *found.Stalled
	}
	// Until the status of the JobSet has the result, Trainer does not know it.
	for _, end := range []jobset.JobSetConditionType{jobset.JobSetCompleted, jobset.JobSetFailed} {
		if condition := meta.FindStatusCondition(set.Status.Conditions, string(end)); condition != nil && condition.Status == metav1.ConditionTrue {
			previous.FinishRecorded = condition.LastTransitionTime
		}
	}
	return previous
}

// workerStatuses are the statuses of all workers that had a pod.
func (r *record) workerStatuses(set *jobset.JobSet) (statuses []training.WorkerPodStatus) {
	known := map[int32]training.WorkerPodStatus{}
	for _, status := range r.WorkerPodStatuses {
		known[status.Index] = status
	}
	restart := int32(0)
	if r.Restart != nil {
		restart = r.Restart.Count
	}
	bare := job.OfJobSet(set)
	for _, span := range r.Workers {
		for index := max(span[0], 0); index <= min(span[1], maxRecorded) && len(statuses) <= maxRecorded; index++ {
			status, found := known[index]
			if !found {
				status.Index, status.Name = index, plan.PodName(bare, training.RoleWorker, index, restart)
			}
			statuses = append(statuses, status)
		}
	}
	return statuses
}

// JobSetRecord writes the verdict into the record of a JobSet.
func (vd *Verdict) JobSetRecord(j *job.Job, set *jobset.JobSet) {
	earlier := recordOf(set)
	next := record{
		Progress: vd.Progress, StartTime: vd.StartTime, CompletionTime: vd.CompletionTime,
		Suspended: vd.Suspension.Yes, Hosts: earlier.Hosts, Stalled: earlier.Stalled,
	}
	isFinal := vd.Phase == training.PhaseSucceeded || vd.Phase == training.PhaseFailed
	if vd.Phase == training.PhasePending {
		next.Waiting = truncated(vd.Waiting.Message)
	}
	if vd.Stalled.Yes || earlier.Stalled != nil && !isFinal {
		next.Stalled = new(vd.stalledCondition())
	}
	if j.Slots > 0 {
		next.Hosts = &job.TrainerHosts{Slots: j.Slots, Launcher: j.LauncherRunsRanks}
	}
	next.ObservedGeneration = set.Generation
	next.Workers, next.WorkerPodStatuses = compact(vd.WorkerPodStatuses)
	content, err := json.Marshal(next)
	if err != nil {
		panic(err) // the type has only fields that can be encoded
	}
	metav1.SetMetaDataAnnotation(&set.ObjectMeta, training.AnnotationRecord, string(content))
}

// compact returns the indexes of workers as ranges, and the statuses of those with a
// problem.
func compact(statuses []training.WorkerPodStatus) (spans []indexRange, problems []training.WorkerPodStatus) {
	for _, status := range statuses {
		if last := len(spans) - 1; last >= 0 && spans[last][1]+1 == status.Index {
			spans[last][1] = status.Index
		} else {
			spans = append(spans, indexRange{status.Index, status.Index})
		}
		if status.Reason != "" && len(problems) < maxStatuses {
			problems = append(problems, status)
		}
	}
	return spans, problems
}
