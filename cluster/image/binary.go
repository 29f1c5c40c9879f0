// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Nonroot is the user of images without a user database. It is numeric, since
// the kubelet can check runAsNonRoot only for a number.
const Nonroot = "65532:65532"

// FromBinary writes to outPath the tar of an image that holds one static
// binary, at /NAME, as its entrypoint. The same binary always gives the same
// digest, so that an import of it is recognised as nothing new.
func FromBinary(binary, ref, outPath string) error {
	if err := fromBinary(binary, ref, outPath); err != nil {
		return fmt.Errorf("build image %s from %s: %w", ref, binary, err)
	}
	return nil
}

func fromBinary(binary, ref, outPath string) (err error) {
	workDir, err := os.MkdirTemp(filepath.Dir(outPath), ".building-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(workDir)) }()

	image, err := Binary(binary, nil, filepath.Join(workDir, "layer.tar.gz"))
	if err != nil {
		return err
	}
	unfinished := filepath.Join(workDir, "image.tar")
	if err := writeTar(unfinished, image, ref); err != nil {
		return err
	}
	return os.Rename(unfinished, outPath)
}

// Binary returns an image that holds one static binary, at /NAME, as its
// entrypoint, and files: paths in the image, with the paths of their content on
// the host. The image reads its only layer from layerPath.
func Binary(binary string, files map[string]string, layerPath string) (v1.Image, error) {
	architecture, err := staticArchitecture(binary)
	if err != nil {
		return nil, err
	}
	name := filepath.Base(binary)
	if err := writeBinaryLayer(layerPath, name, binary, files); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromFile(layerPath)
	if err != nil {
		return nil, fmt.Errorf("read layer: %w", err)
	}
	return Assemble([]v1.Layer{layer}, architecture, v1.Config{Entrypoint: []string{"/" + name}, User: Nonroot})
}

func writeBinaryLayer(layerPath, name, binary string, files map[string]string) error {
	return writeGzip(layerPath, func(w io.Writer) error {
		layer := tar.NewWriter(w)
		if err := appendHostFile(layer, name, 0o755, binary); err != nil {
			return err
		}
		for _, target := range slices.Sorted(maps.Keys(files)) {
			if err := appendHostFile(layer, target, 0o644, files[target]); err != nil {
				return err
			}
		}
		return layer.Close()
	})
}

// staticArchitecture returns the Go name of the architecture that the binary
// runs on. A binary that asks for a loader is refused here, since in an image
// without one it would end in a bare "no such file or directory".
func staticArchitecture(binary string) (string, error) {
	file, err := elf.Open(binary)
	var format *elf.FormatError
	switch {
	case errors.As(err, &format) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return "", fmt.Errorf("not an ELF binary (%w): build it with CGO_ENABLED=0 GOOS=linux go build", err)
	case err != nil:
		return "", err
	}
	defer file.Close()

	if slices.ContainsFunc(file.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		return "", errors.New("dynamically linked, but the image has no libraries: build it with CGO_ENABLED=0 go build")
	}
	switch file.Machine {
	case elf.EM_X86_64:
		return "amd64", nil
	case elf.EM_AARCH64:
		return "arm64", nil
	default:
		return "", fmt.Errorf("built for %s: only amd64 and arm64 are supported", file.Machine)
	}
}
