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

// recently remembers what was just created, written or deleted, until the cache shows it.
// It only saves requests: a fresh process that knows nothing does the same work.
type recently struct {
	mutex   sync.Mutex
	created map[types.UID]creation
	deleted map[types.UID]map[string]bool
	// written are jobs and their workloads as they were stored with a status.
	written map[writtenKey]client.Object
	// nudged is when a job's gang was last brought to its scheduler's mind.
	nudged map[types.UID]time.Time
	// published are the addresses of a job's hosts.
	published map[types.UID]publication
	// obstacles are what the last look at a job met.
	obstacles map[types.UID]*notYet
}

type writtenKey struct {
	job        types.UID
	isWorkload bool
}

type creation struct {
	stage        plan.Stage
	restart      int32
	workersReady bool
	at           time.Time
	// told is how many pods the status tells of, and unsaid since when there are others.
	told   int
	unsaid time.Time
}

// begin forgets what was deleted of a job that is about to be made, or made anew.
func (recently *recently) begin(uid types.UID) {
	recently.mutex.Lock()
	defer recently.mutex.Unlock()
	delete(recently.deleted, uid)
}

func (recently *recently) add(uid types.UID, state plan.State, now time.Time) {
	recently.mutex.Lock()
	defer recently.mutex.Unlock()
	if recently.created == nil {
		recently.created = map[types.UID]creation{}
	}
	recently.created[uid] = creation{stage: state.Stage, restart: state.Restart, workersReady: state.WorkersReady, at: now, told: recently.created[uid].told, unsaid: now}
}

func (recently *recently) has(uid types.UID, state plan.State, now time.Time) bool {
	recently.mutex.Lock()
	defer recently.mutex.Unlock()
	made, found := recently.created[uid]
	return found && made.stage == state.Stage && made.restart == state.Restart && made.workersReady == state.WorkersReady && now.Sub(made.at) < cachePatience
}

// areNews tells whether the number of a job's pods changed less than a moment ago, or
// that nothing is known of it.
func (recently *recently) areNews(uid types.UID, pods int, now time.Time) (news, known bool) {
	recently.mutex.Lock()
	defer recently.mutex.Unlock()
	made, known := recently.created[uid]
	if known && made.unsaid.IsZero() && pods != made.told {
		made.unsaid = now
		recently.created[uid] = made
	}
	return !made.unsaid.IsZero() && now.Sub(made.unsaid) < comingPatience, known
}

// tell remembers how many pods the status tells of.
func (recently *recently) tell(uid types.UID, pods int) {
	recently.mutex.Lock()
	defer recently.mutex.Unlock()
	if made, known := recently.created[uid]; known {
		made.told, made.unsaid = pods, time.Time{}
		recently.created[uid] = made
	}
}

// isDue tells whether something that is done from time to time is due for a job.
// The first time it is not: the clock only starts.
func (recently *recently) isDue(uid types.UID, now time.Time, period time.Duration) bool {
	recently.mutex.Lock()
	defer recently.mutex.Unlock()
	if recently.nudged == nil {
		recently.nudged = map[types.UID]time.Time{}
	}
	last, known := recently.nudged[uid]
	if known && now.Sub(last) < period {
		return false
	}
	recently.nudged[uid] = now
	return known
}

func (recently *recently) forget(uid types.UID) {
	recently.mutex.Lock()
	defer recently.mutex.Unlock()
	delete(recently.created, uid)
}

func (recently *recently) removed(uid types.UID, object client.Object) {
	recently.mutex.Lock()
	defer recently.mutex.Unlock()
	if recently.deleted == nil {
		recently.deleted = map[types.UID]map[string]bool{}
	}
	if recently.deleted[uid] == nil {
		recently.deleted[uid] = map[string]bool{}
	}
	recently.deleted[uid][typeAndName(object)] = true
}

func (recently *recently) wasRemoved(uid types.UID, object client.Object) bool {
	recently.mutex.Lock()
	defer recently.mutex.Unlock()
	return recently.deleted[uid][typeAndName(object)]
}

// wrote remembers a job, or its workload, as it is stored now.
func (recently *recently) wrote(key writtenKey, object client.Object) {
	recently.mutex.Lock()
	defer recently.mutex.Unlock()
	if recently.written == nil {
		recently.written = map[writtenKey]client.Object{}
	}
	kept := object.DeepCopyObject().(client.Object)
	// As the cache has it.
	kept.SetManagedFields(nil)
	recently.written[key] = kept
}

// newest is an object as the cache has it, or as it was stored since: what is
// written on top of the former would be refused.
func (recently *recently) newest(key writtenKey, cached client.Object) client.Object {
	recently.mutex.Lock()
	defer recently.mutex.Unlock()
	written := recently.written[key]
	if written == nil {
		return cached
	}
	order, err := resourceversion.CompareResourceVersion(cached.GetResourceVersion(), written.GetResourceVersion())
	if err != nil || order >= 0 || cached.GetUID() != written.GetUID() {
		delete(recently.written, key)
		return cached
	}
	return written.DeepCopyObject().(client.Object)
}

// forgetAll is for a job that is gone.
func (recently *recently) forgetAll(uid types.UID) {
	recently.mutex.Lock()
	defer recently.mutex.Unlock()
	delete(recently.created, uid)
	delete(recently.deleted, uid)
	delete(recently.written, writtenKey{job: uid})
	delete(recently.written, writtenKey{job: uid, isWorkload: true})
	delete(recently.nudged, uid)
	delete(recently.published, uid)
	delete(recently.obstacles, uid)
}

// obstruct remembers what a job waits for, nil for nothing: the next look says it
// in the status.
func (recently *recently) obstruct(uid types.UID, wait *notYet) {
	recently.mutex.Lock()
	defer recently.mutex.Unlock()
	if wait == nil {
		delete(recently.obstacles, uid)
		return
	}
	if recently.obstacles == nil {
		recently.obstacles = map[types.UID]*notYet{}
	}
	recently.obstacles[uid] = wait
}

func (recently *recently) obstacle(uid types.UID) *diagnosis.Answer {
	recently.mutex.Lock()
	defer recently.mutex.Unlock()
	if wait := recently.obstacles[uid]; wait != nil {
		return wait.answer()
	}
	return nil
}

func typeAndName(object client.Object) string {
	return fmt.Sprintf("%T %s %s", object, object.GetName(), object.GetUID())
}
