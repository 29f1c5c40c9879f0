// SPDX-License-Identifier: Apache-2.0

// Package migrate tests that what MPIJobs become is accepted: by a real API server,
// with the schemas and the webhooks that are deployed.
package migrate

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/internal/engine/migrate"
	"github.com/trireme-mpi/trireme/internal/operator"
	"github.com/trireme-mpi/trireme/internal/testing/controlplane"
	"github.com/trireme-mpi/trireme/internal/testing/deployed"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
	"github.com/trireme-mpi/trireme/internal/testing/random"
)

func TestMain(m *testing.M) {
	code := m.Run()
	deployed.RemoveProgram()
	os.Exit(code)
}

// startServer starts an API server with our CRDs and an operator that judges jobs
// and does not work on them: somebody else leads.
func startServer(t *testing.T) client.Client {
	t.Helper()
	ctrl.SetLogger(logr.Discard())
	environment := controlplane.Start(t, &envtest.Environment{
		CRDDirectoryPaths: []string{deployed.CRDs()}, ErrorIfCRDPathMissing: true,
	})
	api, err := client.New(environment.Config, client.Options{Scheme: operator.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: deployed.Namespace}},
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: deployed.Namespace, Name: "trireme-leader"}, Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new("test"), LeaseDurationSeconds: new(int32(86400)), AcquireTime: new(metav1.NowMicro()), RenewTime: new(metav1.NowMicro()),
		}},
		&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "urgent"}, Value: 1000},
		&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high-priority"}, Value: 1000},
	} {
		if err := api.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	settings := deployed.Settings(t)
	deployed.InstallWebhooks(t, api, settings.Webhook.Port)
	deployed.Start(t, environment, settings).WaitUntilReady(t)
	eventually.Succeeds(t, "the webhooks answer", func() error {
		probe := &v2alpha1.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "probe"}, Spec: v2alpha1.TrainJobSpec{
			RuntimeRef: v2alpha1.RuntimeRef{Kind: v2alpha1.RuntimeKindCluster, Name: "none"}, Trainer: v2alpha1.Trainer{Image: "i"},
		}}
		if err := api.Create(t.Context(), probe, client.DryRunAll); err == nil || !strings.Contains(err.Error(), "not found in namespace") {
			return fmt.Errorf("a TrainJob without a runtime: %w", err)
		}
		return nil
	})
	return api
}

// newNamespace is one of a job's own.
func newNamespace(t *testing.T, api client.Client) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	if err := api.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	return namespace.Name
}

// accepts fails the test unless an MPIJob is accepted, and then what becomes of it.
func accepts(t *testing.T, api client.Client, mpiJob *unstructured.Unstructured) *migrate.Report {
	t.Helper()
	mpiJob.SetNamespace(newNamespace(t, api))
	if err := api.Create(t.Context(), mpiJob.DeepCopy(), client.DryRunAll, client.FieldValidation("Strict")); err != nil {
		t.Fatalf("the MPIJob: %v", err)
	}
	result, err := migrate.Convert(mpiJob.Object, migrate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	createAll(t, api, result)
	return result.Report
}

func createAll(t *testing.T, api client.Client, result *migrate.Result) {
	t.Helper()
	objects, err := result.Objects()
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		if err := api.Create(t.Context(), &unstructured.Unstructured{Object: object}, client.FieldValidation("Strict")); err != nil {
			t.Errorf("%v\n%+v", err, result.Report.Of(migrate.Review))
		}
	}
}

// mpiJobs are those of the manifests below a folder, by file.
func mpiJobs(t *testing.T, folder string) map[string]*unstructured.Unstructured {
	t.Helper()
	found := map[string]*unstructured.Unstructured{}
	err := filepath.WalkDir(folder, func(path string, _ os.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".yaml" {
			return err
		}
		for i, document := range deployed.Documents(t, path) {
			if document.GetKind() == "MPIJob" {
				found[fmt.Sprintf("%s %d", filepath.Base(path), i)] = document
			}
		}
		return nil
	})
	if err != nil || len(found) == 0 {
		t.Fatalf("%d MPIJobs in %s: %v", len(found), folder, err)
	}
	return found
}

func TestWhatMPIJobsBecomeIsAccepted(t *testing.T) {
	api := startServer(t)
	output, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/kubeflow/mpi-operator").Output()
	if err != nil {
		t.Fatalf("find mpi-operator: %v", err)
	}
	examples := mpiJobs(t, filepath.Join(strings.TrimSpace(string(output)), "examples/v2beta1"))
	if len(examples) < 5 {
		t.Errorf("mpi-operator had five examples; %d were found", len(examples))
	}
	for name, example := range examples {
		t.Run("mpi-operator "+name, func(t *testing.T) {
			report := accepts(t, api, example)
			if report.NeedsReview() {
				t.Errorf("a person must look: %+v", report.Of(migrate.Review))
			}
		})
	}
	for _, folder := range []string{"test/manifests/mpijob", "config/samples"} {
		for name, job := range mpiJobs(t, filepath.Join(deployed.Repository(), folder)) {
			t.Run(folder+" "+name, func(t *testing.T) { accepts(t, api, job) })
		}
	}
	t.Run("random jobs", func(t *testing.T) { testRandomJobs(t, api) })
}

// What is accepted as an MPIJob is accepted as what becomes of it, unless the
// report says that it is refused.
func testRandomJobs(t *testing.T, api client.Client) {
	namespace := newNamespace(t, api)
	created := 0
	for seed := range int64(400) {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(random.MPIJob(seed))
		if err != nil {
			t.Fatal(err)
		}
		mpiJob := &unstructured.Unstructured{Object: content}
		mpiJob.SetAPIVersion("kubeflow.org/v2beta1")
		mpiJob.SetKind("MPIJob")
		mpiJob.SetNamespace(namespace)
		mpiJob.SetName(fmt.Sprintf("job-%d", seed))
		mpiJob.SetUID("")
		if api.Create(t.Context(), mpiJob.DeepCopy(), client.DryRunAll) != nil {
			continue
		}
		result, err := migrate.Convert(mpiJob.Object, migrate.Options{})
		if err != nil {
			t.Fatal(err)
		}
		refused := false
		for _, entry := range result.Report.Of(migrate.Review) {
			refused = refused || strings.Contains(entry.Why, "is refused: ")
		}
		if refused {
			continue
		}
		created++
		if createAll(t, api, result); t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("%d random jobs were tried", created)
	if created < 50 {
		t.Errorf("only %d of 400 jobs were tried", created)
	}
}
