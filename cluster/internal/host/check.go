// SPDX-License-Identifier: Apache-2.0

// Package host contains everything that depends on the machine: its requirements,
// what the cluster changes on it, and how to undo the changes.
package host

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/trireme-mpi/trireme/cluster/internal/layout"
)

// Disk space that is needed, with some reserve.
const (
	// A cold build: Go's caches and temporary files beside the programs.
	buildSpace = 8 << 30
	// Unpacked images and etcd; less if the images exist already.
	newDataSpace = 4 << 30
	oldDataSpace = 1 << 30
)

// CheckRoot fails if the user is not root. Starting and stopping a cluster need root.
func CheckRoot() error {
	if os.Geteuid() == 0 {
		return nil
	}
	return fmt.Errorf("user id %d is not root: namespaces, control groups and mounts need root; run the same command as root (note that sudo may not find Go on your PATH)", os.Geteuid())
}

// Check returns all reasons why a new cluster cannot run on this machine.
func Check(l layout.Layout) error {
	need := uint64(newDataSpace)
	if _, err := os.Stat(l.ImageStore()); err == nil {
		need = oldDataSpace
	}
	return errors.Join(checkSpace(l.Data, need, "TRIREME_CLUSTER_DATA"), checkCgroups(),
		CheckClaim(l.Data), CheckClaim(l.Run))
}

// CheckBuildSpace checks the disk space for a build that is not in the cache.
func CheckBuildSpace(l layout.Layout) error {
	return checkSpace(l.Cache, buildSpace, "TRIREME_CACHE")
}

func checkSpace(directory string, need uint64, variable string) error {
	existing := directory
	for {
		if _, err := os.Stat(existing); err == nil {
			break
		}
		existing = filepath.Dir(existing)
	}
	var stat unix.Statfs_t
	if err := unix.Statfs(existing, &stat); err != nil {
		return fmt.Errorf("check the disk of %s: %w", directory, err)
	}
	free := stat.Bavail * uint64(stat.Bsize)
	if free < need {
		return fmt.Errorf("disk of %s has %.1f GiB free, but %.0f GiB are needed; free space or use another directory with %s=DIRECTORY",
			directory, float64(free)/(1<<30), float64(need)/(1<<30), variable)
	}
	return nil
}

// CheckNetwork rejects a block that overlaps with addresses or routes of the
// machine: their traffic would go to the cluster.
func CheckNetwork(l layout.Layout) error {
	taken, err := takenBlocks(l.HostDevice())
	if err != nil {
		return err
	}
	for _, block := range taken {
		if block.prefix.Overlaps(l.Network.Block) {
			return fmt.Errorf("network %s is in use: device %s%s has %s; %s",
				l.Network.Block, block.link.Attrs().Name, ownerOf(block.link), block.prefix, suggestBlock(taken))
		}
	}
	return nil
}

// block is a range of addresses that the machine reaches by a device.
type block struct {
	prefix netip.Prefix
	link   netlink.Link
}

func takenBlocks(exceptDevice string) (taken []block, err error) {
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		return nil, fmt.Errorf("list the machine's routes: %w", err)
	}
	addresses, err := netlink.AddrList(nil, netlink.FAMILY_V4)
	if err != nil {
		return nil, fmt.Errorf("list the machine's addresses: %w", err)
	}
	// Most addresses also have a route to their block, but not all.
	for _, address := range addresses {
		routes = append(routes, netlink.Route{LinkIndex: address.LinkIndex, Dst: netlink.NewIPNet(address.IP)})
	}
	for _, route := range routes {
		if route.Dst == nil {
			continue
		}
		bits, _ := route.Dst.Mask.Size()
		address, ok := netip.AddrFromSlice(route.Dst.IP.To4())
		if !ok || bits == 0 {
			continue
		}
		link, err := netlink.LinkByIndex(route.LinkIndex)
		if err != nil || link.Attrs().Name == exceptDevice {
			continue
		}
		taken = append(taken, block{netip.PrefixFrom(address, bits), link})
	}
	return taken, nil
}

// suggestBlock suggests a free block of the private ranges.
func suggestBlock(taken []block) string {
	for _, candidate := range []string{"10.199.0.0/16", "10.77.0.0/16", "172.29.0.0/16", "172.21.0.0/16", "192.168.0.0/16"} {
		prefix := netip.MustParsePrefix(candidate)
		if !slices.ContainsFunc(taken, func(b block) bool { return b.prefix.Overlaps(prefix) }) {
			return "choose another block with --network, such as " + candidate
		}
	}
	return "choose another block with --network"
}

// ownerOf guesses the program that created a device by the name of the device: the
// kernel does not record it.
func ownerOf(link netlink.Link) string {
	name := link.Attrs().Name
	for prefix, owner := range map[string]string{
		"docker": "Docker", "br-": "Docker", "cni": "a CNI plugin", "flannel": "flannel", "cali": "Calico",
		"virbr": "libvirt", "podman": "Podman", "wg": "WireGuard", "tailscale": "Tailscale",
	} {
		if strings.HasPrefix(name, prefix) {
			return fmt.Sprintf(" (of %s)", owner)
		}
	}
	if strings.HasPrefix(name, "tun") || strings.HasPrefix(name, "tap") {
		if pid := tunHolder(name); pid != 0 {
			return fmt.Sprintf(" (held by %s)", Describe(pid))
		}
	}
	return ""
}

// tunHolder finds the process that keeps a tun or tap device open.
func tunHolder(device string) int {
	infos, _ := filepath.Glob("/proc/[0-9]*/fdinfo/*")
	for _, info := range infos {
		content, err := os.ReadFile(info)
		if err == nil && strings.Contains(string(content), "iff:\t"+device+"\n") {
			return pidOf(info)
		}
	}
	return 0
}

// Find returns the first candidate that exists: an absolute path, or a name on PATH.
func Find(candidates ...string) (string, bool) {
	for _, candidate := range candidates {
		if path, err := exec.LookPath(candidate); err == nil {
			return path, true
		}
	}
	return "", false
}
