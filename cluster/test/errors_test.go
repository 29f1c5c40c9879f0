// SPDX-License-Identifier: Apache-2.0

//go:build linux

package test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/trireme-mpi/trireme/cluster/internal/host"
)

func TestErrorsNameTheCauseAndTheWayOut(t *testing.T) {
	fail := func(t *testing.T, command *exec.Cmd, wants ...string) {
		t.Helper()
		before := machine(t)
		output, err := command.CombinedOutput()
		if err == nil {
			t.Fatalf("it worked:\n%s", output)
		}
		for _, want := range wants {
			if !strings.Contains(string(output), want) {
				t.Errorf("the error does not say %q:\n%s", want, output)
			}
		}
		if diff := cmp.Diff(before, machine(t)); diff != "" {
			t.Errorf("the failed command leaves something (-before +after):\n%s", diff)
		}
	}
	other := func(t *testing.T, settings ...string) *exec.Cmd {
		command := cluster.command(t.Context(), "up")
		command.Env = append(command.Env, "TRIREME_CLUSTER_NAME=trireme-err", "TRIREME_CLUSTER_NETWORK=10.196.0.0/16",
			"TRIREME_CLUSTER_DATA="+filepath.Join(t.TempDir(), "data"))
		command.Env = append(command.Env, settings...)
		return command
	}
	t.Run("not root", func(t *testing.T) {
		command := other(t)
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		fail(t, command, "user id 65534 is not root", "run the same command as root")
	})
	t.Run("address range taken", func(t *testing.T) {
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br-intheway"}}
		if err := netlink.LinkAdd(bridge); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = netlink.LinkDel(bridge) })
		address := &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(10, 196, 7, 1), Mask: net.CIDRMask(24, 32)}}
		if err := netlink.AddrAdd(bridge, address); err != nil {
			t.Fatal(err)
		}
		if err := netlink.LinkSetUp(bridge); err != nil {
			t.Fatal(err)
		}
		fail(t, other(t), "network 10.196.0.0/16 is in use: device br-intheway (of Docker) has 10.196.7.0/24", "choose another block with --network")
	})
	t.Run("too little disk", func(t *testing.T) {
		small := t.TempDir()
		if err := syscall.Mount("tmpfs", small, "tmpfs", 0, "size=16m"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Unmount(small, syscall.MNT_DETACH) })
		fail(t, other(t, "TRIREME_CLUSTER_DATA="+small+"/data"), "has 0.0 GiB free, but 4 GiB are needed", "use another directory with TRIREME_CLUSTER_DATA=DIRECTORY")
	})
	t.Run("a package that will not install", func(t *testing.T) {
		programs := t.TempDir()
		script := "#!/bin/bash\necho 'E: Unable to locate package runc'; exit 100\n"
		if err := os.WriteFile(filepath.Join(programs, "apt-get"), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		runc, found := host.Find(host.Runc.Candidates...)
		if !found {
			t.Fatal("no runc to hide")
		}
		// In a mount namespace of its own, so that only this command misses it.
		command := other(t, "PATH="+programs+":"+os.Getenv("PATH"))
		command.Path, command.Args = "/usr/bin/unshare", []string{"unshare", "--mount", "bash", "-c",
			`mount --bind /dev/null "$1" && exec "$2" up`, "bash", runc, cluster.tool}
		fail(t, command, "apt-get", "E: Unable to locate package runc", "repair apt (or install the packages manually) and retry")
	})
	t.Run("a directory that holds other things", func(t *testing.T) {
		used := t.TempDir()
		if err := os.Mkdir(filepath.Join(used, "photos"), 0o755); err != nil {
			t.Fatal(err)
		}
		fail(t, other(t, "TRIREME_CLUSTER_DATA="+used), "directory "+used+" contains other files (photos, ...)", "use a directory that is empty")
	})
	t.Run("a file where a directory must be", func(t *testing.T) {
		// By then the network exists, which must go again.
		data := filepath.Join(t.TempDir(), "data")
		if err := os.MkdirAll(data, 0o711); err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{".trireme-cluster", "logs"} {
			if err := os.WriteFile(filepath.Join(data, file), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		fail(t, other(t, "TRIREME_CLUSTER_DATA="+data), "create directory: mkdir "+data+"/logs", "not a directory")
	})
	t.Run("other data than the running cluster's", func(t *testing.T) {
		command := cluster.command(t.Context(), "up")
		command.Env = append(command.Env, "TRIREME_CLUSTER_DATA=/elsewhere")
		fail(t, command, "the cluster is running with its data in "+cluster.data()+", not /elsewhere; stop it with `down` first")
	})
	t.Run("another run directory than the running cluster's", func(t *testing.T) {
		command := cluster.command(t.Context(), "up")
		command.Env = append(command.Env, "TRIREME_CLUSTER_RUN=/run/elsewhere")
		fail(t, command, "cluster trireme-test is already running", "set TRIREME_CLUSTER_RUN to the value")
	})
	t.Run("an image that is none", func(t *testing.T) {
		fail(t, cluster.command(t.Context(), "image", "load", "lifecycle_test.go"), "lifecycle_test.go is neither an image archive nor a static binary")
	})
	t.Run("another network than the running one", func(t *testing.T) {
		command := cluster.command(t.Context(), "up", "--network", "10.195.0.0/16")
		fail(t, command, "the cluster is running on network 10.198.0.0/16, not 10.195.0.0/16; stop it with `down` first")
	})
}

// TestPortTakenByAStranger: ports are inside the cluster's own network, so
// only something that was started in there can hold one.
func TestPortTakenByAStranger(t *testing.T) {
	ns, pod := longRunningPod(t)
	report := cluster.report(t)
	pids := []int{report.PID, statusOf(t, report, "kube-apiserver").PID}
	if err := host.Kill(func() []int { return pids }, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	other := exec.Command("python3", "-c", "import socket, time; s = socket.create_server(('0.0.0.0', 6443)); print('listening', flush=True); time.sleep(600)")
	output, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := host.InNamespace(cluster.layout(t), other.Start); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Wait() }()
	defer func() { _ = other.Process.Kill() }()
	if _, err := output.Read(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	said, err := cluster.run(t.Context(), "up")
	want := fmt.Sprintf("port 6443 of the cluster's network is in use by %s; stop that process", host.Describe(other.Process.Pid))
	if err == nil || !strings.Contains(said, want) {
		t.Errorf("want %q, got %v:\n%s", want, err, said)
	}
	if !host.Alive(other.Process.Pid) {
		t.Error("up ended a process that it did not start")
	}
	if err := other.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// Nor does it end what still runs when it cannot take it over.
	if output, err := cluster.run(t.Context(), "up", "--network", "10.195.0.0/16"); err == nil || !strings.Contains(output, "not an address of 10.195.0.0/16") {
		t.Errorf("another network for what still runs: %v\n%s", err, output)
	}
	cluster.must(t, "up")
	stillRuns(t, ns, pod)
}
