// SPDX-License-Identifier: Apache-2.0

// Package admission tests the job APIs and their gate: the CRDs and webhooks as
// they are deployed, the operator as it runs, on a real API server.
package admission

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/config"
	"github.com/trireme-mpi/trireme/internal/operator"
	"github.com/trireme-mpi/trireme/internal/testing/controlplane"
	"github.com/trireme-mpi/trireme/internal/testing/deployed"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

const repository = "../../.."

// cluster is an API server with our CRDs and a running operator.
type cluster struct {
	environment *envtest.Environment
	client      client.WithWatch
	warnings    *warnings
	audit       *deployed.Lines
	operator    *deployed.Operator
	// authority issued the certificate that the API server shows to the operator; nil
	// if it shows none.
	authority *deployed.Authority
	port      int32
}

// startCluster starts everything. change adjusts the operator's configuration.
func startCluster(t testing.TB, change ...func(*config.Config)) *cluster {
	t.Helper()
	return startClusterOf(t, deployed.NewAuthority(t), change...)
}

// startClusterOf is one whose operator verifies that it is the API server who calls,
// if there is an authority.
func startClusterOf(t testing.TB, authority *deployed.Authority, change ...func(*config.Config)) *cluster {
	t.Helper()
	ctrl.SetLogger(logr.Discard())
	environment := &envtest.Environment{
		CRDDirectoryPaths:     []string{filepath.Join(repository, "charts/trireme/crds"), deployed.JobSetCRDs(t)},
		ErrorIfCRDPathMissing: true,
	}
	if authority != nil {
		authority.PresentCertificate(t, environment)
	}
	controlplane.Start(t, environment)
	cluster := &cluster{environment: environment, warnings: &warnings{}, authority: authority}
	cluster.client = cluster.as(t, environment.Config)
	cluster.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: deployed.Namespace}})
	deployed.InstallPolicy(t, cluster.client)
	cluster.create(t, leadingTest())
	cluster.startOperator(t, change...)
	return cluster
}

// leadingTest is the Lease of whoever works on jobs. A test has it, so that the
// operator only answers: jobs stay as they were created.
func leadingTest() *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: deployed.Namespace, Name: "trireme-leader"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new("test"), LeaseDurationSeconds: new(int32(86400)), AcquireTime: new(metav1.NowMicro()), RenewTime: new(metav1.NowMicro()),
		},
	}
}

// as is a client that keeps the warnings it is given.
func (cluster *cluster) as(t testing.TB, connection *rest.Config) client.WithWatch {
	t.Helper()
	connection = rest.CopyConfig(connection)
	connection.QPS, connection.Burst = 1000, 1000
	connection.WarningHandlerWithContext = cluster.warnings
	made, err := client.NewWithWatch(connection, client.Options{Scheme: operator.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// startOperator runs the operator's program with the role that it is deployed
// with, and waits until it serves.
func (cluster *cluster) startOperator(t testing.TB, change ...func(*config.Config)) {
	t.Helper()
	if cluster.authority != nil {
		change = append(change, cluster.authority.Trust(t))
	}
	settings := deployed.Settings(t, change...)
	cluster.port = settings.Webhook.Port
	deployed.InstallWebhooks(t, cluster.client, settings.Webhook.Port)
	cluster.operator = cluster.run(t, settings)
	cluster.audit = cluster.operator.Audit
	cluster.waitUntilServed(t)
}

// run starts one replica, and waits until it is ready.
func (cluster *cluster) run(t testing.TB, settings *config.Config) *deployed.Operator {
	t.Helper()
	replica := deployed.Start(t, cluster.environment, settings)
	replica.WaitUntilReady(t)
	return replica
}

// waitUntilServed: the API server learns of new webhooks a moment later. Then a
// TrainJob that names no runtime is refused by one of them, and an MPIJob gets
// its creator from the other.
func (cluster *cluster) waitUntilServed(t testing.TB) {
	t.Helper()
	eventually.Succeeds(t, "the webhooks answer", func() error {
		err := cluster.client.Create(t.Context(), trainJob("default", "is-anybody-there"), client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), "not found in namespace") {
			return fmt.Errorf("a TrainJob without a runtime: %w", err)
		}
		job := mpiJob("default", "who-am-i", func(job *v2beta1.MPIJob) { job.Spec.MPIReplicaSpecs["Worker"].Replicas = new(int32(2)) })
		if err := cluster.client.Create(t.Context(), job, client.DryRunAll); err != nil {
			return fmt.Errorf("an MPIJob: %w", err)
		}
		if job.Annotations[training.AnnotationCreatedBy] == "" {
			return errors.New("an MPIJob has no creator")
		}
		return nil
	})
}

// namespace makes a namespace of a test's own.
func (cluster *cluster) namespace(t testing.TB, labels map[string]string) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-", Labels: labels}}
	cluster.create(t, namespace)
	return namespace.Name
}

// admit ends that a namespace is left alone.
func (cluster *cluster) admit(t *testing.T, namespace string) {
	t.Helper()
	place := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if err := cluster.client.Patch(t.Context(), place, client.RawPatch("application/merge-patch+json",
		[]byte(`{"metadata":{"labels":{"training.kubeflow.org/admission":null}}}`))); err != nil {
		t.Fatal(err)
	}
	// The label is gone for the API server when a bad job is refused.
	refusal(t, func() error {
		return cluster.client.Create(t.Context(), mpiJob(namespace, "bad", func(job *v2beta1.MPIJob) { job.Spec.SlotsPerWorker = new(int32(0)) }), dryRun)
	})
}

func (cluster *cluster) create(t testing.TB, object client.Object) {
	t.Helper()
	if err := cluster.client.Create(context.Background(), object); err != nil {
		t.Fatalf("create %T %s: %v", object, object.GetName(), err)
	}
}

func (cluster *cluster) createIfMissing(t testing.TB, object client.Object) {
	t.Helper()
	if err := cluster.client.Create(context.Background(), object); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatalf("create %T %s: %v", object, object.GetName(), err)
	}
}

func (cluster *cluster) priorityClass(t testing.TB, name string) {
	t.Helper()
	cluster.createIfMissing(t, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: 1000})
}
