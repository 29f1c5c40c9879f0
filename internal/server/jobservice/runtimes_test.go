// SPDX-License-Identifier: Apache-2.0

package jobservice

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/internal/kube/connection"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
	"github.com/trireme-mpi/trireme/internal/kube/runtimecheck"
	"github.com/trireme-mpi/trireme/internal/server/apierror"
	"github.com/trireme-mpi/trireme/internal/server/auth"
	"github.com/trireme-mpi/trireme/internal/server/jobwatch"
)

func clusterRuntime(name, image string) *v2alpha1.ClusterTrainingRuntime {
	worker := corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "worker", Image: image}}}}
	return &v2alpha1.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v2alpha1.TrainingRuntimeSpec{
		MLPolicy: v2alpha1.MLPolicy{MPIImplementation: v2alpha1.MPIImplementationOpenMPI, SlotsPerWorker: new(int32(4))},
		Template: v2alpha1.RuntimeTemplate{Spec: v2alpha1.RuntimeTemplateSpec{ReplicatedJobs: []v2alpha1.ReplicatedJob{{Name: v2alpha1.ReplicatedJobWorker, Template: worker}}}},
	}}
}

func namespaceRuntime(namespace, name string) *v2alpha1.TrainingRuntime {
	return &v2alpha1.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// wantRefusal checks the code and the field of an error.
func wantRefusal(t *testing.T, err error, code int, field string) {
	t.Helper()
	if err == nil {
		t.Fatal("it was not refused")
	}
	refusal := apierror.From(err)
	if refusal.Code != code || field != "" && (len(refusal.Details) == 0 || refusal.Details[0].Field != field) {
		t.Errorf("code %d, details %v, want %d and %q: %v", refusal.Code, refusal.Details, code, field, err)
	}
}

func TestRuntimesAreCreatedAndUpdated(t *testing.T) {
	cluster := fake.NewClientBuilder().WithScheme(connection.Scheme()).Build()
	ctx := auth.WithCaller(t.Context(), &auth.Caller{Client: cluster})
	service := New(Options{})
	if _, err := service.CreateRuntime(ctx, SubmittedRuntime{Object: clusterRuntime("mpi", "x:1")}, true); err != nil {
		t.Fatal(err)
	}
	if _, err := service.Runtime(ctx, "", "mpi"); err == nil {
		t.Error("a dry run has created the runtime")
	}
	created, err := service.CreateRuntime(ctx, SubmittedRuntime{Object: clusterRuntime("mpi", "x:1")}, false)
	if err != nil || created.Kind != "ClusterTrainingRuntime" || created.MPIImplementation != "OpenMPI" {
		t.Fatalf("%+v, %v", created, err)
	}
	read, err := service.Runtime(ctx, "", "mpi")
	if err != nil {
		t.Fatal(err)
	}
	changed := read.Object.DeepCopyObject().(*v2alpha1.ClusterTrainingRuntime)
	changed.Spec.MLPolicy.SlotsPerWorker = new(int32(8))
	if _, err := service.UpdateRuntime(ctx, SubmittedRuntime{Object: changed}, false); err != nil {
		t.Fatal(err)
	}
	// The version that was read first is an old one now.
	_, err = service.UpdateRuntime(ctx, SubmittedRuntime{Object: read.Object}, false)
	wantRefusal(t, err, http.StatusConflict, "")
	_, err = service.UpdateRuntime(ctx, SubmittedRuntime{Object: clusterRuntime("mpi", "x:2")}, false)
	wantRefusal(t, err, http.StatusBadRequest, "metadata.resourceVersion")
	_, err = service.CreateRuntime(ctx, SubmittedRuntime{Namespace: "team", Object: namespaceRuntime("other", "own")}, false)
	wantRefusal(t, err, http.StatusBadRequest, "metadata.namespace")
	_, err = service.CreateRuntime(ctx, SubmittedRuntime{Namespace: "team", Object: namespaceRuntime("", "")}, false)
	wantRefusal(t, err, http.StatusBadRequest, "metadata.name")
	own, err := service.CreateRuntime(ctx, SubmittedRuntime{Namespace: "team", Object: namespaceRuntime("", "own")}, false)
	if err != nil || own.Namespace != "team" || own.Kind != "TrainingRuntime" {
		t.Errorf("%+v, %v", own, err)
	}
}

// storedJobs is a source that reads jobs from a client.
type storedJobs struct {
	jobwatch.Source
	cluster client.Client
}

func (s storedJobs) Get(ctx context.Context, kind *jobview.Kind, namespace, name string) (client.Object, error) {
	object := kind.NewObject()
	return object, s.cluster.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object)
}

func TestRuntimeTests(t *testing.T) {
	other := trainJob("other", 2)
	cluster := fake.NewClientBuilder().WithScheme(connection.Scheme()).WithObjects(clusterRuntime("mpi", "x:1"), clusterRuntime("bare", ""), other).Build()
	ctx := auth.WithCaller(t.Context(), &auth.Caller{Client: cluster})
	service := New(Options{Guard: limitedGuard{allowed: []string{"team"}}, Jobs: func(*auth.Caller) jobwatch.Source { return storedJobs{cluster: cluster} }, Clock: clockAt(1000)})

	for name, test := range map[string]struct {
		test  RuntimeTest
		code  int
		field string
	}{
		"no kind":          {RuntimeTest{Runtime: "mpi"}, http.StatusBadRequest, "kind"},
		"wrong CPU":        {RuntimeTest{Kind: "ClusterTrainingRuntime", Runtime: "mpi", CPU: "many"}, http.StatusBadRequest, "cpu"},
		"no image":         {RuntimeTest{Kind: "ClusterTrainingRuntime", Runtime: "bare"}, http.StatusBadRequest, "image"},
		"no such runtime":  {RuntimeTest{Kind: "ClusterTrainingRuntime", Runtime: "none"}, http.StatusNotFound, ""},
		"not in the scope": {RuntimeTest{Kind: "TrainingRuntime", Runtime: "mpi"}, http.StatusNotFound, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := service.TestRuntime(ctx, "team", test.test)
			wantRefusal(t, err, test.code, test.field)
		})
	}

	report, err := service.TestRuntime(ctx, "team", RuntimeTest{Kind: "ClusterTrainingRuntime", Runtime: "mpi", CPU: "50m"})
	if err != nil {
		t.Fatal(err)
	}
	if report.Finished || report.Works || report.Image != "x:1" || report.Steps[0].Result != runtimecheck.OK || report.Steps[1].Result != runtimecheck.NotReached || report.Steps[5].Step != "every rank answered (0/8)" {
		t.Errorf("a new test: %+v", report)
	}
	failed := &v2alpha1.TrainJob{}
	if err := cluster.Get(t.Context(), client.ObjectKey{Namespace: "team", Name: report.Job}, failed); err != nil {
		t.Fatal(err)
	}
	failed.Status.Phase, failed.Status.FailureMessage = training.PhaseFailed, "Image x:1 cannot be pulled."
	failed.Status.Timeline = []training.TimelineEntry{{Step: training.StepScheduled, Time: metav1.NewTime(time.Unix(1001, 0))}}
	if err := cluster.Update(t.Context(), failed); err != nil {
		t.Fatal(err)
	}
	report, err = service.RuntimeTestReport(ctx, "team", report.Job)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]any{true, false, runtimecheck.Failed, "Image x:1 cannot be pulled."}, []any{report.Finished, report.Works, report.Steps[2].Result, report.Steps[2].Message}); diff != "" {
		t.Errorf("a failed test (-want +got):\n%s", diff)
	}
	_, err = service.RuntimeTestReport(ctx, "team", other.Name)
	wantRefusal(t, err, http.StatusNotFound, "")
}
