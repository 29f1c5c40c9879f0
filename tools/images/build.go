// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/trireme-mpi/trireme/cluster/image"
)

// testImage is the MPI image of helm test. The cluster tool builds its root file system.
const testImage = "mpi-test"

// descriptions of all images.
var descriptions = map[string]string{
	"operator":    "Runs MPIJobs and TrainJobs on Kubernetes and OpenShift",
	"server":      "REST and gRPC API for training jobs",
	"mpi-agent":   "Starts MPI in the pods of a job",
	"initializer": "Downloads datasets and models before a job starts",
	"odh":         "Command line for training jobs",
	testImage:     "Open MPI for helm test",
	"bundle":      "Trireme for the Operator Lifecycle Manager",
	"catalog":     "Catalog with Trireme for the Operator Lifecycle Manager",
}

func programNames() []string {
	return []string{"operator", "server", "mpi-agent", "initializer", "odh"}
}

// settings are the flags of images build.
type settings struct {
	repository, output     string
	version, ldflags, fips string
	builder                string
	testArchives           []string
}

// tag says which images contain Go's FIPS module.
func (s settings) tag() string {
	if s.fips != "" {
		return s.version + "-fips"
	}
	return s.version
}

// platformImage is the image of one architecture.
type platformImage struct {
	v1.Image
	components []component
}

// build writes the layouts of the named images.
func build(ctx context.Context, from source, s settings, names []string) error {
	if len(names) == 0 {
		names = programNames()
	}
	return replaceFolder(s.output, func(work, finished string) error {
		for _, architecture := range architectures {
			if err := compile(ctx, s, linux(architecture), filepath.Join(work, architecture), names); err != nil {
				return err
			}
		}
		for _, name := range names {
			images, err := programImages(ctx, s, work, name, architectures...)
			if err != nil {
				return fmt.Errorf("image %s: %w", name, err)
			}
			if err := writeImage(filepath.Join(finished, name), name, from, s, images); err != nil {
				return fmt.Errorf("image %s: %w", name, err)
			}
		}
		if len(s.testArchives) == 0 {
			return nil
		}
		if err := writeTestImage(finished, from, s); err != nil {
			return fmt.Errorf("image %s: %w", testImage, err)
		}
		return nil
	})
}

// replaceFolder replaces a folder by the one that write has finished, once it is complete.
func replaceFolder(folder string, write func(work, finished string) error) (err error) {
	if err := os.MkdirAll(filepath.Dir(folder), 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp(filepath.Dir(folder), ".images-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	finished := filepath.Join(work, "images")
	if err := os.Mkdir(finished, 0o755); err != nil {
		return err
	}
	if err := write(work, finished); err != nil {
		return err
	}
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	return os.Rename(finished, folder)
}

// programImages returns the images of a compiled program, with one layer each.
func programImages(ctx context.Context, s settings, work, name string, architectures ...string) ([]platformImage, error) {
	var images []platformImage
	for _, architecture := range architectures {
		licenses, err := licenseFiles(ctx, s, linux(architecture), name)
		if err != nil {
			return nil, err
		}
		binary := filepath.Join(work, architecture, name)
		built, err := image.Binary(binary, licenses, binary+".tar.gz")
		if err != nil {
			return nil, err
		}
		components, err := programComponents(s, binary, licenses)
		if err != nil {
			return nil, err
		}
		images = append(images, platformImage{built, components})
	}
	return images, nil
}

func writeTestImage(folder string, from source, s settings) error {
	var images []platformImage
	for _, archive := range s.testArchives {
		one, err := imageFromArchive(archive)
		if err != nil {
			return fmt.Errorf("%s: %w", archive, err)
		}
		images = append(images, one)
	}
	s.fips = "" // It has no Go program.
	return writeImage(filepath.Join(folder, testImage), testImage, from, s, images)
}

// imageFromArchive reads an archive of the cluster tool.
func imageFromArchive(archive string) (platformImage, error) {
	archived, err := tarball.ImageFromPath(archive, nil)
	if err != nil {
		return platformImage{}, err
	}
	file, err := archived.ConfigFile()
	if err != nil {
		return platformImage{}, err
	}
	layers, err := archived.Layers()
	if err != nil {
		return platformImage{}, err
	}
	built, err := image.Assemble(layers, file.Architecture, v1.Config{Env: file.Config.Env, Cmd: []string{"sh"}, User: image.Nonroot})
	if err != nil {
		return platformImage{}, err
	}
	components, err := debianComponents(built)
	return platformImage{built, components}, err
}

// writeImage writes the layout of an image: its index, an SBOM for each platform, and the
// provenance.
func writeImage(folder, name string, from source, s settings, images []platformImage) error {
	labels := ociLabels(name, from, s)
	index := mutate.Annotations(empty.Index, labels).(v1.ImageIndex)
	var referrers []referrer
	var subjects []v1.Descriptor
	var components []component
	for _, one := range images {
		labeled, err := withLabels(one, labels, from.time)
		if err != nil {
			return err
		}
		descriptor, err := descriptorOf(labeled)
		if err != nil {
			return err
		}
		bill, err := sbom(imageSubject(name, s.version, descriptor.Digest), from.time, one.components)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: labeled, Descriptor: descriptor})
		referrers = append(referrers, referrer{mediaType: spdxType, content: bill, subject: descriptor})
		subjects = append(subjects, descriptor)
		components = append(components, one.components...)
	}
	descriptor, err := descriptorOf(index)
	if err != nil {
		return err
	}
	statement, err := provenance(name, from, s, append(subjects, descriptor), withoutRepetition(components))
	if err != nil {
		return err
	}
	referrers = append(referrers, referrer{mediaType: intotoType, content: statement, subject: descriptor,
		annotations: map[string]string{"in-toto.io/predicate-type": provenanceType}})
	return writeLayout(folder, s.tag(), index, referrers)
}

func withoutRepetition(components []component) []component {
	slices.SortFunc(components, func(a, b component) int { return strings.Compare(a.purl, b.purl) })
	return slices.Compact(components)
}

// ociLabels are the labels of an image, and the annotations of its index.
func ociLabels(name string, from source, s settings) map[string]string {
	const prefix = "org.opencontainers.image."
	labels := map[string]string{
		prefix + "title":       "Trireme " + name,
		prefix + "description": descriptions[name],
		prefix + "source":      repositoryURL,
		prefix + "version":     s.version,
		prefix + "revision":    from.commit,
		prefix + "created":     from.time.Format(time.RFC3339),
		prefix + "licenses":    "Apache-2.0",
	}
	if s.fips != "" {
		labels["org.kubeflow.trireme.fips140"] = s.fips
	}
	return labels
}

func withLabels(one v1.Image, labels map[string]string, created time.Time) (v1.Image, error) {
	file, err := one.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.Created = v1.Time{Time: created}
	if file.Config.Labels == nil {
		file.Config.Labels = map[string]string{}
	}
	maps.Copy(file.Config.Labels, labels)
	return mutate.ConfigFile(one, file)
}
