// SPDX-License-Identifier: Apache-2.0

// Command images builds the images of Trireme as OCI layouts and pushes them to a
// registry, and writes the other files of a release. make images, make push and make
// release call it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	command := &cobra.Command{
		Use: "images", Short: "Build and push the images of Trireme, and the files of a release", Args: cobra.NoArgs,
		SilenceErrors: true, SilenceUsage: true,
	}
	command.AddCommand(buildCommand(), localCommand(), olmCommand(), pushCommand(), prepareCommand(), valuesCommand(), releaseCommand())
	if err := command.ExecuteContext(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "images: %v\n", err)
		stop()
		os.Exit(1)
	}
}

func buildCommand() *cobra.Command {
	var s settings
	command := &cobra.Command{
		Use:       "build [NAME...]",
		Short:     "Build images for linux/amd64 and linux/arm64, each as an OCI layout (default: all)",
		ValidArgs: programNames(),
		RunE: func(command *cobra.Command, names []string) error {
			from, err := readSource(command.Context(), s.repository)
			if err != nil {
				return err
			}
			return build(command.Context(), from, s, names)
		},
	}
	flags := command.Flags()
	flags.StringVar(&s.output, "output", "dist/images", "Folder for the layouts; its content is replaced")
	addBuildFlags(flags, &s)
	flags.StringArrayVar(&s.testArchives, "mpi-test", nil, "Archive of the MPI test image for one architecture; repeat it for each")
	return command
}

func localCommand() *cobra.Command {
	var s settings
	var p pushSettings
	command := &cobra.Command{
		Use:   "local REGISTRY",
		Short: "Build the images of this machine's platform as archives that containerd imports, and the chart's values with their digests",
		Args:  cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			p.registry = arguments[0]
			from, err := readSource(command.Context(), s.repository)
			if err != nil {
				// A download without its history can be built and tried, but not released.
				from = source{commit: "unknown", time: time.Unix(0, 0).UTC()}
			}
			return buildLocal(command.Context(), from, s, p, programNames())
		},
	}
	flags := command.Flags()
	flags.StringVar(&s.output, "output", "bin/images-local", "Folder for the archives and values.yaml; its content is replaced")
	addBuildFlags(flags, &s)
	addChartFlag(flags, &p)
	return command
}

// addBuildFlags adds the flags of everything that is compiled.
func addBuildFlags(flags *pflag.FlagSet, s *settings) {
	flags.StringVar(&s.repository, "repository", ".", "Folder with the source of the programs")
	flags.StringVar(&s.version, "version", "dev", "Version in tags and labels")
	flags.StringVar(&s.ldflags, "ldflags", "", "Flags of Go's linker")
	flags.StringVar(&s.builder, "builder", repositoryURL+"/tools/images", "URI that identifies the builder in the provenance")
	flags.StringVar(&s.fips, "fips", "", "Version of Go's FIPS 140-3 module to build with, such as v1.0.0")
}

func olmCommand() *cobra.Command {
	var s settings
	command := &cobra.Command{
		Use:   "olm",
		Short: "Build the images of bundle and catalog for the Operator Lifecycle Manager, beside those of the programs",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			from, err := readSource(command.Context(), s.repository)
			if err != nil {
				return err
			}
			return writeOLMImages(from, s)
		},
	}
	flags := command.Flags()
	flags.StringVar(&s.output, "output", "dist", "Folder with bundle, catalog and images")
	addBuildFlags(flags, &s)
	return command
}

func pushCommand() *cobra.Command {
	var p pushSettings
	command := &cobra.Command{
		Use:   "push REGISTRY",
		Short: "Push the built images to a registry and path, such as registry.example/trireme",
		Args:  cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			p.registry = arguments[0]
			return push(command.Context(), p, command.OutOrStdout())
		},
	}
	addLayoutFlags(command.Flags(), &p)
	command.Flags().StringVar(&p.key, "key", "", "File with the private key that signs the images; COSIGN_PASSWORD decrypts it (default: not signed)")
	return command
}

func addLayoutFlags(flags *pflag.FlagSet, p *pushSettings) {
	flags.StringVar(&p.layouts, "layouts", "dist/images", "Folder with the layouts")
	addChartFlag(flags, p)
	flags.StringVar(&p.version, "version", "", "Version that the layouts must have (default: any)")
}

func addChartFlag(flags *pflag.FlagSet, p *pushSettings) {
	flags.StringVar(&p.chart, "chart", "charts/trireme/values.yaml", "Values of the chart, with the names of its images")
}

// prepareCommand is the first step of a release: what is wrong fails before anything is
// built.
func prepareCommand() *cobra.Command {
	var r releaseSettings
	var changelog string
	command := &cobra.Command{
		Use:   "prepare",
		Short: "Check version and key of a release, and write its notes from the changelog",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return prepare(r, changelog)
		},
	}
	flags := command.Flags()
	flags.StringVar(&r.version, "version", "", "Version of the release")
	flags.StringVar(&r.output, "output", "dist", "Folder of the release; its content is deleted")
	flags.StringVar(&r.key, "key", "", "File with the private key that will sign the release")
	flags.StringVar(&changelog, "changelog", "CHANGELOG.md", "File with a section for the version")
	return command
}

func valuesCommand() *cobra.Command {
	var p pushSettings
	command := &cobra.Command{
		Use:   "values REGISTRY",
		Short: "Write values of the chart with the digests that the images will have in a registry",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, arguments []string) error {
			p.registry = arguments[0]
			return writeValues(p)
		},
	}
	addLayoutFlags(command.Flags(), &p)
	return command
}

func releaseCommand() *cobra.Command {
	var r releaseSettings
	command := &cobra.Command{
		Use:   "release",
		Short: "Write chart, manifests, odh, checksums and signature beside the images and the bundle of a release",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			from, err := readSource(command.Context(), r.repository)
			if err != nil {
				return err
			}
			return release(command.Context(), from, r, command.OutOrStdout())
		},
	}
	flags := command.Flags()
	addBuildFlags(flags, &r.settings)
	flags.StringVar(&r.output, "output", "dist", "Folder of the release")
	flags.StringVar(&r.registry, "registry", "ghcr.io/trireme-mpi", "Registry and path of the images in the chart")
	flags.StringVar(&r.helm, "helm", "bin/helm", "The program helm")
	flags.StringVar(&r.key, "key", "", "File with the private key that signs the checksums; COSIGN_PASSWORD decrypts it (default: not signed)")
	return command
}
