// SPDX-License-Identifier: Apache-2.0

package local

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// openArchive reads an image from an archive in Docker's format, or from one of an OCI
// layout. The image of a layout keeps its digest. It can be read until cleanUp is called.
func openArchive(file string) (content v1.Image, cleanUp func(), err error) {
	folder, err := os.MkdirTemp("", "layout-")
	if err != nil {
		return nil, nil, err
	}
	cleanUp = func() { _ = os.RemoveAll(folder) }
	isLayout, err := extractLayout(file, folder)
	switch {
	case err != nil:
	case isLayout:
		content, err = onlyImage(folder)
	default:
		content, err = tarball.ImageFromPath(file, nil)
	}
	if err != nil {
		cleanUp()
		return nil, nil, err
	}
	return content, cleanUp, nil
}

// extractLayout extracts an archive of an OCI layout. It extracts nothing of other
// archives, and reports false.
func extractLayout(file, folder string) (isLayout bool, err error) {
	isLayout, err = hasFile(file, "oci-layout")
	if err != nil || !isLayout {
		return false, err
	}
	from, err := os.Open(file)
	if err != nil {
		return false, err
	}
	defer from.Close()
	to, err := os.OpenRoot(folder)
	if err != nil {
		return false, err
	}
	defer to.Close()
	for files := tar.NewReader(from); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		if err := extractFile(to, path.Clean(header.Name), files); err != nil {
			return false, err
		}
	}
}

func extractFile(to *os.Root, name string, content io.Reader) error {
	if err := to.MkdirAll(path.Dir(name), 0o700); err != nil {
		return err
	}
	file, err := to.Create(name)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	return errors.Join(err, file.Close())
}

func hasFile(archive, name string) (bool, error) {
	from, err := os.Open(archive)
	if err != nil {
		return false, err
	}
	defer from.Close()
	for files := tar.NewReader(from); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if path.Clean(header.Name) == name {
			return true, nil
		}
	}
}

// onlyImage is the image of a layout that has one.
func onlyImage(folder string) (v1.Image, error) {
	index, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		return nil, err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	if len(manifest.Manifests) != 1 {
		return nil, fmt.Errorf("the layout has %d images, not 1", len(manifest.Manifests))
	}
	return index.Image(manifest.Manifests[0].Digest)
}
