// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/trireme-mpi/trireme/cluster/image"
	"github.com/trireme-mpi/trireme/cluster/internal/build"
	"github.com/trireme-mpi/trireme/cluster/internal/bundle"
	"github.com/trireme-mpi/trireme/cluster/internal/host"
)

// cniPlugins are those that the cluster's networks use.
var cniPlugins = []string{"bridge", "ptp", "host-local", "loopback"}

// bundledHost is the folder of an unpacked bundle with programs of the machine; empty in
// a checkout.
func (c *Cluster) bundledHost() string {
	if c.Layout.Bundle == "" {
		return ""
	}
	return filepath.Join(c.Layout.Bundle, bundle.Host)
}

// BundleOptions are what a bundle contains besides the cluster and Trireme.
type BundleOptions struct {
	Images []image.Definition
	// GPU adds NVIDIA's device plugin.
	GPU bool
	// Compression is the level of zstd, 1 to 19.
	Compression int
}

// Bundle packs the cluster and Trireme into a file.
func (c *Cluster) Bundle(ctx context.Context, file string, options BundleOptions) error {
	if c.Layout.Bundle != "" {
		return fmt.Errorf("make a bundle from a checkout, not from the bundle %s", c.Layout.Bundle)
	}
	if err := host.CheckRoot(); err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "bundle-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	content := bundle.Content{}
	for _, add := range []func() error{
		func() error { return c.addPrograms(ctx, content, options.GPU) },
		func() error { return c.addHostPrograms(ctx, content, scratch) },
		func() error { return c.addTrireme(ctx, content, filepath.Join(scratch, "trireme")) },
		func() error { return c.addImages(ctx, content, options.Images) },
	} {
		if err := add(); err != nil {
			return err
		}
	}
	unpack, err := c.buildModule(ctx, build.Unpack(c.Layout))
	if err != nil {
		return err
	}
	record := bundle.Record{Kubernetes: c.Layout.Kubernetes.Release, Architecture: runtime.GOARCH}
	return c.Progress.Step("compress "+file, func() error {
		return bundle.Write(ctx, file, filepath.Join(unpack, "unpack"), options.Compression, record, content)
	})
}

// addPrograms adds this program and what is built from modules.
func (c *Cluster) addPrograms(ctx context.Context, content bundle.Content, gpu bool) error {
	directories, err := c.Build(ctx)
	if err != nil {
		return err
	}
	more := map[string]func(context.Context) (string, error){
		build.HostFiles(c.Layout).Name: c.hostFilesPrograms,
	}
	if gpu {
		more[build.NVIDIA(c.Layout).Name] = c.gpuPrograms
	}
	for name, ensure := range more {
		if directories[name], err = ensure(ctx); err != nil {
			return err
		}
	}
	for name, directory := range directories {
		if err := content.AddTree(filepath.Join(bundle.Programs, name, filepath.Base(directory)), directory); err != nil {
			return err
		}
	}
	self, err := os.Executable()
	content["bin/cluster"] = self
	return err
}

// addHostPrograms adds the programs of Debian packages. runc is added without its
// libraries, because it starts itself again: the machine needs libseccomp and a C
// library that is at least as new as that of this machine.
func (c *Cluster) addHostPrograms(ctx context.Context, content bundle.Content, scratch string) error {
	return c.Progress.Step("Debian packages", func() error {
		if err := host.Install(ctx, c.packageLog(), host.Runc, host.CNI, host.Nftables, host.Zstd); err != nil {
			return err
		}
		runc, hasRunc := host.Find(host.Runc.Candidates...)
		bridge, hasCNI := host.Find(host.CNI.Candidates...)
		nft, hasNft := host.Find(host.Nftables.Candidates...)
		if !hasRunc || !hasCNI || !hasNft {
			return errors.New("runc, nft or the CNI plugins are missing, although their packages are installed")
		}
		content[filepath.Join(bundle.Host, host.Runc.Bundled)] = runc
		for _, plugin := range cniPlugins {
			content[filepath.Join(bundle.Host, filepath.Dir(host.CNI.Bundled), plugin)] = filepath.Join(filepath.Dir(bridge), plugin)
		}
		return content.AddDynamic(ctx, filepath.Join(bundle.Host, host.Nftables.Bundled), nft, scratch)
	})
}

// addTrireme adds what the checkout's script builds: odh, the programs of the images, the
// rendered chart, and the script that installs them.
func (c *Cluster) addTrireme(ctx context.Context, content bundle.Content, folder string) error {
	return c.Progress.Step("build Trireme", func() error {
		command := exec.CommandContext(ctx, filepath.Join(c.Layout.Source, "..", "config", "bundle"), folder)
		if output, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("config/bundle: %w\n%s", errors.Join(err, ctx.Err()), host.Tail(string(output), 20))
		}
		return content.AddTree("", folder)
	})
}

func (c *Cluster) addImages(ctx context.Context, content bundle.Content, images []image.Definition) error {
	for _, definition := range images {
		err := c.Progress.Step("image "+definition.Ref, func() error {
			archive, err := c.BuildImage(ctx, definition)
			content[filepath.Join(bundle.Images, definition.Name+".tar")] = archive
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
