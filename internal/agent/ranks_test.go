// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/ssh"

	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

// roleVariable makes the test binary a program of a job.
const roleVariable = "AGENT_TEST_ROLE"

// The main goroutine of a program stays on the main thread, which is the one that an
// examination looks at. Go guarantees that if it is locked during initialization.
func init() {
	if os.Getenv(roleVariable) != "" {
		runtime.LockOSThread()
	}
}

// playRole is the main function of such a program. Each prints its process ID first.
func playRole(role string) {
	fmt.Println(os.Getpid())
	switch name, argument, _ := strings.Cut(role, " "); name {
	case "spin":
		for i := 0; ; i++ {
			spun = i
		}
	case "receive":
		// One blocking system call on a socket, as a library without Go's runtime makes it.
		connection, err := net.Dial("tcp", argument)
		if err != nil {
			panic(err)
		}
		file, err := connection.(*net.TCPConn).File()
		if err != nil {
			panic(err)
		}
		_, _ = syscall.Read(int(file.Fd()), make([]byte, 1))
	case "write":
		_ = os.WriteFile(argument, make([]byte, 3<<20), 0o600)
		time.Sleep(time.Hour)
	}
	os.Exit(0)
}

var spun int

// asRole is a shell command that becomes a program of a job.
func asRole(t testing.TB, binary, rank, role string) string {
	t.Helper()
	return fmt.Sprintf("exec env %s '%s=%s' %s", rank, roleVariable, role, binary)
}

func testBinary(t testing.TB) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return self
}

// asMPI is a copy of the test binary whose code has the name of an MPI library.
func asMPI(t testing.TB) string {
	t.Helper()
	content, err := os.ReadFile(testBinary(t))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "libmpi.so.12.1")
	if err := os.WriteFile(path, content, 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// askRanks asks a worker as a launcher does.
func askRanks(t testing.TB, client *ssh.Client, question ranksQuestion) protocol.Host {
	t.Helper()
	payload, err := json.Marshal(question)
	if err != nil {
		t.Fatal(err)
	}
	accepted, reply, err := client.SendRequest(ranksRequest, true, payload)
	if err != nil || !accepted {
		t.Fatalf("the worker accepts the request: %t, error %v", accepted, err)
	}
	var host protocol.Host
	if err := json.Unmarshal(reply, &host); err != nil {
		t.Fatalf("%v in %q", err, reply)
	}
	return host
}

func rankNumbers(host protocol.Host) []int {
	var numbers []int
	for _, rank := range host.Ranks {
		numbers = append(numbers, rank.Rank)
	}
	return numbers
}

func TestWorkerFindsRanks(t *testing.T) {
	t.Parallel()
	client := startWorker(t, newKeys(t)).login(t, launchUser+"A")
	began := time.Now()
	// A shell, its child and a grandchild are one rank.
	inShell := startedProcess(t, client, `OMPI_COMM_WORLD_RANK=11 PMIX_RANK=11 sh -c 'sh -c "echo \$\$; exec sleep 600"; true'`)
	spinning := startedProcess(t, client, asRole(t, testBinary(t), "PMI_RANK=2", "spin"))
	file := filepath.Join(t.TempDir(), "written")
	writing := startedProcess(t, client, asRole(t, testBinary(t), "PMIX_RANK=7", "write "+file))
	// Not ranks: no variable, a word, a daemon beside them.
	_ = startedProcess(t, client, `echo $$; exec env PMI_RANK=first sleep 600`)
	_ = startedProcess(t, client, `echo $$; exec sleep 600`)
	byRank := func() map[int]protocol.Rank {
		ranks := map[int]protocol.Rank{}
		for _, rank := range askRanks(t, client, ranksQuestion{}).Ranks {
			ranks[rank.Rank] = rank
		}
		return ranks
	}
	eventually.HoldsWithin(t, patience, "the ranks work", func() bool {
		ranks := byRank()
		return ranks[2].CPUSeconds > 0.1 && ranks[7].BytesWritten >= 3<<20
	})
	host := askRanks(t, client, ranksQuestion{})
	if diff := cmp.Diff([]int{2, 7, 11}, rankNumbers(host)); diff != "" {
		t.Fatalf("ranks (-want +got):\n%s", diff)
	}
	started := map[int]time.Time{}
	for _, rank := range host.Ranks {
		started[rank.Rank] = rank.Started
	}
	for rank, want := range map[int]struct {
		pid   int
		state string
	}{2: {spinning, "R"}, 7: {writing, "S"}, 11: {inShell, "S"}} {
		got := byRank()[rank]
		if got.PID != want.pid || got.State != want.state && rank != 2 {
			t.Errorf("rank %d is process %d in state %s, want %d in %s", rank, got.PID, got.State, want.pid, want.state)
		}
		if got.Memory < 100<<10 || got.Memory > 10<<30 || got.Doing != "" || got.WaitsFor != "" {
			t.Errorf("rank %d: %+v", rank, got)
		}
		if age := began.Sub(got.Started); age > time.Second || age < -patience {
			t.Errorf("rank %d started %s before the test", rank, age)
		}
		if !got.Started.Equal(started[rank]) {
			t.Errorf("rank %d was started at %s, and then at %s", rank, started[rank], got.Started)
		}
	}
	_ = syscall.Kill(spinning, syscall.SIGKILL)
	eventually.HoldsWithin(t, patience, "a rank that has exited is not reported", func() bool {
		return !slices.Contains(rankNumbers(askRanks(t, client, ranksQuestion{})), 2)
	})
}

func TestWorkerExaminesRanks(t *testing.T) {
	t.Parallel()
	worker := startWorker(t, newKeys(t))
	client := worker.login(t, launchUser+"A")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	computing := startedProcess(t, client, asRole(t, testBinary(t), "PMI_RANK=0", "spin"))
	inMPI := startedProcess(t, client, asRole(t, asMPI(t), "PMI_RANK=1", "spin"))
	stopped := startedProcess(t, client, asRole(t, testBinary(t), "PMI_RANK=2", "spin"))
	_ = startedProcess(t, client, `PMI_RANK=3 sh -c 'echo $$; exec sleep 600'`)
	_ = startedProcess(t, client, asRole(t, testBinary(t), "PMI_RANK=4", "receive "+listener.Addr().String()))
	connection, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if err := syscall.Kill(stopped, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	type answer struct {
		Doing    protocol.Doing
		WaitsFor string
	}
	want := map[int]answer{
		0: {protocol.Computing, ""}, 1: {protocol.SpinningInMPI, ""}, 2: {protocol.StoppedBySignal, ""},
		3: {protocol.Sleeping, "hrtimer_nanosleep"}, 4: {protocol.Sleeping, "connection to train-worker-3"},
	}
	// On a machine that is busy, a rank may not run during an examination.
	eventually.SucceedsWithin(t, patience, "all ranks are examined", func() error {
		got := map[int]answer{}
		for _, rank := range askRanks(t, client, ranksQuestion{Examine: true, Peers: map[string]string{"127.0.0.1": "train-worker-3"}}).Ranks {
			got[rank.Rank] = answer{rank.Doing, rank.WaitsFor}
		}
		if !strings.Contains(got[4].WaitsFor, want[4].WaitsFor) {
			return fmt.Errorf("rank 4 waits for %q", got[4].WaitsFor)
		}
		got[4] = want[4]
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("examination (-want +got):\n%s", diff)
		}
		return nil
	})
	// Nothing is left stopped or traced.
	for _, id := range []int{computing, inMPI} {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", id))
		if err != nil || !strings.Contains(string(status), "TracerPid:\t0") || strings.Contains(string(status), "(stopped)") || strings.Contains(string(status), "(tracing stop)") {
			t.Errorf("process %d after the examination, error %v:\n%.300s", id, err, status)
		}
		before := cpuOf(t, id)
		eventually.HoldsWithin(t, patience, "it still runs", func() bool { return cpuOf(t, id) > before })
	}
}

// A thread that never stops, because others have its core, costs some samples. What the
// other ranks do is found out, those before it as well as those after it.
func TestExaminationContinuesAfterStuckThread(t *testing.T) {
	t.Parallel()
	inMPI, spinning := asMPI(t), testBinary(t)
	ranks := []rankProcess{
		startRank(t, 0, inMPI, "spin"), startRank(t, 1, spinning, "spin"), startRank(t, 2, inMPI, "spin"), startRank(t, 3, spinning, "spin"), startRank(t, 4, inMPI, "spin"),
	}
	neverStops := func(id, thread int) (uint64, int64, error) {
		if id == ranks[1].PID || id == ranks[3].PID {
			time.Sleep(stopPatience)
			return 0, -1, os.ErrDeadlineExceeded
		}
		return instructionPointer(id, thread)
	}
	want := []protocol.Doing{protocol.SpinningInMPI, "", protocol.SpinningInMPI, "", protocol.SpinningInMPI}
	// On a machine that is busy, a rank may not run during an examination.
	eventually.SucceedsWithin(t, patience, "the other ranks are examined", func() error {
		examine(ranks, nil, neverStops)
		var got []protocol.Doing
		for _, rank := range ranks {
			got = append(got, rank.Doing)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("examination (-want +got):\n%s", diff)
		}
		return nil
	})
}

// startRank starts a program of a job below this process.
func startRank(t *testing.T, number int, binary, role string) rankProcess {
	t.Helper()
	command := exec.Command(binary)
	command.Env = append(os.Environ(), roleVariable+"="+role)
	started, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	// It prints its process ID when it has begun.
	if _, err := started.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	id := command.Process.Pid
	return rankProcess{Rank: protocol.Rank{Rank: number, PID: id}, all: []int{id}}
}

func cpuOf(t testing.TB, id int) int64 {
	t.Helper()
	one, err := readUsage(id)
	if err != nil {
		t.Fatal(err)
	}
	return one.ownTicks
}

// A rank that exits while it is examined must not become a zombie, nor lose its exit code.
func TestExaminationKeepsExitCodes(t *testing.T) {
	t.Parallel()
	worker := startWorker(t, newKeys(t))
	client := worker.login(t, launchUser+"A")
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 5 {
			_, _, _ = client.SendRequest(ranksRequest, true, []byte(`{"examine": true}`))
		}
	}()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		script := `i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; exit 7`
		if got := execute(t, client, "PMI_RANK=0 sh -c '"+script+"'", ""); got.Status != 7 {
			t.Fatalf("exit code %d, want 7", got.Status)
		}
		if got := execute(t, client, "PMI_RANK=0; export PMI_RANK; "+script, ""); got.Status != 7 {
			t.Fatalf("exit code %d of a child of the agent, want 7", got.Status)
		}
	}
}

// What an examination has stopped was running; what somebody else has stopped is stopped.
func TestExaminedProcessCountsAsRunning(t *testing.T) {
	command := exec.Command("sh", "-c", "while :; do :; done")
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	id := command.Process.Pid
	var seen, raw string
	onOwnThread(func() {
		if err := errors.Join(ptrace(ptraceSeize, id, 0), ptrace(ptraceInterrupt, id, 0)); err != nil {
			t.Error(err)
			return
		}
		if _, err := awaitStop(id, id); err != nil {
			t.Error(err)
			return
		}
		one, err := readUsage(id)
		content, _ := os.ReadFile(filepath.Join(processDirectory(id), "stat"))
		unchanged, _ := parseUsage(content)
		if seen, raw = one.state, unchanged.state; err != nil {
			t.Error(err)
		}
	})
	if raw != tracingStop || seen != "R" {
		t.Errorf("the state of a process that is examined is %q, want R; in /proc it is %q, want %s", seen, raw, tracingStop)
	}
	if err := command.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually.HoldsWithin(t, patience, "the state of a stopped process is T", func() bool {
		one, err := readUsage(id)
		return err == nil && one.state == "T"
	})
}

func TestDoing(t *testing.T) {
	tests := map[string]struct {
		state string
		count rounds
		want  protocol.Doing
	}{
		"computes":                         {"R", rounds{program: 50}, protocol.Computing},
		"mostly communicates":              {"R", rounds{program: 1, mpi: 49}, protocol.Computing},
		"only in MPI":                      {"R", rounds{mpi: 50}, protocol.SpinningInMPI},
		"in MPI and the C library":         {"R", rounds{mpi: 20, system: 30}, protocol.SpinningInMPI},
		"copies memory":                    {"R", rounds{mpi: 1, system: 49}, protocol.Computing},
		"only in the C library":            {"R", rounds{system: 50}, protocol.Computing},
		"a monitor beside MPI":             {"R", rounds{mpi: 48, helpers: 2}, protocol.SpinningInMPI},
		"threads compute":                  {"S", rounds{mpi: 25, helpers: 25}, protocol.Computing},
		"sleeps":                           {"S", rounds{}, protocol.Sleeping},
		"sleeps beside a progress thread":  {"S", rounds{mpi: 3}, protocol.Sleeping},
		"spins and sleeps at the end":      {"S", rounds{mpi: 45}, protocol.SpinningInMPI},
		"waits for a disk":                 {"D", rounds{}, protocol.Sleeping},
		"stopped":                          {"T", rounds{mpi: 30}, protocol.StoppedBySignal},
		"stopped by a debugger":            {"t", rounds{}, protocol.StoppedBySignal},
		"refused":                          {"R", rounds{unknown: 50}, ""},
		"refused for some threads":         {"R", rounds{unknown: 10, mpi: 40}, ""},
		"refused, and its state is asleep": {"S", rounds{unknown: 50}, ""},
		"runs, and was not sampled":        {"R", rounds{}, ""},
		"exited":                           {"Z", rounds{program: 3}, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := doing(tc.state, tc.count); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

func TestParseMaps(t *testing.T) {
	got := parseMaps(`55d0-55f0 r--p 00000000 fd:00 1 /usr/bin/python3.13
55f0-5600 r-xp 00000000 fd:00 1 /usr/bin/python3.13
7f00-7f10 r-xp 00000000 fd:00 2 /usr/lib/libmpi.so.40 (deleted)
7f10-7f20 rwxp 00000000 00:00 0
7f20-7f30 r-xp 00000000 00:00 0 [vdso]
x-y r-xp 0 0 0
7f r-xp
`)
	want := []mapping{{0x55f0, 0x5600, "/usr/bin/python3.13"}, {0x7f00, 0x7f10, "/usr/lib/libmpi.so.40"}, {0x7f10, 0x7f20, ""}, {0x7f20, 0x7f30, "[vdso]"}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(mapping{})); diff != "" {
		t.Errorf("mappings (-want +got):\n%s", diff)
	}
}

func TestParseConnection(t *testing.T) {
	tests := map[string]struct{ line, wantSocket, wantAddress string }{
		"IPv4":          {"   1: 0100007F:08AE 0301F40A:C350 01 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0000 20", "socket:[4711]", "10.244.1.3"},
		"IPv4 in IPv6":  {"   1: 0000000000000000FFFF00000100007F:08AE 0000000000000000FFFF00000301F40A:C350 01 0:0 0:0 0 1000 0 4712 1", "socket:[4712]", "10.244.1.3"},
		"IPv6":          {"   1: 00000000000000000000000001000000:08AE B80D0120000000000000000002000000:C350 01 0:0 0:0 0 1000 0 4713 1", "socket:[4713]", "2001:db8::2"},
		"a listener":    {"   0: 00000000:08AE 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4714 1", "", ""},
		"the heading":   {"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode", "", ""},
		"a wrong digit": {"   1: 0100007F:08AE 0301F40X:C350 01 0:0 0:0 0 1000 0 4711 1", "", ""},
		"nothing":       {},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			socket, address, ok := parseConnection(tc.line)
			if socket != tc.wantSocket || address != tc.wantAddress || ok != (tc.wantSocket != "") {
				t.Errorf("%q, %q, %t; want %q, %q", socket, address, ok, tc.wantSocket, tc.wantAddress)
			}
		})
	}
}

func FuzzParseUsage(f *testing.F) {
	f.Add([]byte("42 (orted) S 1 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 12345 1000 200 1 2 3 4"))
	f.Add([]byte("42 (or)ted) Z 1"))
	f.Fuzz(func(_ *testing.T, content []byte) {
		_, _ = parseUsage(content)
		_ = parseMaps(string(content))
		_, _, _ = parseConnection(string(content))
	})
}

// What a launcher asks a worker for is not for other requests.
func TestWorkerRefusesInvalidQuestion(t *testing.T) {
	t.Parallel()
	client := startWorker(t, newKeys(t)).login(t, launchUser+"A")
	accepted, reply, err := client.SendRequest(ranksRequest, true, []byte("{"))
	if err != nil || accepted || len(reply) > 0 && string(reply) != "null" {
		t.Errorf("accepted %t, reply %q, error %v", accepted, reply, err)
	}
	if host := askRanks(t, client, ranksQuestion{}); len(host.Ranks) != 0 || host.Unknown != "" {
		t.Errorf("the worker without ranks answers %+v", host)
	}
}
