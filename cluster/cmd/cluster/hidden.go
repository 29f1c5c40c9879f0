// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/trireme-mpi/trireme/cluster/internal/local"
	"github.com/trireme-mpi/trireme/cluster/internal/storage"
)

// superviseCommand is the supervisor, which `up` starts in the background.
func superviseCommand(o *options) *cobra.Command {
	var newMounts bool
	command := &cobra.Command{
		Use:    "supervise",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: o.onCluster(func(ctx context.Context, c *local.Cluster, _ []string) error {
			return local.Supervise(ctx, c.Layout, newMounts)
		}),
	}
	command.Flags().BoolVar(&newMounts, "new-mounts", false, "Set up the mounts of a new mount namespace")
	return command
}

// storageCommand is the storage provisioner, a component of the cluster.
func storageCommand() *cobra.Command {
	var kubeconfig, node, directory string
	command := &cobra.Command{
		Use:    "storage-provisioner",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
			if err != nil {
				return fmt.Errorf("storage provisioner: %w", err)
			}
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				return fmt.Errorf("storage provisioner: %w", err)
			}
			storage.Run(command.Context(), client, node, directory)
			return nil
		},
	}
	command.Flags().StringVar(&kubeconfig, "kubeconfig", "", "Path to the kubeconfig")
	command.Flags().StringVar(&node, "node", "", "Name of the node with the directories")
	command.Flags().StringVar(&directory, "directory", "", "Directory of the volumes")
	return command
}
