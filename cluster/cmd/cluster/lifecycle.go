// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/trireme-mpi/trireme/cluster/internal/local"
)

func upCommand(o *options) *cobra.Command {
	var nodes, gpus int
	var networkPolicies bool
	command := &cobra.Command{
		Use:   "up",
		Short: "Build missing programs and start the cluster, or verify that it is running",
		Args:  cobra.NoArgs,
	}
	command.Flags().IntVar(&nodes, "fake-nodes", 0, "Number of simulated nodes (default: keep the current number)")
	command.Flags().IntVar(&gpus, "fake-node-gpus", 8, "GPUs (nvidia.com/gpu) of each simulated node (default: keep the current number)")
	command.Flags().BoolVar(&networkPolicies, "network-policies", false, "Enforce NetworkPolicies, on a routed network")
	command.RunE = o.onCluster(func(ctx context.Context, c *local.Cluster, _ []string) error {
		c.Layout.NetworkPolicies = networkPolicies
		var wishes local.UpOptions
		for flag, wish := range map[string]struct {
			value *int
			field **int
		}{"fake-nodes": {&nodes, &wishes.FakeNodes}, "fake-node-gpus": {&gpus, &wishes.FakeNodeGPUs}} {
			if !command.Flags().Changed(flag) {
				continue
			}
			if *wish.value < 0 {
				return fmt.Errorf("--%s must be 0 or greater, not %d", flag, *wish.value)
			}
			*wish.field = wish.value
		}
		if err := c.Up(ctx, wishes); err != nil {
			return err
		}
		fmt.Printf("The cluster is up. To use it:\n  export KUBECONFIG=%s\nor `%s kubectl get nodes`.\n", c.Layout.AdminKubeconfig(), os.Args[0])
		return nil
	})
	return command
}

func downCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "Stop the cluster and remove everything from the machine except its data",
		Args:  cobra.NoArgs,
		RunE: o.onCluster(func(ctx context.Context, c *local.Cluster, _ []string) error {
			return c.Down(ctx)
		}),
	}
}

func resetCommand(o *options) *cobra.Command {
	var images bool
	command := &cobra.Command{
		Use:   "reset",
		Short: "Stop the cluster and delete its data: objects, volumes, certificates, logs",
		Args:  cobra.NoArgs,
		RunE: o.onCluster(func(ctx context.Context, c *local.Cluster, _ []string) error {
			return c.Reset(ctx, images)
		}),
	}
	command.Flags().BoolVar(&images, "images", false, "Also delete loaded images")
	return command
}

func statusCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show components, nodes and limitations of the cluster; exits with 1 if it is not healthy",
		Args:  cobra.NoArgs,
		RunE: o.onCluster(func(ctx context.Context, c *local.Cluster, _ []string) error {
			healthy, err := c.Status(ctx, os.Stdout)
			if err != nil {
				return err
			}
			if !healthy {
				return errSilent
			}
			return nil
		}),
	}
}

func buildCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "build",
		Short: "Build the programs that are not in the cache",
		Args:  cobra.NoArgs,
		RunE: o.onCluster(func(ctx context.Context, c *local.Cluster, _ []string) error {
			_, err := c.Build(ctx)
			return err
		}),
	}
}

// assetSettings tell a test which Kubernetes it runs, and how to start its API server.
type assetSettings struct {
	Version string `json:"version"`
	// GangAPI is the group and version of native gang scheduling; empty without it.
	GangAPI        string   `json:"gangAPI,omitempty"`
	APIServerFlags []string `json:"apiServerFlags,omitempty"`
}

func assetsCommand(o *options) *cobra.Command {
	var settings bool
	command := &cobra.Command{
		Use:   "assets",
		Short: "Print the folder with kube-apiserver, etcd and kubectl for envtest; build them if they are missing",
		Args:  cobra.NoArgs,
		RunE: o.onCluster(func(ctx context.Context, c *local.Cluster, _ []string) error {
			if settings {
				k := c.Layout.Kubernetes
				return json.NewEncoder(os.Stdout).Encode(assetSettings{k.Version, k.GangAPI, k.APIServerFlags()})
			}
			directory, err := c.Assets(ctx)
			if err != nil {
				return err
			}
			fmt.Println(directory)
			return nil
		}),
	}
	command.Flags().BoolVar(&settings, "settings", false, "Print the version and the settings of the API server as JSON instead, and build nothing")
	return command
}
