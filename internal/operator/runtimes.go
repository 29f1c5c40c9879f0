// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"container/list"
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/internal/engine/diagnosis"
)

const (
	// maxRuntimeCache limits the decoded runtimes in memory, in bytes of their JSON.
	maxRuntimeCache = 32 << 20
	// maxRuntimeReads limits how many recent reads of runtimes are remembered.
	maxRuntimeReads = 256
)

// runtimeCache is an LRU cache of decoded runtimes by their digest.
type runtimeCache struct {
	mutex   sync.Mutex
	entries map[string]*list.Element
	// order has the most recently used entry in front.
	order     *list.List
	size, max int
}

type cachedRuntime struct {
	runtime *sharedRuntime
	size    int
}

func newRuntimeCache(max int) *runtimeCache {
	return &runtimeCache{entries: map[string]*list.Element{}, order: list.New(), max: max}
}

func (rc *runtimeCache) get(digest string) *sharedRuntime {
	rc.mutex.Lock()
	defer rc.mutex.Unlock()
	found := rc.entries[digest]
	if found == nil {
		return nil
	}
	rc.order.MoveToFront(found)
	return found.Value.(*cachedRuntime).runtime
}

// put adds a runtime, and returns the instance that all jobs share.
func (rc *runtimeCache) put(runtime *sharedRuntime, size int) *sharedRuntime {
	rc.mutex.Lock()
	defer rc.mutex.Unlock()
	if found := rc.entries[runtime.digest]; found != nil {
		rc.order.MoveToFront(found)
		return found.Value.(*cachedRuntime).runtime
	}
	rc.entries[runtime.digest] = rc.order.PushFront(&cachedRuntime{runtime, size})
	rc.size += size
	for rc.size > rc.max && rc.order.Len() > 1 {
		oldest := rc.order.Remove(rc.order.Back()).(*cachedRuntime)
		delete(rc.entries, oldest.runtime.digest)
		rc.size -= oldest.size
	}
	return runtime
}

// runtimeReads lets jobs share a read of their runtime. A job must get a runtime that is
// at least as new as the job itself. A read that began after the operator first saw the
// job is new enough. All jobs that wait in the queue therefore share one read, and a
// later job causes another.
type runtimeReads struct {
	mutex sync.Mutex
	// sequence orders first sights of jobs and reads of runtimes.
	sequence  int64
	firstSeen map[types.UID]int64
	last      map[runtimeKey]*runtimeRead
}

// runtimeKey identifies a runtime from the point of view of a namespace.
type runtimeKey struct {
	namespace string
	reference v2alpha1.RuntimeRef
}

type runtimeRead struct {
	began    int64
	done     chan struct{}
	runtime  *sharedRuntime
	obstacle *diagnosis.Condition
	err      error
}

func newRuntimeReads() *runtimeReads {
	return &runtimeReads{firstSeen: map[types.UID]int64{}, last: map[runtimeKey]*runtimeRead{}}
}

// addJob records that a job exists.
func (rr *runtimeReads) addJob(uid types.UID) {
	rr.mutex.Lock()
	defer rr.mutex.Unlock()
	if _, known := rr.firstSeen[uid]; !known {
		rr.sequence++
		rr.firstSeen[uid] = rr.sequence
	}
}

func (rr *runtimeReads) forget(uid types.UID) {
	rr.mutex.Lock()
	defer rr.mutex.Unlock()
	delete(rr.firstSeen, uid)
}

// newest returns the result of a read that is new enough for a job. It calls read if
// there is none.
func (rr *runtimeReads) newest(ctx context.Context, trainJob *v2alpha1.TrainJob, read func() (*sharedRuntime, *diagnosis.Condition, error)) (*sharedRuntime, *diagnosis.Condition, error) {
	key := runtimeKey{trainJob.Namespace, trainJob.Spec.RuntimeRef}
	found, isNew := rr.forJob(key, trainJob.UID)
	if !isNew {
		select {
		case <-found.done:
			return found.runtime, found.obstacle, found.err
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
	found.err = context.Canceled // for the case that read panics
	defer func() {
		if found.obstacle != nil || found.err != nil {
			rr.drop(key, found)
		}
		close(found.done)
	}()
	found.runtime, found.obstacle, found.err = read()
	return found.runtime, found.obstacle, found.err
}

// forJob returns a read that is new enough for a job, and whether the caller must do it.
func (rr *runtimeReads) forJob(key runtimeKey, uid types.UID) (found *runtimeRead, isNew bool) {
	rr.mutex.Lock()
	defer rr.mutex.Unlock()
	seen, known := rr.firstSeen[uid]
	if found = rr.last[key]; found != nil && known && found.began > seen {
		return found, false
	}
	if len(rr.last) >= maxRuntimeReads {
		clear(rr.last)
	}
	rr.sequence++
	found = &runtimeRead{began: rr.sequence, done: make(chan struct{})}
	rr.last[key] = found
	return found, true
}

func (rr *runtimeReads) drop(key runtimeKey, failed *runtimeRead) {
	rr.mutex.Lock()
	defer rr.mutex.Unlock()
	if rr.last[key] == failed {
		delete(rr.last, key)
	}
}
