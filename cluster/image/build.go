// SPDX-License-Identifier: Apache-2.0

package image

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Build returns the path of the image's tar in cacheDir and makes it first if
// it is not there. The tar holds the image under Ref and ExactRef. The output
// of the tools goes to log, which may be nil.
//
// The tar appears under its name only when it is complete, and then replaces
// the tars of earlier definitions of the same name.
func Build(ctx context.Context, def Definition, cacheDir string, log io.Writer) (string, error) {
	path := filepath.Join(cacheDir, tarName(def))
	if _, err := os.Stat(path); err == nil {
		return path, nil
	} else if !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("look up image %s in the cache: %w", def.Name, err)
	}
	if log == nil {
		log = io.Discard
	}
	if err := build(ctx, def, path, log); err != nil {
		return "", fmt.Errorf("build image %s: %w", def.Name, err)
	}
	return path, nil
}

func build(ctx context.Context, def Definition, path string, log io.Writer) (err error) {
	if err := probeHostTools(ctx, def); err != nil {
		return err
	}
	cacheDir := filepath.Dir(path)
	if err := os.MkdirAll(cacheDir, 0o755); err != nil {
		return err
	}
	// Inside the cache directory, so that the rename at the end stays within
	// one file system.
	workDir, err := os.MkdirTemp(cacheDir, ".building-"+def.Name+"-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(workDir)) }()

	layers, err := buildLayers(ctx, def, workDir, log)
	if err != nil {
		return err
	}
	image, err := Assemble(layers, def.architecture(), v1.Config{Env: def.Env, Cmd: []string{"bash"}})
	if err != nil {
		return err
	}
	unfinished := filepath.Join(workDir, "image.tar")
	if err := writeTar(unfinished, image, def.Ref, def.ExactRef()); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := os.Rename(unfinished, path); err != nil {
		return err
	}
	return removeOtherBuilds(def, cacheDir)
}

// buildLayers makes the Debian layer and, where the definition names wheels,
// one more for those.
func buildLayers(ctx context.Context, def Definition, workDir string, log io.Writer) ([]v1.Layer, error) {
	files := []string{filepath.Join(workDir, "rootfs.tar.gz")}
	if err := buildRootfs(ctx, def, files[0], log); err != nil {
		return nil, err
	}
	if len(def.Pip) > 0 {
		wheelDir := filepath.Join(workDir, "wheels")
		if err := downloadWheels(ctx, def, wheelDir, log); err != nil {
			return nil, err
		}
		files = append(files, filepath.Join(workDir, "wheels.tar.gz"))
		if err := writeWheelLayer(files[1], wheelDir, def); err != nil {
			return nil, err
		}
	}

	var layers []v1.Layer
	for _, file := range files {
		layer, err := tarball.LayerFromFile(file)
		if err != nil {
			return nil, fmt.Errorf("read layer %s: %w", filepath.Base(file), err)
		}
		layers = append(layers, layer)
	}
	return layers, nil
}

func buildRootfs(ctx context.Context, def Definition, path string, log io.Writer) error {
	err := writeGzip(path, func(w io.Writer) error { return run(ctx, rootfsCommand(def), w, log) })
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("create a Debian %s root file system; this needs root, access to the Debian archive "+
			"and its keys (package debian-archive-keyring): %w", def.Suite, err)
	}
	return err
}

// rootfsCommand writes the root file system as a tar to its standard output.
func rootfsCommand(def Definition) []string {
	if def.IsUnpackedOnly {
		return unpackCommand(def)
	}
	command := []string{
		"mmdebstrap",
		"--variant=essential",
		"--format=tar",
		"--include=" + strings.Join(def.Packages, ","),
		// The container runtime makes the devices.
		"--skip=output/dev",
		// sshd does not start as root without its directory, which an init
		// system would make; mmdebstrap would empty /run after the hooks.
		"--skip=cleanup/run",
		`--customize-hook=mkdir -p "$1/run/sshd"`,
	}
	// Before the hook that takes away resolv.conf: they may need the network.
	for _, hook := range def.Hooks {
		command = append(command, "--customize-hook="+hook)
	}
	command = append(command,
		// Keys in an image are no secret: who runs sshd brings or makes his own.
		`--customize-hook=rm -f "$1"/etc/ssh/ssh_host_*`,
		// mmdebstrap copies these two from the host.
		`--customize-hook=rm -f "$1/etc/resolv.conf" "$1/etc/hostname"`,
	)
	command = append(command, excludeOptions(def)...)
	return append(command, def.Suite, "-")
}

// unpackCommand is rootfsCommand without the scripts of packages, which would have to
// run on the image's architecture.
func unpackCommand(def Definition) []string {
	command := []string{
		// With a time for all files, the same packages give the same image.
		"env", "SOURCE_DATE_EPOCH=1", "mmdebstrap",
		"--variant=extract",
		"--format=tar",
		"--architectures=" + def.architecture(),
		"--include=" + strings.Join(def.Packages, ","),
		"--skip=output/dev",
	}
	for _, hook := range def.Hooks {
		command = append(command, "--extract-hook="+hook)
	}
	command = append(command, excludeOptions(def)...)
	return append(command, def.Suite, "-")
}

func excludeOptions(def Definition) []string {
	options := []string{
		"--dpkgopt=path-exclude=/usr/share/man/*",
		"--dpkgopt=path-exclude=/usr/share/info/*",
		"--dpkgopt=path-exclude=/usr/share/locale/*",
		"--dpkgopt=path-exclude=/usr/share/lintian/*",
		"--dpkgopt=path-exclude=/usr/share/doc/*",
		"--dpkgopt=path-include=/usr/share/doc/*/copyright",
	}
	for _, pattern := range def.Exclude {
		options = append(options, "--dpkgopt=path-exclude="+pattern)
	}
	return options
}

// Assemble makes an OCI image of the layers. Its creation time is fixed, so that
// equal layers give an equal digest.
func Assemble(layers []v1.Layer, architecture string, config v1.Config) (v1.Image, error) {
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	var additions []mutate.Addendum
	for _, layer := range layers {
		additions = append(additions, mutate.Addendum{Layer: layer, MediaType: types.OCILayer})
	}
	image, err := mutate.Append(base, additions...)
	if err != nil {
		return nil, fmt.Errorf("append layers: %w", err)
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read image config: %w", err)
	}
	file = file.DeepCopy()
	file.OS, file.Architecture = "linux", architecture
	file.Created = v1.Time{Time: time.Unix(0, 0).UTC()}
	file.Config = config
	image, err = mutate.ConfigFile(image, file)
	if err != nil {
		return nil, fmt.Errorf("set image config: %w", err)
	}
	return image, nil
}

func writeTar(path string, image v1.Image, refs ...string) error {
	images := map[name.Reference]v1.Image{}
	for _, ref := range refs {
		tag, err := name.NewTag(ref, name.StrictValidation)
		if err != nil {
			return fmt.Errorf("image reference: %w", err)
		}
		images[tag] = image
	}
	if err := tarball.MultiRefWriteToFile(path, images); err != nil {
		return fmt.Errorf("write image tar: %w", err)
	}
	return nil
}

// writeGzip compresses once, on the way to the disk: go-containerregistry takes
// a compressed file for a layer as it is, but compresses any other three times
// over, for its digest, its size and its content.
func writeGzip(path string, write func(io.Writer) error) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	compressor, err := gzip.NewWriterLevel(file, gzip.BestSpeed)
	if err != nil {
		return err
	}
	if err := write(compressor); err != nil {
		return err
	}
	if err := compressor.Close(); err != nil {
		return err
	}
	return file.Close()
}

func tarName(def Definition) string {
	return def.Name + "-" + def.Hash() + ".tar"
}

// removeOtherBuilds deletes the tars of other definitions of the same name,
// which nobody asks for any more.
func removeOtherBuilds(def Definition, cacheDir string) error {
	const digit = "[0-9a-f]"
	builds, err := filepath.Glob(filepath.Join(cacheDir, def.Name+"-"+strings.Repeat(digit, len(def.Hash()))+".tar"))
	if err != nil {
		return err
	}
	var errs []error
	for _, build := range builds {
		if filepath.Base(build) != tarName(def) {
			errs = append(errs, os.Remove(build))
		}
	}
	return errors.Join(errs...)
}
