// SPDX-License-Identifier: Apache-2.0

package history

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/history"
	"github.com/trireme-mpi/trireme/internal/kube/jobreports"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
)

const (
	// maxFinishing is how many records are gathered at a time: each may have a whole log in
	// memory.
	maxFinishing = 4
	// attempts to write a record, with pauses that grow to maxPause.
	attempts = 8
	maxPause = time.Minute
)

// recorder writes a record for each job that finishes or is deleted.
type recorder struct {
	catalog *Catalog
	client  client.Client
	cluster kubernetes.Interface
	// reports has the curves of jobs; nil if the operator cannot be asked.
	reports *jobreports.Client
	spools  *os.Root
	// logBytes is how much of a job's log is kept, before compression.
	logBytes int64
	// settle is how long to wait after the end of a job for its last events.
	settle  time.Duration
	clock   clock.PassiveClock
	log     *slog.Logger
	metrics *metrics

	// slots limits the records that are gathered.
	slots   chan struct{}
	running sync.WaitGroup
	mutex   sync.Mutex
	jobs    map[types.UID]*tracked
}

// tracked is a job that exists, or whose record is not written yet.
type tracked struct {
	kind *jobview.Kind

	mutex  sync.Mutex
	object client.Object
	// started, finished and deleted are closed when the job has reached that state. A deleted
	// job has finished, too.
	started, finished, deleted chan struct{}
}

func newTracked(kind *jobview.Kind, object client.Object) *tracked {
	return &tracked{kind: kind, object: object, started: make(chan struct{}), finished: make(chan struct{}), deleted: make(chan struct{})}
}

// update sets the last version of the job.
func (t *tracked) update(object client.Object, deleted bool) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.object = object
	view := viewOf(t.kind, object)
	if view.StartTime != nil || view.Phase == training.PhaseRunning {
		closeOnce(t.started)
	}
	if view.Finished() || deleted {
		closeOnce(t.finished)
	}
	if deleted {
		closeOnce(t.deleted)
	}
}

func closeOnce(channel chan struct{}) {
	if !isClosed(channel) {
		close(channel)
	}
}

func isClosed(channel chan struct{}) bool {
	select {
	case <-channel:
		return true
	default:
		return false
	}
}

// view returns the last version of the job.
func (t *tracked) view() *jobview.View {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return viewOf(t.kind, t.object)
}

// viewOf returns the view of a copy: objects of the cache are shared, and have no kind.
func viewOf(kind *jobview.Kind, object client.Object) *jobview.View {
	own := object.DeepCopyObject().(client.Object)
	own.GetObjectKind().SetGroupVersionKind(kind.GVK)
	return jobview.Of(own)
}

// handler passes the changes of a kind of jobs to the recorder.
func (r *recorder) handler(ctx context.Context, kind *jobview.Kind) toolscache.ResourceEventHandler {
	see := func(object any, deleted bool) {
		if last, missed := object.(toolscache.DeletedFinalStateUnknown); missed {
			object = last.Obj
		}
		if job, isJob := object.(client.Object); isJob {
			r.see(ctx, kind, job, deleted)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { see(object, false) },
		UpdateFunc: func(_, object any) { see(object, false) },
		DeleteFunc: func(object any) { see(object, true) },
	}
}

// see handles a change of a job. It never waits.
func (r *recorder) see(ctx context.Context, kind *jobview.Kind, object client.Object, deleted bool) {
	if jobview.Of(object).OfMPIOperator {
		return
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	t, known := r.jobs[object.GetUID()]
	if !known {
		t = newTracked(kind, object)
		r.jobs[object.GetUID()] = t
		r.running.Go(func() { r.record(ctx, t) })
	}
	t.update(object, deleted)
}

// record follows one job until it is deleted, and writes its record when it has finished.
func (r *recorder) record(ctx context.Context, t *tracked) {
	view := t.view()
	defer r.forget(view.GetUID())
	log := r.log.With("kind", view.Kind.Kind, "namespace", view.GetNamespace(), "name", view.GetName())
	key, err := r.keyOf(ctx, view)
	switch {
	case err != nil && ctx.Err() != nil:
		return
	case err != nil:
		r.metrics.lost.Inc()
		log.Error("a job will not be in the history", "error", err)
	case !r.catalog.Has(key):
		r.recordOnce(ctx, t, key, log)
	}
	// Until then, changes of the job need no record.
	select {
	case <-t.deleted:
	case <-ctx.Done():
	}
}

func (r *recorder) forget(uid types.UID) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	delete(r.jobs, uid)
}

// errOtherNamespace: the namespace of a job was deleted, and another one has its name.
var errOtherNamespace = errors.New("its namespace was deleted, and created again after the job")

// keyOf returns the key of a job's record. A namespace that is younger than the job is not
// the job's.
func (r *recorder) keyOf(ctx context.Context, view *jobview.View) (history.Key, error) {
	key := history.Key{Kind: view.Kind.Kind, UID: view.GetUID()}
	err := r.retry(ctx, func() error {
		namespace, err := r.cluster.CoreV1().Namespaces().Get(ctx, view.GetNamespace(), metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("read its namespace: %w", err)
		}
		key.NamespaceUID = namespace.UID
		if namespace.CreationTimestamp.After(view.GetCreationTimestamp().Time) {
			return errOtherNamespace
		}
		return nil
	})
	return key, err
}

func (r *recorder) recordOnce(ctx context.Context, t *tracked, key history.Key, log *slog.Logger) {
	lines := newSpool(r.spools, string(key.UID), r.logBytes)
	defer lines.remove()
	readErr := r.follow(ctx, t, lines)
	if ctx.Err() != nil || !r.pause(ctx, r.settle) {
		return
	}
	select {
	case r.slots <- struct{}{}:
	case <-ctx.Done():
		return
	}
	defer func() { <-r.slots }()
	record, problems := r.gather(ctx, t, key)
	content, err := lines.finish(record, readErr)
	for _, problem := range append(problems, err) {
		if problem != nil && ctx.Err() == nil {
			log.Warn("a part of a job's record is missing", "error", problem)
		}
	}
	err = r.retry(ctx, func() error { return r.catalog.Save(ctx, record, content) })
	if err != nil && ctx.Err() == nil {
		r.metrics.lost.Inc()
		log.Error("a job will not be in the history, because its record could not be written", "error", err)
	}
}

// finish returns the log, and notes in the record what is missing of it.
func (s *spool) finish(record *history.Record, readErr error) ([]byte, error) {
	content, kept, omitted, err := s.read()
	record.LogLines, record.OmittedLines = kept, omitted
	err = errors.Join(readErr, err)
	if err != nil {
		record.LogError = err.Error()
	}
	return content, err
}

// retry tries again until it succeeds, or has failed too often.
func (r *recorder) retry(ctx context.Context, try func() error) error {
	backoff := wait.Backoff{Duration: 500 * time.Millisecond, Factor: 3, Jitter: 0.2, Steps: attempts, Cap: maxPause}
	var err error
	for range attempts {
		if err = try(); err == nil || errors.Is(err, errTooLarge) || errors.Is(err, errOtherNamespace) {
			return err
		}
		if !r.pause(ctx, backoff.Step()) {
			return ctx.Err()
		}
	}
	return err
}

// pause returns false if the context has ended.
func (r *recorder) pause(ctx context.Context, duration time.Duration) bool {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
