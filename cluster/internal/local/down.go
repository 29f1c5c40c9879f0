package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/trireme-mpi/trireme/cluster/internal/host"
)

// Down ends the cluster as switching a machine off would: its data stay, and
// pods start again with it. It works on whatever is left of a cluster, and on
// nothing.
func (c *Cluster) Down(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("user id %d is not root: only root can end the cluster; run the same command with sudo", os.Geteuid())
	}
	if report, err := c.Running(ctx); err == nil {
		err := c.Progress.Step("stop components", func() error { return endSupervisor(ctx, report.PID) })
		if err != nil {
			return err
		}
	}
	return c.Progress.Step("remove processes, network and control groups", c.sweep)
}

// endSupervisor gives it time to let etcd write its last words.
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

// sweep removes what the cluster has on the machine besides its data. Mounts
// go with the last process that can see them.
func (c *Cluster) sweep() error {
	processes := func() []int {
		return append(host.InNetworkNamespace(c.Layout.NetworkNamespace()), host.InCgroup(c.Layout.Name)...)
	}
	if err := host.Kill(processes, 10*time.Second); err != nil {
		return err
	}
	return errors.Join(
		host.DeleteNetwork(c.Layout),
		host.RemoveCgroup(c.Layout.Name),
		host.Restore(c.Layout.SupervisorState()),
		c.removeDirectories(c.Layout.Run),
	)
}

func (c *Cluster) removeDirectories(directories ...string) error {
	if err := host.Unmount(directories...); err != nil {
		return err
	}
	for _, directory := range directories {
		if err := os.RemoveAll(directory); err != nil {
			return fmt.Errorf("remove %s: %w", directory, err)
		}
	}
	return nil
}

// Reset ends the cluster and forgets everything it held. Images stay, because
// loading them again is slow and says nothing new, unless they are to go too.
func (c *Cluster) Reset(ctx context.Context, images bool) error {
	if err := c.Down(ctx); err != nil {
		return err
	}
	return c.Progress.Step("forget the cluster's data", func() error {
		entries, err := os.ReadDir(c.Layout.Data)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("forget the cluster's data: %w", err)
		}
		for _, entry := range entries {
			path := c.Layout.Data + "/" + entry.Name()
			if path == c.Layout.ImageStore() && !images {
				continue
			}
			if err := c.removeDirectories(path); err != nil {
				return err
			}
		}
		return nil
	})
}
