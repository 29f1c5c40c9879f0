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
	// maxRuntimeMemory bounds the runtimes that are kept decoded, in bytes of their JSON.
	maxRuntimeMemory = 32 << 20
	// maxRuntimeReads bounds how many runtimes are known to have been read lately.
	maxRuntimeReads = 256
)

// runtimeMemory has the runtimes that were used last, decoded, by their digest.
type runtimeMemory struct {
	mutex   sync.Mutex
	entries map[string]*list.Element
	// order is by use, the last one in front.
	order     *list.List
	size, max int
}

type remembered struct {
	runtime *sharedRuntime
	size    int
}

func newRuntimeMemory(max int) *runtimeMemory {
	return &runtimeMemory{entries: map[string]*list.Element{}, order: list.New(), max: max}
}

func (memory *runtimeMemory) get(digest string) *sharedRuntime {
	memory.mutex.Lock()
	defer memory.mutex.Unlock()
	found := memory.entries[digest]
	if found == nil {
		return nil
	}
	memory.order.MoveToFront(found)
	return found.Value.(*remembered).runtime
}

// put remembers a runtime, and returns the one that all share.
func (memory *runtimeMemory) put(runtime *sharedRuntime, size int) *sharedRuntime {
	memory.mutex.Lock()
	defer memory.mutex.Unlock()
	if found := memory.entries[runtime.digest]; found != nil {
		memory.order.MoveToFront(found)
		return found.Value.(*remembered).runtime
	}
	memory.entries[runtime.digest] = memory.order.PushFront(&remembered{runtime, size})
	memory.size += size
	for memory.size > memory.max && memory.order.Len() > 1 {
		oldest := memory.order.Remove(memory.order.Back()).(*remembered)
		delete(memory.entries, oldest.runtime.digest)
		memory.size -= oldest.size
	}
	return runtime
}

// runtimeReads lets jobs share a read of their runtime. A job must get a runtime that is
// at least as new as the job itself. What was read after the operator had seen the job is
// new enough, for the job was created before that: so all jobs that wait in the queue
// share one read, and a job that comes later causes another.
type runtimeReads struct {
	mutex sync.Mutex
	// moment counts what was seen and read, in order.
	moment int64
	seen   map[types.UID]int64
	last   map[runtimeKey]*runtimeRead
}

// runtimeKey names a runtime as it is used in a namespace.
type runtimeKey struct {
	namespace string
	reference v2alpha1.RuntimeRef
}

type runtimeRead struct {
	began    int64
	done     chan struct{}
	runtime  *sharedRuntime
	obstacle *diagnosis.Answer
	err      error
}

func newRuntimeReads() *runtimeReads {
	return &runtimeReads{seen: map[types.UID]int64{}, last: map[runtimeKey]*runtimeRead{}}
}

// see notes that a job exists.
func (reads *runtimeReads) see(uid types.UID) {
	reads.mutex.Lock()
	defer reads.mutex.Unlock()
	if _, known := reads.seen[uid]; !known {
		reads.moment++
		reads.seen[uid] = reads.moment
	}
}

func (reads *runtimeReads) forget(uid types.UID) {
	reads.mutex.Lock()
	defer reads.mutex.Unlock()
	delete(reads.seen, uid)
}

// newest is what a read brings that is new enough for a job; read makes another one.
func (reads *runtimeReads) newest(ctx context.Context, trainJob *v2alpha1.TrainJob, read func() (*sharedRuntime, *diagnosis.Answer, error)) (*sharedRuntime, *diagnosis.Answer, error) {
	key := runtimeKey{trainJob.Namespace, trainJob.Spec.RuntimeRef}
	found, isNew := reads.forJob(key, trainJob.UID)
	if !isNew {
		select {
		case <-found.done:
			return found.runtime, found.obstacle, found.err
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
	found.err = context.Canceled // unless the read comes to its end
	defer func() {
		if found.obstacle != nil || found.err != nil {
			reads.drop(key, found)
		}
		close(found.done)
	}()
	found.runtime, found.obstacle, found.err = read()
	return found.runtime, found.obstacle, found.err
}

// forJob is a read that is new enough for a job, and whether it has yet to be done.
func (reads *runtimeReads) forJob(key runtimeKey, uid types.UID) (found *runtimeRead, isNew bool) {
	reads.mutex.Lock()
	defer reads.mutex.Unlock()
	seen, known := reads.seen[uid]
	if found = reads.last[key]; found != nil && known && found.began > seen {
		return found, false
	}
	if len(reads.last) >= maxRuntimeReads {
		clear(reads.last)
	}
	reads.moment++
	found = &runtimeRead{began: reads.moment, done: make(chan struct{})}
	reads.last[key] = found
	return found, true
}

func (reads *runtimeReads) drop(key runtimeKey, failed *runtimeRead) {
	reads.mutex.Lock()
	defer reads.mutex.Unlock()
	if reads.last[key] == failed {
		delete(reads.last, key)
	}
}
