// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trireme-mpi/trireme/cluster/image"
	"github.com/trireme-mpi/trireme/cluster/internal/local"
)

func bundleCommand(o *options) *cobra.Command {
	var images []string
	var options local.BundleOptions
	command := &cobra.Command{
		Use:   "bundle FILE",
		Short: "Pack the cluster and Trireme into one file, for a machine without Go and without access to registries",
		Long: `Pack everything that the cluster needs, and Trireme with odh, into one file. It is a
program that unpacks itself. On the other machine, as root:

  FILE DIRECTORY
  DIRECTORY/bin/cluster up
  DIRECTORY/install`,
		Args: cobra.ExactArgs(1),
	}
	command.Flags().StringSliceVar(&images, "images", nil,
		fmt.Sprintf("Also pack these MPI images: %s", strings.Join(definitionNames(image.MPI()), ", ")))
	command.Flags().BoolVar(&options.GPU, "gpu", false, "Also pack NVIDIA's device plugin, for `cluster gpu up`")
	command.Flags().IntVar(&options.Compression, "compression", 19, "Level of zstd, 1 to 19: less is faster, and makes a larger file")
	command.RunE = o.onCluster(func(ctx context.Context, c *local.Cluster, arguments []string) error {
		if options.Compression < 1 || options.Compression > 19 {
			return fmt.Errorf("--compression must be 1 to 19, not %d", options.Compression)
		}
		if len(images) > 0 {
			var err error
			if options.Images, err = wantedImages(images); err != nil {
				return err
			}
		}
		if err := c.Bundle(ctx, arguments[0], options); err != nil {
			return err
		}
		info, err := os.Stat(arguments[0])
		if err != nil {
			return err
		}
		fmt.Printf("%s has %.1f MiB.\n", arguments[0], float64(info.Size())/(1<<20))
		return nil
	})
	return command
}
