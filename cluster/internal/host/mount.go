// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// ArrangeMounts sets up a new mount namespace: later mounts are visible only in the
// cluster and disappear with its last process. It mounts our own directories over
// the paths.
func ArrangeMounts(paths map[string]string) error {
	// Shared among the cluster's processes, because volumes with mount propagation
	// need it; it is already separate from the machine.
	if err := unix.Mount("", "/", "", unix.MS_SHARED|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("share mounts inside the cluster: %w", err)
	}
	for path, ours := range paths {
		if err := os.MkdirAll(ours, 0o755); err != nil {
			return fmt.Errorf("mount over %s: %w", path, err)
		}
		if err := unix.Mount(ours, path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount over %s: %w", path, err)
		}
	}
	return nil
}

// EnterMountNamespace moves the calling thread, which must stay locked to its
// goroutine, into the mount namespace of a process.
func EnterMountNamespace(pid int) error {
	namespace, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", pid))
	if err != nil {
		return fmt.Errorf("open mount namespace of %s: %w", Describe(pid), err)
	}
	defer namespace.Close()
	// The kernel refuses threads that share their working directory.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("enter mount namespace of %s: %w", Describe(pid), err)
	}
	if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("enter mount namespace of %s: %w", Describe(pid), err)
	}
	return nil
}

// Unmount unmounts everything below the directories before they are deleted:
// deleting through a mount would delete the mounted files.
func Unmount(directories ...string) error {
	var places []string
	for _, directory := range directories {
		// The kernel lists resolved paths, not symbolic links.
		place, err := filepath.EvalSymlinks(directory)
		if err != nil {
			place = filepath.Clean(directory)
		}
		places = append(places, place)
	}
	mounts, err := mountinfo.GetMounts(func(info *mountinfo.Info) (skip, stop bool) {
		return !slices.ContainsFunc(places, func(directory string) bool {
			return info.Mountpoint == directory || strings.HasPrefix(info.Mountpoint, directory+"/")
		}), false
	})
	if err != nil {
		return fmt.Errorf("list mounts: %w", err)
	}
	var failures []error
	for _, mount := range slices.Backward(mounts) {
		if err := unix.Unmount(mount.Mountpoint, unix.MNT_DETACH); err != nil {
			failures = append(failures, fmt.Errorf("unmount %s: %w", mount.Mountpoint, err))
		}
	}
	return errors.Join(failures...)
}
