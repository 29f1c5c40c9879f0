// Package service does what the server's clients ask for, with the rights of whoever
// asks. REST and gRPC are two ways to say the same: what can be asked is here.
package jobservice

import (
	"context"
	"iter"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/internal/kube/joblog"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
	"github.com/trireme-mpi/trireme/internal/kube/preflight"
	"github.com/trireme-mpi/trireme/internal/kube/usage"
	"github.com/trireme-mpi/trireme/internal/server/auth"
	"github.com/trireme-mpi/trireme/internal/server/jobwatch"
)

// Interface is all that can be asked. The caller is in the context
// (access.WithCaller). Every error can be told to clients with problem.From.
type Interface interface {
	// Create stores a job. Its namespace is the argument's; dryRun only judges it.
	Create(ctx context.Context, kind *jobview.Kind, namespace string, object client.Object, dryRun bool) (client.Object, error)
	Get(ctx context.Context, job JobRef) (client.Object, error)
	List(ctx context.Context, kind *jobview.Kind, query jobwatch.Query) (*jobwatch.Page, error)
	Delete(ctx context.Context, job JobRef, options DeleteOptions) error
	// Suspend takes a job from its nodes, or gives it back.
	Suspend(ctx context.Context, job JobRef, suspend bool) (client.Object, error)
	// Restart creates a job like one that has ended, under a new name, and deletes
	// that one afterwards.
	Restart(ctx context.Context, job JobRef) (client.Object, error)

	// Watch and Logs are refused at once, or begin; an error that comes later is the
	// last that they yield.
	Watch(ctx context.Context, kind *jobview.Kind, watch jobwatch.Watch) (iter.Seq2[*jobwatch.Event, error], error)
	// Logs are the lines of a job's pods in the order of their time, without secrets.
	Logs(ctx context.Context, job JobRef, options LogOptions) (iter.Seq2[joblog.Line, error], error)
	Events(ctx context.Context, job JobRef) ([]Event, error)
	// Usage is what the job's pods use and have used.
	Usage(ctx context.Context, job JobRef, window time.Duration) (*usage.Report, error)

	// Diagnose finds what keeps a job from running, Preflight what would; without an
	// object it looks at the namespace alone.
	Diagnose(ctx context.Context, job JobRef) (*preflight.Diagnosis, error)
	Preflight(ctx context.Context, kind *jobview.Kind, namespace string, object client.Object) (*preflight.Prechecked, error)
	Quota(ctx context.Context, namespace string) (*Quota, error)

	Runtimes(ctx context.Context, query RuntimeQuery) ([]Runtime, error)
	// Runtime is a namespace's own or, without one, the cluster's.
	Runtime(ctx context.Context, namespace, name string) (*Runtime, error)
}

// Options are what the service works with.
type Options struct {
	Guard auth.Guard
	// Jobs is where a caller's jobs are read. Whether they may is asked before.
	Jobs func(*auth.Caller) jobwatch.Source
	// Usage measures pods, with a caller's rights where they matter.
	Usage func(client.Reader) usage.Source
	// OperatorNamespace is where the operator runs.
	OperatorNamespace string
	Clock             clock.PassiveClock
}

// Service does what callers ask for.
type Service struct{ Options }

var _ Interface = (*Service)(nil)

// New is a service. It holds nothing of its own: any number may run side by side.
func New(options Options) *Service { return &Service{Options: options} }

// JobRef names a job.
type JobRef struct {
	Kind            *jobview.Kind
	Namespace, Name string
}

// DeleteOptions are how to delete a job.
type DeleteOptions struct {
	// GracePeriodSeconds that its pods have; nil is their own.
	GracePeriodSeconds *int64
	DryRun             bool
}

// LogOptions are which lines to read.
type LogOptions struct {
	// Role is launcher or worker; empty is both.
	Role string
	// Worker is the only worker.
	Worker    *int32
	Container string
	Follow    bool
	Previous  bool
	// Tail is how many lines of each container to begin with; nil is all.
	Tail  *int64
	Since time.Time
}

// RuntimeQuery is which runtimes to list.
type RuntimeQuery struct {
	// Namespace whose own runtimes are wanted; empty is none.
	Namespace string
	// OnlyOwn leaves out those of the cluster.
	OnlyOwn bool
	// Framework that they are for; empty is any.
	Framework string
}

// Event is something that Kubernetes or the operator noted of a job or its pods.
type Event struct {
	Type      string    `json:"type"`
	Reason    string    `json:"reason"`
	Message   string    `json:"message"`
	Timestamp time.Time `json:"timestamp"`
	Source    string    `json:"source"`
	// Object that it is about, as Kind/name.
	Object string `json:"object"`
	Count  int32  `json:"count"`
}

// Quota is what a namespace may use and uses.
type Quota struct {
	Namespace string       `json:"namespace"`
	Quotas    []QuotaUsage `json:"quotas"`
	// ActiveJobs are those of both kinds that have not ended.
	ActiveJobs int `json:"activeJobs"`
}

// QuotaUsage is one ResourceQuota.
type QuotaUsage struct {
	Name string              `json:"name"`
	Hard corev1.ResourceList `json:"hard"`
	Used corev1.ResourceList `json:"used"`
}

// Runtime is what TrainJobs are made from.
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
