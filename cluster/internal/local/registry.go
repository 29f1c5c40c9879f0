// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/crypto/bcrypt"

	"github.com/trireme-mpi/trireme/cluster/internal/build"
	"github.com/trireme-mpi/trireme/cluster/internal/component"
	"github.com/trireme-mpi/trireme/cluster/internal/supervisor"
)

// RegistryUser is the user of the private registry.
const RegistryUser = "trireme"

// Registry is what clients need to use the two registries of the cluster.
type Registry struct {
	Public  string // address of the registry without a password
	Private string // address of the registry with one
	CA      string // file with the CA of both certificates
	// DockerConfig is a directory with the login of the private registry, in the format
	// that all clients of registries and Kubernetes read.
	DockerConfig string
	PasswordFile string
}

// Registry describes the registries, or returns an error if they are not running.
func (c *Cluster) Registry(ctx context.Context) (Registry, error) {
	report, err := c.Running(ctx)
	if err != nil {
		return Registry{}, err
	}
	if running := registries(report); len(running) < 2 {
		return Registry{}, errors.New("the registry is not running; start it with `registry up`")
	}
	return c.registry(), nil
}

// registries returns the components of the registry that the supervisor runs.
func registries(report supervisor.Report) []string {
	var names []string
	for _, status := range report.Components {
		if status.Name == component.Registry || status.Name == component.PrivateRegistry {
			names = append(names, status.Name)
		}
	}
	return names
}

func (c *Cluster) registry() Registry {
	l := c.Layout
	return Registry{
		Public:       l.Network.Registry(),
		Private:      l.Network.PrivateRegistry(),
		CA:           filepath.Join(l.PKI(), component.ClusterAuthority+".crt"),
		DockerConfig: filepath.Join(l.Registry(), "docker"),
		PasswordFile: filepath.Join(l.Registry(), "password"),
	}
}

// RegistryUp builds the registry if it is not in the cache, and starts it in the running
// cluster. It starts again with the cluster.
func (c *Cluster) RegistryUp(ctx context.Context) error {
	return c.exclusively(ctx, func() error {
		if _, err := c.Running(ctx); err != nil {
			return err
		}
		if _, err := os.Stat(filepath.Join(c.Layout.Config(), component.Registry+".yaml")); err != nil {
			return fmt.Errorf("the cluster was started by another version of this program, without configuration of the registry (%w); use `down`, then `up`", err)
		}
		directory, err := c.buildModule(ctx, build.Registry(c.Layout))
		if err != nil {
			return err
		}
		if err := c.writeRegistryLogin(); err != nil {
			return fmt.Errorf("login of the registry: %w", err)
		}
		if err := relink(filepath.Join(directory, "registry"), c.Layout.RegistryProgram()); err != nil {
			return fmt.Errorf("program of the registry: %w", err)
		}
		for _, name := range []string{component.Registry, component.PrivateRegistry} {
			if err := c.Progress.Step(name, func() error { return c.awaitComponent(ctx, name) }); err != nil {
				return err
			}
		}
		return nil
	})
}

// RegistryDown stops the registry and keeps its images.
func (c *Cluster) RegistryDown(ctx context.Context) error {
	return c.exclusively(ctx, func() error {
		return c.Progress.Step("stop the registry", func() error {
			if err := os.Remove(c.Layout.RegistryProgram()); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			err := poll(ctx, startPatience, func() (bool, error) {
				report, err := c.Running(ctx)
				if errors.Is(err, ErrNotRunning) {
					return true, nil
				}
				return err == nil && len(registries(report)) == 0, err
			})
			if errors.Is(err, errPatience) {
				return fmt.Errorf("the registry is still running after %s; see `logs supervisor`", startPatience)
			}
			return err
		})
	})
}

// relink replaces the link, if it points elsewhere.
func relink(target, link string) error {
	if current, err := os.Readlink(link); err == nil && current == target {
		return nil
	}
	if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Symlink(target, link)
}

// writeRegistryLogin generates a password once, and writes it in the formats of the
// registry and of its clients.
func (c *Cluster) writeRegistryLogin() error {
	r := c.registry()
	password, err := os.ReadFile(r.PasswordFile)
	if errors.Is(err, fs.ErrNotExist) {
		password, err = []byte(rand.Text()), nil
	}
	if err != nil {
		return err
	}
	// The registry runs on this machine only, so a short computation is enough.
	hash, err := bcrypt.GenerateFromPassword(password, bcrypt.MinCost)
	if err != nil {
		return err
	}
	login, err := dockerLogin(r.Private, string(password))
	if err != nil {
		return err
	}
	return writeFiles(map[string][]byte{
		r.PasswordFile: password,
		filepath.Join(c.Layout.Registry(), "htpasswd"): fmt.Appendf(nil, "%s:%s\n", RegistryUser, hash),
		filepath.Join(r.DockerConfig, "config.json"):   login,
	})
}

// dockerLogin is the file in which clients keep their passwords.
func dockerLogin(registry, password string) ([]byte, error) {
	type login struct {
		Auth []byte `json:"auth"` // in base64
	}
	return json.Marshal(map[string]map[string]login{
		"auths": {registry: {Auth: []byte(RegistryUser + ":" + password)}},
	})
}
