// SPDX-License-Identifier: Apache-2.0

// Package local starts and stops the cluster: it runs the steps of the other packages
// in order, and leaves nothing behind after a failure.
package local

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/trireme-mpi/trireme/cluster/internal/build"
	"github.com/trireme-mpi/trireme/cluster/internal/component"
	"github.com/trireme-mpi/trireme/cluster/internal/host"
	"github.com/trireme-mpi/trireme/cluster/internal/layout"
	"github.com/trireme-mpi/trireme/cluster/internal/pki"
	"github.com/trireme-mpi/trireme/cluster/internal/progress"
	"github.com/trireme-mpi/trireme/cluster/internal/supervisor"
)

// Cluster is the local cluster of this machine.
type Cluster struct {
	Layout   layout.Layout
	Progress *progress.Reporter
}

// ErrNotRunning is the error of commands that need a running cluster.
var ErrNotRunning = errors.New("the cluster is not running; start it with `up` (or `make cluster`)")

// Running returns the status of the supervisor, or ErrNotRunning. It also sets the
// settings of the layout to those of the running cluster, which may differ from those of
// the caller.
func (c *Cluster) Running(ctx context.Context) (supervisor.Report, error) {
	report, err := supervisor.Ask(ctx, c.Layout)
	switch {
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ECONNREFUSED):
		return supervisor.Report{}, c.whyNotRunning()
	case errors.Is(err, syscall.EACCES):
		return supervisor.Report{}, fmt.Errorf("%w; run the same command as root", err)
	case err != nil:
		return supervisor.Report{}, err
	}
	network, err := layout.ParseNetwork(report.Network)
	if err != nil {
		return supervisor.Report{}, fmt.Errorf("the response of the supervisor: %w", err)
	}
	// A supervisor without the field runs the default release.
	kubernetes, err := layout.FindKubernetes(report.Kubernetes)
	if err != nil {
		return supervisor.Report{}, fmt.Errorf("the response of the supervisor: %w", err)
	}
	c.Layout.Data, c.Layout.Network, c.Layout.NetworkPolicies, c.Layout.Kubernetes = report.Data, network, report.NetworkPolicies, kubernetes
	return report, nil
}

// whyNotRunning distinguishes three cases in which no supervisor answers.
func (c *Cluster) whyNotRunning() error {
	processes := host.InNetworkNamespace(c.Layout.NetworkNamespace())
	for _, pid := range processes {
		if strings.Contains(host.CommandLine(pid), " supervise --name "+c.Layout.Name+" ") {
			return fmt.Errorf("cluster %s is already running as %s, but its sockets are not in %s: set TRIREME_CLUSTER_RUN to the value with which the cluster was started",
				c.Layout.Name, host.Describe(pid), c.Layout.Run)
		}
	}
	if len(processes) > 0 {
		return unwatched(len(processes))
	}
	return ErrNotRunning
}

// unwatched is a cluster whose supervisor was killed, with the number of its processes
// that are still running. `up` treats it as not running.
type unwatched int

func (u unwatched) Error() string {
	return fmt.Sprintf("the supervisor is not running; %d processes of the cluster are still running without supervision: `up` starts a new supervisor, `down` stops them", int(u))
}

func (unwatched) Is(target error) bool { return target == ErrNotRunning }

// exclusively runs a change of the cluster: as root, and one at a time.
func (c *Cluster) exclusively(ctx context.Context, change func() error) error {
	if err := host.CheckRoot(); err != nil {
		return err
	}
	unlock, err := host.Lock(ctx, c.Layout.Lock(), func(holder string) { c.Progress.Line("waiting for %s", holder) })
	if err != nil {
		return err
	}
	defer unlock()
	return change()
}

// Config is the client configuration of the administrator.
func (c *Cluster) Config() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.Layout.AdminKubeconfig())
	if err != nil {
		return nil, fmt.Errorf("administrator's kubeconfig: %w", err)
	}
	config.QPS, config.Burst = 200, 400
	// No proxy, even if the user has set one: the API server is on this machine.
	config.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	return config, nil
}

func (c *Cluster) client() (*kubernetes.Clientset, error) {
	config, err := c.Config()
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

// Build builds all programs that are not in the cache, each as a step.
func (c *Cluster) Build(ctx context.Context) (map[string]string, error) {
	directories := map[string]string{}
	for _, module := range build.Modules(c.Layout) {
		directory, err := c.buildModule(ctx, module)
		if err != nil {
			return nil, err
		}
		directories[module.Name] = directory
	}
	return directories, nil
}

func (c *Cluster) buildModule(ctx context.Context, module build.Module) (directory string, err error) {
	err = c.Progress.Step("build "+module.Name, func() (err error) {
		var built bool
		directory, built, err = build.Ensure(ctx, c.Layout, module, func(whom string) { c.Progress.Note("waiting %s", whom) })
		if err == nil && !built {
			c.Progress.Note("cached")
		}
		return err
	})
	return directory, err
}

// Assets returns the directory with kube-apiserver, etcd and kubectl for envtest.
func (c *Cluster) Assets(ctx context.Context) (directory string, err error) {
	module := build.Named(c.Layout, build.Kubernetes(c.Layout))
	if directory, err = build.Output(ctx, c.Layout, module); err != nil {
		return "", err
	}
	if _, err := os.Stat(directory); err == nil {
		return directory, nil
	}
	return c.buildModule(ctx, module)
}

// Programs are the programs of the running cluster.
func (c *Cluster) Programs(ctx context.Context) (programs component.Programs, err error) {
	_, err = c.Running(ctx)
	if unwatched := unwatched(0); err != nil && !errors.As(err, &unwatched) {
		return programs, err
	}
	return readPrograms(c.programsFile())
}

func readPrograms(file string) (programs component.Programs, err error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return programs, fmt.Errorf("the cluster's programs: %w", err)
	}
	if err := json.Unmarshal(content, &programs); err != nil {
		return programs, fmt.Errorf("the cluster's programs in %s: %w", file, err)
	}
	return programs, nil
}

// programs finds all programs of the components, and copies this program to the data
// directory, so that the cluster does not depend on the checkout.
func (c *Cluster) programs(ctx context.Context, directories map[string]string) (component.Programs, error) {
	folder := c.bundledHost()
	runc, found := host.Find(host.Runc.In(folder).Candidates...)
	if !found {
		return component.Programs{}, errors.New("runc is not on PATH, although its package is installed")
	}
	bridge, found := host.Find(host.CNI.In(folder).Candidates...)
	if !found {
		return component.Programs{}, errors.New("the CNI plugin `bridge` is missing, although its package is installed")
	}
	runtime, err := c.runtime(ctx, runc)
	if err != nil {
		return component.Programs{}, fmt.Errorf("images of the machine's programs: %w", err)
	}
	tool := filepath.Join(c.Layout.Data, "bin", "cluster")
	if err := copySelf(tool); err != nil {
		return component.Programs{}, fmt.Errorf("copy this program: %w", err)
	}
	return component.Programs{
		Kubernetes: directories[build.Kubernetes(c.Layout)],
		Addons:     directories[build.DefaultKubernetes],
		Containerd: directories["containerd"],
		Pause:      directories["pause"],
		CNI:        filepath.Dir(bridge),
		Runc:       runtime,
		Host:       folder,
		Tool:       tool,
	}, nil
}

func copySelf(target string) error {
	self, err := os.Executable()
	if err != nil || self == target {
		return err
	}
	source, err := os.Open(self)
	if err != nil {
		return err
	}
	defer source.Close()
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	// A new file, because the old one may be running.
	partial := target + ".new"
	copied, err := os.OpenFile(partial, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(copied, source); err != nil {
		return errors.Join(err, copied.Close())
	}
	if err := copied.Close(); err != nil {
		return err
	}
	return os.Rename(partial, target)
}

// writeConfiguration writes certificates, kubeconfigs and configuration files.
func (c *Cluster) writeConfiguration(programs component.Programs) error {
	l := c.Layout
	for _, directory := range []string{l.Config(), l.Logs(), l.PodLogs(), l.Volumes(), l.EtcdData(), l.ImageStore()} {
		if err := os.MkdirAll(directory, 0o700); err != nil {
			return fmt.Errorf("create directory: %w", err)
		}
	}
	// Pods of any user must be able to traverse it to reach their volume.
	if err := os.Chmod(l.Volumes(), 0o711); err != nil {
		return fmt.Errorf("create directory: %w", err)
	}
	for authority, leaves := range component.Leaves(l) {
		signer, err := pki.Open(l.PKI(), authority, time.Now())
		if err != nil {
			return err
		}
		for _, leaf := range leaves {
			if err := signer.Issue(leaf); err != nil {
				return err
			}
		}
	}
	if err := pki.ServiceAccountKey(l.PKI()); err != nil {
		return err
	}
	if err := c.writeKubeconfigs(); err != nil {
		return err
	}
	files, err := component.Files(l, programs)
	if err != nil {
		return err
	}
	files[l.ReleaseRecord()] = []byte(l.Kubernetes.Release + "\n")
	files[c.programsFile()], err = json.Marshal(programs)
	if err != nil {
		return err
	}
	return errors.Join(writeFiles(files), c.linkJobSetCertificate())
}

func (c *Cluster) programsFile() string { return filepath.Join(c.Layout.Config(), "programs.json") }

func (c *Cluster) writeKubeconfigs() error {
	l := c.Layout
	targets := map[string]string{"admin": l.AdminKubeconfig()}
	for _, name := range component.Clients() {
		targets[name] = l.Kubeconfig(name)
	}
	for leaf, file := range targets {
		err := pki.WriteKubeconfig(file, l.Network.APIServer(), l.Name, l.PKI(), component.ClusterAuthority, leaf)
		if err != nil {
			return err
		}
	}
	return nil
}

// writeFiles leaves files as they are that have the content already: kube-proxy exits when
// its configuration is written.
func writeFiles(files map[string][]byte) error {
	for path, content := range files {
		if current, err := os.ReadFile(path); err == nil && bytes.Equal(current, content) {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return fmt.Errorf("configuration file: %w", err)
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return fmt.Errorf("configuration file: %w", err)
		}
	}
	return nil
}

// linkJobSetCertificate links JobSet's certificate to the file names that its webhook
// server expects.
func (c *Cluster) linkJobSetCertificate() error {
	directory := filepath.Join(c.Layout.Config(), "jobset-certificate")
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return err
	}
	for name, target := range map[string]string{"tls.crt": "jobset.crt", "tls.key": "jobset.key"} {
		link := filepath.Join(directory, name)
		if err := os.Remove(link); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if err := os.Symlink(filepath.Join(c.Layout.PKI(), target), link); err != nil {
			return err
		}
	}
	return nil
}
