// SPDX-License-Identifier: Apache-2.0

// Package operator tests the reconcilers: the operator as it runs, with the role
// that it is deployed with, on a real API server. There is neither a kubelet nor
// a controller of Kubernetes' own, and of JobSet there is the CRD alone: the tests
// play the rest.
package operator

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/config"
	"github.com/trireme-mpi/trireme/internal/operator"
	"github.com/trireme-mpi/trireme/internal/testing/controlplane"
	"github.com/trireme-mpi/trireme/internal/testing/deployed"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
	"github.com/trireme-mpi/trireme/internal/testing/player"
)

// withoutAdmission is the label of namespaces whose jobs are not judged, so that
// they can be created while no operator runs.
var withoutAdmission = map[string]string{"training.kubeflow.org/admission": "disabled"}

// quotaSeconds is how long jobs wait for a quota here.
const quotaSeconds = 20

// cluster is an API server with our CRDs and an operator.
type cluster struct {
	environment *envtest.Environment
	client      client.WithWatch
	settings    *config.Config
	operator    *deployed.Operator
}

// withJobSet installs JobSet's CRD.
func withJobSet(t testing.TB, environment *envtest.Environment) {
	environment.CRDDirectoryPaths = append(environment.CRDDirectoryPaths, deployed.JobSetCRDs(t))
}

// startCluster starts an API server and an operator, and waits until it serves.
func startCluster(t testing.TB, options ...func(testing.TB, *envtest.Environment)) *cluster {
	t.Helper()
	cluster := newCluster(t, options...)
	cluster.start(t)
	cluster.waitUntilServed(t)
	return cluster
}

// newCluster starts an API server, and no operator.
func newCluster(t testing.TB, options ...func(testing.TB, *envtest.Environment)) *cluster {
	t.Helper()
	ctrl.SetLogger(logr.Discard())
	environment := &envtest.Environment{
		CRDDirectoryPaths:     []string{deployed.CRDs(), "testdata"},
		ErrorIfCRDPathMissing: true,
	}
	for _, option := range options {
		option(t, environment)
	}
	// As every cluster has it: no pod is taken before its service account is there.
	environment.ControlPlane.GetAPIServer().Configure().Disable("disable-admission-plugins")
	controlplane.Start(t, environment)
	cluster := &cluster{environment: environment}
	cluster.client = cluster.as(t, environment.Config)
	cluster.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: deployed.Namespace}})
	cluster.settings = deployed.Settings(t, func(settings *config.Config) {
		settings.Metrics.BindAddress = fmt.Sprintf("localhost:%d", deployed.FreePort(t))
		settings.Failures.RestartSeconds, settings.Failures.QuotaSeconds = 1, quotaSeconds
		settings.Limits.MinScheduleTimeoutSeconds = 1
	})
	deployed.InstallWebhooks(t, cluster.client, cluster.settings.Webhook.Port)
	deployed.InstallPolicy(t, cluster.client)
	return cluster
}

// start runs an operator, and waits until it is ready.
func (cluster *cluster) start(t testing.TB) {
	t.Helper()
	cluster.operator = deployed.Start(t, cluster.environment, cluster.settings)
	cluster.operator.WaitUntilReady(t)
	running := cluster.operator
	t.Cleanup(func() { wantNoErrors(t, running) })
}

// wantNoErrors fails a test if an operator had something to complain about: it
// lacks a right, or was refused something that it should not have tried.
func wantNoErrors(t testing.TB, operator *deployed.Operator) {
	t.Helper()
	for _, line := range operator.Errors() {
		// Two of its parts write the certificate's Secret, and one of them wins.
		if strings.Contains(line, `"logger":"cert-rotation"`) && !strings.Contains(line, "forbidden") {
			continue
		}
		t.Errorf("the operator met an error: %s", line)
	}
}

func (cluster *cluster) as(t testing.TB, connection *rest.Config) client.WithWatch {
	t.Helper()
	connection = rest.CopyConfig(connection)
	connection.QPS, connection.Burst = 1000, 1000
	connection.WarningHandlerWithContext = rest.NoWarnings{}
	scheme := operator.Scheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	made, err := client.NewWithWatch(connection, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// waitUntilServed: the API server learns of new webhooks a moment later. Then a
// job without workers is refused by one of them.
func (cluster *cluster) waitUntilServed(t testing.TB) {
	t.Helper()
	eventually.Succeeds(t, "the webhooks answer", func() error {
		err := cluster.client.Create(context.Background(), trainJob("default", "is-anybody-there"), client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), "not found in namespace") {
			return fmt.Errorf("a TrainJob without a runtime: %w", err)
		}
		return nil
	})
}

func (cluster *cluster) create(t testing.TB, object client.Object) {
	t.Helper()
	if err := cluster.client.Create(context.Background(), object); err != nil {
		t.Fatalf("create %T %s: %v", object, object.GetName(), err)
	}
}

// place is a namespace of a test's own, with what the test does in it.
type place struct {
	*cluster
	*player.Player
}

// newPlace makes a namespace, with the account that every namespace has.
func (cluster *cluster) newPlace(t testing.TB, labels map[string]string) *place {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-", Labels: labels}}
	cluster.create(t, namespace)
	cluster.create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "default"}})
	return cluster.place(t, namespace.Name)
}

func (cluster *cluster) place(t testing.TB, namespace string) *place {
	return &place{cluster: cluster, Player: &player.Player{TB: t, Client: cluster.client, Namespace: namespace}}
}

// parallel is a place on the shared cluster, for a test that others do not
// disturb.
func parallel(t *testing.T) *place {
	t.Helper()
	t.Parallel()
	return sharedCluster.For(t).newPlace(t, nil)
}

// createEventually creates a job once the operator knows the runtime that it
// names.
func (place *place) createEventually(object client.Object) {
	place.Helper()
	object.SetNamespace(place.Namespace)
	place.Eventually("the job is accepted", func() error { return place.client.Create(context.Background(), object) })
}

// createForged creates an object that looks like one of a job's, as a controller of
// Kubernetes: the policy about children refuses it from others. The operator must not
// rely on that policy, because there are namespaces without admission.
func (place *place) createForged(object client.Object) {
	place.Helper()
	connection := rest.CopyConfig(place.environment.Config)
	connection.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:kube-system:forger", Groups: []string{"system:masters"}}
	object.SetNamespace(place.Namespace)
	if err := place.as(place.TB, connection).Create(context.Background(), object); err != nil {
		place.Fatalf("create %T %s: %v", object, object.GetName(), err)
	}
}

// mustGet reads an object that is there.
func mustGet[T client.Object](place *place, object T, name string) T {
	place.Helper()
	if err := place.Get(object, name); err != nil {
		place.Fatalf("read %T %s: %v", object, name, err)
	}
	return object
}

// stays fails a test if something ceases to hold within a moment in which the
// operator has looked at every job several times.
func (place *place) stays(what string, holds func() error) {
	place.Helper()
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if err := holds(); err != nil {
			place.Fatalf("%s: %v", what, err)
		}
	}
}

// kinds are those of objects that jobs are made of.
var kinds = []metav1.TypeMeta{
	{APIVersion: "v1", Kind: "Pod"}, {APIVersion: "v1", Kind: "Service"}, {APIVersion: "v1", Kind: "ConfigMap"},
	{APIVersion: "v1", Kind: "Secret"}, {APIVersion: "v1", Kind: "PersistentVolumeClaim"}, {APIVersion: "batch/v1", Kind: "Job"},
	{APIVersion: "apps/v1", Kind: "ControllerRevision"}, {APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"},
	{APIVersion: "jobset.x-k8s.io/v1alpha2", Kind: "JobSet"}, {APIVersion: "scheduling.x-k8s.io/v1alpha1", Kind: "PodGroup"},
	{APIVersion: "scheduling.volcano.sh/v1beta1", Kind: "PodGroup"},
}

// servedKinds are those that this release of Kubernetes serves.
func servedKinds(t testing.TB) []metav1.TypeMeta {
	t.Helper()
	if api := controlplane.KubernetesOf(t).GangAPI; api != "" {
		return append(slices.Clone(kinds), metav1.TypeMeta{APIVersion: api, Kind: "PodGroup"})
	}
	return kinds
}

// objects are all objects in the place that jobs can be made of, by kind and
// name.
func (place *place) objects() map[string]*metav1.PartialObjectMetadata {
	place.Helper()
	found := map[string]*metav1.PartialObjectMetadata{}
	for _, kind := range servedKinds(place) {
		list := &metav1.PartialObjectMetadataList{TypeMeta: kind}
		list.Kind += "List"
		if err := place.client.List(context.Background(), list, client.InNamespace(place.Namespace)); err != nil {
			place.Fatalf("list %s: %v", kind.Kind, err)
		}
		for i := range list.Items {
			object := &list.Items[i]
			object.TypeMeta = kind
			found[kind.Kind+"/"+knownName(object)] = object
		}
	}
	return found
}

// knownName leaves out of the name of a snapshot what depends on its content.
func knownName(object *metav1.PartialObjectMetadata) string {
	return strings.TrimSuffix(object.Name, "-"+object.Labels[training.LabelRuntimeDigest])
}

// untilObjects waits until there are exactly these objects.
func (place *place) untilObjects(want ...string) map[string]*metav1.PartialObjectMetadata {
	place.Helper()
	slices.Sort(want)
	var found map[string]*metav1.PartialObjectMetadata
	place.Eventually("the job has its objects", func() error {
		found = place.objects()
		if got := slices.Sorted(maps.Keys(found)); !slices.Equal(got, want) {
			return fmt.Errorf("there are %q, want %q", got, want)
		}
		return nil
	})
	return found
}
