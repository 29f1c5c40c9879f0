// SPDX-License-Identifier: Apache-2.0

// Package reports is the operator's port for reports: pods of running jobs report their
// progress and the activity of their ranks to the leading operator. The package
// authenticates the pods and keeps the last reports in memory, bounded for each job.
package reports

import (
	"reflect"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/engine/activity"
	"github.com/trireme-mpi/trireme/internal/engine/diagnosis"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/reports"
)

const (
	// stragglerFactor is how many times slower than the median a straggler is, over
	// stragglerWindow.
	stragglerFactor = 2
	stragglerWindow = 5 * time.Minute
	// silentAfter is when a job without reports no longer counts as reporting, such as one that
	// was suspended.
	silentAfter = 2 * reports.MaxInterval
	// countAge is how long the number of reporting jobs is used.
	countAge = time.Second
)

// Key identifies a job by name.
type Key struct {
	Kind            job.Kind
	Namespace, Name string
}

// Start is one start of a job.
type Start struct {
	Key
	UID     types.UID
	Restart int32
}

// Settings are the parts of a job's spec that reports are judged by.
type Settings struct {
	Hang job.Hang
	// Total is the number of ranks.
	Total int32
	// Stalled is set if the status says so. A new leader learns it from there.
	Stalled bool
}

// Store keeps what running jobs have reported. Package operator reads from it, and is
// notified when a status should be written.
type Store struct {
	clock   clock.WithDelayedExecution
	metrics *metrics

	mutex  sync.Mutex
	jobs   map[types.UID]*entry
	writes reports.Writes[types.UID]
	// reporting is the number of reporting jobs at the time countedAt.
	reporting int
	countedAt time.Time
	// timer is the next check of writes, if one is due later.
	timer clock.Timer

	// notify is called without the lock when the status of a job should be written.
	notify func(Key)
	// straggler is called without the lock for a rank that is slower than the others.
	straggler func(Key, activity.Straggler)
}

// entry is what is known about one start of a job.
type entry struct {
	start    Start
	settings *Settings
	training reports.Training
	// reportedAt is when anything was reported last.
	reportedAt time.Time
	isFinished bool
	// written is the last progress in the output, which every report repeats.
	written *protocol.Progress
	// newest is the last new progress, from the output or from a program itself.
	newest  *protocol.Progress
	history activity.History
	// latest is nil until the launcher's agent has reported.
	latest     *protocol.Activity
	receivedAt time.Time
	// repliedAt is when the agent's last message was answered, and isRestored is set when the
	// agent has sent the metrics over time that it has kept.
	repliedAt  time.Time
	isRestored bool
	// firstRank is when the first rank was started. It stays when that rank has exited.
	firstRank time.Time
	verdict   activity.Verdict
	// isStalled stays until the job makes progress.
	isStalled  bool
	stragglers map[int]bool
	// published is what the status may show.
	published *diagnosis.Reported
}

// NewStore returns an empty store.
func NewStore(timers clock.WithDelayedExecution, registry prometheus.Registerer) (*Store, error) {
	store := &Store{clock: timers, metrics: newMetrics(), jobs: map[types.UID]*entry{}}
	return store, store.metrics.register(registry)
}

// OnChange sets what is called when a status should be written, and for stragglers. It must
// be called before the first report.
func (s *Store) OnChange(notify func(Key), straggler func(Key, activity.Straggler)) {
	s.notify, s.straggler = notify, straggler
}

// Configure sets how the reports of a job are judged. Reports from before are kept.
func (s *Store) Configure(uid types.UID, settings Settings) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	one := s.jobs[uid]
	if one == nil {
		return
	}
	if one.settings == nil {
		one.isStalled = settings.Stalled
	}
	one.settings = &settings
}

// AddProgress adds what a program has reported.
func (s *Store) AddProgress(start Start, progress *protocol.Progress) {
	now := s.clock.Now()
	s.mutex.Lock()
	if one := s.of(start, now); !one.isFinished {
		one.newest = progress
		one.training.Add(now, progress)
	}
	s.metrics.received.WithLabelValues("progress").Inc()
	s.mutex.Unlock()
	s.changed(start)
}

// AddActivity adds what the launcher's agent has reported, and returns the answer to it.
func (s *Store) AddActivity(start Start, report *protocol.Activity) protocol.ActivityReply {
	now := s.clock.Now()
	s.mutex.Lock()
	one := s.of(start, now)
	reply := protocol.ActivityReply{IntervalSeconds: int(reports.Interval(s.countReporting(now)).Seconds())}
	var slow []activity.Straggler
	if !one.isFinished {
		slow = s.addActivity(one, report, now)
		reply.Examine, reply.Recall, reply.Newest = one.verdict.NeedsExamination, !one.isRestored, one.training.Curves.Since(one.repliedAt)
		one.repliedAt = now
	}
	s.metrics.received.WithLabelValues("activity").Inc()
	s.mutex.Unlock()
	for _, straggler := range slow {
		s.straggler(start.Key, straggler)
	}
	s.changed(start)
	return reply
}

// addActivity returns the stragglers that were not known yet.
func (s *Store) addActivity(one *entry, report *protocol.Activity, now time.Time) []activity.Straggler {
	if report.Kept != nil && !one.isRestored {
		one.training.Curves.Restore(report.Kept, now)
		one.isRestored = true
	}
	report.Kept = nil
	if report.Progress != nil && !reflect.DeepEqual(report.Progress, one.written) {
		one.written, one.newest = report.Progress, report.Progress
		one.training.Add(now, report.Progress)
	}
	// A program that reports by itself makes progress, too, whatever it once wrote.
	report.Progress = one.newest
	one.history.Add(now, report)
	one.latest, one.receivedAt = report, now
	one.noteFirstRank()
	if one.settings == nil {
		return nil
	}
	return s.judge(one, now)
}

// countReporting returns how many jobs report, which is how many share the writes. Finished
// jobs stay in the store until they are deleted.
func (s *Store) countReporting(now time.Time) int {
	if now.Sub(s.countedAt) < countAge {
		return s.reporting
	}
	s.reporting, s.countedAt = 0, now
	for _, one := range s.jobs {
		if !one.isFinished && now.Sub(one.reportedAt) < silentAfter {
			s.reporting++
		}
	}
	return s.reporting
}

// of returns the entry of a start that reports now. A new start of a job has reported
// nothing yet.
func (s *Store) of(start Start, now time.Time) *entry {
	one := s.jobs[start.UID]
	if one == nil || one.start.Restart != start.Restart {
		settings := (*Settings)(nil)
		if one != nil {
			settings = one.settings
		}
		one = &entry{start: start, settings: settings, stragglers: map[int]bool{}}
		s.jobs[start.UID] = one
	}
	one.reportedAt = now
	return one
}

// judge returns the stragglers that were not known yet.
func (s *Store) judge(one *entry, now time.Time) (slow []activity.Straggler) {
	one.verdict = activity.Judge(&one.history, now, activity.Settings{
		After: one.settings.Hang.After, StragglerFactor: stragglerFactor, StragglerWindow: stragglerWindow,
	})
	if one.verdict.Stalled && !one.isStalled {
		s.metrics.stalls.WithLabelValues(one.start.Namespace).Inc()
	}
	one.isStalled = one.verdict.Stalled || one.isStalled && !one.verdict.Progressing
	for _, straggler := range one.verdict.Stragglers {
		if !one.stragglers[straggler.Rank] {
			one.stragglers[straggler.Rank] = true
			s.metrics.stragglers.WithLabelValues(one.start.Namespace).Inc()
			slow = append(slow, straggler)
		}
	}
	return slow
}

// noteFirstRank ignores small differences: agents measure when a process was started.
func (e *entry) noteFirstRank() {
	_, first := activity.Summary(e.latest)
	if !first.IsZero() && (e.firstRank.IsZero() || first.Before(e.firstRank.Add(-time.Second))) {
		e.firstRank = first
	}
}

// reported is what the status should show.
func (e *entry) reported() *diagnosis.Reported {
	shown := &diagnosis.Reported{Restart: e.start.Restart, TrainerStatus: e.training.Status()}
	if e.latest == nil {
		return shown
	}
	running, _ := activity.Summary(e.latest)
	total := int32(running)
	if e.settings != nil {
		total = e.settings.Total
	}
	shown.FirstRank, shown.Ranks = e.firstRank, &training.Ranks{Running: int32(running), Total: total}
	shown.Progressing = e.verdict.Progressing
	if !e.verdict.Stalled {
		return shown
	}
	shown.Stall = &diagnosis.Stall{Message: e.verdict.Message, Serial: e.verdict.Serial}
	for _, odd := range e.verdict.Odd {
		shown.Ranks.Odd = append(shown.Ranks.Odd, training.OddRank{Rank: int32(odd.Rank), Host: odd.Host, Doing: odd.Doing, WaitsFor: odd.WaitsFor})
	}
	return shown
}

// changed schedules a write of a job's status if it would change.
func (s *Store) changed(start Start) {
	s.mutex.Lock()
	if one := s.jobs[start.UID]; one != nil && !one.isFinished && !reflect.DeepEqual(one.reported(), one.published) {
		s.writes.Add(start.UID, s.clock.Now())
	}
	s.mutex.Unlock()
	s.publish()
}

// publish shows the jobs whose write is due, and comes back for the others.
func (s *Store) publish() {
	s.mutex.Lock()
	now := s.clock.Now()
	due, next := s.writes.Due(now)
	keys := make([]Key, 0, len(due))
	for _, uid := range due {
		if one := s.jobs[uid]; one != nil {
			one.published = one.reported()
			keys = append(keys, one.start.Key)
		}
	}
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	if !next.IsZero() {
		// In a goroutine, because a clock in a test calls it with its own lock.
		s.timer = s.clock.AfterFunc(max(next.Sub(now), time.Millisecond), func() { go s.publish() })
	}
	s.mutex.Unlock()
	for _, key := range keys {
		s.notify(key)
	}
}

// Published is what the status of a job may show; nil if nothing was reported. latest also
// returns what waits for its turn: the status of a job that finishes is written in any
// case.
func (s *Store) Published(uid types.UID, latest bool) *diagnosis.Reported {
	if s == nil {
		return nil
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	one := s.jobs[uid]
	switch {
	case one == nil:
		return nil
	case latest:
		return one.reported()
	}
	return one.published
}

// Ranks returns the last report about all ranks of a job, and when it was received.
func (s *Store) Ranks(uid types.UID) (*protocol.Activity, time.Time) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if one := s.jobs[uid]; one != nil && one.latest != nil {
		return one.latest, one.receivedAt
	}
	return nil, time.Time{}
}

// Curves returns the metrics of a job over time.
func (s *Store) Curves(uid types.UID) []reports.Curve {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if one := s.jobs[uid]; one != nil {
		return one.training.Curves.All()
	}
	return nil
}

// Forget drops everything about a deleted job.
func (s *Store) Forget(uid types.UID) {
	if s == nil {
		return
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	delete(s.jobs, uid)
	s.writes.Forget(uid)
}

// Finish drops what is not needed of a finished job. Its curves stay.
func (s *Store) Finish(uid types.UID) {
	if s == nil {
		return
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if one := s.jobs[uid]; one != nil {
		one.isFinished = true
		one.history, one.latest, one.written, one.newest, one.stragglers = activity.History{}, nil, nil, nil, nil
	}
	s.writes.Forget(uid)
}

// ForgetNamespace drops the metrics of a deleted namespace.
func (s *Store) ForgetNamespace(name string) {
	if s == nil {
		return
	}
	deleted := prometheus.Labels{"namespace": name}
	s.metrics.stalls.DeletePartialMatch(deleted)
	s.metrics.stragglers.DeletePartialMatch(deleted)
}
