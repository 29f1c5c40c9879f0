// SPDX-License-Identifier: Apache-2.0

package jobservice

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/internal/engine/accounting"
	"github.com/trireme-mpi/trireme/internal/engine/nodes"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
	"github.com/trireme-mpi/trireme/internal/kube/partial"
	"github.com/trireme-mpi/trireme/internal/server/apierror"
	"github.com/trireme-mpi/trireme/internal/server/auth"
	"github.com/trireme-mpi/trireme/internal/server/budget"
	"github.com/trireme-mpi/trireme/internal/server/jobwatch"
)

// Of each kind, at most mostJobs are read for the use of a cluster, the newest first, and at
// most mostBytes, so that one call stays below the budget of a user.
const (
	mostJobs  = jobwatch.MaxLimit
	mostBytes = pageWeight * 3 / 8
)

// ClusterUse is how the cluster is used, as far as the caller may read it.
type ClusterUse struct {
	Nodes []nodes.Capacity `json:"nodes"`
	// NodesMessage says why the nodes are missing.
	NodesMessage string `json:"nodesMessage,omitempty"`
	// Waiting jobs, the one that waits longest first.
	Waiting []WaitingJob `json:"waiting"`
	// Namespaces with jobs or quotas, those with the most GPU-hours first.
	Namespaces []NamespaceUse `json:"namespaces"`
	// Total of all namespaces in the time range.
	Total accounting.Line `json:"total"`
	// JobsLeftOut is the number of older jobs, and of jobs whose runtime cannot be read, that
	// are not in these numbers.
	JobsLeftOut int `json:"jobsLeftOut"`
}

// WaitingJob is a job without nodes for all of its pods.
type WaitingJob struct {
	Kind      string  `json:"kind"`
	Namespace string  `json:"namespace"`
	Name      string  `json:"name"`
	Status    string  `json:"status"`
	Queue     string  `json:"queue,omitempty"`
	GPUs      float64 `json:"gpus"`
	CPUs      float64 `json:"cpus"`
	// WaitedSeconds since the job was submitted.
	WaitedSeconds int64 `json:"waitedSeconds"`
	// Message says what the job waits for.
	Message string `json:"message,omitempty"`
}

// NamespaceUse is what the jobs of a namespace do now, and what they did in the time range.
type NamespaceUse struct {
	accounting.Line
	// Now has the jobs that have not finished, by state: waiting, idle, running.
	Now    map[accounting.State]Share `json:"now"`
	Quotas []QuotaUsage               `json:"quotas"`
}

// Share is what jobs request.
type Share struct {
	Jobs int     `json:"jobs"`
	GPUs float64 `json:"gpus"`
	CPUs float64 `json:"cpus"`
}

// Cluster returns how the cluster is used, with the jobs of a namespace or, without one, of all
// namespaces in which the caller may list jobs. Finished jobs count in the time range.
func (s *Service) Cluster(ctx context.Context, namespace string, window time.Duration) (*ClusterUse, error) {
	if err := budget.Take(ctx, pageWeight); err != nil {
		return nil, err
	}
	use := &clusterUse{now: s.Clock.Now(), byNamespace: map[string]*NamespaceUse{}, runtimes: jobview.NewRuntimeCache(auth.CallerFrom(ctx).Client)}
	for _, kind := range jobview.Kinds {
		page, err := s.List(ctx, kind, jobwatch.Query{Namespace: namespace, Sort: "-creationTime", Limit: mostJobs, Bytes: mostBytes, Whole: true})
		if err != nil {
			return nil, err
		}
		use.leftOut += page.Remaining
		for _, entry := range page.Entries {
			if err := use.add(ctx, jobview.Of(entry.Object)); err != nil {
				return nil, err
			}
		}
	}
	if err := use.addQuotas(ctx, namespace); err != nil {
		return nil, err
	}
	result := use.result(window)
	if result.Nodes, result.NodesMessage = capacities(ctx); ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return result, nil
}

// clusterUse collects jobs and quotas.
type clusterUse struct {
	now         time.Time
	runtimes    *jobview.RuntimeCache
	jobs        []accounting.Job
	waiting     []WaitingJob
	byNamespace map[string]*NamespaceUse
	leftOut     int
}

func (u *clusterUse) of(namespace string) *NamespaceUse {
	if u.byNamespace[namespace] == nil {
		u.byNamespace[namespace] = &NamespaceUse{Line: accounting.Line{Group: accounting.Group{Namespace: namespace}}, Now: map[accounting.State]Share{}, Quotas: []QuotaUsage{}}
	}
	return u.byNamespace[namespace]
}

// add adds a job. The status of jobs that mpi-operator runs has no times.
func (u *clusterUse) add(ctx context.Context, view *jobview.View) error {
	if view.OfMPIOperator {
		return nil
	}
	model, err := view.Model(ctx, u.runtimes)
	if errors.Is(err, jobview.ErrNoRuntime) || apierrors.IsForbidden(err) {
		u.leftOut++
		return nil
	}
	if err != nil {
		return err
	}
	account := view.Account(model, u.now)
	u.jobs = append(u.jobs, account)
	if view.Finished() || view.IsHeldByUser() {
		return nil
	}
	state := accounting.Now(view.Timeline)
	now := u.of(view.GetNamespace()).Now
	now[state] = Share{Jobs: now[state].Jobs + 1, GPUs: now[state].GPUs + account.GPUs, CPUs: now[state].CPUs + account.CPUs}
	if state == accounting.Waiting {
		row := view.Row()
		u.waiting = append(u.waiting, WaitingJob{
			Kind: row.Kind, Namespace: row.Namespace, Name: row.Name, Status: row.Status, Queue: row.Queue, GPUs: account.GPUs, CPUs: account.CPUs,
			WaitedSeconds: int64(account.Periods[accounting.Waiting].Length().Seconds()), Message: row.Message,
		})
	}
	return nil
}

// addQuotas adds the quotas of all namespaces or, if the caller may not list those, of the
// namespaces with jobs. Quotas that the caller may not list are left out.
func (u *clusterUse) addQuotas(ctx context.Context, namespace string) error {
	from := auth.CallerFrom(ctx).Client
	read := func(namespace string) error {
		return listPages(ctx, from, func() *corev1.ResourceQuotaList { return &corev1.ResourceQuotaList{} }, []client.ListOption{client.InNamespace(namespace)}, func(page *corev1.ResourceQuotaList) {
			for i := range page.Items {
				quota := &page.Items[i]
				use := u.of(quota.Namespace)
				use.Quotas = append(use.Quotas, QuotaUsage{Name: quota.Name, Hard: orEmpty(quota.Spec.Hard), Used: orEmpty(quota.Status.Used)})
			}
		})
	}
	err := read(namespace)
	if !apierrors.IsForbidden(err) {
		return err
	}
	if namespace != "" {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(u.byNamespace)) {
		if err := read(name); err != nil && !apierrors.IsForbidden(err) {
			return err
		}
	}
	return nil
}

func (u *clusterUse) result(window time.Duration) *ClusterUse {
	result := &ClusterUse{Waiting: []WaitingJob{}, Namespaces: []NamespaceUse{}, JobsLeftOut: u.leftOut}
	lines, total := accounting.Report(u.jobs, u.now.Add(-window), u.now, []accounting.Key{accounting.ByNamespace})
	for _, line := range lines {
		u.of(line.Namespace).Line = line
	}
	result.Total = total
	for _, use := range u.byNamespace {
		result.Namespaces = append(result.Namespaces, *use)
	}
	slices.SortFunc(result.Namespaces, func(a, b NamespaceUse) int {
		return cmp.Or(cmp.Compare(b.GPUHours.Requested, a.GPUHours.Requested), cmp.Compare(b.CPUHours.Requested, a.CPUHours.Requested), cmp.Compare(a.Namespace, b.Namespace))
	})
	result.Waiting = append(result.Waiting, u.waiting...)
	slices.SortStableFunc(result.Waiting, func(a, b WaitingJob) int { return cmp.Compare(b.WaitedSeconds, a.WaitedSeconds) })
	return result
}

// capacities reads the nodes, and the requests of the pods of all namespaces. Without
// permission to read both, it says so.
func capacities(ctx context.Context) (capacities []nodes.Capacity, message string) {
	from := auth.CallerFrom(ctx).Client
	var all []corev1.Node
	err := listPages(ctx, from, func() *corev1.NodeList { return &corev1.NodeList{} }, nil, func(page *corev1.NodeList) {
		for i := range page.Items {
			node := &page.Items[i]
			node.ManagedFields, node.Annotations, node.Status.Images = nil, nil, nil
			all = append(all, *node)
		}
	})
	used := map[string]corev1.ResourceList{}
	if err == nil {
		err = listPages(ctx, from, func() *corev1.PodList { return &corev1.PodList{} }, nil, func(page *corev1.PodList) {
			for i := range page.Items {
				partial.TrimPod(&page.Items[i])
				nodes.Use(used, &page.Items[i])
			}
		})
	}
	if err != nil {
		return []nodes.Capacity{}, apierror.From(err).Message
	}
	return nodes.Capacities(all, used), ""
}
