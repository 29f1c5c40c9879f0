// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/trireme-mpi/trireme/cluster/image"
)

// Push copies an image archive, or a static binary as an image, to a registry of the
// cluster. It returns the reference by digest.
func (c *Cluster) Push(ctx context.Context, file, reference string) (pinned string, err error) {
	tag, err := name.NewTag(reference, name.StrictValidation)
	if err != nil {
		return "", fmt.Errorf("push: %w", err)
	}
	registry, err := c.Registry(ctx)
	if err != nil {
		return "", err
	}
	if host := tag.RegistryStr(); host != registry.Public && host != registry.Private {
		return "", fmt.Errorf("push: %s is not a registry of this cluster; use %s or %s", host, registry.Public, registry.Private)
	}
	err = c.Progress.Step("push "+reference, func() error {
		pinned, err = push(ctx, registry, file, tag)
		return err
	})
	return pinned, err
}

func push(ctx context.Context, registry Registry, file string, tag name.Tag) (pinned string, err error) {
	if begins(file, 0, "\x7fELF") {
		directory, err := os.MkdirTemp("", "push-")
		if err != nil {
			return "", err
		}
		defer os.RemoveAll(directory)
		archive := filepath.Join(directory, "image.tar")
		if err := image.FromBinary(file, tag.Name(), archive); err != nil {
			return "", err
		}
		file = archive
	}
	content, cleanUp, err := openArchive(file)
	if err != nil {
		return "", fmt.Errorf("%s is neither an archive with one image nor a static binary: %w", file, err)
	}
	defer cleanUp()
	digest, err := content.Digest()
	if err != nil {
		return "", err
	}
	transport, err := registry.transport()
	if err != nil {
		return "", err
	}
	login, err := registry.login(tag.RegistryStr())
	if err != nil {
		return "", err
	}
	err = remote.Write(tag, content, remote.WithContext(ctx), remote.WithTransport(transport), remote.WithAuth(login))
	return tag.Digest(digest.String()).String(), err
}

// transport trusts only the CA of the cluster, and uses no proxy.
func (r Registry) transport() (http.RoundTripper, error) {
	authority, err := os.ReadFile(r.CA)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	return &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, Proxy: nil}, nil
}

func (r Registry) login(address string) (authn.Authenticator, error) {
	if address != r.Private {
		return authn.Anonymous, nil
	}
	password, err := os.ReadFile(r.PasswordFile)
	if err != nil {
		return nil, fmt.Errorf("password of the registry: %w", err)
	}
	return &authn.Basic{Username: RegistryUser, Password: string(password)}, nil
}
