// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// refName is the annotation of a tag in a layout.
const refName = "org.opencontainers.image.ref.name"

// referrer is a document about an image. Registries list it with the image that is its
// subject, and oras discover and cosign tree print it.
type referrer struct {
	mediaType   string
	content     []byte
	subject     v1.Descriptor
	annotations map[string]string
}

// writeLayout writes an index with its images under a tag, and the referrers of both.
func writeLayout(folder, tag string, index v1.ImageIndex, referrers []referrer) error {
	to, err := layout.Write(folder, empty.Index)
	if err != nil {
		return fmt.Errorf("write the layout: %w", err)
	}
	if err := to.AppendIndex(index, layout.WithAnnotations(map[string]string{refName: tag})); err != nil {
		return fmt.Errorf("write the layout: %w", err)
	}
	for _, one := range referrers {
		if err := appendReferrer(to, one); err != nil {
			return fmt.Errorf("write the layout: %w", err)
		}
	}
	return nil
}

func appendReferrer(to layout.Path, one referrer) error {
	config, err := writeBlob(to, "application/vnd.oci.empty.v1+json", []byte("{}"))
	if err != nil {
		return err
	}
	content, err := writeBlob(to, types.MediaType(one.mediaType), one.content)
	if err != nil {
		return err
	}
	subject := v1.Descriptor{MediaType: one.subject.MediaType, Size: one.subject.Size, Digest: one.subject.Digest}
	manifest, err := json.Marshal(v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1, ArtifactType: one.mediaType,
		Config: config, Layers: []v1.Descriptor{content}, Subject: &subject, Annotations: one.annotations,
	})
	if err != nil {
		return err
	}
	descriptor, err := writeBlob(to, types.OCIManifestSchema1, manifest)
	if err != nil {
		return err
	}
	descriptor.ArtifactType, descriptor.Annotations = one.mediaType, one.annotations
	return to.AppendDescriptor(descriptor)
}

func writeBlob(to layout.Path, mediaType types.MediaType, content []byte) (v1.Descriptor, error) {
	digest, size, err := v1.SHA256(bytes.NewReader(content))
	if err != nil {
		return v1.Descriptor{}, err
	}
	return v1.Descriptor{MediaType: mediaType, Size: size, Digest: digest}, to.WriteBlob(digest, io.NopCloser(bytes.NewReader(content)))
}

// descriptorOf returns the descriptor of an image, with its platform, or of an index.
func descriptorOf(one partial.Describable) (v1.Descriptor, error) {
	descriptor, err := partial.Descriptor(one)
	if err != nil {
		return v1.Descriptor{}, err
	}
	if image, ok := one.(v1.Image); ok {
		file, err := image.ConfigFile()
		if err != nil {
			return v1.Descriptor{}, err
		}
		descriptor.Platform = file.Platform()
	}
	descriptor.Annotations, descriptor.ArtifactType = nil, ""
	return *descriptor, nil
}
