// SPDX-License-Identifier: Apache-2.0

// Package jobwatch lists and watches the jobs of a cluster. Watches can be resumed.
package jobwatch

import (
	"context"
	"encoding/json"
	"iter"

	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/internal/kube/jobview"
)

// Source reads jobs. Its objects and rows are shared and must not be changed. Errors are
// apierror.Error or those of the API server.
type Source interface {
	Get(ctx context.Context, kind *jobview.Kind, namespace, name string) (client.Object, error)
	List(ctx context.Context, kind *jobview.Kind, query Query) (*Page, error)
	// Watch streams the changes of the jobs of a namespace: from a resource version, or
	// else first an Added event for each existing job, then Synced, then the changes in
	// order. An error is the last element: 410 if the version is too old or the client too
	// slow, and it must start over; 400 if the version is invalid. It ends without an
	// error when the context ends.
	//
	// Every change is sent once, also to clients that resume, on this server or another
	// one. Only if the API server has lost its history, successive changes of one job are
	// merged.
	Watch(ctx context.Context, kind *jobview.Kind, watch Watch) iter.Seq2[*Event, error]
}

// Query selects and sorts jobs.
type Query struct {
	// Namespace is empty for all namespaces that Allowed accepts.
	Namespace string
	// Allowed tells which namespaces the caller may list; nil allows all.
	Allowed func(namespace string) bool
	Labels  labels.Selector
	// Status is a job's state or phase; Runtime is the name of a runtime, or "mpi" for all
	// of that framework; Name is a part of a job's name. Empty matches any.
	Status, Runtime, Name string
	// ExactName is the full name of one job; empty matches any.
	ExactName string
	// Sort is name, creationTime, startTime, status or namespace. A leading "-" reverses
	// the order. Empty sorts by namespace and name.
	Sort string
	// Limit is the maximum number of jobs, up to MaxLimit; 0 means DefaultLimit. Continue
	// is the token of the previous page.
	Limit    int
	Continue string
	// Whole requests whole objects, not only rows.
	Whole bool
	// Bytes is the approximate maximum size of a page, up to MaxBytes; 0 means MaxBytes. A
	// page has at least one job.
	Bytes int
}

// Page is a part of a list.
type Page struct {
	Entries []Entry
	// Continue is the token of the next page; empty on the last one.
	Continue string
	// Total is the number of jobs on all pages, Remaining on the pages after this one.
	Total, Remaining int
	ResourceVersion  string
}

// Entry is a job in a list.
type Entry struct {
	// Object is nil if the query does not request whole objects.
	Object client.Object
	Row    *jobview.Row
}

// Watch selects what to watch.
type Watch struct {
	// Namespace is empty for all namespaces.
	Namespace string
	// Name of one job; empty for all jobs.
	Name string
	// Since is the ResourceVersion of the last event that the client received.
	Since string
}

// EventType is the type of an event.
type EventType string

// Types of events.
const (
	Added    EventType = "ADDED"
	Modified EventType = "MODIFIED"
	Deleted  EventType = "DELETED"
	// Synced means that all existing jobs have been sent.
	Synced EventType = "SYNCED"
)

// Event is a change of a job.
type Event struct {
	Type EventType
	// Row is the job after the change, or before its deletion. It is nil for Synced.
	Row *jobview.Row
	// Object has a status, but no spec.
	Object client.Object
	// ResourceVersion is what to resume with after this event; it is opaque. It is empty
	// until Synced: a client that has received only some of the existing jobs cannot
	// resume.
	ResourceVersion string
	// JSON is the event for clients, encoded once for all of them.
	JSON json.RawMessage
}
