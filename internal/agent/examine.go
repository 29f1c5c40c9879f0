// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/engine/mpi"
)

const (
	// An examination takes examineRounds samples of each rank.
	examineRounds = 50
	examinePause  = 20 * time.Millisecond
	// examineLimit is how long an examination may take: the launcher waits five seconds.
	examineLimit = 3 * time.Second
	// maxThreads limits the threads of a rank that are sampled.
	maxThreads = 128
	// busyHelperRounds is in how many rounds helper threads must run the program for it to
	// count. A monitor that wakes up once a second computes nothing.
	busyHelperRounds = examineRounds / 10
	// busyRounds is in how many rounds a rank must run not to be asleep.
	busyRounds = examineRounds / 5
	// restRounds is for how many rounds a thread is left alone that did not stop. Each try
	// takes stopPatience, in which nothing else is sampled.
	restRounds = examineRounds / 4
)

// rounds counts what a rank did at each sample.
type rounds struct {
	// program counts the rounds in which the main thread ran the program's own code, helpers
	// those in which only other threads did.
	program, helpers int
	mpi, system      int
	// unknown counts the rounds in which the rank ran and could not be sampled.
	unknown int
}

// examine finds out what the ranks are doing. Only threads that run are stopped, for about
// 0.1 ms each: a system call that waits might return early if it were interrupted.
func examine(ranks []rankProcess, peers map[string]string, read pointerReader) {
	counts := make([]rounds, len(ranks))
	resting := map[int]int{}
	began := time.Now()
	deadline := began.Add(examineLimit)
	for next, all := 0, examineRounds*len(ranks); next < all && time.Now().Before(deadline); {
		onOwnThread(func() {
			sampler := newSampler(read, resting)
			for ; next < all && !sampler.isStuck && time.Now().Before(deadline); next++ {
				round, i := next/len(ranks), next%len(ranks)
				if i == 0 && round > 0 {
					time.Sleep(examinePause - time.Since(began))
					began = time.Now()
				}
				sampler.sample(&ranks[i], &counts[i], round)
			}
		})
	}
	for i := range ranks {
		ranks[i].describe(counts[i], peers)
	}
}

// describe sets what a rank does.
func (rp *rankProcess) describe(count rounds, peers map[string]string) {
	if current, err := readUsage(rp.PID); err == nil {
		rp.State = current.state
	}
	rp.Doing = doing(rp.State, count)
	if rp.Doing == protocol.Sleeping {
		rp.WaitsFor = waitsFor(rp.PID, peers)
	}
}

// doing judges the samples. It is empty if that is not known.
func doing(state string, count rounds) protocol.Doing {
	running := count.program + count.helpers + count.mpi + count.system + count.unknown
	switch {
	case isExited(state):
		return ""
	case state == "T" || state == "t":
		return protocol.StoppedBySignal
	case count.program > 0 || count.helpers >= busyHelperRounds:
		// One sample is enough: ranks that communicate for most of the time make progress, too.
		return protocol.Computing
	case running < busyRounds && state != "R":
		return protocol.Sleeping
	case count.unknown > 0 || running < busyRounds:
		return ""
	case 2*count.mpi >= count.system:
		return protocol.SpinningInMPI
	default:
		// Mostly in the C library: it may copy memory for the program.
		return protocol.Computing
	}
}

func isExited(state string) bool { return state == "Z" || state == "X" }

func readUsage(id int) (usage, error) { return usageIn(processDirectory(id)) }

// pointerReader reads where a running thread is, as instructionPointer does.
type pointerReader func(id, thread int) (address uint64, call int64, err error)

// sampler samples the instruction pointers of threads. It must be used on one thread of
// the operating system.
type sampler struct {
	read pointerReader
	// maps are the mapped files of processes.
	maps map[int][]mapping
	// isStuck is set if a thread did not stop, because it waits for a core. It only continues
	// when the sampler has finished; another one then continues.
	isStuck bool
	// resting has threads that did not stop, and the round in which they are sampled again. It
	// is shared by all samplers of an examination.
	resting map[int]int
}

func newSampler(read pointerReader, resting map[int]int) *sampler {
	return &sampler{read: read, maps: map[int][]mapping{}, resting: resting}
}

// sample takes one sample of all threads of a rank, and counts the most telling one.
func (s *sampler) sample(rank *rankProcess, count *rounds, round int) {
	var main, helpers, inMPI, inSystem, isUnknown bool
	left := maxThreads
	for _, id := range rank.all {
		for _, thread := range threadsOf(id) {
			if left--; left < 0 || s.isStuck || round < s.resting[thread] || threadState(id, thread) != "R" {
				continue
			}
			code, err := s.codeOf(id, thread)
			switch {
			case errors.Is(err, os.ErrDeadlineExceeded):
				s.isStuck, s.resting[thread] = true, round+restRounds
			case err != nil:
				// Unless it has exited, or its last tracer has not released it yet.
				isUnknown = isUnknown || threadState(id, thread) == "R" && !isOwnThread(tracerOf(threadDirectory(id, thread)))
			case code == mpi.MPICode:
				inMPI = true
			case code == mpi.SystemCode:
				inSystem = true
			case thread == rank.PID:
				main = true
			default:
				helpers = true
			}
		}
	}
	switch {
	case main:
		count.program++
	case helpers:
		count.helpers++
	case isUnknown:
		count.unknown++
	case inMPI:
		count.mpi++
	case inSystem:
		count.system++
	}
}

// codeOf returns where a running thread is.
func (s *sampler) codeOf(id, thread int) (mpi.Code, error) {
	address, call, err := s.read(id, thread)
	if err != nil {
		return 0, err
	}
	if _, known := s.maps[id]; !known {
		content, err := os.ReadFile(filepath.Join(processDirectory(id), "maps"))
		if err != nil {
			return 0, err
		}
		s.maps[id] = parseMaps(string(content))
	}
	for _, each := range s.maps[id] {
		if each.from <= address && address < each.to {
			code := mpi.CodeOf(each.file)
			if code == mpi.SystemCode && isPolling(call) && s.usesMPI(id) {
				// A thread that yields in a loop is always found where it returns from the kernel.
				code = mpi.MPICode
			}
			return code, nil
		}
	}
	// Code that was generated or loaded since.
	return mpi.ProgramCode, nil
}

func (s *sampler) usesMPI(id int) bool {
	return slices.ContainsFunc(s.maps[id], func(each mapping) bool { return mpi.CodeOf(each.file) == mpi.MPICode })
}

// mapping is a part of a process's memory that contains code.
type mapping struct {
	from, to uint64
	file     string
}

// parseMaps reads lines such as "7f00-7f20 r-xp 00000000 08:01 123   /lib/libc.so.6".
func parseMaps(content string) []mapping {
	var code []mapping
	for line := range strings.Lines(content) {
		fields := strings.Fields(line)
		if len(fields) < 5 || len(fields[1]) < 3 || fields[1][2] != 'x' {
			continue
		}
		from, to, _ := strings.Cut(fields[0], "-")
		one := mapping{}
		var fromErr, toErr error
		one.from, fromErr = strconv.ParseUint(from, 16, 64)
		one.to, toErr = strconv.ParseUint(to, 16, 64)
		if fromErr != nil || toErr != nil {
			continue
		}
		if len(fields) > 5 {
			one.file = fields[5]
		}
		code = append(code, one)
	}
	return code
}

func threadsOf(id int) []int {
	entries, _ := os.ReadDir(filepath.Join(processDirectory(id), "task"))
	var threads []int
	for _, entry := range entries {
		if thread, err := strconv.Atoi(entry.Name()); err == nil {
			threads = append(threads, thread)
		}
	}
	return threads
}

func threadDirectory(id, thread int) string {
	return filepath.Join(processDirectory(id), "task", strconv.Itoa(thread))
}

func threadState(id, thread int) string {
	one, err := usageIn(threadDirectory(id, thread))
	if err != nil {
		return ""
	}
	return one.state
}
