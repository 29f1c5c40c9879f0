// SPDX-License-Identifier: Apache-2.0

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

// message is the JSON form of an event.
//
// An event has its changes as a JSON merge patch of the job's row. A change outside the
// row is sent with an empty patch: clients that read the whole object need it, the version
// to resume with advances, and the number of events is that of the cluster.
type message struct {
	Type            EventType `json:"type"`
	Kind            string    `json:"kind"`
	Namespace       string    `json:"namespace,omitempty"`
	Name            string    `json:"name,omitempty"`
	UID             string    `json:"uid,omitempty"`
	ResourceVersion string    `json:"resourceVersion,omitempty"`
	// Timestamp is the time at which this server received the change.
	Timestamp time.Time       `json:"timestamp"`
	Job       *jobview.Row    `json:"job,omitempty"`
	Changes   json.RawMessage `json:"changes,omitempty"`
}

// newEvent creates the event of a change; before is nil if it is unknown.
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
	// Thousands of events are kept, and none needs a spec.
	return &Event{Type: eventType, Row: row, Object: partial.Of(after.Object), ResourceVersion: resourceVersion, JSON: encode(m)}
}

// syncedEvent says that all existing jobs have been sent.
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

// mergePatch returns the changes from one row to another (RFC 7386). If the row before is
// unknown, it has every field, so that it applies to any row.
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

// everyField has all fields of a row, without values.
var everyField = func() map[string]json.RawMessage {
	names := map[string]json.RawMessage{}
	for field := range reflect.TypeFor[jobview.Row]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		names[name] = nil
	}
	return names
}()
