// SPDX-License-Identifier: Apache-2.0

// Package server connects the job service with REST and gRPC, for the server in a cluster
// and for odh server on a user's own machine.
package server

import (
	"net/http"
	"time"

	"google.golang.org/grpc"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/internal/kube/jobhistory"
	"github.com/trireme-mpi/trireme/internal/kube/jobreports"
	"github.com/trireme-mpi/trireme/internal/kube/usage"
	"github.com/trireme-mpi/trireme/internal/server/auth"
	"github.com/trireme-mpi/trireme/internal/server/grpcapi"
	"github.com/trireme-mpi/trireme/internal/server/httpserver"
	"github.com/trireme-mpi/trireme/internal/server/jobservice"
	"github.com/trireme-mpi/trireme/internal/server/jobwatch"
	"github.com/trireme-mpi/trireme/internal/server/page"
	"github.com/trireme-mpi/trireme/internal/server/rest"
	"github.com/trireme-mpi/trireme/web"
)

const (
	callTimeout = 30 * time.Second
	// logTimeout is the timeout of reading logs without following them.
	logTimeout = 5 * time.Minute
)

// Parts are the dependencies that differ between the two servers.
type Parts struct {
	// Jobs returns the source of a caller's jobs.
	Jobs func(*auth.Caller) jobwatch.Source
	// Prometheus has the resource usage of pods; nil if there is none.
	Prometheus *usage.Prometheus
	// Reports asks the operator for the reports of jobs; nil if that is not possible.
	Reports *jobreports.Client
	// History has the records of finished jobs; nil if there is none.
	History *jobhistory.Client
	// OperatorNamespace is the namespace of the operator.
	OperatorNamespace string
	// Codes sign the dashboard's users in; nil if they sign in with a token.
	Codes *page.Codes
}

// Join adds the REST API and the gRPC services to the options of a server. Guard, origins,
// version and log must be set.
func Join(options *httpserver.Options, parts Parts) error {
	service := jobservice.New(jobservice.Options{
		Guard: options.Guard, Jobs: parts.Jobs, OperatorNamespace: parts.OperatorNamespace, Reports: parts.Reports, History: parts.History, Clock: clock.RealClock{}, Log: options.Log,
		Usage: func(reader client.Reader) usage.Source { return usage.Choose(parts.Prometheus, reader) },
	})
	api, err := rest.New(service, rest.Options{
		CallTimeout: callTimeout, LogTimeout: logTimeout, AllowedOrigins: options.Origins, Clock: clock.RealClock{}, Version: options.Version, Log: options.Log,
	})
	if err != nil {
		return err
	}
	files, _ := web.Page()
	dashboard, err := page.New(files, parts.Codes)
	if err != nil {
		return err
	}
	options.API, options.Page = api, dashboard
	options.RegisterGRPC, options.GRPCStatus = func(services *grpc.Server) { grpcapi.Register(services, service) }, grpcapi.Status
	options.GRPCOptions = grpcapi.Options()
	options.Public = map[string]http.Handler{"/openapi.json": api.Document()}
	return nil
}
