// SPDX-License-Identifier: Apache-2.0

// Package httpserver serves REST, streams and gRPC on one port, with authentication,
// limits, audit log, health, metrics and graceful shutdown. The API itself is an option.
package httpserver

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"k8s.io/utils/clock"

	"github.com/trireme-mpi/trireme/internal/server/auth"
	"github.com/trireme-mpi/trireme/internal/server/budget"
)

// Options of a server.
type Options struct {
	// Address serves REST, gRPC and streams; ProbeAddress serves health and metrics,
	// without TLS and authentication. Empty disables the probes.
	Address, ProbeAddress string
	// TLS settings; nil serves without TLS, for local use.
	TLS *TLS

	Guard auth.Guard
	// Proxy whose headers are trusted; nil trusts none.
	Proxy *auth.Proxy
	// API handles everything but gRPC. Every request has a caller (auth.CallerFrom).
	API http.Handler
	// Public handlers need no authentication, by path.
	Public map[string]http.Handler
	// Page serves the dashboard, without authentication; nil serves none.
	Page Page
	// RegisterGRPC adds services; GRPCStatus converts an error to a gRPC status.
	RegisterGRPC func(*grpc.Server)
	GRPCStatus   func(error) error
	// GRPCOptions are the server options that the services need.
	GRPCOptions []grpc.ServerOption

	// Hosts are the host names that requests may use for this server; empty allows any. It
	// prevents DNS rebinding by web pages.
	Hosts []string
	// Origins are other origins whose web pages may send requests: scheme and host.
	Origins []string
	Limits  Limits
	// Ready are the readiness checks, by name.
	Ready map[string]func(context.Context) error
	// Grace is how long the server accepts requests after a signal to stop, until load
	// balancers no longer send any; Drain is how long requests may then take to finish.
	Grace, Drain time.Duration

	Version string
	// Registry for metrics.
	Registry *prometheus.Registry
	Log      *slog.Logger
	// Audit gets one line for each call that changes something.
	Audit io.Writer
}

// Page serves the requests that it handles, instead of the API.
type Page interface {
	http.Handler
	Handles(request *http.Request) bool
}

// Limits keep one user or one source from using up the server. A source is an IPv4
// address, or the /64 network of an IPv6 address.
type Limits struct {
	// Rate is the number of requests per second of each user on average. Burst is the
	// number at once, and also the maximum of requests in progress.
	Rate  float64
	Burst int
	// Streams is the number of open streams of each user.
	Streams int
	// UnauthenticatedRate is the number of requests per second without a known caller from
	// each source on average, UnauthenticatedBurst the number at once. A burst of 0
	// disables the limit.
	UnauthenticatedRate  float64
	UnauthenticatedBurst int
	// Connections is the number of open connections, ConnectionsPerSource the number from
	// one source; 0 disables the limit.
	Connections, ConnectionsPerSource int
}

// DefaultLimits suit users and their programs, not a proxy that all users share. A TLS
// connection takes about 50 KiB.
func DefaultLimits() Limits {
	return Limits{
		Rate: 100, Burst: 200, Streams: 100, UnauthenticatedRate: 10, UnauthenticatedBurst: 100, Connections: 5000, ConnectionsPerSource: 1000,
	}
}

const (
	// maxHeader and maxBody are larger than any job needs: etcd stores at most 1.5 MiB.
	maxHeader = 64 << 10
	maxBody   = 4 << 20
	// callTimeout is the timeout of gRPC calls. REST routes have their own.
	callTimeout = 30 * time.Second
	// bodyTimeout is how long a client may take to send a body. It is longer than
	// callTimeout, so that the call's own timeout comes first.
	bodyTimeout = callTimeout + 10*time.Second
	// writeTimeout is how long a client may take to accept a message of a stream.
	// WebSockets have their own timeout.
	writeTimeout = 10 * time.Second
	// maxCallDuration is the write deadline of requests that are not streams: reading logs
	// may take five minutes.
	maxCallDuration = 5*time.Minute + 10*time.Second
	// headerTimeout is how long a client may take to send its headers, idleTimeout how
	// long a connection may be idle.
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	// checkInterval is how often streams check their token. With the caches of the guard,
	// a revoked token ends its streams within a minute.
	checkInterval = 10 * time.Second
	// maxUnverified is how long streams continue while their tokens cannot be checked. It
	// is longer than a restart of the API server takes.
	maxUnverified = 5 * time.Minute
)

// Server serves the API.
type Server struct {
	Options
	metrics *metrics
	audit   *auth.Audit
	users   *userLimiter
	sources *sources
	// answers limits the memory of responses.
	answers *budget.Budget
	// grpcServer has the services; refusingServer responds to refused calls.
	grpcServer, refusingServer *grpc.Server
	protection                 *http.CrossOriginProtection
	health                     *health
	// stopping is done when streams must end.
	stopping      context.Context
	stopStreams   context.CancelFunc
	openStreams   sync.WaitGroup
	certificates  *certificates
	checkInterval time.Duration
	maxUnverified time.Duration
	bodyTimeout   time.Duration
	writeTimeout  time.Duration
	// messageTimeout is how long a gRPC client may take to send its message, and to read
	// the response.
	messageTimeout time.Duration
	tracing        *tracing
}

// New creates a server; Run runs it.
func New(options Options) (*Server, error) {
	server := &Server{
		Options: options, metrics: newMetrics(options.Registry), audit: auth.NewAudit(options.Audit), users: newUserLimiter(options.Limits, maxUsers),
		sources: newSources(options.Limits, maxSources, clock.RealClock{}),
		answers: budget.New(budget.PerUser, budget.Overall),
		health:  newHealth(options.Ready, options.Log), checkInterval: checkInterval, maxUnverified: maxUnverified, messageTimeout: callTimeout, bodyTimeout: bodyTimeout, writeTimeout: writeTimeout, protection: http.NewCrossOriginProtection(),
	}
	for _, origin := range options.Origins {
		if err := server.protection.AddTrustedOrigin(origin); err != nil {
			return nil, fmt.Errorf("the allowed origin %q must be scheme and host, such as https://dashboard.example.com: %w", origin, err)
		}
	}
	server.stopping, server.stopStreams = context.WithCancel(context.Background())
	tracing, err := newTracing(context.Background(), options.Version)
	if err != nil {
		return nil, err
	}
	server.tracing = tracing
	if options.TLS != nil {
		if server.certificates, err = newCertificates(*options.TLS, options.Log); err != nil {
			return nil, err
		}
	}
	if options.RegisterGRPC != nil {
		if err := server.newGRPC(); err != nil {
			return nil, err
		}
	}
	return server, nil
}
