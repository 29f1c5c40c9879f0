// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/internal/engine/diagnosis"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
)

// memory is what a reconciler remembers of its jobs between reconciles. It only saves
// requests and status updates: a new process, which remembers nothing, does the same
// work. What the status shows reaches the diagnosis as an input (Observed.Obstacle).
type memory struct {
	creations    creations
	podCounts    podCounts
	deletions    deletions
	writes       writes
	nudges       nudges
	publications publications
	obstacles    obstacles
}

// forget drops everything about a job that was deleted.
func (m *memory) forget(uid types.UID) {
	m.creations.forget(uid)
	m.podCounts.forget(uid)
	m.deletions.forget(uid)
	m.writes.forget(uid)
	m.nudges.forget(uid)
	m.publications.forget(uid)
	m.obstacles.forget(uid)
}

// perJob holds one value for each job. The zero value is ready to use.
type perJob[V any] struct {
	mutex  sync.Mutex
	values map[types.UID]V
}

func (p *perJob[V]) get(uid types.UID) (value V, known bool) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	value, known = p.values[uid]
	return value, known
}

// update replaces the value of a job with what change returns.
func (p *perJob[V]) update(uid types.UID, change func(value V, known bool) V) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.values == nil {
		p.values = map[types.UID]V{}
	}
	value, known := p.values[uid]
	p.values[uid] = change(value, known)
}

func (p *perJob[V]) set(uid types.UID, value V) {
	p.update(uid, func(V, bool) V { return value })
}

func (p *perJob[V]) forget(uid types.UID) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	delete(p.values, uid)
}

// creations are the states for which all objects of a job were created. They are not
// created again until the cache shows them.
type creations struct{ perJob[creation] }

type creation struct {
	stage        plan.Stage
	restart      int32
	workersReady bool
	at           time.Time
}

func (c *creations) add(uid types.UID, state plan.State, now time.Time) {
	c.set(uid, creation{stage: state.Stage, restart: state.Restart, workersReady: state.WorkersReady, at: now})
}

// has reports whether the objects for a state were created less than cachePatience ago.
func (c *creations) has(uid types.UID, state plan.State, now time.Time) bool {
	last, known := c.get(uid)
	return known && last.stage == state.Stage && last.restart == state.Restart && last.workersReady == state.WorkersReady && now.Sub(last.at) < cachePatience
}

// podCounts are the numbers of pods that the status of jobs shows. While pods of a job
// are created, the status is not written for each of them.
type podCounts struct{ perJob[podCount] }

type podCount struct {
	inStatus int
	// changedAt is when the number of pods began to differ from the status; zero if it
	// does not.
	changedAt time.Time
}

// change records that pods of a job were created.
func (c *podCounts) change(uid types.UID, now time.Time) {
	c.update(uid, func(count podCount, _ bool) podCount {
		count.changedAt = now
		return count
	})
}

// isChanging reports whether the number of a job's pods began to change less than
// podCountPatience ago. It is not known for a job whose pods this process did not create.
func (c *podCounts) isChanging(uid types.UID, pods int, now time.Time) (changing, known bool) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	count, known := c.values[uid]
	if known && count.changedAt.IsZero() && pods != count.inStatus {
		count.changedAt = now
		c.values[uid] = count
	}
	return !count.changedAt.IsZero() && now.Sub(count.changedAt) < podCountPatience, known
}

// wrote records that the status shows a number of pods.
func (c *podCounts) wrote(uid types.UID, pods int) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if _, known := c.values[uid]; known {
		c.values[uid] = podCount{inStatus: pods}
	}
}

// deletions are the objects of a job that were deleted, or did not exist. They are not
// deleted again.
type deletions struct{ perJob[map[string]bool] }

func (d *deletions) add(uid types.UID, object client.Object) {
	d.update(uid, func(deleted map[string]bool, known bool) map[string]bool {
		if !known {
			deleted = map[string]bool{}
		}
		deleted[typeAndName(object)] = true
		return deleted
	})
}

func (d *deletions) has(uid types.UID, object client.Object) bool {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return d.values[uid][typeAndName(object)]
}

func typeAndName(object client.Object) string {
	return fmt.Sprintf("%T %s %s", object, object.GetName(), object.GetUID())
}

// writes are jobs and their workloads as they were last written with a status, until
// the cache shows them: an update of an older version would conflict.
type writes struct {
	mutex   sync.Mutex
	objects map[writtenKey]client.Object
}

type writtenKey struct {
	job        types.UID
	isWorkload bool
}

func (w *writes) add(key writtenKey, object client.Object) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.objects == nil {
		w.objects = map[writtenKey]client.Object{}
	}
	stored := object.DeepCopyObject().(client.Object)
	// The cache drops them too.
	stored.SetManagedFields(nil)
	w.objects[key] = stored
}

// newest returns the newer of an object in the cache and what was written last.
func (w *writes) newest(key writtenKey, cached client.Object) client.Object {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	written := w.objects[key]
	if written == nil {
		return cached
	}
	order, err := resourceversion.CompareResourceVersion(cached.GetResourceVersion(), written.GetResourceVersion())
	if err != nil || order >= 0 || cached.GetUID() != written.GetUID() {
		delete(w.objects, key)
		return cached
	}
	return written.DeepCopyObject().(client.Object)
}

func (w *writes) forget(uid types.UID) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	delete(w.objects, writtenKey{job: uid})
	delete(w.objects, writtenKey{job: uid, isWorkload: true})
}

// nudges are the times at which schedulers were last reminded of a job's gang.
type nudges struct{ perJob[time.Time] }

// isDue reports whether the last nudge is at least a period ago, and then records a new
// one. The first call for a job only starts the period.
func (n *nudges) isDue(uid types.UID, now time.Time, period time.Duration) (due bool) {
	n.update(uid, func(last time.Time, known bool) time.Time {
		if known && now.Sub(last) < period {
			return last
		}
		due = known
		return now
	})
	return due
}

// obstacles are what jobs waited for when their objects were last created. They are an
// input of the next diagnosis, so that the status shows them.
type obstacles struct{ perJob[*temporaryObstacle] }

// put records what a job waits for; nil if nothing.
func (o *obstacles) put(uid types.UID, obstacle *temporaryObstacle) {
	if obstacle == nil {
		o.forget(uid)
		return
	}
	o.set(uid, obstacle)
}

func (o *obstacles) answer(uid types.UID) *diagnosis.Condition {
	if obstacle, known := o.get(uid); known {
		return obstacle.answer()
	}
	return nil
}
