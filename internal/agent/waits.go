// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/hex"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// waitingForChild is the wait channel of a process that waits for a child.
const waitingForChild = "do_wait"

// waitChannel is the kernel function that a process waits in, or empty if it is running
// or may not be read.
func waitChannel(id int) string {
	content, err := os.ReadFile(filepath.Join(processDirectory(id), "wchan"))
	name := strings.TrimSpace(string(content))
	if err != nil || name == "0" {
		return ""
	}
	// Compilers add suffixes such as .constprop.0.
	name, _, _ = strings.Cut(name, ".")
	return name
}

// waitsFor says what a sleeping process waits for: the wait channel, and the hosts at the
// other end of the connections that it waits on. peers has the names of hosts by address.
func waitsFor(id int, peers map[string]string) string {
	name := waitChannel(id)
	if name == waitingForChild || strings.Contains(name, "nanosleep") {
		return name
	}
	hosts := peersOf(waitingSockets(id), remoteAddresses(id), peers)
	if len(hosts) == 0 || len(hosts) > shownPeers {
		return name
	}
	return strings.TrimSpace(name + " (connection to " + strings.Join(hosts, ", ") + ")")
}

// shownPeers is how many hosts are named. A process that waits for more waits for any.
const shownPeers = 3

// waitingSockets are the sockets that a process waits on: the one that its system call
// names, or those of the epoll instance that it names. Arguments in memory are never read.
func waitingSockets(id int) []string {
	content, err := os.ReadFile(filepath.Join(processDirectory(id), "syscall"))
	fields := strings.Fields(string(content))
	if err != nil || len(fields) < 2 {
		return nil
	}
	descriptor, err := strconv.ParseInt(fields[1], 0, 32)
	if err != nil || descriptor < 0 {
		return nil // A pointer.
	}
	link := descriptorLink(id, strconv.FormatInt(descriptor, 10))
	if strings.HasPrefix(link, "socket:") {
		return []string{link}
	}
	if link != "anon_inode:[eventpoll]" {
		return nil
	}
	info, _ := os.ReadFile(filepath.Join(processDirectory(id), "fdinfo", strconv.FormatInt(descriptor, 10)))
	var sockets []string
	for line := range strings.Lines(string(info)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "tfd:" {
			if link := descriptorLink(id, fields[1]); strings.HasPrefix(link, "socket:") {
				sockets = append(sockets, link)
			}
		}
	}
	return sockets
}

func descriptorLink(id int, descriptor string) string {
	link, _ := os.Readlink(filepath.Join(processDirectory(id), "fd", descriptor))
	return link
}

// peersOf returns the remote ends of sockets: the name of the host, or its address.
func peersOf(sockets []string, remote, peers map[string]string) []string {
	var hosts []string
	for _, socket := range sockets {
		address, connected := remote[socket]
		if !connected {
			continue
		}
		if name, known := peers[address]; known {
			address = name
		}
		hosts = append(hosts, address)
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// remoteAddresses are the remote addresses of established TCP connections, by socket as
// it is in /proc/PID/fd.
func remoteAddresses(id int) map[string]string {
	addresses := map[string]string{}
	for _, table := range []string{"tcp", "tcp6"} {
		content, err := os.ReadFile(filepath.Join(processDirectory(id), "net", table))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(content)) {
			if socket, address, ok := parseConnection(line); ok {
				addresses[socket] = address
			}
		}
	}
	return addresses
}

// parseConnection reads a line of /proc/net/tcp: number, local and remote address, state,
// five more fields, inode.
func parseConnection(line string) (socket, address string, ok bool) {
	const (
		remote, state, inode = 2, 3, 9
		established          = "01"
	)
	fields := strings.Fields(line)
	if len(fields) <= inode || fields[state] != established {
		return "", "", false
	}
	digits, _, _ := strings.Cut(fields[remote], ":")
	raw, err := hex.DecodeString(digits)
	if err != nil || len(raw) != net.IPv4len && len(raw) != net.IPv6len {
		return "", "", false
	}
	// Words of four bytes in the order of the machine, which is little-endian on all
	// architectures that Trireme supports.
	for word := range slices.Chunk(raw, 4) {
		slices.Reverse(word)
	}
	return "socket:[" + fields[inode] + "]", net.IP(raw).String(), true
}
