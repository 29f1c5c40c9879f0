// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/trireme-mpi/trireme/cluster/internal/local"
	"github.com/trireme-mpi/trireme/cluster/internal/networkpolicy"
	"github.com/trireme-mpi/trireme/cluster/internal/storage"
)

// superviseCommand is the supervisor, which `up` starts in the background.
func superviseCommand(o *options) *cobra.Command {
	var newMounts, networkPolicies bool
	command := &cobra.Command{
		Use:    "supervise",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: o.onCluster(func(ctx context.Context, c *local.Cluster, _ []string) error {
			c.Layout.NetworkPolicies = networkPolicies
			return local.Supervise(ctx, c.Layout, newMounts)
		}),
	}
	command.Flags().BoolVar(&newMounts, "new-mounts", false, "Set up the mounts of a new mount namespace")
	command.Flags().BoolVar(&networkPolicies, "network-policies", false, "Enforce NetworkPolicies")
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
			client, err := clientOf(kubeconfig)
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

// enforceCommand enforces NetworkPolicies, an optional component of the cluster.
func enforceCommand() *cobra.Command {
	var kubeconfig, pods, health string
	command := &cobra.Command{
		Use:    "enforce-network-policies",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			addresses, err := netip.ParsePrefix(pods)
			if err != nil {
				return fmt.Errorf("network policies: %w", err)
			}
			client, err := clientOf(kubeconfig)
			if err != nil {
				return fmt.Errorf("network policies: %w", err)
			}
			enforcer := networkpolicy.Enforcer{Client: client, Addresses: addresses, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
			return enforcer.Run(command.Context(), health)
		},
	}
	command.Flags().StringVar(&kubeconfig, "kubeconfig", "", "Path to the kubeconfig")
	command.Flags().StringVar(&pods, "pods", "", "Range of pod addresses")
	command.Flags().StringVar(&health, "health", "", "Address of the health endpoint")
	return command
}

func clientOf(kubeconfig string) (*kubernetes.Clientset, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}
