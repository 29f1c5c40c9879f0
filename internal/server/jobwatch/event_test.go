// SPDX-License-Identifier: Apache-2.0

package jobwatch

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trireme-mpi/trireme/internal/kube/jobview"
)

func TestMergePatch(t *testing.T) {
	row := func(change func(*jobview.Row)) *jobview.Row {
		made := &jobview.Row{Kind: "MPIJob", Namespace: "blue", Name: "a", UID: "1", Framework: "MPI", Status: "Running", Phase: "Running", WorkerStatuses: []jobview.WorkerStatus{{Index: 0, Status: "Running"}}}
		change(made)
		return made
	}
	same := func(*jobview.Row) {}
	for name, test := range map[string]struct {
		before, after *jobview.Row
		want          string
	}{
		"nothing":         {row(same), row(same), `{}`},
		"one field":       {row(same), row(func(row *jobview.Row) { row.Status = "Failed" }), `{"status":"Failed"}`},
		"a field is gone": {row(same), row(func(row *jobview.Row) { row.Phase = "" }), `{"phase":null}`},
		"a field is new":  {row(same), row(func(row *jobview.Row) { row.Queue = "q" }), `{"queue":"q"}`},
		"lists are whole": {row(same), row(func(row *jobview.Row) {
			row.WorkerStatuses = append(row.WorkerStatuses, jobview.WorkerStatus{Index: 1})
		}),
			`{"workerStatuses":[{"index":0,"status":"Running"},{"index":1,"status":""}]}`},
		// The patch is right for any row.
		"from nothing that is known": {nil, row(same), `{"completionTime":null,"creationTime":null,"failureReason":null,"framework":"MPI","kind":"MPIJob","launcherStatus":null,"message":null,` +
			`"name":"a","namespace":"blue","numNodes":0,"phase":"Running","queue":null,"ranks":null,"readyWorkers":null,"runtime":null,"runtimeKind":null,"startTime":null,"status":"Running","trainerStatus":null,"uid":"1","workerStatuses":[{"index":0,"status":"Running"}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			if difference := cmp.Diff(test.want, string(mergePatch(test.before, test.after))); difference != "" {
				t.Error(difference)
			}
		})
	}
}

func TestEventsAsClientsGetThem(t *testing.T) {
	seen := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	entryAt := func(version int, readyWorkers string) *entry {
		made, err := newEntry(jobview.MPIJobs, jobAt(version, "a", readyWorkers), seen)
		must(t, err)
		return made
	}
	before, now := entryAt(5, ""), entryAt(7, "1/2")
	identity := `"kind":"MPIJob","namespace":"blue","name":"a","uid":"uid-of-"`
	for name, test := range map[string]struct {
		event *Event
		want  string
	}{
		"added": {newEvent(Added, nil, before, "5"), `{"type":"ADDED",` + identity + `,"resourceVersion":"5","timestamp":"2026-01-02T03:04:05Z","job":` + string(encode(before.Row)) + `}`},
		// A client cannot resume before SYNCED.
		"told at first": {before.asAdded(), `{"type":"ADDED",` + identity + `,"timestamp":"2026-01-02T03:04:05Z","job":` + string(encode(before.Row)) + `}`},
		"modified":      {newEvent(Modified, before, now, "7"), `{"type":"MODIFIED",` + identity + `,"resourceVersion":"7","timestamp":"2026-01-02T03:04:05Z","changes":{"numNodes":2,"readyWorkers":"1/2"}}`},
		"not modified":  {newEvent(Modified, now, now, "7"), `{"type":"MODIFIED",` + identity + `,"resourceVersion":"7","timestamp":"2026-01-02T03:04:05Z","changes":{}}`},
		"deleted":       {newEvent(Deleted, nil, now, "9"), `{"type":"DELETED",` + identity + `,"resourceVersion":"9","timestamp":"2026-01-02T03:04:05Z"}`},
		"synced": {syncedEvent(jobview.MPIJobs, Watch{Namespace: "blue"}, "9", seen),
			`{"type":"SYNCED","kind":"MPIJob","namespace":"blue","resourceVersion":"9","timestamp":"2026-01-02T03:04:05Z"}`},
	} {
		t.Run(name, func(t *testing.T) {
			if difference := cmp.Diff(test.want, string(test.event.JSON)); difference != "" {
				t.Error(difference)
			}
		})
	}
}
