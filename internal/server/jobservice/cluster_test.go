// SPDX-License-Identifier: Apache-2.0

package jobservice

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/internal/engine/accounting"
	"github.com/trireme-mpi/trireme/internal/kube/connection"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
	"github.com/trireme-mpi/trireme/internal/server/auth"
	"github.com/trireme-mpi/trireme/internal/server/jobwatch"
)

// listed is a source with TrainJobs, and one older job that is not on the page.
type listed struct {
	jobwatch.Source
	jobs []*v2alpha1.TrainJob
}

func (l listed) List(_ context.Context, kind *jobview.Kind, _ jobwatch.Query) (*jobwatch.Page, error) {
	page := &jobwatch.Page{}
	if kind != jobview.TrainJobs {
		return page, nil
	}
	page.Remaining = 1
	for _, job := range l.jobs {
		page.Entries = append(page.Entries, jobwatch.Entry{Object: job, Row: jobview.Of(job).Row()})
	}
	return page, nil
}

// gpuJob is a job of two workers with two GPUs each, which reached steps at seconds.
func gpuJob(name, runtime string, steps map[training.TimelineStep]int64) *v2alpha1.TrainJob {
	job := trainJob(name, 2)
	job.CreationTimestamp = metav1.NewTime(time.Unix(0, 0))
	job.Spec.RuntimeRef = v2alpha1.RuntimeRef{Kind: v2alpha1.RuntimeKindCluster, Name: runtime}
	gpus := corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("2")}
	job.Spec.Trainer.ResourcesPerNode = &corev1.ResourceRequirements{Requests: gpus, Limits: gpus}
	for step, second := range steps {
		job.Status.Timeline = append(job.Status.Timeline, training.TimelineEntry{Step: step, Time: metav1.NewTime(time.Unix(second, 0))})
	}
	return job
}

func TestClusterUse(t *testing.T) {
	runs := gpuJob("runs", "mpi", map[training.TimelineStep]int64{training.StepSubmitted: 0, training.StepScheduled: 900, training.StepFirstRankUp: 1800})
	waits := gpuJob("waits", "mpi", map[training.TimelineStep]int64{training.StepSubmitted: 1800})
	longer := gpuJob("longer", "mpi", map[training.TimelineStep]int64{training.StepSubmitted: 900})
	lost := gpuJob("lost", "deleted", nil)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "p"}, Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{
		Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("3")}},
	}}}}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"pods": resource.MustParse("9")}}}
	objects := fake.NewClientBuilder().WithScheme(connection.Scheme()).WithObjects(clusterRuntime("mpi", "x:1"), node, pod, quota).Build()
	service := New(Options{
		Guard: limitedGuard{allowed: []string{""}}, Clock: clockAt(3600),
		Jobs: func(*auth.Caller) jobwatch.Source {
			return listed{jobs: []*v2alpha1.TrainJob{runs, waits, longer, lost}}
		},
	})

	use, err := service.Cluster(auth.WithCaller(t.Context(), &auth.Caller{Client: objects}), "", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if len(use.Nodes) != 1 || use.Nodes[0].GPU.Allocatable != 8 || use.Nodes[0].GPU.Requested != 3 || use.NodesMessage != "" {
		t.Errorf("nodes %+v %q", use.Nodes, use.NodesMessage)
	}
	var waiting []any
	for _, job := range use.Waiting {
		waiting = append(waiting, job.Name, job.WaitedSeconds, job.GPUs)
	}
	if diff := cmp.Diff([]any{"longer", int64(2700), 4.0, "waits", int64(1800), 4.0}, waiting); diff != "" {
		t.Errorf("waiting jobs (-want +got):\n%s", diff)
	}
	team := use.Namespaces[0]
	wantHours := accounting.Hours{Requested: 9, Waiting: 6, Idle: 1, Used: 2}
	if diff := cmp.Diff(wantHours, team.GPUHours); diff != "" || team.Namespace != "team" || team.Now[accounting.Running].GPUs != 4 || team.Now[accounting.Waiting].Jobs != 2 || team.Quotas[0].Name != "q" {
		t.Errorf("%+v, hours (-want +got):\n%s", team, diff)
	}
	if use.JobsLeftOut != 2 {
		t.Errorf("%d jobs are left out, want the one without its runtime and the older one", use.JobsLeftOut)
	}

	// A user of one namespace sees neither nodes nor the quotas of others.
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", errors.New("no permission"))
	limited := interceptor.NewClient(objects, interceptor.Funcs{List: func(ctx context.Context, api client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
		if (&client.ListOptions{}).ApplyOptions(options).Namespace == "" {
			return forbidden
		}
		return api.List(ctx, list, options...)
	}})
	use, err = service.Cluster(auth.WithCaller(t.Context(), &auth.Caller{Client: limited}), "", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if len(use.Nodes) != 0 || use.NodesMessage == "" || len(use.Waiting) != 2 || len(use.Namespaces[0].Quotas) != 1 {
		t.Errorf("with few permissions: %+v", use)
	}
}
