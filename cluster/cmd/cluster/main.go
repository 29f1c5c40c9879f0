// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command cluster runs a real Kubernetes on one Linux machine, built from its
// Go modules, for developing and testing Trireme.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/trireme-mpi/trireme/cluster/internal/bundle"
	"github.com/trireme-mpi/trireme/cluster/internal/layout"
	"github.com/trireme-mpi/trireme/cluster/internal/local"
	"github.com/trireme-mpi/trireme/cluster/internal/progress"
)

// errSilent sets exit code 1 without an error message.
var errSilent = errors.New("")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newCommand().ExecuteContext(ctx); err != nil {
		if !errors.Is(err, errSilent) {
			fmt.Fprintln(os.Stderr, "cluster:", err)
		}
		os.Exit(1)
	}
}

// options are the flags that every command has.
type options struct {
	name    string
	source  string
	network string
}

func newCommand() *cobra.Command {
	o := &options{}
	root := &cobra.Command{
		Use:           "cluster",
		Short:         "Run a real Kubernetes on this machine, built from source and isolated; `down` removes it",
		SilenceUsage:  true,
		SilenceErrors: true,
		// Flags before `kubectl` are ours, flags after it are kubectl's.
		TraverseChildren: true,
		Args:             cobra.NoArgs,
		RunE:             func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	root.PersistentFlags().StringVar(&o.name, "name", cmp.Or(os.Getenv("TRIREME_CLUSTER_NAME"), layout.DefaultName),
		"Name of the cluster; each has its own network, data and processes ($TRIREME_CLUSTER_NAME)")
	root.PersistentFlags().StringVar(&o.source, "source", "", "Path to the cluster/ folder of a checkout (default: the checkout of the current directory, or of this program)")
	root.PersistentFlags().StringVar(&o.network, "network", cmp.Or(os.Getenv("TRIREME_CLUSTER_NETWORK"), layout.DefaultNetwork),
		"Address block of the cluster, an IPv4 /16 ($TRIREME_CLUSTER_NETWORK)")
	root.AddCommand(
		upCommand(o), downCommand(o), resetCommand(o), statusCommand(o), logsCommand(o),
		buildCommand(o), assetsCommand(o), bundleCommand(o), imageCommand(o), registryCommand(o), gpuCommand(o), kubectlCommand(o), envCommand(o),
		superviseCommand(o), storageCommand(), enforceCommand(),
	)
	return root
}

// cluster is the cluster that the flags select.
func (o *options) cluster() (*local.Cluster, error) {
	l, err := layout.New(o.name, o.findSource(), o.network)
	if err != nil {
		return nil, err
	}
	if l.Bundle, err = o.findBundle(l.Kubernetes); err != nil {
		return nil, err
	}
	return &local.Cluster{Layout: l, Progress: progress.New(os.Stderr)}, nil
}

// onCluster turns a function of a cluster into one that cobra can run.
func (o *options) onCluster(run func(context.Context, *local.Cluster, []string) error) func(*cobra.Command, []string) error {
	return func(command *cobra.Command, arguments []string) error {
		c, err := o.cluster()
		if err != nil {
			return err
		}
		return run(command.Context(), c, arguments)
	}
}

// findBundle returns the unpacked bundle that this program is in, or "". With --source,
// programs are built even then.
func (o *options) findBundle(wanted layout.Kubernetes) (string, error) {
	self, err := os.Executable()
	if err != nil || o.source != "" {
		return "", err
	}
	root := bundle.Find(self)
	if root == "" {
		return "", nil
	}
	record, err := bundle.Read(root)
	if err == nil && record.Kubernetes != wanted.Release {
		err = fmt.Errorf("bundle %s contains Kubernetes %s, not %s; set %s=%s", root, record.Kubernetes, wanted.Release, layout.KubernetesVariable, record.Kubernetes)
	}
	return root, err
}

// findSource looks for the checkout in the current folder and its parents, then
// beside this program (make builds it into bin/). Commands that build fail if it
// is not found; others do not need it.
func (o *options) findSource() string {
	if o.source != "" {
		return o.source
	}
	starts := []string{}
	if here, err := os.Getwd(); err == nil {
		starts = append(starts, here)
	}
	if self, err := os.Executable(); err == nil {
		starts = append(starts, filepath.Dir(self))
	}
	for _, start := range starts {
		for directory := start; ; directory = filepath.Dir(directory) {
			for _, candidate := range []string{directory, filepath.Join(directory, "cluster")} {
				if _, err := os.Stat(filepath.Join(candidate, "components", "kubernetes", "go.mod")); err == nil {
					return candidate
				}
			}
			if directory == filepath.Dir(directory) {
				break
			}
		}
	}
	return ""
}
