// SPDX-License-Identifier: Apache-2.0

package mpi

import (
	"regexp"
	"sync"
	"syscall"
)

// hydraHostfileLine is the same for MPICH and Intel MPI.
const hydraHostfileLine = "%s:%d\n"

// hydraRank is the variable with the rank.
const hydraRank = "PMI_RANK"

// hydraCauses match error messages of MPICH's and Intel MPI's Hydra, which have a common
// origin and still share most messages.
func hydraCauses() []cause {
	return []cause{
		// The number after "node" is the rank in MPI_COMM_WORLD; the other one is the rank
		// in the communicator.
		{kind: RankFailed, pattern: `(?P<text>Abort\((?P<code>-?\d+)\) on node (?P<rank>\d+) \(rank \d+ in comm \d+\): application called MPI_Abort\(\w+, -?\d+\))`},
		{kind: InitFailed, pattern: `Abort\(-?\d+\) on node (?P<rank>\d+) [^\n]*: (?P<text>Fatal error in \w*Init\w*)`},
		// The number in brackets is MPI's own, not an exit code.
		{kind: RankFailed, pattern: `Abort\(-?\d+\) on node (?P<rank>\d+) [^\n]*: (?P<text>Fatal error in \w+)(?:: (?P<detail>[^\n,]+))?`},
		{kind: DaemonLost, pattern: `(?P<text>Downstream from host (?P<host>\S+) exited abnormally)`},
		// mpiexec lost the connection to a proxy, without its name. The same message of a
		// proxy only means that mpiexec has finished.
		{kind: DaemonLost, pattern: `\[mpiexec@[^\]\n]*\] control_cb \([^)\n]*\): (?P<text>assert \(!closed\) failed)`},
		{kind: InitFailed, pattern: `(?P<text>Unable to run bstrap_proxy on (?P<host>[^\s,]+))`},
		{kind: InitFailed, pattern: `(?P<text>Launch proxy failed)`},
		{kind: InitFailed, pattern: `(?P<text>unable to get host address for \S+)`},
		{kind: InitFailed, pattern: `\[proxy:[\d:]+@(?P<host>[^\]\n]+)\] \w+ \([^)\n]*\): (?P<text>execvp error on file \S+ \([^)\n]*\))`},
		{kind: RankFailed, vague: true, pattern: `(?P<text>one of the processes terminated badly)`},
	}
}

var bannerPattern = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n` +
		`=   (?:RANK (\d+) )?PID \d+ RUNNING AT (\S+)\n` +
		`=   ((?:KILLED BY SIGNAL|EXIT CODE|EXIT STATUS): (\d+)(?: \([\w ]+\))?)`)
})

// hydraBanner reads the boxes that Hydra prints for ranks that exited on a signal, and
// returns the position of the first one. When a rank exits, Hydra kills the others of its
// host with SIGKILL and may print one of them first, or alone. A box with another signal
// is therefore preferred, and with SIGKILL only the host is certain, not the rank.
func hydraBanner(tail string) (Failure, int, bool) {
	const atMost = 64
	boxes := bannerPattern().FindAllStringSubmatchIndex(tail, atMost)
	if len(boxes) == 0 {
		return Failure{}, 0, false
	}
	first := bannerFailure(tail, boxes[0])
	for _, box := range boxes {
		if failure := bannerFailure(tail, box); failure.Signal != int(syscall.SIGKILL) {
			return failure, boxes[0][0], true
		}
	}
	return first, boxes[0][0], true
}

func bannerFailure(tail string, box []int) Failure {
	failure := Failure{Kind: RankFailed, Rank: -1, Host: hostName(tail[box[4]:box[5]]), Text: safeText(tail[box[6]:box[7]])}
	value := number(tail[box[8]:box[9]], 0)
	if signal := signalOf(tail[box[6]:box[7]], value); signal != 0 {
		failure.Signal = signal
	} else {
		failure.ExitCode = value
	}
	if box[2] >= 0 && failure.Signal != int(syscall.SIGKILL) {
		failure.Rank = number(tail[box[2]:box[3]], -1)
	}
	failure.Unsure = failure.Signal == int(syscall.SIGKILL)
	return failure
}

// signalOf returns the signal in a box, or 0 for an exit code. Intel MPI distinguishes
// the two. MPICH calls both exit codes, so the usual fatal signals count as signals.
func signalOf(text string, value int) int {
	if text[0] == 'K' {
		return value
	}
	switch syscall.Signal(value) {
	case syscall.SIGILL, syscall.SIGABRT, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGKILL, syscall.SIGSEGV, syscall.SIGTERM:
		return value
	}
	return 0
}
