// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/trireme-mpi/trireme/cluster/internal/layout"
)

// The cluster has its own network namespace, connected to the machine by one pair of
// devices. Ports, firewall rules and bridges of the machine do not affect it, there
// is no egress, and deleting the namespace deletes every rule and device that
// kube-proxy and the CNI plugins created.
const nodeLink = "node0"

// CreateNetwork creates the namespace and the link if they do not exist.
func CreateNetwork(l layout.Layout) error {
	if link, err := netlink.LinkByName(l.HostDevice()); err == nil {
		addresses, err := netlink.AddrList(link, netlink.FAMILY_V4)
		if err != nil {
			return fmt.Errorf("addresses of device %s: %w", l.HostDevice(), err)
		}
		isHost := func(address netlink.Addr) bool { return address.IP.Equal(l.Network.Host().AsSlice()) }
		if len(addresses) > 0 && !slices.ContainsFunc(addresses, isHost) {
			return fmt.Errorf("device %s of this cluster has %s, which is not an address of %s; stop the cluster with `down` first",
				l.HostDevice(), addresses[0].IPNet, l.Network.Block)
		}
		if _, err := os.Stat(l.NetworkNamespace()); err == nil && len(addresses) > 0 {
			return nil
		}
	}
	if err := DeleteNetwork(l); err != nil {
		return err
	}
	if err := createNamespace(l.Name); err != nil {
		return fmt.Errorf("create network namespace %s: %w", l.Name, err)
	}
	if err := createLink(l); err != nil {
		return errors.Join(fmt.Errorf("create network link %s: %w", l.HostDevice(), err), DeleteNetwork(l))
	}
	return nil
}

// createNamespace needs a separate thread: creating a named namespace moves the
// thread into it, even if it fails halfway.
func createNamespace(name string) error {
	return onThreadOfItsOwn(func() error {
		created, err := netns.NewNamed(name)
		if err != nil {
			return err
		}
		return created.Close()
	})
}

func createLink(l layout.Layout) error {
	n := l.Network
	space, err := netns.GetFromName(l.Name)
	if err != nil {
		return err
	}
	defer space.Close()
	pair := &netlink.Veth{
		LinkAttrs:     netlink.LinkAttrs{Name: l.HostDevice()},
		PeerName:      nodeLink,
		PeerNamespace: netlink.NsFd(space),
	}
	if err := netlink.LinkAdd(pair); err != nil {
		return err
	}
	machine, err := netlink.NewHandle()
	if err != nil {
		return err
	}
	defer machine.Close()
	inside, err := netlink.NewHandleAt(space)
	if err != nil {
		return err
	}
	defer inside.Close()
	if err := bringUp(inside, "lo", netip.Prefix{}); err != nil {
		return err
	}
	if err := bringUp(inside, nodeLink, netip.PrefixFrom(n.Node(), n.Link().Bits())); err != nil {
		return err
	}
	if err := bringUp(machine, l.HostDevice(), netip.PrefixFrom(n.Host(), n.Link().Bits())); err != nil {
		return err
	}
	if err := routeServices(inside, n); err != nil {
		return err
	}
	return machine.RouteAdd(&netlink.Route{Dst: ipNet(n.Block), Gw: n.Node().AsSlice()})
}

// routeServices adds a route for ClusterIPs, because the kernel needs one before
// kube-proxy's rules rewrite the address. Packets to an address without rules end at
// the link and do not leave the machine.
func routeServices(inside *netlink.Handle, n layout.Network) error {
	link, err := inside.LinkByName(nodeLink)
	if err != nil {
		return err
	}
	return inside.RouteAdd(&netlink.Route{
		LinkIndex: link.Attrs().Index,
		Dst:       ipNet(n.Services()),
		Src:       n.Node().AsSlice(),
		Scope:     netlink.SCOPE_LINK,
	})
}

func bringUp(handle *netlink.Handle, name string, address netip.Prefix) error {
	link, err := handle.LinkByName(name)
	if err != nil {
		return fmt.Errorf("device %s: %w", name, err)
	}
	if address.IsValid() {
		bits := net.CIDRMask(address.Bits(), 32)
		err := handle.AddrAdd(link, &netlink.Addr{IPNet: &net.IPNet{IP: address.Addr().AsSlice(), Mask: bits}})
		if err != nil {
			return fmt.Errorf("address of device %s: %w", name, err)
		}
	}
	if err := handle.LinkSetUp(link); err != nil {
		return fmt.Errorf("device %s: %w", name, err)
	}
	return nil
}

func ipNet(prefix netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), 32)}
}

// DeleteNetwork undoes CreateNetwork. It ignores what does not exist.
func DeleteNetwork(l layout.Layout) error {
	if link, err := netlink.LinkByName(l.HostDevice()); err == nil {
		if err := netlink.LinkDel(link); err != nil {
			return fmt.Errorf("delete network link %s: %w", l.HostDevice(), err)
		}
	}
	err := netns.DeleteNamed(l.Name)
	if errors.Is(err, syscall.EINVAL) {
		// Nothing is mounted: the file is left from before the last reboot.
		err = os.Remove(l.NetworkNamespace())
	}
	if errors.Is(err, syscall.EBUSY) {
		// The first `ip netns add` of a machine mounts the folder on itself, and so hides the
		// namespaces that are there.
		folder := filepath.Dir(l.NetworkNamespace())
		return fmt.Errorf("delete network namespace %s: %s is mounted over it, for example by ip netns add; run umount %s, then try again: %w", l.Name, folder, folder, err)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("delete network namespace %s: %w", l.Name, err)
	}
	return nil
}

// InNamespace runs a function on a thread inside the cluster's network namespace, so
// that processes it starts run there.
func InNamespace(l layout.Layout, run func() error) error {
	return onThreadOfItsOwn(func() error {
		space, err := netns.GetFromName(l.Name)
		if err != nil {
			return fmt.Errorf("open network namespace %s: %w", l.Name, err)
		}
		defer space.Close()
		if err := netns.Set(space); err != nil {
			return fmt.Errorf("enter network namespace %s: %w", l.Name, err)
		}
		return run()
	})
}

// onThreadOfItsOwn runs work that makes its thread unusable for anything else: the
// thread, never unlocked, exits with the goroutine. The main thread cannot exit, and
// its namespaces count as those of the process; so it is locked while another thread
// does the work.
func onThreadOfItsOwn(work func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		if syscall.Gettid() == os.Getpid() {
			defer runtime.UnlockOSThread()
			result <- onThreadOfItsOwn(work)
			return
		}
		result <- work()
	}()
	return <-result
}

// PortHolders returns the process (0 if it is not visible) that listens on each of the
// ports inside the cluster's network namespace: a leftover of a cluster that was not
// stopped properly, or a process that a user started there.
func PortHolders(l layout.Layout, ports []int) (map[int]int, error) {
	holders := map[int]int{}
	err := InNamespace(l, func() error {
		for _, port := range ports {
			listener, err := net.Listen("tcp4", fmt.Sprintf("0.0.0.0:%d", port))
			if err == nil {
				listener.Close()
				continue
			}
			holders[port] = listenerOf(port)
		}
		return nil
	})
	return holders, err
}

// listenerOf finds the process that listens on a port by the inode of the socket, like
// `ss -p`. It runs on a thread inside the namespace.
func listenerOf(port int) int {
	const listening, addressField, stateField, inodeField = "0A", 1, 3, 9
	for _, table := range []string{"tcp", "tcp6"} {
		content, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/net/%s", syscall.Gettid(), table))
		if err != nil {
			continue
		}
		for _, line := range strings.Split(string(content), "\n") {
			fields := strings.Fields(line)
			if len(fields) > inodeField && fields[stateField] == listening &&
				strings.HasSuffix(fields[addressField], fmt.Sprintf(":%04X", port)) {
				return socketHolder(fields[inodeField])
			}
		}
	}
	return 0
}

func socketHolder(inode string) int {
	descriptors, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, descriptor := range descriptors {
		if target, err := os.Readlink(descriptor); err == nil && target == "socket:["+inode+"]" {
			return pidOf(descriptor)
		}
	}
	return 0
}

// ArrangeForwarding is called inside the cluster's network namespace. Packets
// between pods and Services are routed, whether or not the machine has the
// module that would also filter them on the bridge: with it, a pod could not
// reach itself through a Service.
func ArrangeForwarding() error {
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644); err != nil {
		return fmt.Errorf("let pods reach each other: %w", err)
	}
	err := os.WriteFile("/proc/sys/net/bridge/bridge-nf-call-iptables", []byte("0"), 0o644)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("keep the bridge from filtering: %w", err)
	}
	return nil
}
