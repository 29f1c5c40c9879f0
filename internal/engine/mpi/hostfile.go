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

// Hostfile is the text of a hostfile, a line a host.
func Hostfile(implementation Implementation, hosts []Host) string {
	form := "%s:%d\n" // Hydra's, of Intel MPI and MPICH
	if implementation == OpenMPI {
		form = "%s slots=%d\n"
	}
	var text strings.Builder
	for _, host := range hosts {
		fmt.Fprintf(&text, form, host.Name, host.Slots)
	}
	return text.String()
}

// maxSlots is far above any machine's processors and keeps sums of slots from
// overflowing.
const maxSlots = 1 << 20

// ParseHostfile reads a hostfile of any implementation. A host that does not say
// has one slot. Words it does not know (max_slots=, user=, binding=) are the
// implementation's own business.
func ParseHostfile(text string) ([]Host, error) {
	var hosts []Host
	number := 0
	for line := range strings.Lines(text) {
		number++
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		host, err := parseHost(words)
		if err != nil {
			return nil, fmt.Errorf("hostfile line %d: %w", number, err)
		}
		hosts = append(hosts, host)
	}
	return hosts, nil
}

func parseHost(words []string) (Host, error) {
	name, slots, counted := strings.Cut(words[0], ":")
	if name == "" || strings.ContainsAny(name, "=/@,") || name[0] == '-' {
		return Host{}, fmt.Errorf("%q is not a host name", name)
	}
	for _, word := range words[1:] {
		key, value, found := strings.Cut(word, "=")
		if !found || key != "slots" {
			continue
		}
		if counted {
			return Host{}, fmt.Errorf("host %s has its slots twice", name)
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
