// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"sigs.k8s.io/yaml"

	"github.com/trireme-mpi/trireme/cluster/image"
)

// olmImages are the images for the Operator Lifecycle Manager. Each contains a folder that
// tools/olm writes, and no program: OLM copies the files out of it.
func olmImages() []olmImage {
	return []olmImage{
		{name: "bundle", labels: bundleAnnotations},
		{name: "catalog", path: "configs", labels: func(string) (map[string]string, error) {
			return map[string]string{"operators.operatorframework.io.index.configs.v1": "/configs"}, nil
		}},
	}
}

// olmImage is such an image, with the name of its folder.
type olmImage struct {
	name string
	// path is where the folder is in the image.
	path string
	// labels returns what OLM reads, beside the labels of all images.
	labels func(folder string) (map[string]string, error)
}

// bundleAnnotations are also labels of the image, where tools find them without pulling it.
func bundleAnnotations(folder string) (map[string]string, error) {
	var file struct {
		Annotations map[string]string `json:"annotations"`
	}
	content, err := os.ReadFile(filepath.Join(folder, "metadata", "annotations.yaml"))
	if err != nil {
		return nil, err
	}
	err = yaml.Unmarshal(content, &file)
	return file.Annotations, err
}

// writeOLMImages writes the layouts of bundle and catalog beside those of the programs.
func writeOLMImages(from source, s settings) error {
	for _, one := range olmImages() {
		if err := one.write(from, s); err != nil {
			return fmt.Errorf("image %s: %w", one.name, err)
		}
	}
	return nil
}

func (o olmImage) write(from source, s settings) error {
	folder := filepath.Join(s.output, o.name)
	if _, err := os.Stat(folder); err != nil {
		return fmt.Errorf("run make bundle, which writes the folder: %w", err)
	}
	labels, err := o.labels(folder)
	if err != nil {
		return err
	}
	content := map[string]entry{}
	if err := folderEntries(content, folder, o.path); err != nil {
		return err
	}
	return replaceFolder(filepath.Join(s.output, "images", o.name), func(work, finished string) error {
		layerFile := filepath.Join(work, "layer.tar.gz")
		if err := writeArchive(layerFile, content, from.time); err != nil {
			return err
		}
		layer, err := tarball.LayerFromFile(layerFile)
		if err != nil {
			return err
		}
		var images []platformImage
		for _, architecture := range architectures {
			one, err := image.Assemble([]v1.Layer{layer}, architecture, v1.Config{Labels: labels, User: image.Nonroot})
			if err != nil {
				return err
			}
			images = append(images, platformImage{Image: one})
		}
		return writeImage(finished, o.name, from, s, images)
	})
}

// chartImages leaves out the images that the chart does not install.
func chartImages(images []builtImage) []builtImage {
	names := map[string]bool{}
	for _, one := range olmImages() {
		names[one.name] = true
	}
	return slices.DeleteFunc(slices.Clone(images), func(one builtImage) bool { return names[one.image] })
}
