// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/internal/kube/jobview"
	"github.com/trireme-mpi/trireme/internal/server/jobservice"
)

// Types of bodies and responses besides the types of other packages. The empty ones only
// select a schema.
type (
	// jobBody is a whole job of a kind, jobList a Kubernetes list of jobs, statusBody the
	// status of a job.
	jobBody    struct{ kind *jobview.Kind }
	jobList    struct{ kind *jobview.Kind }
	statusBody struct{ kind *jobview.Kind }
	// submission is a job of a kind; for a TrainJob it may be only its spec.
	submission struct{ kind *jobview.Kind }
	// anyJob is a job of either kind.
	anyJob struct{}
	// runtimeBody is a runtime of a kind, anyDocument an object that may not be one.
	runtimeBody struct{ kind string }
	anyDocument struct{}
	plainText   struct{}
	eventStream struct{}
)

// row is a job in a list.
type row struct {
	*jobview.Row
	// Duration is the run time of the job, such as 5m30s.
	Duration string `json:"duration"`
}

type rowList struct {
	Items []row `json:"items"`
	// Continue is the token of the next page; empty on the last one.
	Continue string `json:"continue"`
	// Total is the number of jobs on all pages.
	Total           int    `json:"total"`
	ResourceVersion string `json:"resourceVersion"`
}

// kubernetesList is a list in Kubernetes' JSON form.
type kubernetesList struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Metadata   listMeta        `json:"metadata"`
	Items      []client.Object `json:"items"`
}

type listMeta struct {
	ResourceVersion    string `json:"resourceVersion"`
	Continue           string `json:"continue,omitempty"`
	RemainingItemCount *int64 `json:"remainingItemCount,omitempty"`
}

type eventList struct {
	Events []jobservice.Event `json:"events"`
}

type runtimeList struct {
	Items []jobservice.Runtime `json:"items"`
}

type logList struct {
	Logs []logLine `json:"logs"`
}

// logLine is one line of a pod's log.
type logLine struct {
	PodName string `json:"podName"`
	PodType string `json:"podType"`
	// Index of a worker, and the rank that wrote the line, if it is known.
	Index     *int32    `json:"index"`
	Rank      *int      `json:"rank,omitempty"`
	Container string    `json:"container"`
	Timestamp time.Time `json:"timestamp"`
	Message   string    `json:"message"`
	// Continues is true if the line is too long for one message; the next line of the pod
	// has the next part.
	Continues bool `json:"continues,omitempty"`
}
