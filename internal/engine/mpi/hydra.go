package mpi

import (
	"regexp"
	"sync"
	"syscall"
)

// hydraCauses are the last words of MPICH's Hydra and of Intel MPI's, which come
// from one source and still share most of their texts.
func hydraCauses() []cause {
	return []cause{
		// The number after "node" is the rank in the world; the other one is of the
		// communicator.
		{kind: RankFailed, pattern: `(?P<text>Abort\((?P<code>-?\d+)\) on node (?P<rank>\d+) \(rank \d+ in comm \d+\): application called MPI_Abort\(\w+, -?\d+\))`},
		{kind: InitFailed, pattern: `Abort\(-?\d+\) on node (?P<rank>\d+) [^\n]*: (?P<text>Fatal error in \w*Init\w*)`},
		// The number in brackets is MPI's own, not an exit code.
		{kind: RankFailed, pattern: `Abort\(-?\d+\) on node (?P<rank>\d+) [^\n]*: (?P<text>Fatal error in \w+)(?:: (?P<detail>[^\n,]+))?`},
		{kind: DaemonLost, pattern: `(?P<text>Downstream from host (?P<host>\S+) exited abnormally)`},
		// mpiexec's end of the connection to a proxy; it does not say whose. A proxy's
		// own "assert (!closed)" only means that mpiexec has gone.
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

// hydraBanner reads the boxes that Hydra prints for ranks that ended on a signal,
// and tells where the first one is. When a rank dies, Hydra kills the others of its
// host with SIGKILL and may name one of them first, or alone: so a box with another
// signal wins, and after SIGKILL only the host is certain, not the rank.
func hydraBanner(tail string) (Words, int, bool) {
	const atMost = 64
	boxes := bannerPattern().FindAllStringSubmatchIndex(tail, atMost)
	if len(boxes) == 0 {
		return Words{}, 0, false
	}
	first := bannerWords(tail, boxes[0])
	for _, box := range boxes {
		if words := bannerWords(tail, box); words.Signal != int(syscall.SIGKILL) {
			return words, boxes[0][0], true
		}
	}
	return first, boxes[0][0], true
}

func bannerWords(tail string, box []int) Words {
	words := Words{Kind: RankFailed, Rank: -1, Host: hostName(tail[box[4]:box[5]]), Text: safeText(tail[box[6]:box[7]])}
	value := number(tail[box[8]:box[9]], 0)
	if signal := signalOf(tail[box[6]:box[7]], value); signal != 0 {
		words.Signal = signal
	} else {
		words.ExitCode = value
	}
	if box[2] >= 0 && words.Signal != int(syscall.SIGKILL) {
		words.Rank = number(tail[box[2]:box[3]], -1)
	}
	words.Unsure = words.Signal == int(syscall.SIGKILL)
	return words
}

// signalOf is the signal behind a number in a box. Intel MPI says which it is;
// MPICH calls signals exit codes too, so the ones that end programs in practice are
// taken for what they nearly always are.
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
