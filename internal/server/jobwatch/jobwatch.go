// Package live is the jobs of a cluster as they are now, and what becomes of them:
// lists, and watches that can be resumed.
package jobwatch

import (
	"context"
	"encoding/json"
	"iter"

	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/internal/kube/jobview"
)

// Source is where jobs are read. Objects and rows that it returns are shared: nobody
// may change them. Errors are problem.Error or the API server's own.
type Source interface {
	Get(ctx context.Context, kind *jobview.Kind, namespace, name string) (client.Object, error)
	List(ctx context.Context, kind *jobview.Kind, query Query) (*Page, error)
	// Watch is what becomes of the jobs of a namespace: from a resource version on, or
	// else every job that there is as Added, then Synced, and then the changes in
	// their order. An error is the last that it yields: of code 410 if the version is
	// too old, or if the reader was too slow, and it must start over; 400 if it is no
	// version. It ends without one when the context does.
	//
	// Every change is told once, also to readers who come back, to this server or to
	// another one. Only where the API server itself has lost its history are changes
	// to one job that followed each other told as one.
	Watch(ctx context.Context, kind *jobview.Kind, watch Watch) iter.Seq2[*Event, error]
}

// Query is which jobs to list, in which order.
type Query struct {
	// Namespace is empty for all that Allowed lets through.
	Namespace string
	// Allowed says which namespaces the caller may list; nil is all.
	Allowed func(namespace string) bool
	Labels  labels.Selector
	// Status is a job's state or phase; Runtime a runtime's name, or "mpi" for all of
	// that framework; Name a part of a job's name. Empty is any.
	Status, Runtime, Name string
	// ExactName is the whole name of the only job that is wanted; empty is any.
	ExactName string
	// Sort is name, creationTime, startTime, status or namespace, with a "-" before it
	// for the last one first. Empty is namespace and name.
	Sort string
	// Limit is how many at most, up to MaxLimit; 0 is DefaultLimit. Continue is where
	// the page before ended.
	Limit    int
	Continue string
	// Whole asks for the objects of jobs, not just for their rows.
	Whole bool
	// Bytes is about how large a page may become, up to MaxBytes, which is also what 0
	// means. It has at least one job.
	Bytes int
}

// Page is a part of a list.
type Page struct {
	Entries []Entry
	// Continue is where the next page begins; empty on the last one.
	Continue string
	// Total is how many there are on all pages, Remaining on those after this one.
	Total, Remaining int
	ResourceVersion  string
}

// Entry is a job in a list.
type Entry struct {
	// Object is nil if the query did not ask for whole jobs.
	Object client.Object
	Row    *jobview.Row
}

// Watch is what to watch.
type Watch struct {
	// Namespace is empty for all of them.
	Namespace string
	// Name of the only job; empty is all.
	Name string
	// Since is the ResourceVersion of the last event that the reader has seen.
	Since string
}

// EventType is what happened.
type EventType string

// The events of a watch.
const (
	Added    EventType = "ADDED"
	Modified EventType = "MODIFIED"
	Deleted  EventType = "DELETED"
	// Synced: every job that there was has been told.
	Synced EventType = "SYNCED"
)

// Event is what became of a job.
type Event struct {
	Type EventType
	// Row is the job after it, or as it was when it was deleted. It is nil where no
	// job is meant: Synced.
	Row *jobview.Row
	// Object has a status, and no spec.
	Object client.Object
	// ResourceVersion is what to resume after this event with; readers must not look
	// into it. It is empty until Synced: whoever has seen only a part of what there is
	// has nothing to go on from.
	ResourceVersion string
	// JSON is the event as clients get it, encoded once for all of them.
	JSON json.RawMessage
}
