// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trireme-mpi/trireme/cluster/image"
	"github.com/trireme-mpi/trireme/cluster/internal/local"
)

func imageCommand(o *options) *cobra.Command {
	command := &cobra.Command{
		Use:   "image",
		Short: "Build, load and list images",
		Args:  cobra.NoArgs,
		RunE:  func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	command.AddCommand(imageMPICommand(o), imageBuildCommand(o), imageLoadCommand(o), imageFromHostCommand(o), imageListCommand(o))
	return command
}

func imageMPICommand(o *options) *cobra.Command {
	byDefault := definitionNames(image.MPI())
	return &cobra.Command{
		Use: "mpi [NAME...]",
		Short: fmt.Sprintf("Build and load MPI images (default: %s), the image of the demo (%s), of make notebook (%s) or of a benchmark (%s)",
			strings.Join(byDefault, ", "), image.Digits().Name, image.Notebook().Name, image.Horovod().Name),
		ValidArgs: definitionNames(allImages()),
		RunE: o.onCluster(func(ctx context.Context, c *local.Cluster, arguments []string) error {
			wanted, err := wantedImages(arguments)
			if err != nil {
				return err
			}
			return c.LoadMPI(ctx, wanted)
		}),
	}
}

func allImages() []image.Definition {
	return append(image.MPI(), image.Digits(), image.Notebook(), image.Horovod(), image.MPITest("amd64"), image.MPITest("arm64"))
}

func imageBuildCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:       "build NAME...",
		Short:     "Build images without loading them, and print the path of each archive",
		Args:      cobra.MinimumNArgs(1),
		ValidArgs: definitionNames(allImages()),
		RunE: o.onCluster(func(ctx context.Context, c *local.Cluster, arguments []string) error {
			wanted, err := wantedImages(arguments)
			if err != nil {
				return err
			}
			for _, definition := range wanted {
				path, err := c.BuildImage(ctx, definition)
				if err != nil {
					return err
				}
				fmt.Println(path)
			}
			return nil
		}),
	}
}

// wantedImages are the images with these names; default: the images of all MPIs.
func wantedImages(names []string) ([]image.Definition, error) {
	if len(names) == 0 {
		return image.MPI(), nil
	}
	all := allImages()
	for _, name := range names {
		if known := definitionNames(all); !slices.Contains(known, name) {
			return nil, fmt.Errorf("image %q does not exist; use one of: %s", name, strings.Join(known, ", "))
		}
	}
	return slices.DeleteFunc(all, func(definition image.Definition) bool { return !slices.Contains(names, definition.Name) }), nil
}

func definitionNames(definitions []image.Definition) []string {
	var names []string
	for _, definition := range definitions {
		names = append(names, definition.Name)
	}
	return names
}

func imageLoadCommand(o *options) *cobra.Command {
	var reference string
	command := &cobra.Command{
		Use:   "load FILE",
		Short: "Load an image archive, or a static binary as an image",
		Example: `  CGO_ENABLED=0 go build -o /tmp/tool ./cmd/tool
  cluster image load /tmp/tool --as trireme.local/tool:dev`,
		Args: cobra.ExactArgs(1),
		RunE: o.onCluster(func(ctx context.Context, c *local.Cluster, arguments []string) error {
			return c.Load(ctx, arguments[0], reference)
		}),
	}
	command.Flags().StringVar(&reference, "as", "", "Name and tag of the image that is made from a binary")
	return command
}

func imageFromHostCommand(o *options) *cobra.Command {
	var directories []string
	command := &cobra.Command{
		Use:   "from-host NAME",
		Short: "Load an image of this machine's own programs, whose directories containers see without a copy",
		Long: `Load an image of this machine's own programs. Containers of it see directories of this
machine, read-only, and have a copy of the files in /etc that every user may read. PATH
and LD_LIBRARY_PATH are those of this command. Everybody who may create pods can read
these directories.`,
		Example: `  cluster image from-host trireme.local/host:1
  cluster image from-host trireme.local/torch:1 --directory /usr,/opt/torch`,
		Args: cobra.ExactArgs(1),
		RunE: o.onCluster(func(ctx context.Context, c *local.Cluster, arguments []string) error {
			return c.ImageFromHost(ctx, arguments[0], directories)
		}),
	}
	command.Flags().StringSliceVar(&directories, "directory", nil, "Directories of this machine (default: /usr and the folders in /opt)")
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
