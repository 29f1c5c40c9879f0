package rest

import (
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/internal/kube/jobview"
	"github.com/trireme-mpi/trireme/internal/server/jobservice"
)

// What goes in and out besides the types of other packages. The empty ones only
// stand for a schema.
type (
	// jobBody is a whole job of a kind, jobList Kubernetes' list of them, statusBody
	// its status.
	jobBody    struct{ kind *jobview.Kind }
	jobList    struct{ kind *jobview.Kind }
	statusBody struct{ kind *jobview.Kind }
	// submission is a job of a kind, which of a TrainJob may be its spec alone.
	submission struct{ kind *jobview.Kind }
	// anyJob is a job of either kind.
	anyJob      struct{}
	runtimeBody struct{ kind string }
	plainText   struct{}
	eventStream struct{}
)

// row is a job in a list.
type row struct {
	*jobview.Row
	// Duration is how long the job ran, or runs, as 5m30s.
	Duration string `json:"duration"`
}

type rowList struct {
	Items []row `json:"items"`
	// Continue is what to ask for the next page with; empty on the last one.
	Continue string `json:"continue"`
	// Total is how many jobs there are on all pages.
	Total           int    `json:"total"`
	ResourceVersion string `json:"resourceVersion"`
}

// kubernetesList is a list as Kubernetes writes it.
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

// logLine is one line that a pod has printed.
type logLine struct {
	PodName string `json:"podName"`
	PodType string `json:"podType"`
	// Index of a worker, and the rank that wrote the line, where it is known.
	Index     *int32    `json:"index"`
	Rank      *int      `json:"rank,omitempty"`
	Container string    `json:"container"`
	Timestamp time.Time `json:"timestamp"`
	Message   string    `json:"message"`
	// Continues: the line was too long, and goes on in the next one of its pod.
	Continues bool `json:"continues,omitempty"`
}
