// Package serving joins what can be asked with the ways to ask it, for the server in
// a cluster and for the one on somebody's own machine.
package server

import (
	"net/http"
	"time"

	"google.golang.org/grpc"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/internal/kube/usage"
	"github.com/trireme-mpi/trireme/internal/server/auth"
	"github.com/trireme-mpi/trireme/internal/server/grpcapi"
	"github.com/trireme-mpi/trireme/internal/server/httpserver"
	"github.com/trireme-mpi/trireme/internal/server/jobservice"
	"github.com/trireme-mpi/trireme/internal/server/jobwatch"
	"github.com/trireme-mpi/trireme/internal/server/rest"
)

const (
	callTimeout = 30 * time.Second
	// logTimeout is for logs that are read once; those that are followed have none.
	logTimeout = 5 * time.Minute
)

// Parts are what differs between the two servers.
type Parts struct {
	// Jobs is where a caller's jobs are read.
	Jobs func(*auth.Caller) jobwatch.Source
	// Prometheus knows what pods use; nil is none.
	Prometheus *usage.Prometheus
	// OperatorNamespace is where the operator runs.
	OperatorNamespace string
}

// Join adds all that can be asked to a server that is about to be made. Its guard,
// origins and version are set already.
func Join(options *httpserver.Options, parts Parts) error {
	service := jobservice.New(jobservice.Options{
		Guard: options.Guard, Jobs: parts.Jobs, OperatorNamespace: parts.OperatorNamespace, Clock: clock.RealClock{},
		Usage: func(reader client.Reader) usage.Source { return usage.Choose(parts.Prometheus, reader) },
	})
	api, err := rest.New(service, rest.Options{
		CallTimeout: callTimeout, LogTimeout: logTimeout, AllowedOrigins: options.Origins, Clock: clock.RealClock{}, Version: options.Version, Log: options.Log,
	})
	if err != nil {
		return err
	}
	options.API = api
	options.RegisterGRPC, options.GRPCStatus = func(services *grpc.Server) { grpcapi.Register(services, service) }, grpcapi.Status
	options.GRPCOptions = grpcapi.Options()
	options.Public = map[string]http.Handler{"/openapi.json": api.Document()}
	return nil
}
