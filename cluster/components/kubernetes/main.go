// Command kubernetes is a whole Kubernetes in one binary: it behaves as the
// component whose name it was called by, as busybox does. One link of shared
// code instead of nine keeps the build minutes shorter and the disk half a
// gigabyte lighter; links named kube-apiserver and etcd also serve envtest.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	_ "time/tzdata" // time zones of CronJobs

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// components maps the name a process is started under to what it then is.
var components = map[string]func(){
	"etcd":                    func() { etcdmain.Main(os.Args) },
	"kube-apiserver":          func() { run(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() { run(controllermanager.NewControllerManagerCommand()) },
	"kube-scheduler":          func() { run(scheduler.NewSchedulerCommand()) },
	"kubelet":                 func() { run(kubelet.NewKubeletCommand(context.Background())) },
	"kube-proxy":              func() { run(proxy.NewProxyCommand()) },
	"kubectl":                 kubectl,
	"coredns":                 coredns,
	"kwok":                    kwok,
}

func main() {
	name := filepath.Base(os.Args[0])
	component, known := components[name]
	if !known {
		fmt.Fprintf(os.Stderr, "kubernetes: called as %q, which is none of its components; link it under one of: %s\n",
			name, strings.Join(names(), ", "))
		os.Exit(2)
	}
	if name != "coredns" {
		forgetFlags(corednsFlags)
	}
	component()
}

// forgetFlags takes flags that one component's packages registered for the
// whole process away from the others: kube-proxy would otherwise take CoreDNS's
// --version for its own.
func forgetFlags(names []string) {
	kept := flag.NewFlagSet(os.Args[0], flag.ExitOnError)
	flag.VisitAll(func(f *flag.Flag) {
		if !slices.Contains(names, f.Name) {
			kept.Var(f.Value, f.Name, f.Usage)
		}
	})
	flag.CommandLine = kept
}

func names() []string {
	var all []string
	for name := range components {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

func run(command *cobra.Command) {
	os.Exit(cli.Run(command))
}

// kubectl sets the verbosity before it builds its commands, because building
// them already logs (plugins, kuberc).
func kubectl() {
	_, _ = logs.GlogSetter(cmd.GetLogVerbosity(os.Args))
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err)
	}
}
