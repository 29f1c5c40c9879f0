// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Program is a program of a Debian package. The package is installed only if the
// program is missing, because installing Debian's runc would remove Docker, which has
// its own.
type Program struct {
	Package    string
	Candidates []string
	// Bundled is the path in the folder of a bundle with programs of the machine.
	Bundled string
}

// Programs that the cluster runs on.
var (
	Runc     = Program{"runc", []string{"runc", "/usr/sbin/runc"}, "runc"}
	CNI      = Program{"containernetworking-plugins", []string{"/usr/lib/cni/bridge", "/opt/cni/bin/bridge"}, "cni/bridge"}
	Nftables = Program{"nftables", []string{"nft", "/usr/sbin/nft"}, "nft"}
	// CCompiler builds the one program that calls C.
	CCompiler = Program{"build-essential", []string{"gcc"}, ""}
	// Zstd compresses bundles; it is not needed to unpack one.
	Zstd = Program{"zstd", []string{"zstd"}, ""}
)

// In prefers the program of an unpacked bundle to that of the machine.
func (p Program) In(directory string) Program {
	if directory != "" {
		p.Candidates = append([]string{filepath.Join(directory, p.Bundled)}, p.Candidates...)
	}
	return p
}

// Install installs the packages of missing programs and changes nothing else: apt may
// not remove a package.
func Install(ctx context.Context, log io.Writer, programs ...Program) error {
	var missing []string
	for _, program := range programs {
		if _, found := Find(program.Candidates...); !found {
			missing = append(missing, program.Package)
		}
	}
	return InstallPackages(ctx, log, missing...)
}

// Try runs a program with arguments that only print something. It fails if the machine
// lacks what the program needs, such as a library.
func Try(ctx context.Context, program Program, arguments ...string) error {
	path, found := Find(program.Candidates...)
	if !found {
		return fmt.Errorf("none of %s exists", strings.Join(program.Candidates, ", "))
	}
	if output, err := exec.CommandContext(ctx, path, arguments...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s does not run on this machine: %w; install the package %s of this machine's distribution, and delete that file\n%s",
			path, err, program.Package, Tail(string(output), 5))
	}
	return nil
}

// InstallPackages installs Debian packages that are known to be missing.
func InstallPackages(ctx context.Context, log io.Writer, missing ...string) error {
	if len(missing) == 0 {
		return nil
	}
	if _, found := Find("apt-get"); !found {
		return fmt.Errorf("programs of the Debian packages %s are missing, and so is apt-get: install them manually (runc, nft, CNI plugins in /opt/cni/bin)",
			strings.Join(missing, ", "))
	}
	// A new machine may be installing updates: wait for the lock.
	arguments := append([]string{"install", "--yes", "--no-install-recommends", "--no-remove", "-o", "DPkg::Lock::Timeout=120"}, missing...)
	if err := apt(ctx, log, arguments...); err == nil {
		return nil
	}
	// A new machine has no package lists yet, an old one has stale ones.
	if err := updateLists(ctx, log, listsLock); err != nil {
		return err
	}
	return apt(ctx, log, arguments...)
}

// listsLock is the lock of apt-get update. DPkg::Lock::Timeout does not hold for it.
const listsLock = "/var/lib/apt/lists/lock"

// updateLists fetches the package lists. It retries for two minutes while another process
// does the same, such as web/npm in `make demo`.
func updateLists(ctx context.Context, log io.Writer, lock string) error {
	for deadline := time.Now().Add(2 * time.Minute); ; {
		wasLocked := isLocked(lock)
		err := apt(ctx, log, "update")
		if err == nil || !wasLocked && !isLocked(lock) || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(time.Second):
		}
	}
}

// isLocked tells whether another process has locked a file as apt does.
func isLocked(file string) bool {
	opened, err := os.Open(file)
	if err != nil {
		return false
	}
	defer opened.Close()
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	return unix.FcntlFlock(opened.Fd(), unix.F_GETLK, &lock) == nil && lock.Type != unix.F_UNLCK
}

func apt(ctx context.Context, log io.Writer, arguments ...string) error {
	var output bytes.Buffer
	command := exec.CommandContext(ctx, "apt-get", arguments...)
	// Do not kill apt-get: it would leave packages half configured.
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = 30 * time.Second
	command.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	command.Stdout = io.MultiWriter(&output, log)
	command.Stderr = command.Stdout
	if err := command.Run(); err != nil {
		return fmt.Errorf("apt-get %s: %w\n%s\nrepair apt (or install the packages manually) and retry",
			strings.Join(arguments, " "), errors.Join(err, ctx.Err()), Tail(output.String(), 8))
	}
	return nil
}

// Tail gives the last lines of a text, indented, for an error message.
func Tail(text string, lines int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	if len(all) > lines {
		all = all[len(all)-lines:]
	}
	return "    " + strings.Join(all, "\n    ")
}
