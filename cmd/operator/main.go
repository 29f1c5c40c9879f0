// SPDX-License-Identifier: Apache-2.0

// Command operator runs MPIJobs and TrainJobs.
package main

import (
	"flag"
	"fmt"
	"os"

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/trireme-mpi/trireme/internal/operator"
)

func main() {
	start := run
	if len(os.Args) > 1 && os.Args[1] == "setup" {
		start = runSetup
	}
	if err := start(); err != nil {
		fmt.Fprintf(os.Stderr, "operator: %v\n", err)
		os.Exit(1)
	}
}

func run() error {
	configuration := flag.String("config", "", "configuration file (default: built-in defaults)")
	namespace := flag.String("namespace", os.Getenv("POD_NAMESPACE"), "namespace that the operator runs in (POD_NAMESPACE)")
	podIP := flag.String("pod-ip", os.Getenv("POD_IP"), "address of the operator's pod, which receives the reports of jobs (POD_IP)")
	probes := flag.String("health-probe-bind-address", ":8081", "address of /healthz and /readyz")
	logging := zap.Options{}
	logging.BindFlags(flag.CommandLine)
	flag.Parse()
	ctrl.SetLogger(zap.New(zap.UseFlagOptions(&logging)))
	// Kubernetes' libraries log in the same format.
	klog.SetLogger(ctrl.Log)

	if *namespace == "" {
		return fmt.Errorf("the operator's namespace is not set: set POD_NAMESPACE or --namespace")
	}
	settings, err := operator.LoadConfig(*configuration)
	if err != nil {
		return err
	}
	connection, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("load the cluster configuration: %w", err)
	}
	// Logs are on stderr, so that stdout only has audit lines.
	manager, err := operator.New(connection, operator.Options{
		Config: settings, Namespace: *namespace, PodIP: *podIP, ProbeAddress: *probes, Audit: os.Stdout,
	})
	if err != nil {
		return err
	}
	return manager.Start(ctrl.SetupSignalHandler())
}
