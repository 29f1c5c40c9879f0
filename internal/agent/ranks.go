// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/engine/mpi"
)

// ticksPerSecond is the unit of times in /proc on Linux, whatever the kernel's own is.
const ticksPerSecond = 100

// rankReader finds the ranks below the agent. It reads /proc only, so it works for any
// user, as far as the processes have the same one.
type rankReader struct {
	mutex sync.Mutex
	// ranks are the ranks of processes, or notRank: reading every environment again and again
	// would cost most of the time.
	ranks map[image]int
	// booted is read once: the clock may be adjusted meanwhile, and a process was started at
	// one time only.
	booted time.Time
	// examining allows one examination at a time: a thread has at most one tracer.
	examining sync.Mutex
}

// image is a program that a process runs. Its stack begins elsewhere after each exec.
type image struct{ id, start, stack int64 }

const notRank = -1

func newRankReader() *rankReader { return &rankReader{ranks: map[image]int{}, booted: bootTime()} }

// rankProcess is a rank with its processes: a shell that mpirun has started, the program,
// its helpers.
type rankProcess struct {
	protocol.Rank
	// all are the rank's processes.
	all []int
}

// usage is what /proc/PID/stat says about a process.
type usage struct {
	process
	state string
	// ownTicks is the CPU time of the process, childTicks that of children that it has
	// waited for.
	ownTicks, childTicks int64
	start, stack         int64
	residentPages        int64
}

// Fields of /proc/PID/stat, counted after the name.
const (
	statState      = 0
	statUserTime   = 11
	statSystemTime = 12
	statChildUser  = 13
	statChildSys   = 14
	statStart      = 19
	statResident   = 21
	statStack      = 25
)

func parseUsage(content []byte) (usage, error) {
	process, err := parseStat(content)
	if err != nil {
		return usage{}, err
	}
	fields := bytes.Fields(content[bytes.LastIndexByte(content, ')')+1:])
	if len(fields) <= statStack {
		return usage{}, errors.New("/proc/PID/stat has too few fields")
	}
	number := func(field int) int64 {
		// The stack is unsigned; only its difference matters.
		value, _ := strconv.ParseUint(string(fields[field]), 10, 64)
		return int64(value)
	}
	return usage{
		process: process, state: string(fields[statState]),
		ownTicks: number(statUserTime) + number(statSystemTime), childTicks: number(statChildUser) + number(statChildSys),
		start: number(statStart), stack: number(statStack), residentPages: number(statResident),
	}, nil
}

// Names of /proc: the state of what a tracer has stopped, and who the tracer is.
const (
	tracingStop = "t"
	tracerField = "TracerPid:"
)

// usageIn reads the usage from the folder of a process or thread in /proc. What an
// examination has stopped for a moment counts as running: only threads that run are
// stopped, and on a busy machine they may be seen before they continue.
func usageIn(folder string) (usage, error) {
	content, err := os.ReadFile(filepath.Join(folder, "stat"))
	if err != nil {
		return usage{}, err
	}
	one, err := parseUsage(content)
	if err == nil && one.state == tracingStop && isExamined(folder) {
		one.state = "R"
	}
	return one, err
}

// isExamined reports whether a thread of the agent traces a process or thread, or has just
// released it.
func isExamined(folder string) bool {
	tracer := tracerOf(folder)
	return tracer == "0" || isOwnThread(tracer)
}

// tracerOf returns the thread that traces a process or thread; 0 if there is none.
func tracerOf(folder string) string {
	content, err := os.ReadFile(filepath.Join(folder, "status"))
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(content), tracerField)
	tracer, _, _ := strings.Cut(strings.TrimSpace(rest), "\n")
	return tracer
}

func isOwnThread(thread string) bool {
	_, err := os.Stat(filepath.Join("/proc/self/task", thread))
	return thread != "" && err == nil
}

// processTree has all processes, and the children of each.
type processTree struct {
	processes map[int]usage
	children  map[int][]int
}

func readProcessTree() processTree {
	tree := processTree{processes: map[int]usage{}, children: map[int][]int{}}
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		// An error means that it has exited.
		if one, err := usageIn(filepath.Dir(file)); err == nil {
			tree.processes[one.id] = one
			tree.children[one.parent] = append(tree.children[one.parent], one.id)
		}
	}
	return tree
}

// below returns a process and its descendants.
func (pt processTree) below(id int) []int {
	all := []int{id}
	for i := 0; i < len(all); i++ {
		all = append(all, pt.children[all[i]]...)
	}
	return all
}

// read returns the ranks below the agent, in the order of their numbers. A rank counts
// once: a shell and the program that it starts have the same variable.
func (rr *rankReader) read() []rankProcess {
	rr.mutex.Lock()
	defer rr.mutex.Unlock()
	tree := readProcessTree()
	known := map[image]int{}
	var ranks []rankProcess
	var visit func(id int)
	visit = func(id int) {
		for _, child := range tree.children[id] {
			if rank := rr.rankOf(tree.processes[child], known); rank != notRank {
				ranks = append(ranks, tree.rank(child, rank, rr.booted))
			} else {
				visit(child)
			}
		}
	}
	visit(os.Getpid())
	rr.ranks = known
	// Of two runs at a time on a host, the first one counts.
	slices.SortStableFunc(ranks, func(a, b rankProcess) int {
		return cmp.Or(cmp.Compare(a.Rank.Rank, b.Rank.Rank), a.Started.Compare(b.Started))
	})
	return slices.CompactFunc(ranks, func(a, b rankProcess) bool { return a.Rank.Rank == b.Rank.Rank })
}

func (rr *rankReader) rankOf(one usage, known map[image]int) int {
	key := image{int64(one.id), one.start, one.stack}
	rank, isKnown := rr.ranks[key]
	if !isKnown {
		environment, err := os.ReadFile(filepath.Join(processDirectory(one.id), "environ"))
		if err != nil {
			return notRank // It has exited, or has another user: another process may have its number later.
		}
		rank = notRank
		if number, isRank := mpi.RankOf(environment); isRank {
			rank = number
		}
	}
	known[key] = rank
	return rank
}

// rank sums up the processes of a rank.
func (pt processTree) rank(id, number int, booted time.Time) rankProcess {
	all := pt.below(id)
	main := pt.program(id)
	one := rankProcess{all: all, Rank: protocol.Rank{
		Rank: number, PID: main, State: pt.processes[main].state,
		Started: booted.Add(time.Duration(pt.processes[id].start) * time.Second / ticksPerSecond),
	}}
	for _, each := range all {
		process := pt.processes[each]
		one.CPUSeconds += float64(process.ownTicks+process.childTicks) / ticksPerSecond
		one.Memory += process.residentPages * int64(os.Getpagesize())
		read, written := transferred(each)
		one.BytesRead += read
		one.BytesWritten += written
	}
	return one
}

// program follows shells that wait for a child to the program that they run.
func (pt processTree) program(id int) int {
	for {
		var child int
		for _, each := range pt.children[id] {
			if !pt.processes[each].zombie && (child == 0 || pt.processes[each].ownTicks > pt.processes[child].ownTicks) {
				child = each
			}
		}
		if child == 0 || waitChannel(id) != waitingForChild {
			return id
		}
		id = child
	}
}

// transferred returns what a process has read and written, including pipes and files in
// memory. It is 0 if that cannot be read.
func transferred(id int) (read, written int64) {
	content, err := os.ReadFile(filepath.Join(processDirectory(id), "io"))
	if err != nil {
		return 0, 0
	}
	for line := range strings.Lines(string(content)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch name {
		case "rchar":
			read, _ = strconv.ParseInt(value, 10, 64)
		case "wchar":
			written, _ = strconv.ParseInt(value, 10, 64)
		}
	}
	return read, written
}

func processDirectory(id int) string { return filepath.Join("/proc", strconv.Itoa(id)) }

// bootTime is the start of the clock that /proc measures start times with.
func bootTime() time.Time {
	const clockBootTime = 7
	var since syscall.Timespec
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBootTime, uintptr(unsafe.Pointer(&since)), 0)
	return time.Now().Add(-time.Duration(since.Nano()))
}
