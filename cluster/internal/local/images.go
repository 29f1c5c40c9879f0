// SPDX-License-Identifier: Apache-2.0

package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/trireme-mpi/trireme/cluster/image"
	"github.com/trireme-mpi/trireme/cluster/internal/bundle"
	"github.com/trireme-mpi/trireme/cluster/internal/host"
	"github.com/trireme-mpi/trireme/cluster/internal/layout"
)

// packageLog is the log of apt.
func (c *Cluster) packageLog() io.Writer {
	return c.buildLog("packages")
}

func (c *Cluster) buildLog(name string) io.Writer {
	if err := os.MkdirAll(c.Layout.BuildLogs(), 0o755); err != nil {
		return io.Discard
	}
	file, err := os.OpenFile(filepath.Join(c.Layout.BuildLogs(), name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return io.Discard
	}
	return file
}

// BuildImage builds an MPI image if it is not in the cache. A bundle contains those that
// it was made with.
func (c *Cluster) BuildImage(ctx context.Context, definition image.Definition) (string, error) {
	if c.Layout.Bundle != "" {
		archive := filepath.Join(c.Layout.Bundle, bundle.Images, definition.Name+".tar")
		if _, err := os.Stat(archive); err != nil {
			return "", fmt.Errorf("the bundle does not contain image %s; make one with --images %s", definition.Ref, definition.Name)
		}
		return archive, nil
	}
	for _, tool := range definition.HostTools() {
		if exec.CommandContext(ctx, tool.Probe[0], tool.Probe[1:]...).Run() == nil {
			continue
		}
		if err := host.InstallPackages(ctx, c.packageLog(), tool.Package); err != nil {
			return "", err
		}
	}
	if err := os.MkdirAll(c.Layout.ImageCache(), 0o755); err != nil {
		return "", err
	}
	return image.Build(ctx, definition, c.Layout.ImageCache(), c.buildLog("image-"+definition.Name))
}

// LoadMPI loads MPI images into the running cluster, and builds those that are missing.
func (c *Cluster) LoadMPI(ctx context.Context, definitions []image.Definition) error {
	present, err := c.Images(ctx)
	if err != nil {
		return err
	}
	for _, definition := range definitions {
		err := c.Progress.Step("image "+definition.Ref, func() error {
			if slices.Contains(present, definition.ExactRef()) {
				c.Progress.Note("loaded already")
				return nil
			}
			path, err := c.BuildImage(ctx, definition)
			if err != nil {
				return err
			}
			return c.importImage(ctx, path)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Load loads a file into the cluster: an image archive unchanged, a static binary as an
// image that contains only that binary.
func (c *Cluster) Load(ctx context.Context, file, reference string) error {
	if _, err := c.Running(ctx); err != nil {
		return err
	}
	if _, err := os.Stat(file); err != nil {
		return fmt.Errorf("load image: %w", err)
	}
	if begins(file, 257, "ustar") || begins(file, 0, "\x1f\x8b") { // tar, gzip
		return c.Progress.Step("image archive "+file, func() error { return c.importImage(ctx, file) })
	}
	if !begins(file, 0, "\x7fELF") {
		return fmt.Errorf("load image: %s is neither an image archive nor a static binary", file)
	}
	if reference == "" {
		return errors.New("load image: a binary needs the name of an image; set --as, such as --as trireme.local/tool:dev")
	}
	return c.Progress.Step("image "+reference, func() error { return c.loadBinary(ctx, file, reference) })
}

func (c *Cluster) loadBinary(ctx context.Context, file, reference string) error {
	archive, err := os.CreateTemp("", "image-*.tar")
	if err != nil {
		return err
	}
	defer os.Remove(archive.Name())
	if err := archive.Close(); err != nil {
		return err
	}
	if err := image.FromBinary(file, reference, archive.Name()); err != nil {
		return err
	}
	return c.importImage(ctx, archive.Name())
}

// begins reports whether a file has the magic number of a format.
func begins(path string, at int64, magic string) bool {
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	found := make([]byte, len(magic))
	n, _ := file.ReadAt(found, at)
	return string(found[:n]) == magic
}

func (c *Cluster) loadPause(ctx context.Context) error {
	programs, err := c.Programs(ctx)
	if err != nil {
		return err
	}
	directory := programs.Pause
	present, err := c.Images(ctx)
	if err != nil {
		return err
	}
	exact := layout.PauseImage + "-" + filepath.Base(directory)
	if slices.Contains(present, exact) {
		c.Progress.Note("loaded already")
		return nil
	}
	for _, reference := range []string{layout.PauseImage, exact} {
		if err := c.loadBinary(ctx, filepath.Join(directory, "pause"), reference); err != nil {
			return err
		}
	}
	return nil
}

// Images lists the references that pods can use.
func (c *Cluster) Images(ctx context.Context) ([]string, error) {
	output, err := c.ctr(ctx, "images", "list", "--quiet")
	return strings.Fields(output), err
}

func (c *Cluster) importImage(ctx context.Context, path string) error {
	_, err := c.ctr(ctx, "images", "import", path)
	return err
}

// ctr runs containerd's own client with our containerd and the namespace of Kubernetes.
func (c *Cluster) ctr(ctx context.Context, arguments ...string) (string, error) {
	programs, err := c.Programs(ctx)
	if err != nil {
		return "", err
	}
	var output, complaints bytes.Buffer
	command := exec.CommandContext(ctx, filepath.Join(programs.Containerd, "ctr"),
		append([]string{"--address", c.Layout.ContainerdSocket(), "--namespace", "k8s.io"}, arguments...)...)
	command.Stdout, command.Stderr = &output, &complaints
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("ctr %s: %w\n%s", strings.Join(arguments, " "), errors.Join(err, ctx.Err()), host.Tail(complaints.String(), 5))
	}
	return output.String(), nil
}
