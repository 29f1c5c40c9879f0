// SPDX-License-Identifier: Apache-2.0

package mpi

import "strconv"

// openMPI is Open MPI 4 and 5.
var openMPI = implementation{
	name: OpenMPI, hostfileLine: "%s slots=%d\n", environment: openMPIEnvironment,
	// It works with 4 and 5; "--output tag" only works with 5.
	tagFlags:      []string{"--tag-output"},
	portVariables: openMPINames(), ports: openMPIPorts,
	causes: openMPICauses,
	// PRRTE may start ranks of other libraries, which only have the second one.
	rankVariables: []string{"OMPI_COMM_WORLD_RANK", "PMIX_RANK"},
	// Its event loop is libevent. Open MPI 4 has components in files of their own.
	libraries: mpiLibraries("libopen-pal", "libopen-rte", "liboshmem", "libprrte", "libmca_", "mca_", "libevent"),
}

// openMPIEnvironment configures Open MPI 4 (ORTE) and 5 (PRRTE); each ignores the
// variables of the other.
func openMPIEnvironment(launch Launch) []Variable {
	slots := strconv.Itoa(launch.Slots)
	variables := []Variable{
		{"OMPI_MCA_orte_default_hostfile", launch.Hostfile},
		// Otherwise Open MPI 4 cuts host names at the first dot before it calls the agent.
		{"OMPI_MCA_orte_keep_fqdn_hostnames", "true"},
		{"OMPI_MCA_orte_set_default_slots", slots},
		// With a tree, workers log in to other workers, and would need the private key.
		{"OMPI_MCA_plm_rsh_no_tree_spawn", "1"},
		{"PRTE_MCA_prte_default_hostfile", launch.Hostfile},
		// Open MPI 5 always calls the agent with the name in the hostfile. With true it does
		// not recognize its own full name, and logs in to its own host.
		{"PRTE_MCA_prte_keep_fqdn_hostnames", "false"},
		{"PRTE_MCA_prte_set_default_slots", slots},
		{"PRTE_MCA_plm_ssh_no_tree_spawn", "1"},
	}
	switch {
	case launch.Agent != "":
		variables = append(variables, Variable{"OMPI_MCA_plm_rsh_agent", launch.Agent}, Variable{"PRTE_MCA_plm_ssh_agent", launch.Agent})
	case launch.SSHOptions != "":
		variables = append(variables, Variable{"OMPI_MCA_plm_rsh_args", launch.SSHOptions}, Variable{"PRTE_MCA_plm_ssh_args", launch.SSHOptions})
	}
	if launch.TagOutput {
		// Open MPI 5.0.7 lists iof_tag_output but ignores it.
		variables = append(variables, Variable{"OMPI_MCA_orte_tag_output", "1"})
	}
	return variables
}

const (
	openMPIPrefix = "OMPI_MCA_"
	prrtePrefix   = "PRTE_MCA_"
	// The first and the number of the ports that ranks listen on.
	openMPIFirstPort = openMPIPrefix + "btl_tcp_port_min_v4"
	openMPIPortCount = openMPIPrefix + "btl_tcp_port_range_v4"
	// openMPILowestPort is the first port if only the number of ports is set.
	openMPILowestPort = 1024
)

// openMPIDaemonPorts set the ports of mpirun and its daemons: for ORTE, for PRRTE up to
// version 3 (Open MPI 5.0), and for later versions.
func openMPIDaemonPorts() []string {
	return []string{
		openMPIPrefix + "oob_tcp_static_ipv4_ports", openMPIPrefix + "oob_tcp_dynamic_ipv4_ports",
		prrtePrefix + "oob_tcp_static_ipv4_ports", prrtePrefix + "oob_tcp_dynamic_ipv4_ports",
		prrtePrefix + "prte_static_ipv4_ports", prrtePrefix + "prte_dynamic_ipv4_ports",
	}
}

func openMPINames() []string {
	return append(openMPIDaemonPorts(), openMPIFirstPort, openMPIPortCount)
}

func openMPIPorts(read settings) Ports {
	ports := Ports{Launcher: read.ranges(openMPIDaemonPorts()...)}
	first, begins := read.port(openMPIFirstPort)
	count, ends := read.port(openMPIPortCount)
	if !begins {
		first = openMPILowestPort
	}
	if !ends {
		count = maxPort
	}
	if begins || ends {
		ports.Ranks = PortRanges{{first, min(first+count-1, maxPort)}}
	}
	return ports
}

// openMPICauses match error messages of ORTE and PRRTE, which differ in little more than
// their line breaks.
func openMPICauses() []cause {
	return []cause{
		{kind: RankFailed, pattern: `(?P<text>process rank (?P<rank>\d+) with PID \d+ on node (?P<host>\S+) exited on\s+signal (?P<signal>\d+)(?: \([\w ]+\))?)`},
		{kind: RankFailed, pattern: `one or more processes exited with non-zero status,\s+thus causing\s+the job to be terminated\. The first process to do so was:` +
			`\s+Process name: \[[^\n]*,(?P<rank>\d+)\]\s+Exit code: +(?P<code>\d+)`},
		// Open MPI 5 names the host in a second message.
		{kind: RankFailed, pattern: `(?P<text>MPI_ABORT was invoked on rank (?P<rank>\d+) in communicator \w+)[^\n]*\n` +
			`(?:\s+Proc: \S+\s+Errorcode:|with errorcode) (?P<code>-?\d+)(?s:.*?with PID \d+ on node (?P<host>\S+) calling\s+"abort")?`},
		{kind: RankFailed, pattern: `due to (?P<text>process rank (?P<rank>\d+) with PID \d+ on node (?P<host>\S+) calling\s+"abort")`, vague: true},
		// MPI found an error in a call, and the program has no handler for it.
		{kind: RankFailed, pattern: `\[(?P<host>[^\s:\]]+):\d+\] \*\*\* (?P<text>An error occurred in MPI_\w+)\n[^\n]*\*\*\* reported by process \[\d+,(?P<rank>\d+)\]\n` +
			`[^\n]*\n[^\n]*\*\*\* (?P<detail>MPI_ERR_[^\n]+)`},
		{kind: RankFailed, pattern: `due to (?P<text>process rank (?P<rank>\d+) with PID \d+ on\s+node (?P<host>\S+) exiting improperly)`},
		// A process that lost another one aborts, and Open MPI 5 may report only that.
		{kind: RankFailed, vague: true, text: "a process lost its connection to another process, which had exited",
			pattern: `An error occurred in Socket closed|An MPI communication peer process has unexpectedly disconnected`},
		// Open MPI 5 also prints this when the agent fails.
		{kind: DaemonLost, pattern: `(?P<text>(?:ORTE|PRR?TE) has lost communication with a remote daemon)\.\s+HNP daemon[^\n]*\n\s*Remote daemon:[^\n]* on node (?P<host>\S+)`},
		{kind: InitFailed, pattern: `(?P<text>ORTE was unable to reliably start one or more daemons)`},
		{kind: InitFailed, pattern: `(?P<text>An ORTE daemon has unexpectedly failed after launch)`},
		{kind: InitFailed, pattern: `(?P<text>There are not enough slots available in the system to satisfy the \d+\s+slots)`},
		{kind: InitFailed, pattern: `was unable to launch the specified application as it [^:]+:\s+(?P<text>Executable: [^\n]+)\n\s*Node: (?P<host>\S+)\s+while attempting to start process rank (?P<rank>\d+)`},
		{kind: InitFailed, pattern: `(?P<text>It looks like MPI_INIT failed for some reason)`},
		{kind: RankFailed, vague: true, pattern: `\[(?P<host>[^\s:\]]+):\d+\] (?P<text>Signal: [\w ]+ \((?P<signal>\d+)\))`},
	}
}
