// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// containerdName is the annotation of the reference under which containerd imports an image.
const containerdName = "io.containerd.image.name"

// buildLocal writes for each program an archive that containerd imports, and values of the
// chart with the digests. The images are those of this machine's platform that build puts
// into its indexes, with the same digests.
func buildLocal(ctx context.Context, from source, s settings, p pushSettings, programs []string) error {
	return replaceFolder(s.output, func(work, finished string) error {
		if err := compile(ctx, s, linux(runtime.GOARCH), filepath.Join(work, runtime.GOARCH), programs); err != nil {
			return err
		}
		var images []builtImage
		for _, program := range programs {
			one, err := writeLocalImage(ctx, from, s, p.registry, work, filepath.Join(finished, program+".tar"), program)
			if err != nil {
				return fmt.Errorf("image %s: %w", program, err)
			}
			images = append(images, one)
		}
		values, err := chartValues(p.chart, p.registry, images)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(finished, "values.yaml"), values, 0o644)
	})
}

func writeLocalImage(ctx context.Context, from source, s settings, registry, work, archive, program string) (builtImage, error) {
	repository, err := repositoryOf(registry, program)
	if err != nil {
		return builtImage{}, err
	}
	images, err := programImages(ctx, s, work, program, runtime.GOARCH)
	if err != nil {
		return builtImage{}, err
	}
	labeled, err := withLabels(images[0], ociLabels(program, from, s), from.time)
	if err != nil {
		return builtImage{}, err
	}
	digest, err := labeled.Digest()
	if err != nil {
		return builtImage{}, err
	}
	err = writeImportArchive(archive, filepath.Join(work, program), labeled, repository.Digest(digest.String()), from)
	return builtImage{repository: repository, image: program, tag: s.tag(), digest: digest}, err
}

// writeImportArchive writes an image as the archive of a layout. Unlike Docker's format, it
// keeps the manifest, and with it the digest.
func writeImportArchive(archive, folder string, one v1.Image, reference name.Digest, from source) error {
	to, err := layout.Write(folder, empty.Index)
	if err != nil {
		return err
	}
	if err := to.AppendImage(one, layout.WithAnnotations(map[string]string{containerdName: reference.String()})); err != nil {
		return err
	}
	files := map[string]entry{}
	if err := folderEntries(files, folder, "."); err != nil {
		return err
	}
	return writeArchive(archive, files, from.time)
}
