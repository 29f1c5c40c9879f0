// SPDX-License-Identifier: Apache-2.0

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

// entry is one version of a job. It is immutable.
type entry struct {
	// The object is partial if the job is large (package partial).
	Entry
	version uint64
	// size of the whole job as JSON.
	size int
	// receivedAt is the time at which the server received this version.
	receivedAt time.Time
	// snapshot is the job as an ADDED event for new watches. It is created on first use.
	snapshot atomic.Pointer[Event]
}

// newEntry creates an entry, which owns the object.
func newEntry(kind *jobview.Kind, object client.Object, receivedAt time.Time) (*entry, error) {
	version, err := parseVersion(object.GetResourceVersion())
	if err != nil {
		return nil, fmt.Errorf("%s %s/%s has resource version %q, which is not a number: %w",
			kind.Kind, object.GetNamespace(), object.GetName(), object.GetResourceVersion(), err)
	}
	// Managed fields are half of many objects, and are not needed.
	object.SetManagedFields(nil)
	object.GetObjectKind().SetGroupVersionKind(kind.GVK)
	row := jobview.Of(object).Row()
	stored, size := partial.Keep(object)
	return &entry{Entry: Entry{Object: stored, Row: row}, version: version, size: size, receivedAt: receivedAt}, nil
}

func (e *entry) key() types.NamespacedName {
	return types.NamespacedName{Namespace: e.Row.Namespace, Name: e.Row.Name}
}

// sameJob returns false for another job with the same name.
func (e *entry) sameJob(other *entry) bool { return e.Row.UID == other.Row.UID }

// shareSpec shares the spec between two versions of a job, if the generation is the same:
// most changes are only in the status.
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

// asAdded returns the entry as an ADDED event for new watches.
func (e *entry) asAdded() *Event {
	if event := e.snapshot.Load(); event != nil {
		return event
	}
	event := newEvent(Added, nil, e, "")
	e.snapshot.Store(event)
	return event
}

// byName sorts by namespace and name.
func byName(left, right *entry) int { return compareNames(left.Row, right.key()) }

func compareNames(row *jobview.Row, key types.NamespacedName) int {
	if order := strings.Compare(row.Namespace, key.Namespace); order != 0 {
		return order
	}
	return strings.Compare(row.Name, key.Name)
}
