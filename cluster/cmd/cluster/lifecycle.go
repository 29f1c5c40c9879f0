//go:build linux

package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/trireme-mpi/trireme/cluster/internal/local"
)

func upCommand(o *options) *cobra.Command {
	var nodes, gpus int
	command := &cobra.Command{
		Use:   "up",
		Short: "Build what is missing and start the cluster; again: make sure that it runs",
		Args:  cobra.NoArgs,
	}
	command.Flags().IntVar(&nodes, "fake-nodes", 0, "simulated nodes to have (if not given: as many as there are)")
	command.Flags().IntVar(&gpus, "fake-node-gpus", 8, "GPUs (nvidia.com/gpu) of each simulated node (if not given: as they have)")
	command.RunE = o.onCluster(func(ctx context.Context, c *local.Cluster, _ []string) error {
		var wishes local.UpOptions
		for flag, wish := range map[string]struct {
			value *int
			field **int
		}{"fake-nodes": {&nodes, &wishes.FakeNodes}, "fake-node-gpus": {&gpus, &wishes.FakeNodeGPUs}} {
			if !command.Flags().Changed(flag) {
				continue
			}
			if *wish.value < 0 {
				return fmt.Errorf("--%s %d: there cannot be fewer than none", flag, *wish.value)
			}
			*wish.field = wish.value
		}
		if err := c.Up(ctx, wishes); err != nil {
			return err
		}
		fmt.Printf("The cluster is up. Talk to it with:\n  export KUBECONFIG=%s\nor `%s kubectl get nodes`.\n", c.Layout.AdminKubeconfig(), os.Args[0])
		return nil
	})
	return command
}

func downCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "Stop the cluster and leave nothing of it on the machine but its data",
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
		Short: "Stop the cluster and forget its data: objects, volumes, certificates, logs",
		Args:  cobra.NoArgs,
		RunE: o.onCluster(func(ctx context.Context, c *local.Cluster, _ []string) error {
			return c.Reset(ctx, images)
		}),
	}
	command.Flags().BoolVar(&images, "images", false, "forget loaded images too")
	return command
}

func statusCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the components, the nodes and what this cluster cannot do; exit code 1 if it is not well",
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

func assetsCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "assets",
		Short: "Print the folder with kube-apiserver, etcd and kubectl, building them if need be (for envtest)",
		Args:  cobra.NoArgs,
		RunE: o.onCluster(func(ctx context.Context, c *local.Cluster, _ []string) error {
			directory, err := c.Assets(ctx)
			if err != nil {
				return err
			}
			fmt.Println(directory)
			return nil
		}),
	}
}
