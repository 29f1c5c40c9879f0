// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	podusage "github.com/trireme-mpi/trireme/internal/kube/usage"
	"github.com/trireme-mpi/trireme/internal/server"
	"github.com/trireme-mpi/trireme/internal/server/auth"
	"github.com/trireme-mpi/trireme/internal/server/httpserver"
	"github.com/trireme-mpi/trireme/internal/server/jobwatch"
	"github.com/trireme-mpi/trireme/internal/server/page"
)

// localServer is `server`.
type localServer struct {
	*environment
	address                  string
	certificateFile, keyFile string
	prometheus               string
	origins                  []string
	operatorNamespace        string
}

// newServerCommand serves the jobs on this machine.
func newServerCommand(env *environment) *cobra.Command {
	s := &localServer{environment: env}
	command := &cobra.Command{
		Use:   "server",
		Short: "Serve jobs over REST and gRPC on this machine",
		Long: `Serve jobs over REST, gRPC, WebSocket and server-sent events on this machine, like the
server in a cluster, until interrupted.

The server has no permissions of its own. It prints a session token: requests with this
token use your kubeconfig. Any other token is passed to the cluster unchanged.`,
		Example: `  odh server
  odh server --address 127.0.0.1:9000 --prometheus-url http://127.0.0.1:9090`,
		Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(command *cobra.Command, _ []string) error { return s.run(command.Context()) },
	}
	flags := command.Flags()
	flags.StringVar(&s.address, "address", "127.0.0.1:8090", "Address to listen on; clients that reach it need a token")
	flags.StringVar(&s.certificateFile, "tls-cert-file", "", "TLS certificate in PEM format; required to listen on more than the loopback interface")
	flags.StringVar(&s.keyFile, "tls-key-file", "", "Private key of the TLS certificate in PEM format")
	flags.StringVar(&s.prometheus, "prometheus-url", "", "URL of the Prometheus server with the resource usage of pods (default: use the metrics API)")
	flags.StringSliceVar(&s.origins, "allowed-origins", nil, "Origins of web pages that may send requests, as https://host:port")
	flags.StringVar(&s.operatorNamespace, "operator-namespace", "trireme-system", "Namespace of the operator")
	command.MarkFlagsRequiredTogether("tls-cert-file", "tls-key-file")
	return command
}

// loopback are the names of the loopback interface.
var loopback = []string{"localhost", "127.0.0.1", "::1"}

func (s *localServer) run(ctx context.Context) error {
	return s.serve(ctx, func(string) *page.Codes { return nil }, s.printAddress)
}

// serve runs the server. It gets the codes that sign users of the page in, and started is
// called with the address and the session token.
func (s *localServer) serve(ctx context.Context, codes func(token string) *page.Codes, started func(address net.Addr, token string)) error {
	host, err := s.host()
	if err != nil {
		return err
	}
	kubeconfig, err := s.connection()
	if err != nil {
		return err
	}
	metering, err := s.metering()
	if err != nil {
		return err
	}
	guard := auth.NewPassThrough(kubeconfig, clock.RealClock{})
	options := s.options(host)
	options.Guard = guard
	if err := server.Join(options, server.Parts{
		Jobs: func(caller *auth.Caller) jobwatch.Source { return jobwatch.NewDirect(caller.Client) }, Prometheus: metering, OperatorNamespace: s.operatorNamespace,
		Codes: codes(guard.SessionToken()),
	}); err != nil {
		return err
	}
	srv, err := httpserver.New(*options)
	if err != nil {
		return err
	}
	return srv.Run(ctx, func(address net.Addr) { started(address, guard.SessionToken()) })
}

// host returns the host to listen on. Without TLS it must be a loopback address.
func (s *localServer) host() (string, error) {
	host, _, err := net.SplitHostPort(s.address)
	if err != nil {
		return "", &failure{code: exitUsage, message: fmt.Sprintf("--address must be a host and a port such as 127.0.0.1:8090, not %s", s.address)}
	}
	if address := net.ParseIP(host); s.certificateFile == "" && host != "localhost" && (address == nil || !address.IsLoopback()) {
		return "", &failure{
			code: exitUsage, message: fmt.Sprintf("--address %s is not a loopback address and needs TLS: without it, others can read the tokens", s.address),
			suggestions: []string{"Use 127.0.0.1, or set --tls-cert-file and --tls-key-file"},
		}
	}
	return host, nil
}

func (s *localServer) options(host string) *httpserver.Options {
	options := &httpserver.Options{
		Address: s.address, Origins: s.origins, Limits: httpserver.DefaultLimits(), Version: Version, Registry: prometheus.NewRegistry(),
		Drain: 2 * time.Second, Log: slog.New(slog.NewTextHandler(s.ErrOut, nil)), Audit: s.ErrOut,
	}
	if s.certificateFile != "" {
		options.TLS = &httpserver.TLS{CertificateFile: s.certificateFile, KeyFile: s.keyFile}
	} else {
		// Without TLS, only accept requests for the loopback interface: this stops DNS rebinding.
		options.Hosts = append([]string{strings.ToLower(host)}, loopback...)
	}
	return options
}

// printAddress prints how to reach the server to stdout; logs go to stderr. The example does not
// pass the token as an argument of curl, because every user of the machine can see those.
func (s *localServer) printAddress(address net.Addr, token string) {
	scheme, curlFlags := "http", ""
	if s.certificateFile != "" {
		scheme, curlFlags = "https", fmt.Sprintf("--cacert %s ", s.certificateFile)
	}
	namespace, err := s.namespace()
	if err != nil {
		namespace = "default"
	}
	fmt.Fprintf(s.Out, "Serving at %s://%s. Press Ctrl-C to stop. Until then, requests with this token use your kubeconfig:\n\n  %s\n\nTry it:\n\n  echo 'Authorization: Bearer %s' | curl %s-H @- %s://%s/api/v1/namespaces/%s/trainjobs\n",
		scheme, address, token, token, curlFlags, scheme, address, namespace)
}

func (s *localServer) metering() (*podusage.Prometheus, error) {
	if s.prometheus == "" {
		return nil, nil
	}
	return podusage.NewPrometheus(s.prometheus, nil)
}
