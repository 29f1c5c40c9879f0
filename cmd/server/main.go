// SPDX-License-Identifier: Apache-2.0

// The server gives notebooks, pipelines and dashboards access to jobs over REST, gRPC and
// streams.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/trireme-mpi/trireme/internal/server/auth"
	"github.com/trireme-mpi/trireme/internal/server/httpserver"
)

// version is set when a release is built.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "server: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, arguments []string) error {
	if len(arguments) > 0 && arguments[0] == historyCommand {
		settings, err := parseHistory(arguments[1:])
		if err != nil {
			return err
		}
		return connect(ctx, func(ctx context.Context, connection *rest.Config, log *slog.Logger) error {
			return keepHistory(ctx, connection, settings, log)
		})
	}
	settings, err := parse(arguments)
	if err != nil {
		return err
	}
	return connect(ctx, func(ctx context.Context, connection *rest.Config, log *slog.Logger) error {
		return serve(ctx, connection, settings, log)
	})
}

// connect finds the connection to the cluster, and runs a component with it.
func connect(ctx context.Context, component func(context.Context, *rest.Config, *slog.Logger) error) error {
	// Logs go to stderr: stdout has only the audit log.
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	logger := logr.FromSlogHandler(log.Handler())
	// Log lines of the Kubernetes libraries have the same format.
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
	connection, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the connection to the cluster: %w", err)
	}
	return component(logr.NewContext(ctx, logger), connection, log)
}

// settings are the values of the flags.
type settings struct {
	address, probeAddress    string
	certificateFile, keyFile string
	certificateNames         commaList
	namespace                string
	prometheus               prometheus
	reportsURL               string
	reportsDirectory         string
	historyURL               string
	historyDirectory         string
	origins                  commaList
	proxy                    auth.ProxyOptions
	limits                   httpserver.Limits
	grace, drain             time.Duration
}

// prometheus has the connection settings of Prometheus.
type prometheus struct{ address, tokenFile, authorityFile string }

// commaList is a flag whose value is a list, separated by commas.
type commaList []string

// String returns the value of the flag.
func (c *commaList) String() string { return strings.Join(*c, ",") }

// Set parses the value of the flag.
func (c *commaList) Set(text string) error {
	*c = nil
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			*c = append(*c, item)
		}
	}
	return nil
}

func parse(arguments []string) (*settings, error) {
	settings := &settings{limits: httpserver.DefaultLimits(), certificateNames: commaList{"trireme-server.trireme-system.svc"}}
	flags := flag.NewFlagSet("server", flag.ContinueOnError)
	flags.StringVar(&settings.address, "address", ":8443", "Address of REST, gRPC and streams")
	flags.StringVar(&settings.probeAddress, "probe-address", ":8081", "Address of /healthz, /readyz and /metrics, without TLS; empty disables them")
	flags.StringVar(&settings.certificateFile, "tls-cert-file", "", "PEM file with the server's certificate, reloaded when it changes; default: a self-signed certificate, which clients cannot verify")
	flags.StringVar(&settings.keyFile, "tls-key-file", "", "PEM file with the key of the certificate")
	flags.Var(&settings.certificateNames, "tls-names", "DNS names in the self-signed certificate")
	flags.StringVar(&settings.namespace, "operator-namespace", os.Getenv("POD_NAMESPACE"), "Namespace of the operator; default: $POD_NAMESPACE")
	flags.StringVar(&settings.prometheus.address, "prometheus-url", "", "URL of the Prometheus with the resource usage of pods; default: the metrics API is used")
	flags.StringVar(&settings.prometheus.tokenFile, "prometheus-token-file", "", "File with the token for Prometheus, reloaded when it changes")
	flags.StringVar(&settings.prometheus.authorityFile, "prometheus-ca-file", "", "PEM file with the CA of Prometheus; default: the CAs of the system")
	flags.StringVar(&settings.reportsURL, "reports-url", "", "URL of the operator's port for reports, to read the ranks of jobs; default: they are not available")
	flags.StringVar(&settings.reportsDirectory, "reports-directory", "/run/trireme/reports", "Directory with the token and the CA (ca.crt) for that port, reloaded when they change")
	flags.StringVar(&settings.historyURL, "history-url", "", "URL of the history of finished jobs; default: it is not available")
	flags.StringVar(&settings.historyDirectory, "history-directory", "/run/trireme/history", "Directory with the token and the CA (ca.crt) for the history, reloaded when they change")
	flags.Var(&settings.origins, "allowed-origins", "Other origins whose web pages may send requests, as https://host:port, separated by commas")
	flags.StringVar(&settings.proxy.AuthorityFile, "proxy-ca-file", "", "PEM file with the CA of trusted proxies; without it, headers never identify the user")
	flags.Var((*commaList)(&settings.proxy.Names), "proxy-names", "Names of trusted proxies in their certificates (common name, DNS name or URI), separated by commas")
	flags.StringVar(&settings.proxy.UserHeader, "proxy-user-header", auth.DefaultUserHeader, "Header in which a trusted proxy sends the user; the proxy must overwrite the client's value")
	flags.StringVar(&settings.proxy.GroupsHeader, "proxy-groups-header", "", "Header in which a trusted proxy sends the user's groups, such as X-Forwarded-Groups; the proxy must overwrite the client's value; default: no groups are trusted")
	flags.BoolVar(&settings.proxy.Impersonate, "impersonate", false, "Act as the user that a trusted proxy names without a token; the server needs permission to impersonate users and groups")
	flags.Float64Var(&settings.limits.Rate, "requests-per-second", settings.limits.Rate, "Requests per second that each user may send on average")
	flags.IntVar(&settings.limits.Burst, "burst", settings.limits.Burst, "Requests that each user may send at once")
	flags.IntVar(&settings.limits.Streams, "streams", settings.limits.Streams, "Streams that each user may have open")
	flags.Float64Var(&settings.limits.UnauthenticatedRate, "unauthenticated-requests-per-second", settings.limits.UnauthenticatedRate, "Requests per second without a valid token that each source address may send on average")
	flags.IntVar(&settings.limits.UnauthenticatedBurst, "unauthenticated-burst", settings.limits.UnauthenticatedBurst, "Requests without a valid token that each source address may send at once")
	flags.IntVar(&settings.limits.Connections, "connections", settings.limits.Connections, "Connections that may be open in total")
	flags.IntVar(&settings.limits.ConnectionsPerSource, "connections-per-source", settings.limits.ConnectionsPerSource, "Connections that each source address may have open")
	flags.DurationVar(&settings.grace, "grace", 5*time.Second, "How long the server accepts requests after it has received a signal to stop")
	flags.DurationVar(&settings.drain, "drain", 20*time.Second, "How long requests in progress may take to finish after that")
	if err := flags.Parse(arguments); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unknown argument %q: the server only takes flags; see --help", flags.Arg(0))
	}
	return settings, settings.check()
}

func (s *settings) check() error {
	switch {
	case (s.certificateFile == "") != (s.keyFile == ""):
		return fmt.Errorf("--tls-cert-file and --tls-key-file must be set together")
	case s.proxy.AuthorityFile == "" && (len(s.proxy.Names) > 0 || s.proxy.Impersonate || s.proxy.GroupsHeader != ""):
		return fmt.Errorf("--proxy-names, --proxy-groups-header and --impersonate need --proxy-ca-file: a proxy is trusted by its certificate")
	case s.prometheus.tokenFile != "" && !strings.HasPrefix(s.prometheus.address, "https://"):
		return fmt.Errorf("--prometheus-token-file needs a --prometheus-url with https: the token must not be sent unencrypted")
	case s.limits.Rate <= 0 || s.limits.Burst <= 0 || s.limits.Streams <= 0:
		return fmt.Errorf("--requests-per-second, --burst and --streams must be greater than 0")
	case s.limits.UnauthenticatedRate <= 0 || s.limits.UnauthenticatedBurst <= 0:
		return fmt.Errorf("--unauthenticated-requests-per-second and --unauthenticated-burst must be greater than 0")
	case s.limits.ConnectionsPerSource <= 0 || s.limits.Connections < s.limits.ConnectionsPerSource:
		return fmt.Errorf("--connections-per-source must be greater than 0, and not greater than --connections")
	}
	return nil
}
