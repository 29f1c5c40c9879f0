// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/trireme-mpi/trireme/cluster/internal/host"
)

// Down stops the cluster like switching off a machine: its data is kept, and pods
// start again with it. It also works if the cluster is running only in part, or not
// at all.
func (c *Cluster) Down(ctx context.Context) error {
	return c.exclusively(ctx, func() error { return c.down(ctx) })
}

func (c *Cluster) down(ctx context.Context) error {
	if report, err := c.Running(ctx); err == nil {
		err := c.Progress.Step("stop components", func() error { return endSupervisor(ctx, report.PID) })
		if err != nil {
			return err
		}
	}
	return c.Progress.Step("remove processes, network and control groups", func() error { return c.sweep(ctx) })
}

// endSupervisor stops the supervisor and gives etcd time to write its data.
func endSupervisor(ctx context.Context, pid int) error {
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("end supervisor: %w", err)
	}
	err := poll(ctx, 8*time.Second, func() (bool, error) { return !host.Alive(pid), nil })
	if errors.Is(err, errPatience) {
		return nil // the sweep is not polite
	}
	return err
}

// sweep removes everything of the cluster from the machine except its data. Mounts
// disappear with the last process in the mount namespace.
func (c *Cluster) sweep(ctx context.Context) error {
	processes := func() []int {
		return append(host.InNetworkNamespace(c.Layout.NetworkNamespace()), host.InCgroup(c.Layout.Name)...)
	}
	if err := host.Kill(processes, 10*time.Second); err != nil {
		return err
	}
	return errors.Join(
		host.DeleteNetwork(c.Layout),
		host.RemoveCgroup(c.Layout.Name),
		host.Restore(ctx, c.Layout.MachineRecord(), c.Layout.Name),
		removeClaimed(c.Layout.Run, nil),
	)
}

// removeClaimed deletes a directory of a cluster, except for one entry if keep is set.
// Nothing may be mounted below it: deleting through a mount would delete the mounted
// files.
func removeClaimed(directory string, keep *string) error {
	if !host.Claimed(directory) {
		return host.CheckClaim(directory)
	}
	if err := host.Unmount(directory); err != nil {
		return err
	}
	if keep == nil {
		return os.RemoveAll(directory)
	}
	entries, err := os.ReadDir(directory)
	if err != nil {
		return fmt.Errorf("remove %s: %w", directory, err)
	}
	for _, entry := range entries {
		path := filepath.Join(directory, entry.Name())
		if path == *keep || host.IsClaimMark(path) {
			continue
		}
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("remove %s: %w", path, err)
		}
	}
	return nil
}

// Reset stops the cluster and deletes its data. It keeps loaded images, because loading
// them again is slow, unless images is set.
func (c *Cluster) Reset(ctx context.Context, images bool) error {
	return c.exclusively(ctx, func() error { return c.reset(ctx, images) })
}

func (c *Cluster) reset(ctx context.Context, images bool) error {
	if err := c.down(ctx); err != nil {
		return err
	}
	return c.Progress.Step("delete the cluster's data", func() error {
		if images {
			return removeClaimed(c.Layout.Data, nil)
		}
		store := c.Layout.ImageStore()
		return removeClaimed(c.Layout.Data, &store)
	})
}
