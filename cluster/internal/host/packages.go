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
	"strings"
	"time"
)

// Program is a program of a Debian package. The package is installed only if the
// program is missing, because installing Debian's runc would remove Docker, which has
// its own.
type Program struct {
	Package    string
	Candidates []string
}

// Programs that the cluster runs on.
var (
	Runc     = Program{"runc", []string{"runc", "/usr/sbin/runc"}}
	CNI      = Program{"containernetworking-plugins", []string{"/usr/lib/cni/bridge", "/opt/cni/bin/bridge"}}
	Nftables = Program{"nftables", []string{"nft", "/usr/sbin/nft"}}
)

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
	if err := apt(ctx, log, "update"); err != nil {
		return err
	}
	return apt(ctx, log, arguments...)
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
