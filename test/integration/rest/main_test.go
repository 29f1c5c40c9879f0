// SPDX-License-Identifier: Apache-2.0

// Package rest asks the server over REST as clients do, over TLS, against a real API
// server: two people, each with a namespace of their own.
package rest

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/trireme-mpi/trireme/internal/kube/connection"
	"github.com/trireme-mpi/trireme/internal/server"
	"github.com/trireme-mpi/trireme/internal/server/auth"
	"github.com/trireme-mpi/trireme/internal/server/httpserver"
	"github.com/trireme-mpi/trireme/internal/server/jobwatch"
	"github.com/trireme-mpi/trireme/internal/testing/controlplane"
	"github.com/trireme-mpi/trireme/internal/testing/deployed"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// cluster is an API server that knows the job APIs and the roles. Nobody works on the
// jobs but the test.
type cluster struct {
	environment *envtest.Environment
	admin       client.WithWatch
	typed       kubernetes.Interface
	// server is what the server is: a service account with the role of the chart.
	server           *rest.Config
	serverKubeconfig []byte
}

func startCluster(t testing.TB, options ...func(*envtest.Environment)) *cluster {
	t.Helper()
	environment := &envtest.Environment{CRDDirectoryPaths: []string{deployed.CRDs()}}
	for _, option := range options {
		option(environment)
	}
	controlplane.Start(t, environment)
	config := rest.CopyConfig(environment.Config)
	config.QPS = -1
	made := &cluster{environment: environment}
	var err error
	if made.admin, err = connection.NewClientFactory().Client(config, nil); err != nil {
		t.Fatal(err)
	}
	if made.typed, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	anything, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range append(deployed.UserRoles(t), deployed.Manifests(t, "ClusterRole*/trireme-server")...) {
		create(t, anything, document)
	}
	user, err := environment.AddUser(envtest.User{
		Name:   "system:serviceaccount:" + deployed.Namespace + ":trireme-server",
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + deployed.Namespace, "system:authenticated"},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if made.serverKubeconfig, err = user.KubeConfig(); err != nil {
		t.Fatal(err)
	}
	made.server = user.Config()
	return made
}

func create(t testing.TB, by client.Client, object client.Object) {
	t.Helper()
	if err := by.Create(t.Context(), object); err != nil {
		t.Fatalf("create %T %s: %v", object, object.GetName(), err)
	}
}

// person is somebody who may work with jobs in a namespace of their own, and nowhere
// else.
type person struct{ name, namespace, token string }

func (cluster *cluster) person(t testing.TB, name string) *person {
	t.Helper()
	made := &person{name: name, namespace: "team-" + name}
	create(t, cluster.admin, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: made.namespace}})
	create(t, cluster.admin, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: made.namespace, Name: name}})
	// Whoever may view a namespace may also view its quotas.
	create(t, cluster.admin, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: made.namespace, Name: "quotas"},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"resourcequotas"}, Verbs: []string{"get", "list"}},
			// Who sets a grace period deletes the pods of a job.
			{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"deletecollection"}},
		},
	})
	for role, kind := range map[string]string{"mpijob-user": "ClusterRole", "trainjob-editor": "ClusterRole", "quotas": "Role"} {
		create(t, cluster.admin, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: made.namespace, Name: role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: made.namespace, Name: name}},
		})
	}
	request, err := cluster.typed.CoreV1().ServiceAccounts(made.namespace).CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	made.token = request.Status.Token
	// The API server learns of rights a moment later, and the server remembers a no.
	for resource, group := range map[string]string{"mpijobs": "kubeflow.org", "trainjobs": "kubeflow.org", "resourcequotas": ""} {
		eventually.Succeeds(t, name+" may list "+resource, func() error {
			review, err := cluster.typed.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User:               "system:serviceaccount:" + made.namespace + ":" + name,
				ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: made.namespace, Verb: "list", Group: group, Resource: resource},
			}}, metav1.CreateOptions{})
			if err == nil && !review.Status.Allowed {
				err = fmt.Errorf("not yet: %s", review.Status.Reason)
			}
			return err
		})
	}
	return made
}

// world is the cluster with a server that runs in this program.
type world struct {
	*cluster
	cache    *jobwatch.Cache
	url      string
	audit    *deployed.Lines
	ada, bob *person
}

func startWorld(t testing.TB) *world {
	t.Helper()
	made := &world{cluster: startCluster(t), audit: &deployed.Lines{}}
	made.ada, made.bob = made.person(t, "ada"), made.person(t, "bob")
	reader, err := connection.NewClientFactory().Client(made.server, nil)
	if err != nil {
		t.Fatal(err)
	}
	made.cache = jobwatch.NewCache(reader, jobwatch.Options{})
	guard, err := auth.NewInCluster(made.server, nil, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	options := &httpserver.Options{
		Address: "127.0.0.1:0", TLS: &httpserver.TLS{}, Guard: guard, Limits: httpserver.Limits{Rate: 10_000, Burst: 10_000, Streams: 100}, Drain: 10 * time.Second,
		Version: "test", Registry: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler), Audit: made.audit,
	}
	if err := server.Join(options, server.Parts{Jobs: func(*auth.Caller) jobwatch.Source { return made.cache }, OperatorNamespace: deployed.Namespace}); err != nil {
		t.Fatal(err)
	}
	made.run(t, options)
	return made
}

// run serves until the test ends.
func (world *world) run(t testing.TB, options *httpserver.Options) {
	t.Helper()
	assembled, err := httpserver.New(*options)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() { stop(); running.Wait() })
	running.Go(func() { world.cache.Run(ctx) })
	if err := world.cache.WaitForSync(ctx); err != nil {
		t.Fatal(err)
	}
	address := make(chan net.Addr, 1)
	running.Go(func() {
		if err := assembled.Run(ctx, func(at net.Addr) { address <- at }); err != nil {
			t.Errorf("the server: %v", err)
		}
	})
	world.url = "https://" + (<-address).String()
}

// TestServer has one server for all that is asked of it.
func TestServer(t *testing.T) {
	shared := startWorld(t)
	for name, test := range map[string]func(*testing.T, *world){
		"jobs live":                  jobsLive,
		"lists":                      lists,
		"large jobs":                 largeJobs,
		"bad input":                  badInput,
		"others' jobs":               othersJobs,
		"places":                     places,
		"what is kept stays":         keptStays,
		"just created":               justCreated,
		"nothing is made up":         nothingMadeUp,
		"the audit has every change": auditHasEveryChange,
	} {
		t.Run(name, func(t *testing.T) { test(t, shared) })
	}
}
