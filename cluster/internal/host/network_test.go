// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/trireme-mpi/trireme/cluster/internal/layout"
)

// newNetwork is the test cluster's, in a "machine" that is the test's own.
func newNetwork(t *testing.T) layout.Layout {
	t.Helper()
	privateNetwork(t)
	l := testLayout(t, "10.190.0.0/16")
	remove := func() {
		if err := DeleteNetwork(l); err != nil {
			t.Errorf("clean up: %v", err)
		}
	}
	remove() // what a test that was killed has left
	t.Cleanup(remove)
	if err := CreateNetwork(l); err != nil {
		t.Fatal(err)
	}
	return l
}

// ipv4 is what a device has, in the namespace of the calling thread.
func ipv4(t *testing.T, name string) []string {
	t.Helper()
	link, err := netlink.LinkByName(name)
	if err != nil {
		t.Error(err)
		return nil
	}
	if link.Attrs().Flags&net.FlagUp == 0 {
		t.Errorf("device %s is down", name)
	}
	addresses, err := netlink.AddrList(link, netlink.FAMILY_V4)
	if err != nil {
		t.Error(err)
	}
	var all []string
	for _, address := range addresses {
		all = append(all, address.IPNet.String())
	}
	return all
}

func TestNetworkComesAndGoes(t *testing.T) {
	l := newNetwork(t)
	if diff := cmp.Diff([]string{"10.190.0.1/24"}, ipv4(t, "ut-net0")); diff != "" {
		t.Errorf("addresses of the machine's end (-want +got):\n%s", diff)
	}
	err := InNamespace(l, func() error {
		if diff := cmp.Diff([]string{"10.190.0.2/24"}, ipv4(t, "node0")); diff != "" {
			t.Errorf("addresses of the cluster's end (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"127.0.0.1/8"}, ipv4(t, "lo")); diff != "" {
			t.Errorf("addresses of the loopback (-want +got):\n%s", diff)
		}
		routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
		if err != nil {
			return err
		}
		for _, route := range routes {
			if route.Gw != nil || route.Dst == nil || route.Dst.IP.IsUnspecified() {
				t.Errorf("route %s leads out of the cluster", route)
			}
		}
		if !slices.ContainsFunc(routes, func(r netlink.Route) bool { return r.Dst.String() == "10.190.64.0/18" }) {
			t.Errorf("no route to Services among %v", routes)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(routes, func(r netlink.Route) bool {
		return r.Dst != nil && r.Dst.String() == "10.190.0.0/16" && r.Gw.String() == "10.190.0.2"
	}) {
		t.Errorf("the machine has no route to the cluster among %v", routes)
	}
	// Its own device does not make a block taken: `up` after a crash.
	if err := CheckNetwork(l); err != nil {
		t.Errorf("the cluster is in its own way: %v", err)
	}

	if err := DeleteNetwork(l); err != nil {
		t.Fatal(err)
	}
	if _, err := netlink.LinkByName("ut-net0"); err == nil {
		t.Error("the device is left")
	}
	if _, err := os.Stat("/run/netns/ut-net"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the namespace is left (%v)", err)
	}
	if err := DeleteNetwork(l); err != nil {
		t.Errorf("deleting what is not there: %v", err)
	}
	if err := InNamespace(l, func() error { return nil }); err == nil || !strings.Contains(err.Error(), "ut-net") {
		t.Errorf("error %v does not name the namespace that is missing", err)
	}
}

func TestMachineReachesTheCluster(t *testing.T) {
	l := newNetwork(t)
	var listener net.Listener
	err := InNamespace(l, func() (err error) {
		listener, err = net.Listen("tcp4", "10.190.0.2:6443")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	// On this thread, which is the machine.
	connection, err := net.DialTimeout("tcp4", "10.190.0.2:6443", 5*time.Second)
	if err != nil {
		t.Fatalf("the node does not answer: %v", err)
	}
	connection.Close()
	if remote := connection.LocalAddr().(*net.TCPAddr).IP.String(); remote != "10.190.0.1" {
		t.Errorf("the cluster sees the machine as %s", remote)
	}
}

func TestExistingNetworkIsKept(t *testing.T) {
	l := newNetwork(t)
	child := startInNamespace(t, l)
	before, err := netlink.LinkByName("ut-net0")
	if err != nil {
		t.Fatal(err)
	}
	if err := CreateNetwork(l); err != nil {
		t.Fatal(err)
	}
	after, err := netlink.LinkByName("ut-net0")
	if err != nil {
		t.Fatal(err)
	}
	if before.Attrs().Index != after.Attrs().Index {
		t.Error("the device was made anew: pods that survived a supervisor would be cut off")
	}
	if diff := cmp.Diff([]int{child.Process.Pid}, InNetworkNamespace(l.NetworkNamespace())); diff != "" {
		t.Errorf("processes in the namespace (-want +got):\n%s", diff)
	}
}

// ip netns add mounts the folder of the namespaces over itself. The test does so where no
// other process sees it.
func TestAHiddenNamespaceIsNotDeleted(t *testing.T) {
	l := newNetwork(t)
	err := onThreadOfItsOwn(func() error {
		if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
			return err
		}
		folder := filepath.Dir(l.NetworkNamespace())
		if err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount(folder, folder, "", unix.MS_BIND, "")); err != nil {
			return err
		}
		if err := DeleteNetwork(l); err == nil || !strings.Contains(err.Error(), "umount "+folder) {
			t.Errorf("deleting a namespace that is hidden: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func startInNamespace(t *testing.T, l layout.Layout) *exec.Cmd {
	t.Helper()
	command := exec.Command("sleep", "600")
	if err := InNamespace(l, command.Start); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	return command
}

func TestNetworkOfAnotherBlockIsNotTakenOver(t *testing.T) {
	l := newNetwork(t)
	l.Network = testLayout(t, "10.189.0.0/16").Network
	err := CreateNetwork(l)
	if err == nil {
		t.Fatalf("a cluster on %s would run on addresses %v", l.Network.Block, ipv4(t, "ut-net0"))
	}
	for _, want := range []string{"ut-net0", "10.190.0.1/24", "10.189.0.0/16", "`down`"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not say %s", err, want)
		}
	}
}

func TestHalfMadeNetworksAreMadeAnew(t *testing.T) {
	tests := map[string]func(t *testing.T, l layout.Layout){
		"the device is missing": func(t *testing.T, l layout.Layout) {
			link, err := netlink.LinkByName(l.HostDevice())
			if err != nil {
				t.Fatal(err)
			}
			if err := netlink.LinkDel(link); err != nil {
				t.Fatal(err)
			}
		},
		"the device has no address yet": func(t *testing.T, l layout.Layout) {
			link, err := netlink.LinkByName(l.HostDevice())
			if err != nil {
				t.Fatal(err)
			}
			address, err := netlink.ParseAddr("10.190.0.1/24")
			if err != nil {
				t.Fatal(err)
			}
			if err := netlink.AddrDel(link, address); err != nil {
				t.Fatal(err)
			}
		},
		// As in a container that was stopped and started: files outlive mounts.
		"the namespace's file is left without the namespace": func(t *testing.T, l layout.Layout) {
			if err := DeleteNetwork(l); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(l.NetworkNamespace(), nil, 0o444); err != nil {
				t.Fatal(err)
			}
		},
	}
	for sentence, damage := range tests {
		t.Run(sentence, func(t *testing.T) {
			l := newNetwork(t)
			damage(t, l)
			if err := CreateNetwork(l); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{"10.190.0.1/24"}, ipv4(t, "ut-net0")); diff != "" {
				t.Errorf("addresses of the machine's end (-want +got):\n%s", diff)
			}
			if err := InNamespace(l, func() error {
				if diff := cmp.Diff([]string{"10.190.0.2/24"}, ipv4(t, "node0")); diff != "" {
					t.Errorf("addresses of the cluster's end (-want +got):\n%s", diff)
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestInNamespacePassesTheErrorOn(t *testing.T) {
	l := newNetwork(t)
	broken := errors.New("broken")
	if err := InNamespace(l, func() error { return broken }); !errors.Is(err, broken) {
		t.Errorf("error %v, want the function's own", err)
	}
	// The calling thread stays where it was, which is not inside.
	if _, err := netlink.LinkByName("node0"); err == nil {
		t.Error("the calling thread is inside the cluster's namespace")
	}
}

func TestPortHolders(t *testing.T) {
	l := newNetwork(t)
	listen := func(network, address string) {
		t.Helper()
		err := InNamespace(l, func() error {
			listener, err := net.Listen(network, address)
			if err == nil {
				t.Cleanup(func() { listener.Close() })
			}
			return err
		})
		if err != nil {
			t.Skipf("cannot listen on %s: %v", address, err)
		}
	}
	listen("tcp4", "127.0.0.1:6443")
	listen("tcp", "[::]:2379")
	// The same port on the machine is nobody's business.
	machine, err := net.Listen("tcp4", "0.0.0.0:10250")
	if err != nil {
		t.Fatal(err)
	}
	defer machine.Close()
	got, err := PortHolders(l, []int{6443, 2379, 10250, 10257})
	if err != nil {
		t.Fatal(err)
	}
	want := map[int]int{6443: os.Getpid(), 2379: os.Getpid()}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("holders (-want +got):\n%s", diff)
	}
}

func TestPortHoldersNeedsTheNamespace(t *testing.T) {
	needRoot(t)
	l := testLayout(t, "10.190.0.0/16")
	l.Name = "ut-none"
	if _, err := PortHolders(l, []int{6443}); err == nil {
		t.Error("no error for a namespace that does not exist")
	}
}

func TestClusterForwards(t *testing.T) {
	privateNetwork(t)
	const file = "/proc/sys/net/ipv4/ip_forward"
	if err := os.WriteFile(file, []byte("0"), 0o644); err != nil {
		t.Skipf("cannot change %s: %v", file, err)
	}
	if err := ArrangeForwarding(); err != nil {
		t.Fatal(err)
	}
	if value, err := os.ReadFile(file); err != nil || strings.TrimSpace(string(value)) != "1" {
		t.Errorf("forwarding is %q (%v), want 1", value, err)
	}
}
