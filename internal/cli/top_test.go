// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
)

// metricsOf returns the usage of a pod of a job, with two containers.
func metricsOf(jobType, namespace, job, pod, cpu, memory string) *metricsv1beta1.PodMetrics {
	usage := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	}
	return &metricsv1beta1.PodMetrics{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pod, Labels: map[string]string{training.LabelJobName: job, training.LabelJobType: jobType}},
		Containers: []metricsv1beta1.ContainerMetrics{{Name: "main", Usage: usage(cpu, memory)}, {Name: "side", Usage: usage("1m", "1Mi")}},
	}
}

// costlyJobs are jobs that wait, that hold idle GPUs, and that train.
func costlyJobs() []client.Object {
	starting := func(mpiJob *v2beta1.MPIJob) {
		mpiJob.Status.Progress = training.Progress{Phase: training.PhasePending, ReadyWorkers: "1/2", ReadyWorkerCount: 1, WorkerCount: 2,
			Timeline: timeline(training.StepSubmitted, 90, training.StepAdmitted, 80, training.StepScheduled, 30)}
	}
	return append(someJobs(), mpiJobNamed("pulling", starting),
		metricsOf("trainjob", "default", "digits", "digits-worker-0", "3900m", "700Mi"), metricsOf("trainjob", "default", "digits", "digits-worker-1", "3800m", "800Mi"),
		// The other kind may have a job of the same name.
		metricsOf("mpijob", "default", "digits", "digits-worker-0-x", "100", "100Gi"),
		metricsOf("trainjob", "research", "other", "other-worker-0", "1", "1Gi"))
}

func TestTop(t *testing.T) {
	with := func(terminal terminal) session { return session{terminal: terminal, objects: costlyJobs()} }
	checkGolden(t, "top", map[string]struct {
		session
		line string
	}{
		"default":        {with(noTerminal), "top"},
		"narrow":         {with(narrow), "top --kind mpijob"},
		"wide":           {with(wide), "top -o wide"},
		"finished too":   {with(noTerminal), "top --finished"},
		"all namespaces": {with(noTerminal), "top -A"},
		"one":            {with(noTerminal), "top trainjob/digits"},
		"one by name":    {with(noTerminal), "top solve"},
		"selector":       {with(noTerminal), "top -l kueue.x-k8s.io/queue-name=team-a"},
		"json":           {with(noTerminal), "top trainjob/digits -o json"},
		"yaml":           {with(noTerminal), "top --kind mpijob -o yaml"},
		"no headers":     {with(noTerminal), "top pulling --no-headers"},
		"none":           {session{}, "top"},
		"none as json":   {session{}, "top -o json"},
		"unknown job":    {with(noTerminal), "top nope"},
		"unknown output": {with(noTerminal), "top -o picture"},
		"unknown kind":   {with(noTerminal), "top --kind pod"},
		"too much said":  {with(noTerminal), "top digits -A"},
		"bad selector":   {with(noTerminal), "top -l a==="},
	})
}

// The waiting times in every phase of a job.
func TestWaitingTimes(t *testing.T) {
	cases := map[string]struct {
		timeline     []training.TimelineEntry
		waited, held int
	}{
		"just stored":                 {nil, 600, 0},
		"in a queue":                  {timeline(training.StepSubmitted, 590), 590, 0},
		"without nodes":               {timeline(training.StepSubmitted, 600, training.StepAdmitted, 100), 600, 0},
		"pulls images":                {timeline(training.StepSubmitted, 600, training.StepScheduled, 100), 500, 100},
		"reaches for workers":         {timeline(training.StepSubmitted, 600, training.StepScheduled, 100, training.StepPodsReady, 80), 500, 100},
		"trains":                      {timeline(training.StepSubmitted, 600, training.StepScheduled, 100, training.StepPodsReady, 80, training.StepWorkersReached, 70), 500, 30},
		"has trained":                 {timeline(training.StepSubmitted, 600, training.StepScheduled, 100, training.StepWorkersReached, 70, training.StepFirstRankUp, 65, training.StepFinished, 10), 500, 35},
		"ended before it started":     {timeline(training.StepSubmitted, 600, training.StepScheduled, 100, training.StepFinished, 40), 500, 60},
		"ended without a node":        {timeline(training.StepSubmitted, 600, training.StepFinished, 300), 300, 0},
		"a clock that runs backwards": {timeline(training.StepSubmitted, 100, training.StepScheduled, 200, training.StepFirstRankUp, 300), 0, 0},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			j := jobview.Of(trainJobNamed("digits", func(trainJob *v2alpha1.TrainJob) { trainJob.Status.Timeline = test.timeline }))
			usage := usageOf(j, nil, nil, now)
			waited, held := usage.waited, usage.held
			if waited != time.Duration(test.waited)*time.Second || held != time.Duration(test.held)*time.Second {
				t.Errorf("waited %s and held for %s, want %d s and %d s", waited, held, test.waited, test.held)
			}
		})
	}
}

// A missing metrics API is reported once, and the jobs are still shown.
func TestNoMetricsAPI(t *testing.T) {
	for name, refusal := range map[string]error{
		"not served": apierrors.NewNotFound(schema.GroupResource{Group: "metrics.k8s.io", Resource: "pods"}, ""),
		"not ready":  apierrors.NewServiceUnavailable("the server is currently unable to handle the request"),
		"not mine":   apierrors.NewForbidden(schema.GroupResource{Group: "metrics.k8s.io", Resource: "pods"}, "", nil),
	} {
		t.Run(name, func(t *testing.T) {
			var out, errOut bytes.Buffer
			env := newEnvironment(genericiooptions.IOStreams{Out: &out, ErrOut: &errOut})
			cluster := fake.NewClientBuilder().WithScheme(scheme()).WithObjects(costlyJobs()...).WithInterceptorFuncs(interceptor.Funcs{
				List: func(ctx context.Context, inner client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
					if _, isMetrics := list.(*metricsv1beta1.PodMetricsList); isMetrics {
						return refusal
					}
					return inner.List(ctx, list, options...)
				},
			}).Build()
			top := &top{environment: env, lister: &lister{environment: env, kinds: kinds, pageSize: 500, namespace: "default", client: cluster}}
			for range 2 {
				if err := top.show(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if notes := strings.Count(errOut.String(), "metrics.k8s.io"); strings.Count(errOut.String(), "Resource usage is not available") != 1 {
				t.Errorf("%d notes: %s", notes, errOut.String())
			}
			if strings.Count(out.String(), "digits") != 2 {
				t.Errorf("the jobs are not shown: %s", out.String())
			}
		})
	}
}
