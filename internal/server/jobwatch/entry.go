package jobwatch

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
	"github.com/trireme-mpi/trireme/internal/kube/partial"
)

// entry is a job at one of its versions. It never changes.
type entry struct {
	// Entry's object is partial if the job is large (package partial).
	Entry
	version uint64
	// size of the whole job, as JSON.
	size int
	// seen is when this server learned of it.
	receivedAt time.Time
	// snapshot is the job as those are told who begin to watch. It is made when the
	// first one asks.
	snapshot atomic.Pointer[Event]
}

// newEntry takes an object over.
func newEntry(kind *jobview.Kind, object client.Object, receivedAt time.Time) (*entry, error) {
	version, err := parseVersion(object.GetResourceVersion())
	if err != nil {
		return nil, fmt.Errorf("%s %s/%s has resource version %q, which is not a number: %w",
			kind.Kind, object.GetNamespace(), object.GetName(), object.GetResourceVersion(), err)
	}
	// Who wrote which field is half of many objects, and nobody asks.
	object.SetManagedFields(nil)
	object.GetObjectKind().SetGroupVersionKind(kind.GVK)
	row := jobview.Of(object).Row()
	stored, size := partial.Keep(object)
	return &entry{Entry: Entry{Object: stored, Row: row}, version: version, size: size, receivedAt: receivedAt}, nil
}

func (e *entry) key() types.NamespacedName {
	return types.NamespacedName{Namespace: e.Row.Namespace, Name: e.Row.Name}
}

// sameJob: not another one of the same name.
func (e *entry) sameJob(other *entry) bool { return e.Row.UID == other.Row.UID }

// shareSpec lets two versions of a job share what they have in common: most changes
// are of the status alone, and then the generation stays.
func (e *entry) shareSpec(before *entry) {
	if !e.sameJob(before) || e.Object.GetGeneration() != before.Object.GetGeneration() || partial.Is(e.Object) || partial.Is(before.Object) {
		return
	}
	switch object := e.Object.(type) {
	case *v2alpha1.TrainJob:
		object.Spec = before.Object.(*v2alpha1.TrainJob).Spec
	case *v2beta1.MPIJob:
		object.Spec = before.Object.(*v2beta1.MPIJob).Spec
	}
}

// asAdded is the entry as an event for those who begin to watch.
func (e *entry) asAdded() *Event {
	if event := e.snapshot.Load(); event != nil {
		return event
	}
	event := newEvent(Added, nil, e, "")
	e.snapshot.Store(event)
	return event
}

// byName is the order of namespaces, and of names in each.
func byName(left, right *entry) int { return compareNames(left.Row, right.key()) }

func compareNames(row *jobview.Row, key types.NamespacedName) int {
	if order := strings.Compare(row.Namespace, key.Namespace); order != 0 {
		return order
	}
	return strings.Compare(row.Name, key.Name)
}
