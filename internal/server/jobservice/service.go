// SPDX-License-Identifier: Apache-2.0

// Package jobservice has the operations of the server, with the permissions of the caller.
// REST and gRPC are two APIs for it.
package jobservice

import (
	"context"
	"iter"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/internal/engine/history"
	"github.com/trireme-mpi/trireme/internal/engine/reports"
	"github.com/trireme-mpi/trireme/internal/kube/jobhistory"
	"github.com/trireme-mpi/trireme/internal/kube/joblog"
	"github.com/trireme-mpi/trireme/internal/kube/jobreports"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
	"github.com/trireme-mpi/trireme/internal/kube/preflight"
	"github.com/trireme-mpi/trireme/internal/kube/runtimecheck"
	"github.com/trireme-mpi/trireme/internal/kube/usage"
	"github.com/trireme-mpi/trireme/internal/server/auth"
	"github.com/trireme-mpi/trireme/internal/server/jobwatch"
)

// Interface has all operations. The caller is in the context (auth.WithCaller).
// apierror.From converts all errors for clients.
type Interface interface {
	// Create creates a job in a namespace; dryRun only validates it.
	Create(ctx context.Context, kind *jobview.Kind, namespace string, object client.Object, dryRun bool) (client.Object, error)
	Get(ctx context.Context, job JobRef) (client.Object, error)
	List(ctx context.Context, kind *jobview.Kind, query jobwatch.Query) (*jobwatch.Page, error)
	Delete(ctx context.Context, job JobRef, options DeleteOptions) error
	// Suspend suspends or resumes a job.
	Suspend(ctx context.Context, job JobRef, suspend bool) (client.Object, error)
	// Restart creates a copy of a failed job under a new name, then deletes the failed
	// job.
	Restart(ctx context.Context, job JobRef) (client.Object, error)

	// Watch, WatchAll and Logs return an error immediately, or start; a later error is the last
	// element.
	Watch(ctx context.Context, kind *jobview.Kind, watch jobwatch.Watch) (iter.Seq2[*jobwatch.Event, error], error)
	WatchAll(ctx context.Context, namespace string, since map[*jobview.Kind]string) (iter.Seq2[*jobwatch.Event, error], error)
	// Logs returns the log lines of a job's pods, sorted by time, without secrets.
	Logs(ctx context.Context, job JobRef, options LogOptions) (iter.Seq2[joblog.Line, error], error)
	Events(ctx context.Context, job JobRef) ([]Event, error)
	// Usage returns the resource usage of a job's pods.
	Usage(ctx context.Context, job JobRef, window time.Duration) (*usage.Report, error)

	// Ranks returns all ranks of a job, and Curves its metrics over time, as the job's pods
	// have reported them to the operator.
	Ranks(ctx context.Context, job JobRef) (*reports.JobRanks, error)
	Curves(ctx context.Context, job JobRef) (*reports.JobCurves, error)

	// History lists the records of finished jobs, the newest first, up to a limit. Past returns
	// a record by the name or the UID of its job, PastLogs its log, of one rank or of all.
	History(ctx context.Context, kind *jobview.Kind, namespace string, limit int) (*history.RecordList, error)
	Past(ctx context.Context, job JobRef) (*history.Record, error)
	PastLogs(ctx context.Context, job JobRef, rank *int) (iter.Seq2[history.Line, error], error)
	DeletePast(ctx context.Context, job JobRef) error

	// Diagnose finds why a job does not run, Preflight whether a job can run; without an
	// object it only checks the namespace.
	Diagnose(ctx context.Context, job JobRef) (*preflight.Diagnosis, error)
	Preflight(ctx context.Context, kind *jobview.Kind, namespace string, object client.Object) (*preflight.PreflightReport, error)
	Quota(ctx context.Context, namespace string) (*Quota, error)

	// Cluster returns how the cluster is used.
	Cluster(ctx context.Context, namespace string, window time.Duration) (*ClusterUse, error)

	Runtimes(ctx context.Context, query RuntimeQuery) ([]Runtime, error)
	// Runtime returns a runtime of a namespace or, without one, of the cluster.
	Runtime(ctx context.Context, namespace, name string) (*Runtime, error)
	CreateRuntime(ctx context.Context, submitted SubmittedRuntime, dryRun bool) (*Runtime, error)
	UpdateRuntime(ctx context.Context, submitted SubmittedRuntime, dryRun bool) (*Runtime, error)

	// TestRuntime starts the test of a runtime, RuntimeTestReport follows it.
	TestRuntime(ctx context.Context, namespace string, test RuntimeTest) (*runtimecheck.TrialReport, error)
	RuntimeTestReport(ctx context.Context, namespace, name string) (*runtimecheck.TrialReport, error)
}

// Options are the dependencies of the service.
type Options struct {
	Guard auth.Guard
	// Jobs returns the source of a caller's jobs. Permissions are checked before.
	Jobs func(*auth.Caller) jobwatch.Source
	// Usage measures pods, with the caller's permissions if needed.
	Usage func(client.Reader) usage.Source
	// OperatorNamespace is the namespace of the operator.
	OperatorNamespace string
	// Reports asks the operator; nil if the server has no connection to it.
	Reports *jobreports.Client
	// History has the records of finished jobs; nil if the server has no connection to it.
	History *jobhistory.Client
	Clock   clock.PassiveClock
	Log     *slog.Logger
}

// Service implements the operations.
type Service struct{ Options }

var _ Interface = (*Service)(nil)

// New creates a service. It has no state: any number may run at the same time.
func New(options Options) *Service { return &Service{Options: options} }

// JobRef identifies a job.
type JobRef struct {
	Kind            *jobview.Kind
	Namespace, Name string
}

// DeleteOptions of a job.
type DeleteOptions struct {
	// GracePeriodSeconds of its pods; nil keeps their own.
	GracePeriodSeconds *int64
	DryRun             bool
}

// LogOptions select log lines.
type LogOptions struct {
	// Role is launcher or worker; empty selects both.
	Role string
	// Worker selects one worker.
	Worker    *int32
	Container string
	Follow    bool
	Previous  bool
	// Tail is the number of lines from the end of each container's log; nil selects all.
	Tail  *int64
	Since time.Time
}

// RuntimeQuery selects runtimes.
type RuntimeQuery struct {
	// Namespace whose runtimes are listed; empty lists none.
	Namespace string
	// OnlyOwn omits the runtimes of the cluster.
	OnlyOwn bool
	// Framework of the runtimes; empty selects any.
	Framework string
}

// Event is a Kubernetes event about a job or its pods.
type Event struct {
	Type      string    `json:"type"`
	Reason    string    `json:"reason"`
	Message   string    `json:"message"`
	Timestamp time.Time `json:"timestamp"`
	Source    string    `json:"source"`
	// Object of the event, as Kind/name.
	Object string `json:"object"`
	Count  int32  `json:"count"`
}

// Quota has the quotas of a namespace and their usage.
type Quota struct {
	Namespace string       `json:"namespace"`
	Quotas    []QuotaUsage `json:"quotas"`
	// ActiveJobs is the number of jobs of both kinds that have not finished.
	ActiveJobs int `json:"activeJobs"`
}

// QuotaUsage is one ResourceQuota.
type QuotaUsage struct {
	Name string              `json:"name"`
	Hard corev1.ResourceList `json:"hard"`
	Used corev1.ResourceList `json:"used"`
}

// Runtime is the template of TrainJobs.
type Runtime struct {
	Name              string `json:"name"`
	Kind              string `json:"kind"`
	Namespace         string `json:"namespace,omitempty"`
	Framework         string `json:"framework"`
	MPIImplementation string `json:"mpiImplementation,omitempty"`
	NumNodes          int32  `json:"numNodes"`
	// Object is the whole runtime.
	Object client.Object `json:"-"`
}
