// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/internal/kube/connection"
)

// environment holds what all commands share.
type environment struct {
	genericiooptions.IOStreams
	// output is the writer behind Out.
	output *output
	// calledAs is what the user typed: odh, kubectl trireme or oc trireme.
	calledAs string
	config   *genericclioptions.ConfigFlags
	clock    clock.PassiveClock
	terminal terminal
	warnings *warnings
	// verbosity is the log level of the Kubernetes libraries.
	verbosity int
	// cluster replaces the configured cluster in tests.
	cluster client.WithWatch
	// server replaces the connection to Trireme's server in tests.
	server http.RoundTripper
}

func newEnvironment(streams genericiooptions.IOStreams) *environment {
	out := &output{to: streams.Out}
	streams.Out, streams.ErrOut = out, &output{to: streams.ErrOut}
	env := &environment{
		IOStreams: streams, output: out, calledAs: "odh", clock: clock.RealClock{}, config: genericclioptions.NewConfigFlags(true),
		warnings: &warnings{to: streams.ErrOut},
	}
	env.config.WithWrapConfigFn(func(config *rest.Config) *rest.Config {
		// No client-side rate limit: the API server has its own.
		config.QPS, config.Burst = -1, -1
		config.WarningHandler = env.warnings
		return config
	})
	return env
}

// shownFlags are the flags of kubectl that the help lists; the others work too.
var shownFlags = []string{"kubeconfig", "context", "namespace", "as", "as-group", "request-timeout", "v"}

// addFlags adds the flags of kubectl to every command: kubeconfig, context, namespace,
// impersonation.
func (e *environment) addFlags(root *cobra.Command) {
	flags := root.PersistentFlags()
	e.config.AddFlags(flags)
	flags.IntVarP(&e.verbosity, "v", "v", 0, "Log level for requests to the cluster: 6 shows the requests, 8 also their content")
	flags.BoolFunc("verbose", "Same as -v 6", func(string) error { e.verbosity = 6; return nil })
	flags.VisitAll(func(flag *pflag.Flag) { flag.Hidden = !slices.Contains(shownFlags, flag.Name) })
	complete := func(name string, listNames func(*cobra.Command) []string) {
		utilruntime.Must(root.RegisterFlagCompletionFunc(name, func(command *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
			return withPrefix(listNames(command), prefix), cobra.ShellCompDirectiveNoFileComp
		}))
	}
	complete("namespace", e.namespaceNames)
	complete("context", func(*cobra.Command) []string { return e.contextNames() })
}

// namespace returns the namespace that a command works in.
func (e *environment) namespace() (string, error) {
	namespace, _, err := e.config.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return "", kubeconfigFailure(err)
	}
	return namespace, nil
}

// scope returns the namespace, or "" for all namespaces.
func (e *environment) scope(all bool) (string, error) {
	if all {
		return "", nil
	}
	return e.namespace()
}

// scheme contains every kind that the command line reads or writes.
var scheme = connection.Scheme

// connection returns the configuration of the cluster. Without a kubeconfig, client-go
// would try localhost and return a misleading error, so this is an error of its own.
func (e *environment) connection() (*rest.Config, error) {
	if e.verbosity == 0 {
		// Errors are printed once, in our own format.
		klog.SetLogger(logr.Discard())
	}
	var level klog.Level
	if err := level.Set(strconv.Itoa(e.verbosity)); err != nil {
		return nil, err
	}
	loader := e.config.ToRawKubeConfigLoader()
	raw, err := loader.RawConfig()
	if err != nil {
		return nil, kubeconfigFailure(err)
	}
	config, err := e.config.ToRESTConfig()
	if err == nil && len(raw.Clusters) == 0 && *e.config.APIServer == "" && config.Host == "http://localhost:8080" {
		err = clientcmd.ErrEmptyConfig
	}
	if err != nil {
		return nil, kubeconfigFailure(err)
	}
	return config, nil
}

// client returns a client for typed objects, and for the other kinds that a command
// needs.
func (e *environment) client(others ...schema.GroupVersionKind) (client.WithWatch, error) {
	if e.cluster != nil {
		return e.cluster, nil
	}
	config, err := e.connection()
	if err != nil {
		return nil, err
	}
	return connection.NewClientFactory(others...).Client(config, nil)
}

// core returns a client for logs, which the other client cannot read.
func (e *environment) core() (typedcorev1.CoreV1Interface, error) {
	config, err := e.connection()
	if err != nil {
		return nil, err
	}
	return typedcorev1.NewForConfig(config)
}

// warningCode is the HTTP warning code for miscellaneous persistent warnings.
const warningCode = 299

// warnings prints the warnings of the API server, each only once.
type warnings struct {
	// mutex: requests run concurrently.
	mutex sync.Mutex
	to    interface{ Write([]byte) (int, error) }
	shown map[string]bool
}

// HandleWarningHeader is called for each warning in a response.
func (w *warnings) HandleWarningHeader(code int, _ string, text string) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if code != warningCode || text == "" || w.shown[text] {
		return
	}
	if w.shown == nil {
		w.shown = map[string]bool{}
	}
	w.shown[text] = true
	fmt.Fprintf(w.to, "Warning: %s\n", text)
}

// withPrefix returns the candidates that start with what the user has typed.
func withPrefix(candidates []string, prefix string) (matching []string) {
	for _, candidate := range candidates {
		if strings.HasPrefix(candidate, prefix) {
			matching = append(matching, candidate)
		}
	}
	return matching
}
