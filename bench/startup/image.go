// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/operator/sshkey"
)

// prepareRoot makes the file system that all hosts begin with: the image, and in
// it the agent and one pair of keys for both ways.
func prepareRoot(root string, settings settings) error {
	archive := settings.Image
	if archive == "" {
		var err error
		if archive, err = cachedImage(); err != nil {
			return err
		}
	}
	if err := unpack(archive, root); err != nil {
		return err
	}
	content, err := os.ReadFile(settings.Agent)
	if err != nil {
		return err
	}
	if err := writeFile(root, protocol.Path, 0o755, content); err != nil {
		return err
	}
	return writeKeys(root)
}

// cachedImage is the newest image with Open MPI 4 that the local cluster has built.
func cachedImage() (string, error) {
	cache := os.Getenv("TRIREME_CACHE")
	if cache == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		cache = filepath.Join(home, ".cache", "trireme")
	}
	found, _ := filepath.Glob(filepath.Join(cache, "images", "openmpi4-*.tar"))
	if len(found) == 0 {
		return "", fmt.Errorf("there is no openmpi4-*.tar in %s/images: `make cluster` builds it, or name an archive with -image", cache)
	}
	return slices.MaxFunc(found, func(a, b string) int { return modified(a) - modified(b) }), nil
}

func modified(path string) int {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return int(info.ModTime().Unix())
}

// unpack unpacks an archive as `docker save` writes it.
func unpack(archive, root string) error {
	text, err := exec.Command("tar", "-xOf", archive, "manifest.json").Output()
	if err != nil {
		return fmt.Errorf("%s is not an image as `docker save` writes it: %w", archive, err)
	}
	var manifest []struct{ Layers []string }
	if err := json.Unmarshal(text, &manifest); err != nil || len(manifest) != 1 {
		return fmt.Errorf("%s: manifest.json does not describe one image", archive)
	}
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	for _, layer := range manifest[0].Layers {
		line := `set -o pipefail; tar -xOf "$0" "$1" | tar -xz --numeric-owner -C "$2"`
		if output, err := exec.Command("bash", "-c", line, archive, layer, root).CombinedOutput(); err != nil {
			return fmt.Errorf("unpack %s: %w\n%s", archive, err, output)
		}
	}
	return nil
}

// writeKeys: both ways log in with the same keys, and know the hosts by the same.
func writeKeys(root string) error {
	client, err := sshkey.New(rand.Reader, sshkey.Ed25519)
	if err != nil {
		return err
	}
	host, err := sshkey.New(rand.Reader, sshkey.Ed25519)
	if err != nil {
		return err
	}
	known := slices.Concat([]byte("* "), host.Public)
	config := "Host *\n  StrictHostKeyChecking yes\n  IdentityFile /root/.ssh/id_ed25519\n"
	var failures []error
	for path, content := range map[string][]byte{
		filepath.Join(protocol.KeyDirectory, protocol.ClientKey):      client.Private,
		filepath.Join(protocol.KeyDirectory, protocol.AuthorizedKeys): client.Public,
		filepath.Join(protocol.KeyDirectory, protocol.HostKey):        host.Private,
		filepath.Join(protocol.KeyDirectory, protocol.HostPublicKey):  host.Public,
		"/root/.ssh/id_ed25519":      client.Private,
		"/root/.ssh/authorized_keys": client.Public,
		"/root/.ssh/known_hosts":     known,
		"/root/.ssh/config":          []byte(config),
		sshdHostKey:                  host.Private,
	} {
		failures = append(failures, writeFile(root, path, 0o600, content))
	}
	return errors.Join(failures...)
}

func writeFile(root, path string, mode os.FileMode, content []byte) error {
	path = filepath.Join(root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, content, mode)
}

// lines is a text of lines.
func lines(each []string) []byte {
	return append(bytes.TrimSpace([]byte(strings.Join(each, "\n"))), '\n')
}
