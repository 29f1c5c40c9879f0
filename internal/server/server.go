// Package server puts the server together: one port for REST, streams and gRPC, who
// is let in, limits, health, metrics, and an orderly end. What is answered is given
// to it.
package server

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/trireme-mpi/trireme/internal/access"
)

// Options are what differs from one server to the next.
type Options struct {
	// Address of the one port; ProbeAddress serves health and metrics, without TLS and
	// for whoever reaches it. Empty serves none.
	Address, ProbeAddress string
	// TLS; nil is plain, for a machine of one's own.
	TLS *TLS

	Guard access.Guard
	// Proxy whose headers are trusted; nil trusts none.
	Proxy *access.Proxy
	// API answers everything but gRPC. Every request has a caller (access.CallerFrom).
	API http.Handler
	// Public are what everybody may read, by path.
	Public map[string]http.Handler
	// RPC adds services; RPCStatus is an error as clients of gRPC see it.
	RPC       func(*grpc.Server)
	RPCStatus func(error) error

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

// Limits keep one user from taking the server from all others.
type Limits struct {
	// Rate is how many calls a second a user may make for long, Burst how many at once.
	Rate  float64
	Burst int
	// Streams is how many streams a user may have open.
	Streams int
}

// DefaultLimits are meant for people and their programs, not for a proxy that all
// of them share.
func DefaultLimits() Limits { return Limits{Rate: 100, Burst: 200, Streams: 100} }

const (
	// maxHeader and maxBody are more than any job has: etcd stores no more than 1.5 MiB.
	maxHeader = 64 << 10
	maxBody   = 4 << 20
	// callTimeout is what a call over gRPC may take. REST has its own, by route.
	callTimeout = 30 * time.Second
	// longestCall is after what a connection of a call that is no stream is given up:
	// reading logs once may take five minutes.
	longestCall = 5*time.Minute + 10*time.Second
	// headerTimeout is what a client has to say what it wants, idleTimeout how long it
	// may say nothing.
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	// checkEvery is how often streams look whether their token still holds. With what
	// the guard keeps, a revoked one ends within a minute.
	checkEvery = 15 * time.Second
)

// Server is a server that was put together.
type Server struct {
	Options
	metrics *metrics
	audit   *access.Audit
	fair    *fair
	rpc     *grpc.Server
	health  *health
	// stopping ends when streams shall.
	stopping     context.Context
	stopStreams  context.CancelFunc
	openStreams  sync.WaitGroup
	certificates *certificates
	checkEvery   time.Duration
	// messageTimeout is what a client of gRPC has to send its message.
	messageTimeout time.Duration
	tracing        *tracing
}

// New puts a server together; Run runs it.
func New(options Options) (*Server, error) {
	server := &Server{
		Options: options, metrics: newMetrics(options.Registry), audit: access.NewAudit(options.Audit), fair: newFair(options.Limits, mostUsers),
		health: &health{checks: options.Ready}, checkEvery: checkEvery, messageTimeout: callTimeout,
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
	if options.RPC != nil {
		server.rpc = server.newRPC()
	}
	return server, nil
}
