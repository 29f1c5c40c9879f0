// Package host is the only part that knows the machine: what it must offer,
// what the cluster changes on it, and how that is undone.
package host

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/trireme-mpi/trireme/cluster/internal/layout"
)

// Required space, with a little air: built binaries and images on the one
// side, unpacked images and etcd on the other.
const (
	cacheSpace = 3 << 30
	dataSpace  = 4 << 30
)

// Check says whether a cluster can run here, naming everything that is wrong.
func Check(l layout.Layout) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("user id %d is not root: namespaces, cgroups and mounts need it; run the same command with sudo", os.Geteuid())
	}
	return errors.Join(
		checkSpace(l.Cache, cacheSpace, "TRIREME_CACHE"),
		checkSpace(l.Data, dataSpace, "TRIREME_CLUSTER_DATA"),
		checkCgroups(),
	)
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
		return fmt.Errorf("look at the disk of %s: %w", directory, err)
	}
	free := stat.Bavail * uint64(stat.Bsize)
	if free < need {
		return fmt.Errorf("disk of %s has %.1f GiB free, %.0f are needed; free some or put it elsewhere with %s=DIRECTORY",
			directory, float64(free)/(1<<30), float64(need)/(1<<30), variable)
	}
	return nil
}

// CheckNetwork refuses a block that overlaps with addresses or routes which
// the machine already has: their traffic would silently end in the cluster.
func CheckNetwork(l layout.Layout) error {
	n := l.Network
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		return fmt.Errorf("list the machine's routes: %w", err)
	}
	addresses, err := netlink.AddrList(nil, netlink.FAMILY_V4)
	if err != nil {
		return fmt.Errorf("list the machine's addresses: %w", err)
	}
	// Most come with a route to their block, which says more; not all do.
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
		if err != nil || link.Attrs().Name == l.HostDevice() {
			continue
		}
		taken := netip.PrefixFrom(address, bits)
		if taken.Overlaps(n.Block) {
			return fmt.Errorf("network %s is taken: device %s%s has %s; choose another block with --network, such as 10.77.0.0/16",
				n.Block, link.Attrs().Name, ownerOf(link), taken)
		}
	}
	return nil
}

// ownerOf guesses, from the ways that well-known programs name their devices,
// whose the device is: the kernel does not record which process made it.
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

// Find gives the first of the candidates that exists: an absolute path, or a
// name on PATH.
func Find(candidates ...string) (string, bool) {
	for _, candidate := range candidates {
		if path, err := exec.LookPath(candidate); err == nil {
			return path, true
		}
	}
	return "", false
}
