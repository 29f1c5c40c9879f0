// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// Requests of ptrace, and what it reports.
const (
	ptraceSeize     = 0x4206
	ptraceInterrupt = 0x4207
	ptraceDetach    = 17
	// eventStop marks the stop that ptraceInterrupt causes, or a stop of the whole process.
	eventStop = 128
)

// Arguments of waitid. Only stops are waited for, never exits: those belong to the parent.
const (
	waitForID    = 1
	waitAllKinds = 0x40000000
)

// stopPatience is how long a thread may take to stop. With a CPU quota, or with others on
// its core, it may not run for some time. On Linux 6.18, ranks that shared a core did not
// run for about as long as the tracer waited; why is not known.
const stopPatience = 200 * time.Millisecond

// onOwnThread runs a function on a thread of the operating system that ends with it. The
// kernel releases what such a thread still traces, whatever happens in the function.
func onOwnThread(do func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if syscall.Gettid() == os.Getpid() {
			// The first thread of a process never ends. This one waits for another.
			defer runtime.UnlockOSThread()
			onOwnThread(do)
			return
		}
		do()
	}()
	<-done
}

// instructionPointer stops a thread, reads where it is, and lets it continue. call is the
// system call that it returns from, or -1. The agent is
// an ancestor of the ranks, so that it may do so without a capability, unless the
// container's seccomp profile or the kernel's settings refuse it. It reads no memory and
// no registers but this one.
func instructionPointer(id, thread int) (address uint64, call int64, err error) {
	if err := ptrace(ptraceSeize, thread, 0); err != nil {
		return 0, -1, err
	}
	if err := ptrace(ptraceInterrupt, thread, 0); err != nil {
		return 0, -1, err
	}
	signal, err := awaitStop(id, thread)
	if err != nil {
		return 0, -1, err
	}
	// A signal that arrived at this moment is passed on.
	defer func() { _ = ptrace(ptraceDetach, thread, uintptr(signal)) }()
	// Of a thread that is stopped, this file has the registers of interest: it is the same
	// on all architectures.
	content, err := os.ReadFile(filepath.Join(threadDirectory(id, thread), "syscall"))
	if err != nil {
		return 0, -1, err
	}
	fields := strings.Fields(string(content))
	if len(fields) < 3 {
		return 0, -1, fmt.Errorf("unexpected content of /proc/PID/syscall: %d fields", len(fields))
	}
	if call, err = strconv.ParseInt(fields[0], 10, 64); err != nil {
		return 0, -1, err
	}
	address, err = strconv.ParseUint(fields[len(fields)-1], 0, 64)
	return address, call, err
}

// awaitStop waits until a thread has stopped. It returns the signal that stopped it, or 0
// if that was the interrupt. If it fails, the thread is still traced until the thread of the
// caller ends.
func awaitStop(id, thread int) (signal int, err error) {
	var info struct {
		_       [4]int32
		id, uid int32
		status  int32
		_       [25]int32
	}
	pause := 10 * time.Microsecond
	for deadline := time.Now().Add(stopPatience); time.Now().Before(deadline); pause = min(2*pause, 5*time.Millisecond) {
		_, _, failure := syscall.RawSyscall6(syscall.SYS_WAITID, waitForID, uintptr(thread), uintptr(unsafe.Pointer(&info)),
			syscall.WSTOPPED|syscall.WNOHANG|waitAllKinds, 0, 0)
		if failure != 0 {
			return 0, failure
		}
		if info.id != 0 {
			if info.status>>8 == eventStop {
				return 0, nil
			}
			return int(info.status & 0xff), nil
		}
		time.Sleep(pause)
		if state := threadState(id, thread); state == "" || isExited(state) {
			return 0, os.ErrProcessDone
		}
	}
	return 0, os.ErrDeadlineExceeded
}

// pollingCalls are the numbers of the system calls that programs poll with: sched_yield,
// poll, ppoll, select, pselect6, epoll_wait, epoll_pwait.
var pollingCalls = map[string][]int64{
	"amd64": {24, 7, 271, 23, 270, 232, 281},
	"arm64": {124, 73, 72, 22},
}

func isPolling(call int64) bool { return slices.Contains(pollingCalls[runtime.GOARCH], call) }

func ptrace(request, thread int, data uintptr) error {
	_, _, failure := syscall.RawSyscall6(syscall.SYS_PTRACE, uintptr(request), uintptr(thread), 0, data, 0, 0)
	if failure != 0 {
		return failure
	}
	return nil
}
