// Package serving joins what can be asked with the ways to ask it, for the server in
// a cluster and for the one on somebody's own machine.
package serving

import (
	"context"
	"iter"
	"net/http"
	"time"

	"google.golang.org/grpc"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/internal/access"
	"github.com/trireme-mpi/trireme/internal/live"
	"github.com/trireme-mpi/trireme/internal/rest"
	"github.com/trireme-mpi/trireme/internal/rpc"
	"github.com/trireme-mpi/trireme/internal/server"
	"github.com/trireme-mpi/trireme/internal/service"
	"github.com/trireme-mpi/trireme/internal/stream"
	"github.com/trireme-mpi/trireme/internal/usage"
)

const (
	callTimeout = 30 * time.Second
	// logTimeout is for logs that are read once; those that are followed have none.
	logTimeout = 5 * time.Minute
)

// Parts are what differs between the two servers.
type Parts struct {
	// Jobs is where a caller's jobs are read.
	Jobs func(*access.Caller) live.Source
	// Prometheus knows what pods use; nil is none.
	Prometheus *usage.Prometheus
	// OperatorNamespace is where the operator runs.
	OperatorNamespace string
}

// Join adds all that can be asked to a server that is about to be made. Its guard,
// origins and version are set already.
func Join(options *server.Options, parts Parts) error {
	origins := options.Origins
	answers := service.New(service.Options{
		Guard: options.Guard, Jobs: parts.Jobs, OperatorNamespace: parts.OperatorNamespace, Clock: clock.RealClock{},
		Usage: func(reader client.Reader) usage.Source { return usage.Choose(parts.Prometheus, reader) },
	})
	api, err := rest.New(answers, rest.Options{
		CallTimeout: callTimeout, LogTimeout: logTimeout, Clock: clock.RealClock{}, Version: options.Version, Log: options.Log,
		Stream: func(writer http.ResponseWriter, request *http.Request, messages func(context.Context) iter.Seq2[stream.Message, error]) {
			stream.Serve(writer, request, stream.Options{AllowedOrigins: origins}, messages)
		},
	})
	if err != nil {
		return err
	}
	options.API = api
	options.RPC, options.RPCStatus = func(services *grpc.Server) { rpc.Register(services, answers) }, rpc.Status
	options.RPCOptions = rpc.Options()
	options.Public = map[string]http.Handler{"/openapi.json": api.Document()}
	return nil
}
