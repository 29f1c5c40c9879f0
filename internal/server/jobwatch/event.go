package jobwatch

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/trireme-mpi/trireme/internal/kube/jobview"
	"github.com/trireme-mpi/trireme/internal/kube/partial"
)

// message is an event as clients get it.
//
// An event tells its changes as a JSON merge patch of the job's row. One that changes
// nothing in the row is told as well, with no changes: clients that read the whole
// object want to know, the version to resume with goes on, and whoever counts finds
// as many events as the cluster had.
type message struct {
	Type            EventType `json:"type"`
	Kind            string    `json:"kind"`
	Namespace       string    `json:"namespace,omitempty"`
	Name            string    `json:"name,omitempty"`
	UID             string    `json:"uid,omitempty"`
	ResourceVersion string    `json:"resourceVersion,omitempty"`
	// Timestamp is when this server learned of it.
	Timestamp time.Time       `json:"timestamp"`
	Job       *jobview.Row    `json:"job,omitempty"`
	Changes   json.RawMessage `json:"changes,omitempty"`
}

// newEvent is what became of a job; before is nil if it is not known.
func newEvent(eventType EventType, before, after *entry, resourceVersion string) *Event {
	row := after.Row
	m := message{
		Type: eventType, Kind: row.Kind, Namespace: row.Namespace, Name: row.Name, UID: row.UID,
		ResourceVersion: resourceVersion, Timestamp: after.receivedAt,
	}
	switch eventType {
	case Added:
		m.Job = row
	case Modified:
		var rowBefore *jobview.Row
		if before != nil && before.sameJob(after) {
			rowBefore = before.Row
		}
		m.Changes = mergePatch(rowBefore, row)
	}
	// Thousands of events are kept, and nobody reads a spec from them.
	return &Event{Type: eventType, Row: row, Object: partial.Of(after.Object), ResourceVersion: resourceVersion, JSON: encode(m)}
}

// syncedEvent says that every job has been told.
func syncedEvent(kind *jobview.Kind, watch Watch, resourceVersion string, now time.Time) *Event {
	return &Event{Type: Synced, ResourceVersion: resourceVersion, JSON: encode(message{
		Type: Synced, Kind: string(kind.Kind), Namespace: watch.Namespace, Name: watch.Name, ResourceVersion: resourceVersion, Timestamp: now,
	})}
}

func encode(value any) json.RawMessage {
	encoded, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("%T cannot be encoded as JSON: %v", value, err))
	}
	return encoded
}

// mergePatch is what makes one row the other, as RFC 7386 writes it. Without a row
// before it names every field, so that it fits whichever the reader has.
func mergePatch(before, after *jobview.Row) json.RawMessage {
	now := encodedFields(after)
	then := everyField
	if before != nil {
		then = encodedFields(before)
	}
	changes := map[string]json.RawMessage{}
	for name, value := range now {
		if !bytes.Equal(then[name], value) {
			changes[name] = value
		}
	}
	for name := range then {
		if _, still := now[name]; !still {
			changes[name] = json.RawMessage("null")
		}
	}
	return encode(changes)
}

func encodedFields(row *jobview.Row) map[string]json.RawMessage {
	var named map[string]json.RawMessage
	if err := json.Unmarshal(encode(row), &named); err != nil {
		panic(fmt.Sprintf("a row is a JSON object: %v", err))
	}
	return named
}

// everyField of a row, with no value that any could have.
var everyField = func() map[string]json.RawMessage {
	names := map[string]json.RawMessage{}
	for field := range reflect.TypeFor[jobview.Row]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		names[name] = nil
	}
	return names
}()
