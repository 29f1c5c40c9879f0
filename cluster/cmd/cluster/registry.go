// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/trireme-mpi/trireme/cluster/internal/local"
)

func registryCommand(o *options) *cobra.Command {
	command := &cobra.Command{
		Use:   "registry",
		Short: "Run registries that the cluster pulls images from",
		Long: "Run two registries in the network of the cluster: one that anyone can use, and a private one with a password.\n" +
			"The cluster pulls images from both. They start again with the cluster; `reset` deletes them.",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	command.AddCommand(registryUpCommand(o), registryDownCommand(o), registryEnvCommand(o), registryPushCommand(o))
	return command
}

func registryUpCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "up",
		Short: "Build the registry if it is not in the cache, and start it",
		Args:  cobra.NoArgs,
		RunE: o.onCluster(func(ctx context.Context, c *local.Cluster, _ []string) error {
			if err := c.RegistryUp(ctx); err != nil {
				return err
			}
			registry, err := c.Registry(ctx)
			if err != nil {
				return err
			}
			fmt.Printf("Registry           %s\n", registry.Public)
			fmt.Printf("Private registry   %s (user %s, password in %s)\n", registry.Private, local.RegistryUser, registry.PasswordFile)
			fmt.Printf("CA                 %s\n", registry.CA)
			fmt.Printf("To use them: eval \"$(%s registry env)\"\n", os.Args[0])
			return nil
		}),
	}
}

func registryDownCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "Stop the registry and keep its images",
		Args:  cobra.NoArgs,
		RunE: o.onCluster(func(ctx context.Context, c *local.Cluster, _ []string) error {
			return c.RegistryDown(ctx)
		}),
	}
}

func registryEnvCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "env",
		Short: "Print shell settings for clients of the registry: eval \"$(cluster registry env)\"",
		Args:  cobra.NoArgs,
		RunE: o.onCluster(func(ctx context.Context, c *local.Cluster, _ []string) error {
			registry, err := c.Registry(ctx)
			if err != nil {
				return err
			}
			printRegistryEnv(os.Stdout, registry, withoutProxy(c))
			return nil
		}),
	}
}

// printRegistryEnv does not print the password: clients read it from DOCKER_CONFIG.
func printRegistryEnv(out io.Writer, registry local.Registry, withoutProxy string) {
	for _, setting := range [][2]string{
		{"REGISTRY", registry.Public},
		{"PRIVATE_REGISTRY", registry.Private},
		{"REGISTRY_CA", registry.CA},
		{"DOCKER_CONFIG", registry.DockerConfig},
		{"HELM_REGISTRY_CONFIG", registry.DockerConfig + "/config.json"},
		{"NO_PROXY", withoutProxy},
	} {
		fmt.Fprintf(out, "export %s=%s\n", setting[0], setting[1])
	}
}

func registryPushCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "push SOURCE REFERENCE",
		Short: "Push an image archive, a static binary as an image, or an MPI image by its name; print its digest",
		Example: `  cluster registry push bin/mpi-agent "$REGISTRY/trireme/mpi-agent:dev"
  cluster registry push openmpi5 "$PRIVATE_REGISTRY/team/openmpi:5"`,
		Args: cobra.ExactArgs(2),
		RunE: o.onCluster(func(ctx context.Context, c *local.Cluster, arguments []string) error {
			source := arguments[0]
			if definitions, err := wantedImages(arguments[:1]); err == nil {
				err := c.Progress.Step("image "+definitions[0].Ref, func() (err error) {
					source, err = c.BuildImage(ctx, definitions[0])
					return err
				})
				if err != nil {
					return err
				}
			}
			pinned, err := c.Push(ctx, source, arguments[1])
			if err != nil {
				return err
			}
			fmt.Println(pinned)
			return nil
		}),
	}
}
