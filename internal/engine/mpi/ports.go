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

// String is the form that people write, such as 10000-10099,12000.
func (ranges PortRanges) String() string {
	texts := make([]string, 0, len(ranges))
	for _, each := range ranges {
		text := strconv.Itoa(each.First)
		if each.Last != each.First {
			text += "-" + strconv.Itoa(each.Last)
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, ",")
}

// Ports are what MPI listens on.
type Ports struct {
	// Launcher is for mpirun itself: what it starts on workers connects back to it.
	Launcher PortRanges
	// Ranks is for the processes, which connect to each other.
	Ranks PortRanges
}

// PortsOf reads which ports the environment and the arguments of mpirun set. Nobody
// has to know which MPI the image has: each has names of its own.
func PortsOf(environment, arguments []string) Ports {
	read := readSettings(environment, arguments)
	var ports Ports
	for _, of := range []func(settings) Ports{libfabricPorts, ucxPorts, openMPIPorts, intelPorts, mpichPorts} {
		found := of(read)
		if len(ports.Launcher) == 0 {
			ports.Launcher = found.Launcher
		}
		if len(ports.Ranks) == 0 {
			ports.Ranks = found.Ranks
		}
	}
	return ports
}

// SetsPorts tells whether PortsOf reads a variable.
func SetsPorts(variable string) bool {
	return slices.ContainsFunc([][]string{libfabricNames, {ucxName}, openMPINames(), {intelName}, mpichNames}, func(names []string) bool {
		return slices.Contains(names, variable)
	})
}

// libfabricNames are of libfabric's tcp provider, which Intel MPI and MPICH use.
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

// settings are the environment variables of a run, and the options that stand for one.
type settings map[string]string

// readSettings reads options and assignments wherever they are: the command may be a
// script for sh -c, which is one argument. Options win, as in every mpirun.
func readSettings(environment, arguments []string) settings {
	read := settings{}
	for _, variable := range environment {
		read.assign(variable)
	}
	var words []string
	for _, argument := range arguments {
		words = append(words, strings.FieldsFunc(argument, isSeparator)...)
	}
	for i, word := range words {
		following := words[i+1:]
		switch option := strings.TrimLeft(word, "-"); {
		case option == word:
			read.assign(word)
		case len(following) > 1:
			read.option(option, following[0], following[1])
		}
	}
	return read
}

// isSeparator tells whether a character ends a word of a shell script.
func isSeparator(r rune) bool { return strings.ContainsRune(" \t\r\n\"';\\", r) }

func (read settings) assign(text string) {
	if name, value, found := strings.Cut(text, "="); found {
		read[name] = value
	}
}

// option is one of mpirun's that has a name and a value.
func (read settings) option(option, name, value string) {
	switch option {
	case "mca", "gmca":
		// Open MPI 5 finds out by itself whom it is for.
		read[openMPIPrefix+name], read[prrtePrefix+name] = value, value
	case "omca", "gomca":
		read[openMPIPrefix+name] = value
	case "prtemca", "gprtemca":
		read[prrtePrefix+name] = value
	case "env", "genv":
		read[name] = value
	}
}

func (read settings) port(name string) (int, bool) {
	port, err := parsePort(read[name])
	return port, err == nil
}

// ranges are those of the first name that has any. What cannot be read, or means that
// the system chooses (0, 0:0, -1), counts as not set.
func (read settings) ranges(names ...string) PortRanges {
	for _, name := range names {
		if ranges, err := ParsePortRanges(read[name]); err == nil {
			return ranges
		}
	}
	return nil
}

// ParsePortRanges reads ports in the forms of all MPIs: 10000, 10000-10099,
// 10000:10099, and lists of them with commas.
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
