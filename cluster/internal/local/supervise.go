// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trireme-mpi/trireme/cluster/internal/addon"
	"github.com/trireme-mpi/trireme/cluster/internal/component"
	"github.com/trireme-mpi/trireme/cluster/internal/host"
	"github.com/trireme-mpi/trireme/cluster/internal/layout"
	"github.com/trireme-mpi/trireme/cluster/internal/supervisor"
)

// startSupervisor starts this program again, in the cluster's network and mount
// namespaces, and waits until it answers. If pods of an earlier supervisor are still
// running, it uses their mount namespace: the kubelet must see their volumes.
func (c *Cluster) startSupervisor(ctx context.Context) error {
	log, err := os.OpenFile(c.Layout.Log("supervisor"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	command := exec.Command(filepath.Join(c.Layout.Data, "bin", "cluster"), "supervise", "--name", c.Layout.Name, "--network", c.Layout.Network.Block.String())
	if c.Layout.NetworkPolicies {
		command.Args = append(command.Args, "--network-policies")
	}
	command.Dir = "/"
	command.Stdout, command.Stderr = log, log
	// Not the environment of the user's shell: it may set a proxy.
	command.Env = []string{
		"PATH=/usr/sbin:/usr/bin:/sbin:/bin",
		"TRIREME_CACHE=" + c.Layout.Cache,
		"TRIREME_CLUSTER_DATA=" + c.Layout.Data,
		"TRIREME_CLUSTER_RUN=" + c.Layout.Run,
		layout.KubernetesVariable + "=" + c.Layout.Kubernetes.Release,
	}
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	survivor := c.survivor()
	if survivor == 0 {
		command.Args = append(command.Args, "--new-mounts")
		command.SysProcAttr.Unshareflags = unix.CLONE_NEWNS
	}
	err = host.InNamespace(c.Layout, func() error {
		if survivor != 0 {
			if err := host.EnterMountNamespace(survivor); err != nil {
				return err
			}
		}
		return command.Start()
	})
	if err != nil {
		return fmt.Errorf("start the supervisor: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		_ = command.Wait()
		close(ended)
	}()
	err = poll(ctx, 10*time.Second, func() (bool, error) {
		select {
		case <-ended:
			return false, fmt.Errorf("the supervisor exited at once:\n%s", logTail(c.Layout.Log("supervisor")))
		default:
		}
		_, err := c.Running(ctx)
		return err == nil, nil
	})
	if errors.Is(err, errPatience) {
		return fmt.Errorf("the supervisor does not answer; the end of its log:\n%s", logTail(c.Layout.Log("supervisor")))
	}
	return err
}

// survivor is a process in the mount namespace of a cluster whose supervisor was
// killed: the shim of a pod. Without pods, the mounts are not needed.
func (c *Cluster) survivor() int {
	for _, pid := range host.InNetworkNamespace(c.Layout.NetworkNamespace()) {
		executable, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		if err == nil && filepath.Base(executable) == "containerd-shim-runc-v2" {
			return pid
		}
	}
	return 0
}

// Supervise runs the supervisor until the context ends.
func Supervise(ctx context.Context, l layout.Layout, newMounts bool) error {
	if newMounts {
		if err := host.ArrangeMounts(l.HostPaths()); err != nil {
			return err
		}
	}
	if err := host.ArrangeForwarding(); err != nil {
		return err
	}
	host.ForgetShellLimits()
	c := &Cluster{Layout: l}
	programs, err := readPrograms(c.programsFile())
	if err != nil {
		return err
	}
	addons := supervisor.Task{
		Name:  component.AddonsTask,
		After: []string{"kube-apiserver"},
		Do: func(ctx context.Context) error {
			config, err := c.Config()
			if err != nil {
				return err
			}
			return addon.Apply(ctx, config, l, programs.Addons)
		},
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	s, err := supervisor.New(l, component.Environment(programs), component.All(l, programs), []supervisor.Task{addons}, log)
	if err != nil {
		return err
	}
	return s.Run(ctx)
}
