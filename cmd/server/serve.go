// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	prom "github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/trireme-mpi/trireme/internal/kube/connection"
	"github.com/trireme-mpi/trireme/internal/kube/jobhistory"
	"github.com/trireme-mpi/trireme/internal/kube/jobreports"
	"github.com/trireme-mpi/trireme/internal/kube/usage"
	"github.com/trireme-mpi/trireme/internal/server"
	"github.com/trireme-mpi/trireme/internal/server/auth"
	"github.com/trireme-mpi/trireme/internal/server/httpserver"
	"github.com/trireme-mpi/trireme/internal/server/jobwatch"
)

// serve runs the server with the permissions of its own connection, until the context
// ends.
func serve(ctx context.Context, cluster *rest.Config, settings *settings, log *slog.Logger) error {
	cluster = rest.CopyConfig(cluster)
	// The server's own reads are few, and reviews are cached: no client-side limit is
	// needed.
	cluster.QPS, cluster.Burst = -1, -1
	cluster.UserAgent = "trireme-server/" + version
	registry := prom.NewRegistry()
	own, err := connection.NewClientFactory().Client(cluster, nil)
	if err != nil {
		return err
	}
	cache := jobwatch.NewCache(own, jobwatch.Options{Registry: registry, Log: log})
	options, err := newOptions(cluster, settings, cache)
	if err != nil {
		return err
	}
	options.Registry, options.Log = registry, log
	prometheus, err := settings.prometheus.connect()
	if err != nil {
		return err
	}
	reports, err := settings.connectReports()
	if err != nil {
		return err
	}
	history, err := settings.connectHistory()
	if err != nil {
		return err
	}
	if err := server.Join(options, server.Parts{
		Jobs: func(*auth.Caller) jobwatch.Source { return cache }, Prometheus: prometheus, Reports: reports, History: history, OperatorNamespace: settings.namespace,
	}); err != nil {
		return err
	}
	httpServer, err := httpserver.New(*options)
	if err != nil {
		return err
	}
	return runCacheAndServer(ctx, cache, httpServer, log)
}

// runCacheAndServer runs the cache until the server has finished, including its shutdown.
func runCacheAndServer(ctx context.Context, cache *jobwatch.Cache, httpServer *httpserver.Server, log *slog.Logger) error {
	caching, stop := context.WithCancel(context.WithoutCancel(ctx))
	var group errgroup.Group
	group.Go(func() error { cache.Run(caching); return nil })
	group.Go(func() error {
		defer stop()
		return httpServer.Run(ctx, func(address net.Addr) {
			log.Info("the server is ready for requests", "address", address.String(), "version", version)
		})
	})
	return group.Wait()
}

// maxBreak is how long the watch of jobs may be broken while the server is ready.
const maxBreak = time.Minute

// newOptions returns the options of the server, without its API.
func newOptions(cluster *rest.Config, settings *settings, cache *jobwatch.Cache) (*httpserver.Options, error) {
	var proxy *auth.Proxy
	var err error
	if settings.proxy.AuthorityFile != "" {
		if proxy, err = auth.NewProxy(settings.proxy); err != nil {
			return nil, err
		}
	}
	guard, err := auth.NewInCluster(cluster, proxy, clock.RealClock{})
	if err != nil {
		return nil, err
	}
	checkAPIServer, err := httpserver.CheckAPIServer(cluster)
	if err != nil {
		return nil, err
	}
	return &httpserver.Options{
		Address: settings.address, ProbeAddress: settings.probeAddress, Guard: guard, Proxy: proxy, Origins: settings.origins, Limits: settings.limits,
		TLS: &httpserver.TLS{
			CertificateFile: settings.certificateFile, KeyFile: settings.keyFile, Names: settings.certificateNames, ClientAuthorities: proxy.Authorities(),
		},
		Ready: map[string]func(context.Context) error{"API server": checkAPIServer, "cache": func(context.Context) error {
			if !cache.HasSynced() {
				return errors.New("the jobs are not loaded yet")
			}
			if broken := cache.BrokenFor(); broken > maxBreak {
				return fmt.Errorf("the watch of jobs is broken for %s", broken.Round(time.Second))
			}
			return nil
		}},
		Grace: settings.grace, Drain: settings.drain, Version: version, Audit: os.Stdout,
	}, nil
}

// connectReports returns a client for the operator's port for reports, or nil if none is
// configured.
func (s *settings) connectReports() (*jobreports.Client, error) {
	if s.reportsURL == "" {
		return nil, nil
	}
	return jobreports.New(s.reportsURL, s.reportsDirectory)
}

// connectHistory returns a client for the history, or nil if none is configured.
func (s *settings) connectHistory() (*jobhistory.Client, error) {
	if s.historyURL == "" {
		return nil, nil
	}
	return jobhistory.New(s.historyURL, s.historyDirectory)
}

// connect returns a client for Prometheus, or nil if none is configured.
func (p *prometheus) connect() (*usage.Prometheus, error) {
	if p.address == "" {
		return nil, nil
	}
	httpClient, err := rest.HTTPClientFor(&rest.Config{
		BearerTokenFile: p.tokenFile, TLSClientConfig: rest.TLSClientConfig{CAFile: p.authorityFile},
	})
	if err != nil {
		return nil, fmt.Errorf("reach Prometheus: %w", err)
	}
	return usage.NewPrometheus(p.address, httpClient)
}
