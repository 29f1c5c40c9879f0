// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// pushSettings are the argument and the flags of images push.
type pushSettings struct {
	registry, layouts, chart, version string
	// key is the file of the private key that signs the images, if there is one.
	key string
	// transport connects to the registry. Default: remote.DefaultTransport.
	transport http.RoundTripper
}

// builtImage is an image in a layout, and its repository in a registry.
type builtImage struct {
	repository name.Repository
	image, tag string
	digest     v1.Hash
	layout     v1.ImageIndex
}

// push pushes all layouts with their referrers, signs the images, prints the reference of
// each, and writes values of the chart with their digests.
func push(ctx context.Context, p pushSettings, out io.Writer) error {
	images, err := readLayouts(p.layouts, p.registry, p.version)
	if err != nil {
		return err
	}
	// Before anything is pushed: an image that the chart does not know, a wrong key.
	values, err := chartValues(p.chart, p.registry, images)
	if err != nil {
		return err
	}
	var key *signer
	if p.key != "" {
		if key, err = readSigner(p.key, os.Getenv("COSIGN_PASSWORD")); err != nil {
			return err
		}
	}
	for _, one := range images {
		if err := pushImage(ctx, p, one, key); err != nil {
			return fmt.Errorf("push %s: %w", one.repository, refusal(one.repository, err))
		}
		fmt.Fprintf(out, "%s:%s@%s\n", one.repository, one.tag, one.digest)
	}
	if key == nil {
		fmt.Fprintln(out, "The images are not signed: set COSIGN_KEY to the file of a private key to sign them.")
	}
	return os.WriteFile(filepath.Join(p.layouts, "values.yaml"), values, 0o644)
}

// writeValues writes values of the chart for images that are not pushed yet: a registry
// does not change their digests.
func writeValues(p pushSettings) error {
	images, err := readLayouts(p.layouts, p.registry, p.version)
	if err != nil {
		return err
	}
	values, err := chartValues(p.chart, p.registry, images)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(p.layouts, "values.yaml"), values, 0o644)
}

// readLayouts returns the images in a folder of layouts.
func readLayouts(folder, registry, version string) ([]builtImage, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*", "oci-layout"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s has no images: run make images first", folder)
	}
	var images []builtImage
	for _, file := range files {
		one, err := readImage(filepath.Dir(file), registry, version)
		if err != nil {
			return nil, err
		}
		images = append(images, one)
	}
	return images, nil
}

func readImage(folder, registry, version string) (builtImage, error) {
	image := filepath.Base(folder)
	repository, err := repositoryOf(registry, image)
	if err != nil {
		return builtImage{}, err
	}
	content, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		return builtImage{}, fmt.Errorf("read %s: %w", folder, err)
	}
	manifest, err := content.IndexManifest()
	if err != nil {
		return builtImage{}, fmt.Errorf("read %s: %w", folder, err)
	}
	for _, descriptor := range manifest.Manifests {
		if tag := descriptor.Annotations[refName]; tag != "" {
			return builtImage{repository, image, tag, descriptor.Digest, content}, checkVersion(descriptor, version, folder)
		}
	}
	return builtImage{}, fmt.Errorf("%s has no image with a tag: run make images again", folder)
}

func repositoryOf(registry, image string) (name.Repository, error) {
	repository, err := name.NewRepository(strings.TrimSuffix(registry, "/")+"/"+image, name.StrictValidation)
	if err != nil {
		return name.Repository{}, fmt.Errorf("REGISTRY must be a registry and a path, such as registry.example/trireme: %w", err)
	}
	return repository, nil
}

// pushImage pushes an image, its referrers and, with a key, its signature.
func pushImage(ctx context.Context, p pushSettings, one builtImage, key *signer) error {
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	if p.transport != nil {
		options = append(options, remote.WithTransport(p.transport))
	}
	manifest, err := one.layout.IndexManifest()
	if err != nil {
		return err
	}
	// The image is before its referrers.
	for _, descriptor := range manifest.Manifests {
		if err := pushManifest(one, descriptor, options); err != nil {
			return err
		}
	}
	if key == nil {
		return nil
	}
	return key.pushSignature(one.repository, one.digest, options)
}

// checkVersion fails if the image has another version than the wanted one: the version is
// also in labels and in the programs, so a different tag would be wrong.
func checkVersion(descriptor v1.Descriptor, version, folder string) error {
	if tag := descriptor.Annotations[refName]; version != "" && strings.TrimSuffix(tag, "-fips") != version {
		return fmt.Errorf("%s has version %s, not %s: run make images VERSION=%s", folder, tag, version, version)
	}
	return nil
}

// pushManifest pushes an index with its images, or a referrer.
func pushManifest(one builtImage, descriptor v1.Descriptor, options []remote.Option) error {
	if descriptor.MediaType.IsIndex() {
		index, err := one.layout.ImageIndex(descriptor.Digest)
		if err != nil {
			return err
		}
		return remote.WriteIndex(one.repository.Tag(descriptor.Annotations[refName]), index, options...)
	}
	image, err := one.layout.Image(descriptor.Digest)
	if err != nil {
		return err
	}
	return remote.Write(one.repository.Digest(descriptor.Digest.String()), image, options...)
}

// refusal explains an error of authentication or authorization.
func refusal(repository name.Repository, err error) error {
	var answer *transport.Error
	if !errors.As(err, &answer) || (answer.StatusCode != http.StatusUnauthorized && answer.StatusCode != http.StatusForbidden) {
		return err
	}
	host := repository.RegistryStr()
	credentials, failure := authn.DefaultKeychain.Resolve(repository)
	switch {
	case failure != nil:
		return fmt.Errorf("read the credentials of %s: %w", host, failure)
	case credentials == authn.Anonymous:
		return fmt.Errorf("the registry requires credentials, and your Docker configuration has none for %s: run docker login %s, or set DOCKER_CONFIG to the folder of a config.json: %w", host, host, err)
	default:
		return fmt.Errorf("the registry rejected your credentials for %s (HTTP %d): check user, password and the permission to push, and run docker login %s again: %w", host, answer.StatusCode, host, err)
	}
}
