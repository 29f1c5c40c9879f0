// The server is what notebooks, pipelines and dashboards talk to: REST, gRPC and live
// updates over the same jobs.
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
	settings, err := parse(arguments)
	if err != nil {
		return err
	}
	// Logs go to stderr, so that stdout is the audit's alone.
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	logger := logr.FromSlogHandler(log.Handler())
	// What Kubernetes' own libraries have to say, in the same form.
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
	connection, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the cluster: %w", err)
	}
	return serve(logr.NewContext(ctx, logger), connection, settings, log)
}

// settings are what flags say.
type settings struct {
	address, probeAddress    string
	certificateFile, keyFile string
	certificateNames         words
	namespace                string
	prometheus               prometheus
	origins                  words
	proxy                    auth.ProxyOptions
	limits                   httpserver.Limits
	grace, drain             time.Duration
}

// prometheus is how to reach it.
type prometheus struct{ address, tokenFile, authorityFile string }

// words are separated by commas.
type words []string

// String is what the flag says.
func (w *words) String() string { return strings.Join(*w, ",") }

// Set is called with what somebody wrote.
func (w *words) Set(written string) error {
	*w = nil
	for word := range strings.SplitSeq(written, ",") {
		if word = strings.TrimSpace(word); word != "" {
			*w = append(*w, word)
		}
	}
	return nil
}

func parse(arguments []string) (*settings, error) {
	settings := &settings{limits: httpserver.DefaultLimits(), certificateNames: words{"trireme-server.trireme-system.svc"}}
	flags := flag.NewFlagSet("server", flag.ContinueOnError)
	flags.StringVar(&settings.address, "address", ":8443", "where REST, gRPC and streams are served")
	flags.StringVar(&settings.probeAddress, "probe-address", ":8081", "where /healthz, /readyz and /metrics are served, without TLS; empty is nowhere")
	flags.StringVar(&settings.certificateFile, "tls-cert-file", "", "certificate of the server, in PEM; read again when it changes. Without it the server uses a self-signed one, which clients cannot verify")
	flags.StringVar(&settings.keyFile, "tls-key-file", "", "its key, in PEM")
	flags.Var(&settings.certificateNames, "tls-names", "DNS names in the self-signed certificate")
	flags.StringVar(&settings.namespace, "operator-namespace", os.Getenv("POD_NAMESPACE"), "namespace that the operator runs in (POD_NAMESPACE)")
	flags.StringVar(&settings.prometheus.address, "prometheus-url", "", "Prometheus that knows what pods use; without it the metrics API is asked")
	flags.StringVar(&settings.prometheus.tokenFile, "prometheus-token-file", "", "token for it; read again when it changes")
	flags.StringVar(&settings.prometheus.authorityFile, "prometheus-ca-file", "", "authority of its certificate, in PEM; without it those of the system")
	flags.Var(&settings.origins, "allowed-origins", "web pages of other servers that may send requests, as https://host:port")
	flags.StringVar(&settings.proxy.AuthorityFile, "proxy-ca-file", "", "authority of the certificates of trusted proxies, in PEM. Without it no header says who calls")
	flags.Var((*words)(&settings.proxy.Names), "proxy-names", "names in the certificates of trusted proxies: common name, DNS name or URI")
	flags.StringVar(&settings.proxy.UserHeader, "proxy-user-header", auth.DefaultUserHeader, "header in which a trusted proxy names the user; it must overwrite what clients send there")
	flags.StringVar(&settings.proxy.GroupsHeader, "proxy-groups-header", "", "header in which it names their groups, such as X-Forwarded-Groups; it must overwrite what clients send there. Without it no groups are believed")
	flags.BoolVar(&settings.proxy.Impersonate, "impersonate", false, "act as the user whom a trusted proxy names without a token; the server needs the right to impersonate users and groups")
	flags.Float64Var(&settings.limits.Rate, "requests-per-second", settings.limits.Rate, "calls that a user may make for long")
	flags.IntVar(&settings.limits.Burst, "burst", settings.limits.Burst, "calls that a user may make at once")
	flags.IntVar(&settings.limits.Streams, "streams", settings.limits.Streams, "streams that a user may have open")
	flags.Float64Var(&settings.limits.UnauthenticatedRate, "unauthenticated-requests-per-second", settings.limits.UnauthenticatedRate, "calls without a valid token that one source address may make for long")
	flags.IntVar(&settings.limits.UnauthenticatedBurst, "unauthenticated-burst", settings.limits.UnauthenticatedBurst, "calls without a valid token that one source address may make at once")
	flags.IntVar(&settings.limits.Connections, "connections", settings.limits.Connections, "connections that may be open")
	flags.IntVar(&settings.limits.ConnectionsPerSource, "connections-per-source", settings.limits.ConnectionsPerSource, "connections that one source address may have open")
	flags.DurationVar(&settings.grace, "grace", 5*time.Second, "how long the server still answers when it is told to end")
	flags.DurationVar(&settings.drain, "drain", 20*time.Second, "how long calls have to end after that")
	if err := flags.Parse(arguments); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("what is %q? There are only flags: --help lists them", flags.Arg(0))
	}
	return settings, settings.check()
}

func (s *settings) check() error {
	switch {
	case (s.certificateFile == "") != (s.keyFile == ""):
		return fmt.Errorf("--tls-cert-file and --tls-key-file belong together")
	case s.proxy.AuthorityFile == "" && (len(s.proxy.Names) > 0 || s.proxy.Impersonate || s.proxy.GroupsHeader != ""):
		return fmt.Errorf("--proxy-names, --proxy-groups-header and --impersonate need --proxy-ca-file: a proxy is trusted by its certificate")
	case s.prometheus.tokenFile != "" && !strings.HasPrefix(s.prometheus.address, "https://"):
		return fmt.Errorf("--prometheus-token-file needs a --prometheus-url with https: everybody on the way would read the token")
	case s.limits.Rate <= 0 || s.limits.Burst <= 0 || s.limits.Streams <= 0:
		return fmt.Errorf("--requests-per-second, --burst and --streams must be more than nothing")
	case s.limits.UnauthenticatedRate <= 0 || s.limits.UnauthenticatedBurst <= 0:
		return fmt.Errorf("--unauthenticated-requests-per-second and --unauthenticated-burst must be greater than 0")
	case s.limits.ConnectionsPerSource <= 0 || s.limits.Connections < s.limits.ConnectionsPerSource:
		return fmt.Errorf("--connections-per-source must be greater than 0, and not greater than --connections")
	}
	return nil
}
