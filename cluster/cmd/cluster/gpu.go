// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/trireme-mpi/trireme/cluster/internal/local"
)

func gpuCommand(o *options) *cobra.Command {
	command := &cobra.Command{
		Use:   "gpu",
		Short: "Give pods the NVIDIA GPUs of this machine, as the resource nvidia.com/gpu",
		Args:  cobra.NoArgs,
		RunE:  func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	command.AddCommand(gpuUpCommand(o), gpuDownCommand(o))
	return command
}

func gpuUpCommand(o *options) *cobra.Command {
	var onlyDevices bool
	command := &cobra.Command{
		Use:   "up",
		Short: "Build NVIDIA's device plugin if it is not in the cache, and start it",
		Args:  cobra.NoArgs,
		RunE: o.onCluster(func(ctx context.Context, c *local.Cluster, _ []string) error {
			gpus, err := c.GPUUp(ctx, !onlyDevices)
			if err == nil {
				fmt.Printf("The node has nvidia.com/gpu: %d.\n", gpus)
			}
			return err
		}),
	}
	command.Flags().BoolVar(&onlyDevices, "only-devices", false, "Do not add the driver's libraries to containers: images must contain them")
	return command
}

func gpuDownCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "Stop the device plugin; running pods keep their GPUs",
		Args:  cobra.NoArgs,
		RunE: o.onCluster(func(ctx context.Context, c *local.Cluster, _ []string) error {
			return c.GPUDown(ctx)
		}),
	}
}
