// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

const (
	bridgeName = "trbench-bridge"
	// maxWorkers is what the addresses below are enough for.
	maxWorkers = 250
)

// host is a host as the machine sees it.
type host struct {
	name, address, hardware string

	mutex   sync.Mutex
	process *exec.Cmd
	orders  *json.Encoder
	answers *json.Decoder
}

// network is the launcher and the workers, joined by a bridge.
type network struct {
	launcher *host
	workers  []*host
}

func newNetwork(directory, root string, workers int) (*network, error) {
	hosts := []*host{newHost("trbench-launcher", 1)}
	for i := range workers {
		hosts = append(hosts, newHost(fmt.Sprintf("trbench-worker-%d", i), i+2))
	}
	if err := writeHosts(root, hosts); err != nil {
		return nil, err
	}
	if err := ip("link add " + bridgeName + " type bridge\nlink set " + bridgeName + " up\n"); err != nil {
		return nil, err
	}
	for _, host := range hosts {
		if err := host.start(directory, root, hosts); err != nil {
			return nil, fmt.Errorf("start host %s: %w", host.name, err)
		}
	}
	return &network{launcher: hosts[0], workers: hosts[1:]}, nil
}

func newHost(name string, number int) *host {
	return &host{name: name, address: fmt.Sprintf("10.195.0.%d", number), hardware: fmt.Sprintf("02:00:0a:c3:00:%02x", number)}
}

// writeHosts takes the place of DNS.
func writeHosts(root string, hosts []*host) error {
	names := []string{"127.0.0.1 localhost"}
	for _, host := range hosts {
		names = append(names, host.address+" "+host.name)
	}
	return errors.Join(writeFile(root, "/etc/hosts", 0o644, lines(names)), writeFile(root, "/etc/resolv.conf", 0o644, nil))
}

func (host *host) start(directory, root string, all []*host) error {
	host.process = inNamespaces(hostName)
	host.process.Stderr = os.Stderr
	stdin, err := host.process.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := host.process.StdoutPipe()
	if err != nil {
		return err
	}
	if err := host.process.Start(); err != nil {
		return err
	}
	host.orders, host.answers = json.NewEncoder(stdin), json.NewDecoder(stdout)
	outside := "trbench-" + host.address[strings.LastIndexByte(host.address, '.')+1:]
	if err := ip(fmt.Sprintf("link add %[1]s type veth peer name eth0 address %[2]s netns %[3]d\nlink set %[1]s master %[4]s up\n",
		outside, host.hardware, host.process.Process.Pid, bridgeName)); err != nil {
		return err
	}
	_, err = host.do(order{Setup: &setup{
		Name: host.name, Root: root, Scratch: filepath.Join(directory, host.name), Network: host.networkSetup(all),
	}})
	return err
}

// networkSetup are lines for `ip -batch`. The neighbours are fixed: looking for
// them would cost whoever comes first, and the kernel keeps no more than 1024 of
// them for all namespaces together.
func (host *host) networkSetup(all []*host) string {
	var text strings.Builder
	fmt.Fprintf(&text, "link set lo up\naddress add %s/16 dev eth0\nlink set eth0 up\n", host.address)
	for _, other := range all {
		if other != host {
			fmt.Fprintf(&text, "neighbour replace %s lladdr %s nud permanent dev eth0\n", other.address, other.hardware)
		}
	}
	return text.String()
}

// ip runs lines of iproute2.
func ip(batch string) error {
	command := exec.Command("ip", "-batch", "-")
	command.Stdin = strings.NewReader(batch)
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("ip (of iproute2): %w\n%s", err, output)
	}
	return nil
}

// do has a host do something.
func (host *host) do(order order) (answer, error) {
	host.mutex.Lock()
	defer host.mutex.Unlock()
	var answer answer
	if err := host.orders.Encode(order); err != nil {
		return answer, fmt.Errorf("%s is gone: %w", host.name, err)
	}
	if err := host.answers.Decode(&answer); err != nil {
		return answer, fmt.Errorf("%s is gone: %w", host.name, err)
	}
	if answer.Error != "" {
		return answer, fmt.Errorf("%s: %s", host.name, answer.Error)
	}
	return answer, nil
}

// doAll has many hosts do the same at a time.
func doAll(hosts []*host, order order) error {
	failures := make([]error, len(hosts))
	var all sync.WaitGroup
	for i, host := range hosts {
		all.Go(func() { _, failures[i] = host.do(order) })
	}
	all.Wait()
	// One is enough to know what is wrong.
	if i := slices.IndexFunc(failures, func(err error) bool { return err != nil }); i >= 0 {
		return failures[i]
	}
	return nil
}
