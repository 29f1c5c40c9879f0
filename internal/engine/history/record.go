// SPDX-License-Identifier: Apache-2.0

// Package history defines what is kept of a job after it has finished, and for how long.
package history

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/reports"
)

// Key identifies a record. It has the UID of the namespace, not its name: a namespace of
// the same name that is created later does not have the records of the first.
type Key struct {
	NamespaceUID types.UID `json:"namespaceUID"`
	Kind         job.Kind  `json:"kind"`
	UID          types.UID `json:"uid"`
}

// Path is the name of the record in a store.
func (k Key) Path() string { return fmt.Sprintf("%s/%ss/%s", k.NamespaceUID, k.Kind.Type(), k.UID) }

// Valid reports whether the key is safe as a name: UIDs of an API server always are.
func (k Key) Valid() bool {
	safe := func(uid types.UID) bool {
		return uid != "" && len(uid) <= 64 && strings.Trim(string(uid), "0123456789abcdefABCDEF-") == ""
	}
	return safe(k.NamespaceUID) && safe(k.UID) && (k.Kind == job.KindTrainJob || k.Kind == job.KindMPIJob)
}

// Summary is a record in a list.
type Summary struct {
	Key
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// State is the last state of the job, such as Succeeded. A job that was deleted before
	// it finished has the state that it had then.
	State string `json:"state"`
	// Deleted: the job was deleted before it finished.
	Deleted       bool       `json:"deleted,omitempty"`
	FailureReason string     `json:"failureReason,omitempty"`
	Message       string     `json:"message,omitempty"`
	CreationTime  time.Time  `json:"creationTime"`
	StartTime     *time.Time `json:"startTime,omitempty"`
	// FinishTime is when the job finished, or was deleted. Retention counts from it.
	FinishTime time.Time `json:"finishTime"`
	// LogLines are the lines that are kept, and OmittedLines older ones that are not. LogError
	// says why lines may be missing.
	LogLines     int    `json:"logLines"`
	OmittedLines int    `json:"omittedLines,omitempty"`
	LogError     string `json:"logError,omitempty"`
}

// Record is what is kept of a job, besides its log.
type Record struct {
	Summary
	// Job is the job as kubectl would print it: metadata, spec, and a status with timeline,
	// restarts and failure.
	Job    json.RawMessage `json:"job"`
	Events []RecordedEvent `json:"events"`
	Curves []reports.Curve `json:"curves,omitempty"`
}

// RecordedEvent is an event of the job, or a warning about one of its pods.
type RecordedEvent struct {
	Type    string    `json:"type"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Time    time.Time `json:"time"`
	// Object is Kind/name.
	Object string `json:"object"`
	Count  int32  `json:"count"`
}

// Line is a line of the launcher's log, which has the lines of all ranks.
type Line struct {
	Time time.Time `json:"time"`
	Pod  string    `json:"pod"`
	// Rank that wrote the line; nil if the line has no tag.
	Rank *int   `json:"rank,omitempty"`
	Text string `json:"text"`
}

// RecordList is a page of summaries.
type RecordList struct {
	Items []Summary `json:"items"`
	// Total is how many records there are, also beyond the page.
	Total int `json:"total"`
}

// Find returns the record that a user means by the name or the UID of a job. Several jobs
// may have had the name: the newest is found.
func Find(all []Summary, nameOrUID string) (Summary, bool) {
	for _, summary := range all {
		if string(summary.UID) == nameOrUID {
			return summary, true
		}
	}
	for _, summary := range NewestFirst(all) {
		if summary.Name == nameOrUID {
			return summary, true
		}
	}
	return Summary{}, false
}

// NewestFirst sorts a copy by the time of the end.
func NewestFirst(all []Summary) []Summary {
	sorted := slices.Clone(all)
	slices.SortFunc(sorted, func(a, b Summary) int {
		if order := b.FinishTime.Compare(a.FinishTime); order != 0 {
			return order
		}
		return strings.Compare(string(a.UID), string(b.UID))
	})
	return sorted
}

// What Trireme's server reads from the component that keeps the history.
const (
	// Audience of the server's token.
	Audience = "trireme-history"
	// Permission is the path for which the server must have the permissions get and delete.
	Permission = "/history"
	// MaxList is how many summaries a page has at most.
	MaxList = 1000
)

// APIPath is the path of the records of a namespace, or of one record.
func APIPath(kind job.Kind, namespace string, parts ...string) string {
	return strings.Join(append([]string{Permission, "namespaces", namespace, kind.Type() + "s"}, parts...), "/")
}
