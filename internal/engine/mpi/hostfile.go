// SPDX-License-Identifier: Apache-2.0

package mpi

import (
	"fmt"
	"strconv"
	"strings"
)

// Host is a host of the hostfile.
type Host struct {
	Name  string
	Slots int
}

// Hostfile returns the text of a hostfile, one line for each host.
func Hostfile(name Implementation, hosts []Host) string {
	format := find(name).hostfileLine
	var text strings.Builder
	for _, host := range hosts {
		fmt.Fprintf(&text, format, host.Name, host.Slots)
	}
	return text.String()
}

// maxSlots is far above any machine's processors and keeps sums of slots from
// overflowing.
const maxSlots = 1 << 20

// ParseHostfile reads a hostfile of any implementation. The default is one slot. Other
// options (max_slots=, user=, binding=) are ignored.
func ParseHostfile(text string) ([]Host, error) {
	var hosts []Host
	number := 0
	for line := range strings.Lines(text) {
		number++
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		host, err := parseHost(fields)
		if err != nil {
			return nil, fmt.Errorf("hostfile line %d: %w", number, err)
		}
		hosts = append(hosts, host)
	}
	return hosts, nil
}

func parseHost(fields []string) (Host, error) {
	name, slots, counted := strings.Cut(fields[0], ":")
	if name == "" || strings.ContainsAny(name, "=/@,") || name[0] == '-' {
		return Host{}, fmt.Errorf("%q is not a host name", name)
	}
	for _, field := range fields[1:] {
		key, value, found := strings.Cut(field, "=")
		if !found || key != "slots" {
			continue
		}
		if counted {
			return Host{}, fmt.Errorf("host %s has two numbers of slots", name)
		}
		slots, counted = value, true
	}
	if !counted {
		return Host{Name: name, Slots: 1}, nil
	}
	count, err := strconv.Atoi(slots)
	if err != nil || count < 1 || count > maxSlots {
		return Host{}, fmt.Errorf("host %s: slots %q is not a number from 1 to %d", name, slots, maxSlots)
	}
	return Host{Name: name, Slots: count}, nil
}
