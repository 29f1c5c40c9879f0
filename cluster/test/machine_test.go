// SPDX-License-Identifier: Apache-2.0

//go:build linux

package test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/trireme-mpi/trireme/cluster/internal/host"
)

// machine is everything that a cluster could leave on it, as sorted lists.
func machine(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	interfaces, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, device := range interfaces {
		found["devices"] = append(found["devices"], device.Name)
	}
	found["routes"] = lines(t, "/proc/net/route")
	found["mounts"] = fields(lines(t, "/proc/self/mountinfo"), 4)
	found["namespaces"] = names("/run/netns/*")
	found["rules"] = append(ruleset(t), legacyTables()...)
	found["sockets"] = ours(fields(lines(t, "/proc/net/unix"), 7))
	found["directories"] = names("/run/containerd*", "/var/lib/kubelet*", "/var/lib/cni*", "/var/log/containers*", "/run/cdi*", "/run/trireme-test*", "/run/trireme-err*", "/run/trireme-other*")
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, entry os.DirEntry, err error) error {
		if err == nil && entry.IsDir() && len(ours([]string{path})) > 0 {
			found["control groups"] = append(found["control groups"], path)
		}
		return nil
	})
	found["processes"] = processes()
	for _, setting := range []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
		"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes", "net/ipv4/neigh/default/gc_thresh3"} {
		found["kernel settings"] = append(found["kernel settings"], setting+"="+strings.Join(lines(t, "/proc/sys/"+setting), ""))
	}
	for _, list := range found {
		slices.Sort(list)
	}
	return found
}

// assertNothingOfOurs needs no picture of before: nothing may bear our name.
func assertNothingOfOurs(t *testing.T, found map[string][]string) {
	t.Helper()
	for kind, list := range found {
		if left := ours(list); len(left) > 0 {
			t.Errorf("%s left after down: %v", kind, left)
		}
	}
}

// ours picks what bears the cluster's name, its directory or its network.
func ours(list []string) (mine []string) {
	for _, entry := range list {
		// 10.198.0.0 and 10.196.0.0 as /proc/net/route writes them.
		for _, sign := range []string{clusterName, "trireme-err", "trireme-other", cluster.directory, "0000C60A", "0000C40A"} {
			if strings.Contains(entry, sign) {
				mine = append(mine, entry)
				break
			}
		}
	}
	return mine
}

// processes lists those that were started from or for the cluster, zombies
// that init has yet to collect excepted.
func processes() (mine []string) {
	commands, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range commands {
		pid, err := strconv.Atoi(strings.Split(file, "/")[2])
		if err != nil || pid == os.Getpid() || !host.Alive(pid) {
			continue
		}
		command, _ := os.ReadFile(file)
		groups, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		line := strings.ReplaceAll(string(command), "\x00", " ")
		if len(ours([]string{line, string(groups)})) > 0 {
			mine = append(mine, line)
		}
	}
	return mine
}

func lines(t *testing.T, file string) []string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(content)), "\n")
}

func fields(lines []string, n int) (values []string) {
	for _, line := range lines {
		if all := strings.Fields(line); len(all) > n {
			values = append(values, all[n])
		}
	}
	return values
}

func names(patterns ...string) (all []string) {
	for _, pattern := range patterns {
		matches, _ := filepath.Glob(pattern)
		all = append(all, matches...)
	}
	return all
}

// ruleset leaves counters out: other traffic moves them.
func ruleset(t *testing.T) []string {
	t.Helper()
	output, err := exec.CommandContext(context.Background(), "nft", "--stateless", "list", "ruleset").CombinedOutput()
	if err != nil {
		t.Fatalf("nft: %v\n%s", err, output)
	}
	return strings.Split(strings.TrimSpace(string(output)), "\n")
}

func legacyTables() []string {
	content, _ := os.ReadFile("/proc/net/ip_tables_names")
	return strings.Fields(string(content))
}
