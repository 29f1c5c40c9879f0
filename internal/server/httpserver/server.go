// Package server puts the server together: one port for REST, streams and gRPC, who
// is let in, limits, health, metrics, and an orderly end. What is answered is given
// to it.
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

// Options are what differs from one server to the next.
type Options struct {
	// Address of the one port; ProbeAddress serves health and metrics, without TLS and
	// for whoever reaches it. Empty serves none.
	Address, ProbeAddress string
	// TLS; nil is plain, for a machine of one's own.
	TLS *TLS

	Guard auth.Guard
	// Proxy whose headers are trusted; nil trusts none.
	Proxy *auth.Proxy
	// API answers everything but gRPC. Every request has a caller (access.CallerFrom).
	API http.Handler
	// Public are what everybody may read, by path.
	Public map[string]http.Handler
	// RPC adds services; RPCStatus is an error as clients of gRPC see it.
	RegisterGRPC func(*grpc.Server)
	GRPCStatus   func(error) error
	// RPCOptions are what the services need of the server of gRPC.
	GRPCOptions []grpc.ServerOption

	// Hosts are the names that requests may use for this server; none is any. It keeps
	// out web pages whose own name was made to point here.
	Hosts []string
	// Origins are web pages of other servers that may send requests: scheme and host.
	Origins []string
	Limits  Limits
	// Ready are what must hold before requests should come, by name.
	Ready map[string]func(context.Context) error
	// Grace is how long the server still answers after it is told to end, until nobody
	// sends it requests any more; Drain is how long calls then have to end.
	Grace, Drain time.Duration

	Version string
	// Registry is where metrics are told.
	Registry *prometheus.Registry
	Log      *slog.Logger
	// Audit gets one line for each call that was to change something.
	Audit io.Writer
}

// Limits keep one user, or one source, from taking the server from all others. A
// source is an address, or the /64 network of one of IPv6.
type Limits struct {
	// Rate is how many calls a second a user may make for long, Burst how many at once,
	// which is also how many may be under way.
	Rate  float64
	Burst int
	// Streams is how many streams a user may have open.
	Streams int
	// UnauthenticatedRate is how many calls a second one source may make for long whose
	// caller is not known, UnauthenticatedBurst how many at once. No burst is no limit.
	UnauthenticatedRate  float64
	UnauthenticatedBurst int
	// Connections is how many may be open, ConnectionsPerSource how many from one source;
	// none is no limit.
	Connections, ConnectionsPerSource int
}

// DefaultLimits are meant for people and their programs, not for a proxy that all
// of them share. Connections over TLS take about 50 KiB each.
func DefaultLimits() Limits {
	return Limits{
		Rate: 100, Burst: 200, Streams: 100, UnauthenticatedRate: 10, UnauthenticatedBurst: 100, Connections: 5000, ConnectionsPerSource: 1000,
	}
}

const (
	// maxHeader and maxBody are more than any job has: etcd stores no more than 1.5 MiB.
	maxHeader = 64 << 10
	maxBody   = 4 << 20
	// callTimeout is what a call over gRPC may take. REST has its own, by route.
	callTimeout = 30 * time.Second
	// bodyTimeout is what a client has to send a body. It is more than a call may take,
	// because a call ends with it.
	bodyTimeout = callTimeout + 10*time.Second
	// writeTimeout is what a client has to accept a message of a stream. A WebSocket has
	// its own.
	writeTimeout = 10 * time.Second
	// longestCall is after what a connection of a call that is no stream is given up:
	// reading logs once may take five minutes.
	maxCallDuration = 5*time.Minute + 10*time.Second
	// headerTimeout is what a client has to say what it wants, idleTimeout how long it
	// may say nothing.
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	// checkEvery is how often streams look whether their token still holds. With what
	// the guard keeps, a revoked one ends within a minute.
	checkInterval = 10 * time.Second
	// longestDoubt is how long streams go on while nobody can say whether their tokens
	// hold. It is longer than an API server takes to restart.
	maxUnverified = 5 * time.Minute
)

// Server is a server that was put together.
type Server struct {
	Options
	metrics *metrics
	audit   *auth.Audit
	users   *userLimiter
	sources *sources
	// answers bounds the memory that answers take.
	answers *budget.Budget
	// rpc has the services; refusing answers calls that are refused.
	grpcServer, refusingServer *grpc.Server
	protection                 *http.CrossOriginProtection
	health                     *health
	// stopping ends when streams shall.
	stopping      context.Context
	stopStreams   context.CancelFunc
	openStreams   sync.WaitGroup
	certificates  *certificates
	checkInterval time.Duration
	maxUnverified time.Duration
	bodyTimeout   time.Duration
	writeTimeout  time.Duration
	// messageTimeout is what a client of gRPC has to send its message, and to take the
	// answer.
	messageTimeout time.Duration
	tracing        *tracing
}

// New puts a server together; Run runs it.
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
