//go:build linux

package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/trireme-mpi/trireme/cluster/internal/local"
)

func upCommand(o *options) *cobra.Command {
	up := local.UpOptions{}
	command := &cobra.Command{
		Use:   "up",
		Short: "Build what is missing and start the cluster; again: make sure that it runs",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			c, err := o.cluster()
			if err != nil {
				return err
			}
			if !command.Flags().Changed("fake-nodes") {
				up.FakeNodes = -1
			}
			if err := c.Up(command.Context(), up); err != nil {
				return err
			}
			fmt.Printf("The cluster is up. Talk to it with:\n  export KUBECONFIG=%s\nor `cluster kubectl get nodes`.\n", c.Layout.AdminKubeconfig())
			return nil
		},
	}
	command.Flags().IntVar(&up.FakeNodes, "fake-nodes", 0, "simulated nodes to have (default: as many as there are)")
	command.Flags().IntVar(&up.FakeNodeGPUs, "fake-node-gpus", 8, "GPUs (nvidia.com/gpu) of each simulated node")
	return command
}

func downCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "Stop the cluster and leave nothing of it on the machine but its data",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			c, err := o.cluster()
			if err != nil {
				return err
			}
			return c.Down(command.Context())
		},
	}
}

func resetCommand(o *options) *cobra.Command {
	var images bool
	command := &cobra.Command{
		Use:   "reset",
		Short: "Stop the cluster and forget its data: objects, volumes, certificates, logs",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			c, err := o.cluster()
			if err != nil {
				return err
			}
			return c.Reset(command.Context(), images)
		},
	}
	command.Flags().BoolVar(&images, "images", false, "forget loaded images too")
	return command
}

func statusCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the components, the nodes and what this cluster cannot do; exit code 1 if it is not well",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			c, err := o.cluster()
			if err != nil {
				return err
			}
			healthy, err := c.Status(command.Context(), os.Stdout)
			if err != nil {
				return err
			}
			if !healthy {
				return errSilent
			}
			return nil
		},
	}
}

func buildCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "build",
		Short: "Build the programs that are not in the cache",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			c, err := o.cluster()
			if err != nil {
				return err
			}
			_, err = c.Build(command.Context())
			return err
		},
	}
}

func assetsCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "assets",
		Short: "Print the folder with kube-apiserver, etcd and kubectl, building them if need be (for envtest)",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			c, err := o.cluster()
			if err != nil {
				return err
			}
			directory, err := c.Assets(command.Context())
			if err != nil {
				return err
			}
			fmt.Println(directory)
			return nil
		},
	}
}
