// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/diagnosis"
)

// stopwatch holds the times at which this process observed the first steps of a job. The
// status only has whole seconds, and most starts take less than two.
type stopwatch struct {
	submitted, admitted, scheduled time.Time
}

// toStart is how long it took until all pods were scheduled: since the job was created,
// and since it was admitted. A process that became leader in between uses the times of
// the status.
func (s stopwatch) toStart(previous diagnosis.Previous, verdict *diagnosis.Verdict) (sinceSubmit, sinceAdmission *time.Duration) {
	measure := func(from time.Time) *time.Duration {
		if from.IsZero() || s.scheduled.IsZero() {
			return nil
		}
		return new(s.scheduled.Sub(from))
	}
	sinceSubmit, sinceAdmission = measure(s.submitted), measure(s.admitted)
	if sinceSubmit == nil {
		sinceSubmit = between(&previous.Submitted, verdict.StartTime)
	}
	if sinceAdmission == nil {
		sinceAdmission = between(stepOf(verdict.Timeline, training.StepAdmitted), verdict.StartTime)
	}
	return sinceSubmit, sinceAdmission
}

// stopwatches are those of the jobs that have not started yet.
type stopwatches struct {
	mutex sync.Mutex
	jobs  map[types.UID]stopwatch
}

// observe records the times of new steps.
func (s *stopwatches) observe(uid types.UID, previous diagnosis.Previous, verdict *diagnosis.Verdict, now time.Time) {
	if previous.StartTime != nil || previous.Finished() {
		return
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	watch := s.jobs[uid]
	note := func(at *time.Time, isNew bool) {
		if at.IsZero() && isNew {
			*at = now
		}
	}
	note(&watch.submitted, previous.Phase == "")
	note(&watch.admitted, stepOf(previous.Timeline, training.StepAdmitted) == nil && stepOf(verdict.Timeline, training.StepAdmitted) != nil)
	note(&watch.scheduled, verdict.StartTime != nil)
	if watch == (stopwatch{}) {
		return
	}
	if s.jobs == nil {
		s.jobs = map[types.UID]stopwatch{}
	}
	s.jobs[uid] = watch
}

// take returns the stopwatch of a job and removes it.
func (s *stopwatches) take(uid types.UID) stopwatch {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	watch := s.jobs[uid]
	delete(s.jobs, uid)
	return watch
}
