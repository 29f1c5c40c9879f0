// SPDX-License-Identifier: Apache-2.0

package history

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/internal/engine/history"
	"github.com/trireme-mpi/trireme/internal/kube/connection"
	"github.com/trireme-mpi/trireme/internal/kube/jobreports"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
)

const (
	headerTimeout = 5 * time.Second
	// answerTimeout is enough to send a whole log.
	answerTimeout  = 5 * time.Minute
	maxHeaderBytes = 16 << 10
	stopTimeout    = 5 * time.Second
	// reopenPause is the pause before the store is opened again after an error.
	reopenPause = 5 * time.Second
)

// Options of the component.
type Options struct {
	// Address of the API for Trireme's server, with TLS. ProbeAddress has health and metrics.
	Address, ProbeAddress    string
	CertificateFile, KeyFile string
	// Open opens the store. It is called again until it succeeds.
	Open      func(context.Context) (Store, error)
	Retention history.Retention
	// SpoolDirectory has the logs of running jobs. What is in it at the start is deleted.
	SpoolDirectory string
	// LogBytes is how much of each job's log is kept, before compression: the newest lines.
	LogBytes int64
	// Settle is how long after the end of a job its events are read.
	Settle time.Duration
	// Reports has the curves of jobs; nil if the operator cannot be asked.
	Reports *jobreports.Client
	Log     *slog.Logger
}

// Run keeps the history of a cluster until the context ends.
func Run(ctx context.Context, cluster *rest.Config, options *Options) error {
	api, err := kubernetes.NewForConfig(cluster)
	if err != nil {
		return err
	}
	spools, err := openSpools(options.SpoolDirectory)
	if err != nil {
		return err
	}
	defer spools.Close()
	metrics, registry := newMetrics(), prometheus.NewRegistry()
	registry.MustRegister(metrics.collectors()...)
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	var catalog atomic.Pointer[Catalog]
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return serveTLS(ctx, options, newHandler(api, &catalog, clock.RealClock{}, options.Log))
	})
	group.Go(func() error { return serveProbes(ctx, options.ProbeAddress, registry) })
	group.Go(func() error {
		opened := openUntilItWorks(ctx, options, metrics)
		if opened == nil {
			return nil
		}
		catalog.Store(opened)
		options.Log.Info("the store of the history is open")
		group.Go(func() error { opened.sweep(ctx); return nil })
		r := &recorder{
			catalog: opened, cluster: api, reports: options.Reports, spools: spools, logBytes: options.LogBytes, settle: options.Settle,
			clock: clock.RealClock{}, log: options.Log, metrics: metrics, slots: make(chan struct{}, maxFinishing), jobs: map[types.UID]*tracked{},
		}
		return r.run(ctx, cluster)
	})
	return group.Wait()
}

// openSpools returns the empty directory for logs of running jobs. After a restart, logs
// are read from their beginning.
func openSpools(directory string) (*os.Root, error) {
	if err := os.RemoveAll(directory); err != nil {
		return nil, fmt.Errorf("empty the directory for logs of running jobs: %w", err)
	}
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return nil, fmt.Errorf("create the directory for logs of running jobs: %w", err)
	}
	return os.OpenRoot(directory)
}

// openUntilItWorks returns nil if the context has ended.
func openUntilItWorks(ctx context.Context, options *Options, metrics *metrics) *Catalog {
	for {
		store, err := options.Open(ctx)
		if err == nil {
			var catalog *Catalog
			if catalog, err = openCatalog(ctx, store, options.Retention, clock.RealClock{}, metrics, options.Log); err == nil {
				return catalog
			}
		}
		if ctx.Err() != nil {
			return nil
		}
		metrics.errors.WithLabelValues(operationOpen).Inc()
		options.Log.Error("open the store of the history; jobs are recorded when it can be opened", "error", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(reopenPause):
		}
	}
}

// run watches jobs until the context ends, and then waits for the records in progress.
func (r *recorder) run(ctx context.Context, cluster *rest.Config) error {
	reader, err := connection.NewClientFactory().Client(cluster, nil)
	if err != nil {
		return err
	}
	r.client = reader
	objects, err := cache.New(cluster, cache.Options{Scheme: reader.Scheme(), Mapper: reader.RESTMapper(), DefaultTransform: cache.TransformStripManagedFields()})
	if err != nil {
		return err
	}
	for _, kind := range jobview.Kinds {
		if err := r.watch(ctx, objects, kind); err != nil {
			return err
		}
	}
	err = objects.Start(ctx)
	r.running.Wait()
	return err
}

func (r *recorder) watch(ctx context.Context, objects cache.Cache, kind *jobview.Kind) error {
	var object client.Object = kind.NewObject()
	informer, err := objects.GetInformer(ctx, object, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch %s: %w", kind.Plural, err)
	}
	_, err = informer.AddEventHandler(r.handler(ctx, kind))
	return err
}

// serveTLS serves the API for Trireme's server.
func serveTLS(ctx context.Context, options *Options, handler http.Handler) error {
	watcher, err := certwatcher.New(options.CertificateFile, options.KeyFile)
	if err != nil {
		return fmt.Errorf("read the certificate %s and its key %s: %w", options.CertificateFile, options.KeyFile, err)
	}
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout, ReadTimeout: headerTimeout, WriteTimeout: answerTimeout, IdleTimeout: time.Minute, MaxHeaderBytes: maxHeaderBytes,
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: watcher.GetCertificate},
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return watcher.Start(ctx) })
	group.Go(func() error {
		return serve(ctx, options.Address, server, func(listener net.Listener) error { return server.ServeTLS(listener, "", "") })
	})
	return group.Wait()
}

// serveProbes serves health and metrics, without TLS.
func serveProbes(ctx context.Context, address string, registry *prometheus.Registry) error {
	routes := http.NewServeMux()
	routes.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	routes.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	server := &http.Server{Handler: routes, ReadHeaderTimeout: headerTimeout, WriteTimeout: time.Minute, MaxHeaderBytes: maxHeaderBytes}
	return serve(ctx, address, server, server.Serve)
}

// serve serves until the context ends.
func serve(ctx context.Context, address string, server *http.Server, accept func(net.Listener) error) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", address, err)
	}
	failed := make(chan error, 1)
	go func() { failed <- accept(listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve %s: %w", address, err)
	case <-ctx.Done():
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := server.Shutdown(stopping); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("stop serving %s: %w", address, err)
	}
	return nil
}
