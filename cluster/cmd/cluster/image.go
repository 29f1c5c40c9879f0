//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trireme-mpi/trireme/cluster/internal/image"
	"github.com/trireme-mpi/trireme/cluster/internal/local"
)

func imageCommand(o *options) *cobra.Command {
	command := &cobra.Command{
		Use:   "image",
		Short: "Images for the cluster, without a registry",
		Args:  cobra.NoArgs,
		RunE:  func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	command.AddCommand(imageMPICommand(o), imageLoadCommand(o), imageListCommand(o))
	return command
}

func imageMPICommand(o *options) *cobra.Command {
	var names []string
	for _, definition := range image.MPI() {
		names = append(names, definition.Name)
	}
	return &cobra.Command{
		Use:       "mpi [NAME...]",
		Short:     "Build and load MPI images (default: all): " + strings.Join(names, ", "),
		ValidArgs: names,
		RunE: o.onCluster(func(ctx context.Context, c *local.Cluster, arguments []string) error {
			for _, argument := range arguments {
				if !slices.Contains(names, argument) {
					return fmt.Errorf("no MPI image %q; there are: %s", argument, strings.Join(names, ", "))
				}
			}
			wanted := slices.DeleteFunc(image.MPI(), func(definition image.Definition) bool {
				return len(arguments) > 0 && !slices.Contains(arguments, definition.Name)
			})
			return c.LoadMPI(ctx, wanted)
		}),
	}
}

func imageLoadCommand(o *options) *cobra.Command {
	var reference string
	command := &cobra.Command{
		Use:   "load FILE",
		Short: "Load an image archive, or a static binary as an image of its own",
		Example: `  CGO_ENABLED=0 go build -o /tmp/tool ./cmd/tool
  cluster image load /tmp/tool --as trireme.local/tool:dev`,
		Args: cobra.ExactArgs(1),
		RunE: o.onCluster(func(ctx context.Context, c *local.Cluster, arguments []string) error {
			return c.Load(ctx, arguments[0], reference)
		}),
	}
	command.Flags().StringVar(&reference, "as", "", "what pods call the image of a binary, with a tag")
	return command
}

func imageListCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the images that pods can use",
		Args:  cobra.NoArgs,
		RunE: o.onCluster(func(ctx context.Context, c *local.Cluster, _ []string) error {
			references, err := c.Images(ctx)
			if err != nil {
				return err
			}
			for _, reference := range references {
				fmt.Println(reference)
			}
			return nil
		}),
	}
}
