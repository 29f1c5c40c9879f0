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

// ArrangeMounts is called first thing in a new mount namespace: what is
// mounted there from now on is the cluster's own affair and ends with its last
// process. Each of the paths becomes a directory of ours.
func ArrangeMounts(paths map[string]string) error {
	// Shared among the cluster's processes, which is what volumes with mount
	// propagation ask for; cut off from the machine it already is.
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

// EnterMountNamespace moves the calling thread, which must be locked to its
// goroutine for good, into the mount namespace of a process.
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

// Unmount makes sure that nothing is mounted below the directories, before
// somebody deletes them: deleting through a mount would delete what it shows.
func Unmount(directories ...string) error {
	var places []string
	for _, directory := range directories {
		// The kernel lists places, not the links that lead to them.
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
