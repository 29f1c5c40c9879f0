package cli

import (
	"fmt"
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

// environment is what all commands share.
type environment struct {
	genericiooptions.IOStreams
	// output is what Out prints to.
	output *output
	// calledAs is what a user types: odh, kubectl odh or oc odh.
	calledAs string
	config   *genericclioptions.ConfigFlags
	clock    clock.PassiveClock
	terminal terminal
	warnings *warnings
	// verbosity of Kubernetes' own libraries.
	verbosity int
	// cluster is what commands talk to instead of the configured one, in tests.
	cluster client.WithWatch
}

func newEnvironment(streams genericiooptions.IOStreams) *environment {
	out := &output{to: streams.Out}
	streams.Out, streams.ErrOut = out, &output{to: streams.ErrOut}
	environment := &environment{
		IOStreams: streams, output: out, calledAs: "odh", clock: clock.RealClock{}, config: genericclioptions.NewConfigFlags(true),
		warnings: &warnings{to: streams.ErrOut},
	}
	environment.config.WithWrapConfigFn(func(config *rest.Config) *rest.Config {
		// A person waits; the API server has its own limits.
		config.QPS, config.Burst = -1, -1
		config.WarningHandler = environment.warnings
		return config
	})
	return environment
}

// shownFlags are those of kubectl's that help shows; the others work too.
var shownFlags = []string{"kubeconfig", "context", "namespace", "as", "as-group", "request-timeout", "v"}

// addFlags gives every command kubectl's own flags: kubeconfig, context, namespace,
// impersonation.
func (environment *environment) addFlags(root *cobra.Command) {
	flags := root.PersistentFlags()
	environment.config.AddFlags(flags)
	flags.IntVarP(&environment.verbosity, "v", "v", 0, "show what is asked of the cluster: 6 the requests, 8 their content")
	flags.BoolFunc("verbose", "the same as -v 6", func(string) error { environment.verbosity = 6; return nil })
	flags.VisitAll(func(flag *pflag.Flag) { flag.Hidden = !slices.Contains(shownFlags, flag.Name) })
	complete := func(name string, offer func(*cobra.Command) []string) {
		utilruntime.Must(root.RegisterFlagCompletionFunc(name, func(command *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
			return beginningWith(offer(command), begun), cobra.ShellCompDirectiveNoFileComp
		}))
	}
	complete("namespace", environment.namespaceNames)
	complete("context", func(*cobra.Command) []string { return environment.contextNames() })
}

// namespace is the one that a command works in.
func (environment *environment) namespace() (string, error) {
	namespace, _, err := environment.config.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return "", noCluster(err)
	}
	return namespace, nil
}

// scope is a namespace, or "" for all of them.
func (environment *environment) scope(all bool) (string, error) {
	if all {
		return "", nil
	}
	return environment.namespace()
}

// scheme knows every kind that the command line reads or writes.
var scheme = connection.Scheme

// connection is the cluster that is meant. Without any configuration client-go would
// try this machine, and its error would send people looking in the wrong place.
func (environment *environment) connection() (*rest.Config, error) {
	if environment.verbosity == 0 {
		// What goes wrong is told once, in our own form.
		klog.SetLogger(logr.Discard())
	}
	var level klog.Level
	if err := level.Set(strconv.Itoa(environment.verbosity)); err != nil {
		return nil, err
	}
	loader := environment.config.ToRawKubeConfigLoader()
	raw, err := loader.RawConfig()
	if err != nil {
		return nil, noCluster(err)
	}
	config, err := environment.config.ToRESTConfig()
	if err == nil && len(raw.Clusters) == 0 && *environment.config.APIServer == "" && config.Host == "http://localhost:8080" {
		err = clientcmd.ErrEmptyConfig
	}
	if err != nil {
		return nil, noCluster(err)
	}
	return config, nil
}

// client reads and writes typed objects, and those of other kinds that a command
// names.
func (environment *environment) client(others ...schema.GroupVersionKind) (client.WithWatch, error) {
	if environment.cluster != nil {
		return environment.cluster, nil
	}
	config, err := environment.connection()
	if err != nil {
		return nil, err
	}
	return connection.NewMaker(others...).Client(config, nil)
}

// core is for what the other client cannot do: logs.
func (environment *environment) core() (typedcorev1.CoreV1Interface, error) {
	config, err := environment.connection()
	if err != nil {
		return nil, err
	}
	return typedcorev1.NewForConfig(config)
}

// warningCode is HTTP's for a warning that has no code of its own.
const warningCode = 299

// warnings shows what the API server warns of, each only once.
type warnings struct {
	// mutex: requests run side by side.
	mutex sync.Mutex
	to    interface{ Write([]byte) (int, error) }
	shown map[string]bool
}

// HandleWarningHeader is called for each warning of an answer.
func (warnings *warnings) HandleWarningHeader(code int, _ string, text string) {
	warnings.mutex.Lock()
	defer warnings.mutex.Unlock()
	if code != warningCode || text == "" || warnings.shown[text] {
		return
	}
	if warnings.shown == nil {
		warnings.shown = map[string]bool{}
	}
	warnings.shown[text] = true
	fmt.Fprintf(warnings.to, "Warning: %s\n", text)
}

// beginningWith are the offers that a shell can complete a word to.
func beginningWith(offers []string, begun string) (fitting []string) {
	for _, offer := range offers {
		if strings.HasPrefix(offer, begun) {
			fitting = append(fitting, offer)
		}
	}
	return fitting
}
