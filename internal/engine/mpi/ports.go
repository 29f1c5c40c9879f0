// SPDX-License-Identifier: Apache-2.0

package mpi

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// PortRange is a range of TCP ports; both ends belong to it.
type PortRange struct{ First, Last int }

// PortRanges are the ports that a process may listen on. None means that the system
// chooses an ephemeral port.
type PortRanges []PortRange

// String returns the ranges as users write them, such as 10000-10099,12000.
func (pr PortRanges) String() string {
	texts := make([]string, 0, len(pr))
	for _, each := range pr {
		text := strconv.Itoa(each.First)
		if each.Last != each.First {
			text += "-" + strconv.Itoa(each.Last)
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, ",")
}

// Ports are the ports that MPI listens on.
type Ports struct {
	// Launcher is for mpirun itself: its daemons on the workers connect to it.
	Launcher PortRanges
	// Ranks is for the ranks, which connect to each other.
	Ranks PortRanges
}

// PortsOf reads the ports that the environment and the arguments of mpirun set, for any
// implementation: each has its own variables.
func PortsOf(environment, arguments []string) Ports {
	read := readSettings(environment, arguments)
	var ports Ports
	readers := []func(settings) Ports{libfabricPorts, ucxPorts}
	for _, each := range implementations {
		readers = append(readers, each.ports)
	}
	for _, portsOf := range readers {
		theirs := portsOf(read)
		if len(ports.Launcher) == 0 {
			ports.Launcher = theirs.Launcher
		}
		if len(ports.Ranks) == 0 {
			ports.Ranks = theirs.Ranks
		}
	}
	return ports
}

// SetsPorts reports whether PortsOf reads a variable.
func SetsPorts(variable string) bool {
	return variable == ucxName || slices.Contains(libfabricNames, variable) || slices.ContainsFunc(implementations, func(each implementation) bool {
		return slices.Contains(each.portVariables, variable)
	})
}

// libfabricNames set the ports of libfabric's tcp provider, which Intel MPI and MPICH use.
var libfabricNames = []string{"FI_TCP_PORT_LOW_RANGE", "FI_TCP_PORT_HIGH_RANGE"}

func libfabricPorts(read settings) Ports {
	first, isSet := read.port(libfabricNames[0])
	last, isBounded := read.port(libfabricNames[1])
	if !isSet || !isBounded || last < first {
		return Ports{}
	}
	return Ports{Ranks: PortRanges{{first, last}}}
}

const ucxName = "UCX_TCP_PORT_RANGE"

func ucxPorts(read settings) Ports { return Ports{Ranks: read.ranges(ucxName)} }

// settings are the environment variables of a run, and options that set one.
type settings map[string]string

// readSettings reads options and assignments anywhere in the arguments, because the
// command may be a script for sh -c, which is one argument. Options override variables,
// as in every mpirun.
func readSettings(environment, arguments []string) settings {
	read := settings{}
	for _, variable := range environment {
		read.assign(variable)
	}
	var fields []string
	for _, argument := range arguments {
		fields = append(fields, strings.FieldsFunc(argument, isSeparator)...)
	}
	for i, field := range fields {
		following := fields[i+1:]
		switch option := strings.TrimLeft(field, "-"); {
		case option == field:
			read.assign(field)
		case len(following) > 1:
			read.option(option, following[0], following[1])
		}
	}
	return read
}

// isSeparator reports whether a character ends a word of a shell script.
func isSeparator(r rune) bool { return strings.ContainsRune(" \t\r\n\"';\\", r) }

func (s settings) assign(text string) {
	if name, value, found := strings.Cut(text, "="); found {
		s[name] = value
	}
}

// option applies an option of mpirun that sets a variable.
func (s settings) option(option, name, value string) {
	switch option {
	case "mca", "gmca":
		// Open MPI 5 decides by itself which component an option is for.
		s[openMPIPrefix+name], s[prrtePrefix+name] = value, value
	case "omca", "gomca":
		s[openMPIPrefix+name] = value
	case "prtemca", "gprtemca":
		s[prrtePrefix+name] = value
	case "env", "genv":
		s[name] = value
	}
}

func (s settings) port(name string) (int, bool) {
	port, err := parsePort(s[name])
	return port, err == nil
}

// ranges returns the ranges of the first variable that has any. Invalid values, and those
// that let the system choose (0, 0:0, -1), count as not set.
func (s settings) ranges(names ...string) PortRanges {
	for _, name := range names {
		if ranges, err := ParsePortRanges(s[name]); err == nil {
			return ranges
		}
	}
	return nil
}

// ParsePortRanges reads ports in the formats of all implementations: 10000, 10000-10099,
// 10000:10099, and comma-separated lists of these.
func ParsePortRanges(text string) (PortRanges, error) {
	var ranges PortRanges
	for item := range strings.SplitSeq(text, ",") {
		low, high, isRange := strings.Cut(strings.ReplaceAll(strings.TrimSpace(item), ":", "-"), "-")
		if !isRange {
			high = low
		}
		first, err := parsePort(low)
		if err != nil {
			return nil, err
		}
		last, err := parsePort(high)
		if err != nil {
			return nil, err
		}
		if last < first {
			return nil, fmt.Errorf("%d is greater than %d", first, last)
		}
		ranges = append(ranges, PortRange{first, last})
	}
	return ranges, nil
}

const maxPort = 1<<16 - 1

var errNotAPort = errors.New("not a TCP port")

func parsePort(text string) (int, error) {
	port, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil || port < 1 || port > maxPort {
		return 0, errNotAPort
	}
	return port, nil
}
