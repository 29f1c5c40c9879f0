// SPDX-License-Identifier: Apache-2.0

// Package live watches jobs as clients do, over WebSocket from a server's cache,
// while connections break, and servers and the API server are started anew.
package live

import (
	"context"
	"io"
	"iter"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
	"github.com/trireme-mpi/trireme/internal/server/jobwatch"
	"github.com/trireme-mpi/trireme/internal/server/stream"
	"github.com/trireme-mpi/trireme/internal/testing/controlplane"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

const repository = "../../.."

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	if address := os.Getenv(watchersAddress); address != "" {
		beWatchers(address)
		return
	}
	os.Exit(m.Run())
}

// cluster is an API server that can be started anew, and that nobody works at but the
// test.
type cluster struct {
	environment *envtest.Environment
	client      client.WithWatch
}

func startCluster(t testing.TB) *cluster {
	t.Helper()
	environment := &envtest.Environment{
		CRDDirectoryPaths: []string{filepath.Join(repository, "charts/trireme/crds")},
		// An API server that stops waits for its watches, which do not end by
		// themselves. Afterwards it is killed.
		ControlPlaneStopTimeout: 5 * time.Second,
	}
	// Certificates that stay where they are outlive a restart.
	environment.ControlPlane.GetAPIServer().CertDir = t.TempDir()
	made := &cluster{environment: controlplane.Start(t, environment)}
	made.client = made.connect(t, nil)
	return made
}

// connect is a client with connections of its own.
func (cluster *cluster) connect(t testing.TB, dial func(context.Context, string, string) (net.Conn, error)) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v2alpha1.AddToScheme, v2beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	config := rest.CopyConfig(cluster.environment.Config)
	config.QPS, config.Dial = -1, dial
	made, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func (cluster *cluster) restart(t testing.TB) {
	t.Helper()
	server := cluster.environment.ControlPlane.GetAPIServer()
	if err := server.Stop(); err != nil {
		t.Logf("the API server was killed: %v", err)
	}
	eventually.Holds(t, "the API server's port is free", func() bool {
		connection, err := net.Dial("tcp", net.JoinHostPort(server.SecureServing.Address, server.SecureServing.Port))
		if err == nil {
			_ = connection.Close()
		}
		return err != nil
	})
	if err := server.Start(); err != nil {
		t.Fatalf("start the API server again: %v", err)
	}
}

func (cluster *cluster) namespace(t testing.TB) string {
	t.Helper()
	made := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "live-"}}
	if err := cluster.client.Create(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	return made.Name
}

// simpleJob is a job that the API server takes.
func simpleJob(t testing.TB, namespace, name string) *v2beta1.MPIJob {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, "test/manifests/mpijob/simple-mpijob.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	job := &v2beta1.MPIJob{}
	if err := yaml.Unmarshal(text, job); err != nil {
		t.Fatal(err)
	}
	job.Namespace, job.Name = namespace, name
	return job
}

// wires are the connections of a client, which can be cut.
type wires struct {
	lock sync.Mutex
	laid []net.Conn
}

func (wires *wires) dial(ctx context.Context, network, address string) (net.Conn, error) {
	connection, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err == nil {
		wires.lock.Lock()
		defer wires.lock.Unlock()
		wires.laid = append(wires.laid, connection)
	}
	return connection, err
}

func (wires *wires) cut() {
	wires.lock.Lock()
	defer wires.lock.Unlock()
	for _, connection := range wires.laid {
		_ = connection.Close()
	}
	wires.laid = nil
}

// server is one replica: a cache, and the watch of MPIJobs over it.
type server struct {
	cache *jobwatch.Cache
	wires *wires
	web   *httptest.Server
	stop  func()
}

func startServer(t testing.TB, cluster *cluster) *server {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	made := &server{wires: &wires{}}
	made.cache = jobwatch.NewCache(cluster.connect(t, made.wires.dial), jobwatch.Options{Log: slog.New(slog.DiscardHandler)})
	var running sync.WaitGroup
	running.Go(func() { made.cache.Run(ctx) })
	if err := made.cache.WaitForSync(ctx); err != nil {
		t.Fatal(err)
	}
	made.web = serveWatches(ctx, func() jobwatch.Source { return made.cache })
	made.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		made.web.Close()
	})
	t.Cleanup(made.stop)
	return made
}

// serveWatches serves /{namespace} over TLS until the context ends.
func serveWatches(ctx context.Context, source func() jobwatch.Source) *httptest.Server {
	web := httptest.NewUnstartedServer(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		watch := jobwatch.Watch{Namespace: request.URL.Path[1:], Since: request.URL.Query().Get("resourceVersion")}
		stream.Serve(writer, request, stream.Options{}, func(ctx context.Context) iter.Seq2[stream.Message, error] {
			return messages(source().Watch(ctx, jobview.MPIJobs, watch))
		})
	}))
	web.Config.BaseContext = func(net.Listener) context.Context { return ctx }
	web.Config.ErrorLog = log.New(io.Discard, "", 0)
	web.StartTLS()
	return web
}

func messages(events iter.Seq2[*jobwatch.Event, error]) iter.Seq2[stream.Message, error] {
	return func(yield func(stream.Message, error) bool) {
		for event, err := range events {
			if err != nil {
				yield(stream.Message{}, err)
				return
			}
			if !yield(stream.Message{ID: event.ResourceVersion, JSON: event.JSON}, nil) {
				return
			}
		}
	}
}

// current is the server that clients connect to.
type current struct{ atomic.Pointer[server] }

// restart takes the server's place: clients are told to come back, and meet one that
// knows nothing of before.
func (current *current) restart(t testing.TB, cluster *cluster) {
	old := current.Load()
	current.Store(startServer(t, cluster))
	old.stop()
}
