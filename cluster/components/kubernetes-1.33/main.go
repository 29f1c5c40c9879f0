// SPDX-License-Identifier: Apache-2.0

// Command kubernetes is the Kubernetes of one release in one binary: it behaves as the
// component whose name it was called by, as that of ../kubernetes does for the default
// release. CoreDNS, kwok and JobSet do not change with the release, and the cluster takes
// them from there. This file is the same in every release but the default; release.go
// has what differs.
package main

import (
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
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// components maps the name a process is started under to what it then is.
var components = map[string]func(){
	"etcd":                    func() { etcdmain.Main(os.Args) },
	"kube-apiserver":          func() { run(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() { run(controllermanager.NewControllerManagerCommand()) },
	"kube-scheduler":          func() { run(scheduler.NewSchedulerCommand()) },
	"kubelet":                 func() { run(kubeletCommand()) },
	"kube-proxy":              func() { run(proxy.NewProxyCommand()) },
	"kubectl":                 kubectl,
}

func main() {
	name := filepath.Base(os.Args[0])
	component, known := components[name]
	if !known {
		var names []string
		for name := range components {
			names = append(names, name)
		}
		slices.Sort(names)
		fmt.Fprintf(os.Stderr, "kubernetes: called as %q, which is none of its components; link it under one of: %s\n", name, strings.Join(names, ", "))
		os.Exit(2)
	}
	component()
}

func run(command *cobra.Command) {
	os.Exit(cli.Run(command))
}
