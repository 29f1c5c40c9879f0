// SPDX-License-Identifier: Apache-2.0

package deployed

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// CPUTime is how long a process has been working.
func CPUTime(t testing.TB, pid int) time.Duration {
	t.Helper()
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	// The name of the program, in brackets, may have spaces.
	fields := strings.Fields(string(content[strings.LastIndexByte(string(content), ')')+1:]))
	ticks := 0
	for _, field := range fields[11:13] {
		number, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		ticks += number
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// Memory is how many bytes of memory a process has, and has had at most.
func Memory(t testing.TB, pid int) (now, peak int64) {
	t.Helper()
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	return kibibytes(t, string(content), "VmRSS:") << 10, kibibytes(t, string(content), "VmHWM:") << 10
}

func kibibytes(t testing.TB, status, name string) int64 {
	t.Helper()
	_, rest, _ := strings.Cut(status, name)
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		t.Fatalf("/proc has no %s", name)
	}
	number, err := strconv.ParseInt(fields[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return number
}
