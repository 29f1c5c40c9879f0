// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/trireme-mpi/trireme/cluster/internal/layout"
)

const helperVariable = "TRIREME_TEST_HELPER"

// TestMain lets TestCheckNeedsRoot start this program as somebody else.
func TestMain(m *testing.M) {
	if os.Getenv(helperVariable) == "check" {
		fmt.Printf("CHECK %v\n", CheckRoot())
		return
	}
	os.Exit(m.Run())
}

func TestCheckNeedsRoot(t *testing.T) {
	// By this path everybody may start it, whatever folder it is in.
	command := exec.Command("/proc/self/exe")
	command.Env = append(os.Environ(), helperVariable+"=check")
	command.Dir = "/"
	wantUser := os.Geteuid()
	if wantUser == 0 {
		wantUser = 65534
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	want := fmt.Sprintf("CHECK user id %d is not root", wantUser)
	if !strings.Contains(string(output), want) || !strings.Contains(string(output), "sudo") {
		t.Errorf("output does not have %q and the way out:\n%s", want, output)
	}
}

func TestCheckNamesEverythingThatIsWrong(t *testing.T) {
	needRoot(t)
	directory := t.TempDir()
	mountTmpfs(t, directory, "size=1m")
	// Neither exists yet: the disk is that of the folder they will be made in.
	l := layout.Layout{Cache: filepath.Join(directory, "cache"), Data: filepath.Join(directory, "deep", "data")}
	if err := CheckBuildSpace(l); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("disk of %s has 0.0 GiB free, but 8 GiB are needed", l.Cache)) {
		t.Errorf("a cold build would fit on one megabyte: %v", err)
	}
	err := Check(l)
	if err == nil {
		t.Fatal("a disk of one megabyte is enough")
	}
	for _, want := range []string{
		fmt.Sprintf("disk of %s has 0.0 GiB free, but 4 GiB are needed", l.Data), "TRIREME_CLUSTER_DATA=DIRECTORY",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error does not say %q:\n%v", want, err)
		}
	}
}

func TestCheckSpace(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "not", "yet", "there")
	if err := checkSpace(directory, 1, "VARIABLE"); err != nil {
		t.Errorf("one byte is too much: %v", err)
	}
	err := checkSpace(directory, 1<<62, "VARIABLE")
	if err == nil || !strings.Contains(err.Error(), directory) || !strings.Contains(err.Error(), "VARIABLE=DIRECTORY") {
		t.Errorf("error %v does not name the directory and the way out", err)
	}
	if _, err := os.Stat(filepath.Dir(directory)); err == nil {
		t.Error("looking made directories")
	}
}

// device makes one that is up and has an address, in the test's own network.
func device(t *testing.T, link netlink.Link, address string) {
	t.Helper()
	if err := netlink.LinkAdd(link); err != nil {
		t.Skipf("cannot make a %s device: %v", link.Type(), err)
	}
	parsed, err := netlink.ParseAddr(address)
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.AddrAdd(link, parsed); err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		t.Fatal(err)
	}
}

func assertTaken(t *testing.T, block string, wants ...string) {
	t.Helper()
	err := CheckNetwork(testLayout(t, block))
	if err == nil {
		t.Errorf("block %s is free, it should be taken", block)
		return
	}
	for _, want := range append(wants, block, "--network") {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error does not say %q: %v", want, err)
		}
	}
}

func TestBlockOfAnotherDeviceIsRefused(t *testing.T) {
	privateNetwork(t)
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "docker7"}}
	device(t, bridge, "10.190.3.1/24")
	assertTaken(t, "10.190.0.0/16", "device docker7 (of Docker) has 10.190.3.0/24")

	if err := CheckNetwork(testLayout(t, "10.191.0.0/16")); err != nil {
		t.Errorf("the block beside is refused, too: %v", err)
	}
	// The way to everywhere is not the way to somewhere.
	if err := netlink.RouteAdd(&netlink.Route{LinkIndex: bridge.Attrs().Index, Gw: net.IPv4(10, 190, 3, 2)}); err != nil {
		t.Fatal(err)
	}
	if err := CheckNetwork(testLayout(t, "10.191.0.0/16")); err != nil {
		t.Errorf("a default route takes every block: %v", err)
	}
	// A larger block that another device leads to, as a VPN has it.
	_, vpn, _ := net.ParseCIDR("10.128.0.0/10")
	if err := netlink.RouteAdd(&netlink.Route{LinkIndex: bridge.Attrs().Index, Dst: vpn, Gw: net.IPv4(10, 190, 3, 2)}); err != nil {
		t.Fatal(err)
	}
	assertTaken(t, "10.191.0.0/16", "docker7", "10.128.0.0/10")
}

func TestBlockOfAnAddressWithoutRouteIsRefused(t *testing.T) {
	privateNetwork(t)
	// As a load balancer's or a VPN's address: no block comes with it.
	device(t, &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "vip0"}}, "10.190.0.2/32")
	assertTaken(t, "10.190.0.0/16", "device vip0 has 10.190.0.2/32")
	if err := CheckNetwork(testLayout(t, "10.191.0.0/16")); err != nil {
		t.Errorf("the block beside is refused, too: %v", err)
	}
}

func TestHolderOfATunnelIsNamed(t *testing.T) {
	privateNetwork(t)
	tunnel := &netlink.Tuntap{
		LinkAttrs: netlink.LinkAttrs{Name: "tun77"}, Mode: netlink.TUNTAP_MODE_TUN, Queues: 1, NonPersist: true,
		Flags: netlink.TUNTAP_DEFAULTS,
	}
	device(t, tunnel, "10.190.3.1/24")
	t.Cleanup(func() {
		for _, file := range tunnel.Fds {
			file.Close()
		}
	})
	assertTaken(t, "10.190.0.0/16", fmt.Sprintf("device tun77 (held by process %d (", os.Getpid()))
	if pid := tunHolder("tun7"); pid != 0 {
		t.Errorf("process %d holds tun77 and is taken for the holder of tun7", pid)
	}
}

func TestFind(t *testing.T) {
	directory := t.TempDir()
	program, text := filepath.Join(directory, "program"), filepath.Join(directory, "text")
	for file, mode := range map[string]os.FileMode{program: 0o755, text: 0o644} {
		if err := os.WriteFile(file, []byte("#!/bin/sh\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", directory)
	tests := map[string]struct {
		candidates []string
		want       string
	}{
		"a name on PATH":                       {candidates: []string{"program"}, want: program},
		"an absolute path":                     {candidates: []string{program}, want: program},
		"the first of two that exist":          {candidates: []string{"/bin/sh", "program"}, want: "/bin/sh"},
		"the second if there is no first":      {candidates: []string{"/nonexistent/program", "program"}, want: program},
		"a file that is not a program":         {candidates: []string{"text"}},
		"a directory":                          {candidates: []string{directory}},
		"none of them":                         {candidates: []string{"nobody", "/nonexistent"}},
		"no candidates":                        {},
		"an absolute path that is no program":  {candidates: []string{text}},
		"a program after one that cannot run ": {candidates: []string{text, "program"}, want: program},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			got, found := Find(test.candidates...)
			if got != test.want || found != (test.want != "") {
				t.Errorf("Find gives %q, %v, want %q", got, found, test.want)
			}
		})
	}
}
