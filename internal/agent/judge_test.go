// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/engine/mpi"
	"github.com/trireme-mpi/trireme/internal/engine/redact"
)

var judgedHosts = []string{"train-worker-0.train", "train-worker-1.train", "train-worker-2.train"}

// began is when the command of every judged run started.
var began = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func reached(hosts ...string) []record {
	var records []record
	for i, host := range hosts {
		records = append(records, record{Host: host, At: began.Add(time.Duration(i+1) * 100 * time.Millisecond)})
	}
	return records
}

func transcript(t testing.TB, names ...string) string {
	t.Helper()
	var all strings.Builder
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join("..", "engine", "mpi", "testdata", "erroroutput", name+".txt"))
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}

func TestJudge(t *testing.T) {
	all := reached(judgedHosts...)
	later := began.Add(time.Minute)
	lost := func(host string, trouble protocol.Trouble) record {
		return record{Host: host, Trouble: trouble, Message: "cannot reach " + host, At: later}
	}
	one, code3 := 1, 3
	three := protocol.Hosts{Expected: 3, Reached: 3}
	tests := map[string]struct {
		code            int
		transcripts     []string
		text            string
		records         []record
		requireAllHosts bool
		imageSSH        bool
		want            protocol.Report
		wantInMessage   string
	}{
		"success":                             {records: all, want: protocol.Report{Hosts: three}},
		"success, with short names":           {records: reached("train-worker-0", "train-worker-1", "train-worker-2"), requireAllHosts: true, want: protocol.Report{Hosts: three}},
		"a host more than once":               {records: append(all, all...), requireAllHosts: true, want: protocol.Report{Hosts: three}},
		"one host only, which is allowed":     {records: all[:1], want: protocol.Report{Hosts: protocol.Hosts{Expected: 3, Reached: 1, Missing: judgedHosts[1:]}}},
		"one host only, and all are required": {records: all[:1], requireAllHosts: true, wantInMessage: "train-worker-1.train, train-worker-2.train", want: protocol.Report{Reason: protocol.ReasonMPI, Host: judgedHosts[1], ExitCode: exitMPI, Hosts: protocol.Hosts{Expected: 3, Reached: 1, Missing: judgedHosts[1:]}}},
		"the image's ssh, which has no list":  {imageSSH: true, requireAllHosts: true, want: protocol.Report{Hosts: three}},
		"a command that fails by itself":      {code: 3, records: all, wantInMessage: "exit code 3", want: protocol.Report{Reason: protocol.ReasonTraining, ExitCode: 3, Hosts: three}},
		"a rank that exits 3": {code: 3, transcripts: []string{"openmpi4-exit3"}, records: all, wantInMessage: "rank 1 exited with code 3",
			want: protocol.Report{Reason: protocol.ReasonTraining, Rank: &one, RankExitCode: &code3, ExitCode: 3, Hosts: three}},
		"a rank that is killed": {code: 137, transcripts: []string{"openmpi5-sigkill"}, records: all, wantInMessage: "signal 9",
			want: protocol.Report{Reason: protocol.ReasonTraining, Rank: &one, Host: "train-worker-0", Signal: 9, ExitCode: 137, Hosts: three}},
		"a rank of MPICH that is killed": {code: 9, transcripts: []string{"mpich-sigkill", "mpich-sigkill-stdout"}, records: all, wantInMessage: "9",
			want: protocol.Report{Reason: protocol.ReasonTraining, Host: "train-worker-1", LastLines: []string{"size 3 sum 3"}, ExitCode: 9, Hosts: three}},
		"a missing program": {code: 134, transcripts: []string{"openmpi5-notfound"}, records: all, wantInMessage: "/nonexistent/train",
			want: protocol.Report{Reason: protocol.ReasonMPI, Host: "train-worker-0", ExitCode: 134, Hosts: three}},
		"more ranks than slots": {code: 1, transcripts: []string{"openmpi4-slots"}, wantInMessage: "not enough slots",
			want: protocol.Report{Reason: protocol.ReasonMPI, ExitCode: 1, Hosts: protocol.Hosts{Expected: 3, Missing: judgedHosts}}},
		"a daemon that is lost": {code: 1, transcripts: []string{"openmpi4-daemonlost"}, records: all, wantInMessage: "lost worker train-worker-1 ",
			want: protocol.Report{Reason: protocol.ReasonWorker, Host: "train-worker-1", ExitCode: 1, Hosts: three}},
		"a daemon of MPICH, whose host rsh knows": {code: 255, transcripts: []string{"mpich-poddied"}, records: append(slices.Clone(all), lost("train-worker-1.train", protocol.Broken)), wantInMessage: "lost worker train-worker-1.train ",
			want: protocol.Report{Reason: protocol.ReasonWorker, Host: "train-worker-1.train", ExitCode: 255, Hosts: three}},
		"a connection that breaks, and no error output": {code: 255, records: append(slices.Clone(all), lost("train-worker-2.train", protocol.Broken)), wantInMessage: "lost worker train-worker-2.train ",
			want: protocol.Report{Reason: protocol.ReasonWorker, Host: "train-worker-2.train", ExitCode: 255, Hosts: three}},
		"a connection that breaks because a rank has failed": {code: 3, transcripts: []string{"openmpi4-exit3"}, records: append(slices.Clone(all), lost("train-worker-2.train", protocol.Broken)), wantInMessage: "rank 1 exited with code 3",
			want: protocol.Report{Reason: protocol.ReasonTraining, Rank: &one, RankExitCode: &code3, ExitCode: 3, Hosts: three}},
		"a host that cannot be reached": {code: 1, transcripts: []string{"openmpi4-agentfails"}, records: append(reached(judgedHosts[:2]...), lost(judgedHosts[2], protocol.TimedOut)), wantInMessage: "cannot reach train-worker-2.train",
			want: protocol.Report{Reason: protocol.ReasonSSH, Host: judgedHosts[2], ExitCode: 1, Hosts: protocol.Hosts{Expected: 3, Reached: 2, Missing: judgedHosts[2:]}}},
		"a worker that was terminated": {code: 143, transcripts: []string{"openmpi4-sigkill"}, records: append(slices.Clone(all), lost(judgedHosts[0], protocol.Stopped)), wantInMessage: "its pod was terminated",
			want: protocol.Report{Reason: protocol.ReasonWorker, Host: judgedHosts[0], ExitCode: 143, Hosts: three}},
		"Intel MPI, which exits with 0 although a host is lost": {transcripts: []string{"intelmpi-daemonlost"}, records: all, wantInMessage: "lost worker train-worker-1 ",
			want: protocol.Report{Reason: protocol.ReasonWorker, Host: "train-worker-1", ExitCode: exitMPI, Hosts: three}},
		"a program that prints a secret": {code: 1, text: "AWS_SECRET_ACCESS_KEY=planted\nValueError: password=planted\n", records: all, wantInMessage: "exit code 1: ValueError: password=[redacted]",
			want: protocol.Report{Reason: protocol.ReasonTraining, ExitCode: 1, Error: "ValueError: password=[redacted]", LastLines: []string{"AWS_SECRET_ACCESS_KEY=[redacted]", "ValueError: password=[redacted]"}, Hosts: three}},
		"a program that prints a key, of which only the end is shown": {code: 1, records: all, wantInMessage: "exit code 1",
			text: "-----BEGIN PRIVATE KEY-----\n" + strings.Repeat("planted"+strings.Repeat("A", 57)+"\n", 9) + "-----END PRIVATE KEY-----\n",
			want: protocol.Report{Reason: protocol.ReasonTraining, ExitCode: 1, Error: "-----END PRIVATE KEY-----", LastLines: []string{"-----BEGIN PRIVATE KEY-----", "[redacted]", "-----END PRIVATE KEY-----"}, Hosts: three}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			launch := &launch{hosts: judgedHosts, requireAllHosts: tc.requireAllHosts, imageSSH: tc.imageSSH}
			isOutput := func(name string) bool { return strings.HasSuffix(name, "-stdout") }
			stderr := slices.DeleteFunc(slices.Clone(tc.transcripts), isOutput)
			stdout := slices.DeleteFunc(slices.Clone(tc.transcripts), func(name string) bool { return !isOutput(name) })
			got := launch.judge(tc.code, tc.text+transcript(t, stderr...), transcript(t, stdout...), tc.records, began)
			if diff := cmp.Diff(tc.want, got, cmpopts.IgnoreFields(protocol.Report{}, "Message", "Timings")); diff != "" {
				t.Errorf("report (-want +got):\n%s", diff)
			}
			mustContain(t, "the message", got.Message, tc.wantInMessage)
			if strings.Contains(got.Message, "planted") || (got.Reason == "") != (got.Message == "") {
				t.Errorf("reason %q, message %q", got.Reason, got.Message)
			}
			if (got.Reason == "") != (got.ExitCode == 0) {
				t.Errorf("reason %q with exit code %d", got.Reason, got.ExitCode)
			}
		})
	}
}

// The hosts have two slots, and rank 3 of six fails.
func TestJudgeNamesTheError(t *testing.T) {
	const (
		noFile    = "ERROR: cannot open /data/train.h5: No such file or directory"
		noData    = "RuntimeError: dataset /data/train is empty"
		noMesh    = "Fortran runtime error: Cannot open file '/data/mesh.dat': No such file or directory"
		assertion = "train: src/train.c:33: main: Assertion `x == 1' failed."
	)
	rank, worker1 := 3, "train-worker-1"
	code := func(code int) *int { return &code }
	tests := map[string]struct {
		code        int
		command     []string
		want        protocol.Report
		wantMessage string
	}{
		"openmpi4-c-noinit":     {code: 1, want: protocol.Report{Rank: &rank, Host: worker1, RankExitCode: code(1), Error: noFile}, wantMessage: "rank 3 exited with code 1: " + noFile},
		"openmpi4-py-raise":     {code: 1, want: protocol.Report{Rank: &rank, Host: worker1, RankExitCode: code(1), Error: noData}, wantMessage: "rank 3 exited with code 1: " + noData},
		"openmpi4-fortran-open": {code: 2, want: protocol.Report{Rank: &rank, Host: worker1, RankExitCode: code(2), Error: noMesh}, wantMessage: "rank 3 exited with code 2: " + noMesh},
		"openmpi4-c-assert": {code: 134, want: protocol.Report{Rank: &rank, Host: worker1, Signal: 6, Error: assertion},
			wantMessage: "process rank 3 on node train-worker-1 exited on signal 6 (Aborted): " + assertion},
		"openmpi4-c-badrank": {code: 6, want: protocol.Report{Rank: &rank, Host: worker1}, wantMessage: "An error occurred in MPI_Send: MPI_ERR_RANK: invalid rank"},
		"openmpi5-c-noinit":  {code: 1, want: protocol.Report{Rank: &rank, Host: worker1, RankExitCode: code(1), Error: noFile}, wantMessage: "rank 3 exited with code 1: " + noFile},
		"openmpi5-py-raise":  {code: 1, want: protocol.Report{Rank: &rank, Host: worker1, RankExitCode: code(1), Error: noData}, wantMessage: "rank 3 exited with code 1: " + noData},
		// Another rank aborted because it lost rank 3, and prterun blames that one.
		"openmpi5-c-error": {code: 1, want: protocol.Report{Error: noFile}, wantMessage: "a process lost its connection to another process, which had exited: " + noFile},
		"mpich-c-finalexit": {code: 4, want: protocol.Report{Error: "ERROR: checkpoint is incomplete"},
			wantMessage: "the command failed with exit code 4: ERROR: checkpoint is incomplete"},
		"mpich-py-raisetagged": {code: 1, want: protocol.Report{Rank: &rank, Host: worker1, Error: noData}, wantMessage: "the command failed with exit code 1: " + noData},
		"mpich-py-abort": {code: 1, want: protocol.Report{Rank: &rank, Host: worker1, RankExitCode: code(1), Error: noData},
			wantMessage: "Abort(1) on node 3 (rank 3 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 1): " + noData},
		// The box is of rank 2, which Hydra killed.
		"intelmpi-c-error":       {code: 255, want: protocol.Report{Host: worker1, Error: noFile}, wantMessage: "the command failed with exit code 255: " + noFile},
		"intelmpi-c-errortagged": {code: 255, want: protocol.Report{Rank: &rank, Host: worker1, Error: noFile}, wantMessage: "the command failed with exit code 255: " + noFile},
		"openmpi4-c-error": {code: 1, command: []string{"mpirun", "--map-by", "node", "train"}, want: protocol.Report{Rank: &rank, RankExitCode: code(1), Error: noFile},
			wantMessage: "rank 3 exited with code 1: " + noFile},
		"openmpi4-c-finalexit": {code: 4, command: []string{"sh", "-c", "mpirun train"}, want: protocol.Report{Rank: &rank, RankExitCode: code(4), Error: "ERROR: checkpoint is incomplete"},
			wantMessage: "rank 3 exited with code 4: ERROR: checkpoint is incomplete"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("..", "engine", "mpi", "testdata", "output", name+".txt"))
			if err != nil {
				t.Fatal(err)
			}
			stderr, stdout, _ := strings.Cut(string(text), "-- stdout --\n")
			stderr = strings.TrimPrefix(stderr, "-- stderr --\n")
			launch := &launch{hosts: judgedHosts, command: tc.command, slots: []mpi.Host{{Name: "train-worker-0", Slots: 2}, {Name: worker1, Slots: 2}, {Name: "train-worker-2", Slots: 2}}}
			if tc.command == nil {
				launch.command = []string{"mpirun", "-np", "6", "python3", "train.py"}
			}
			got := launch.judge(tc.code, stderr, stdout, reached(judgedHosts...), began)
			if len(got.LastLines) == 0 && tc.want.Error != "" || got.Reason != protocol.ReasonTraining {
				t.Errorf("reason %s, last lines %q", got.Reason, got.LastLines)
			}
			tc.want.Message = tc.wantMessage
			if diff := cmp.Diff(tc.want, got, cmpopts.IgnoreFields(protocol.Report{}, "Reason", "ExitCode", "LastLines", "Hosts", "Timings")); diff != "" {
				t.Errorf("report (-want +got):\n%s", diff)
			}
		})
	}
}

// The operator uses the reason and Kubernetes the exit code: they must agree.
func TestJudgeAgreesWithItself(t *testing.T) {
	files, err := filepath.Glob("../engine/mpi/testdata/erroroutput/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no transcripts", err)
	}
	disagreements := 0
	for _, file := range append(files, "") {
		text, _ := os.ReadFile(file)
		for _, trouble := range []protocol.Trouble{"", protocol.NameNotFound, protocol.Refused, protocol.TimedOut, protocol.HostKeyWrong, protocol.KeyRefused, protocol.Broken, protocol.Stopped} {
			for _, code := range []int{0, 1, 137} {
				records := reached(judgedHosts...)
				if trouble != "" {
					records = append(records, record{Host: judgedHosts[1], Trouble: trouble, Message: "m", At: began})
				}
				got := (&launch{hosts: judgedHosts}).judge(code, string(text), "", records, began)
				if (got.Reason == "") != (got.ExitCode == 0) || (got.Reason == "") != (got.Message == "") {
					if disagreements++; disagreements > 5 {
						t.Fatal("and so on")
					}
					t.Errorf("%s, trouble %q, exit code %d: reason %q, message %q, exit code %d", filepath.Base(file), trouble, code, got.Reason, got.Message, got.ExitCode)
				}
			}
		}
	}
}

func TestInitTime(t *testing.T) {
	records := append(reached(judgedHosts...), record{Host: "x", Trouble: protocol.Broken, At: began.Add(time.Hour)})
	if diff := cmp.Diff(300*time.Millisecond, initTime(records, began)); diff != "" {
		t.Errorf("time until the last host was reached (-want +got):\n%s", diff)
	}
}

func TestSameHost(t *testing.T) {
	tests := map[string]struct {
		one, other string
		want       bool
	}{
		"the same":                       {one: "train-worker-0", other: "train-worker-0", want: true},
		"one with its domain":            {one: "train-worker-0.train.default.svc", other: "train-worker-0", want: true},
		"another":                        {one: "train-worker-0", other: "train-worker-1"},
		"one whose name begins the same": {one: "train-worker-1", other: "train-worker-10"},
		"the same address":               {one: "10.0.0.1", other: "10.0.0.1", want: true},
		"another address":                {one: "10.0.0.1", other: "10.0.0.2"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := sameHost(tc.one, tc.other); got != tc.want {
				t.Errorf("sameHost(%q, %q) = %v", tc.one, tc.other, got)
			}
		})
	}
}

func TestShorten(t *testing.T) {
	tests := map[string]struct {
		text string
		most int
		want string
	}{
		"short enough":             {text: "short", most: 5, want: "short"},
		"too long":                 {text: "shorter", most: 5, want: "short…"},
		"a cut inside a character": {text: "sehr schön", most: 9, want: "sehr sch…"},
		"a cut beside a character": {text: "schöner", most: 5, want: "schö…"},
		"nothing left":             {text: "€", most: 2, want: "…"},
		"bytes that are no text":   {text: "\x80\x80\x80\x80", most: 2, want: "…"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, shorten(tc.text, tc.most)); diff != "" {
				t.Errorf("text (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReportFitsATerminationMessage(t *testing.T) {
	tests := map[string]protocol.Report{
		"a long message":                  {Message: strings.Repeat("x", 1<<20)},
		"a message of other scripts":      {Message: strings.Repeat("日本語", 10000)},
		"a message that JSON makes long":  {Message: strings.Repeat("\x01<>&", 10000)},
		"a message that is no text":       {Message: strings.Repeat("\xff", 10000)},
		"a long message and last lines":   {Message: strings.Repeat("x", 1<<20), Error: strings.Repeat("<", 256), LastLines: slices.Repeat([]string{strings.Repeat("<", 200)}, 5)},
		"a long name of a host":           {Message: "m", Host: strings.Repeat("h", 10000)},
		"long names of hosts not reached": {Message: "m", Hosts: protocol.Hosts{Missing: slices.Repeat([]string{strings.Repeat("h", 3000)}, 5)}},
	}
	for name, report := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "termination-log")
			report.Reason = protocol.ReasonTraining
			written := make(chan struct{})
			go func() {
				defer close(written)
				writeReport(&report, path)
			}()
			select {
			case <-written:
			case <-time.After(5 * time.Second):
				t.Fatal("it never ends")
			}
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var got protocol.Report
			if err := json.Unmarshal(content, &got); err != nil || len(content) >= 4096 || !utf8.Valid(content) {
				t.Errorf("%d bytes, %v", len(content), err)
			}
			if got.Reason != protocol.ReasonTraining || got.Message == "" {
				t.Errorf("reason %q, message %q", got.Reason, got.Message)
			}
		})
	}
}

func TestReportNamesSomeOfManyHosts(t *testing.T) {
	var passed gateResult
	for i := range 100 {
		host := fmt.Sprintf("train-worker-%02d", 99-i)
		passed.unreached = append(passed.unreached, record{Host: host, Trouble: protocol.Refused, Message: "cannot reach " + host})
	}
	got := unreachable(120, passed)
	mustContain(t, "the message", got.Message, "cannot reach 100 of 120 workers: train-worker-00, train-worker-01,", "and 95 more", "cannot reach train-worker-00")
	want := protocol.Hosts{Expected: 120, Reached: 20, Missing: []string{"train-worker-00", "train-worker-01", "train-worker-02", "train-worker-03", "train-worker-04"}}
	if diff := cmp.Diff(want, got.Hosts); diff != "" {
		t.Errorf("hosts (-want +got):\n%s", diff)
	}
}

func TestTailKeepsTheEnd(t *testing.T) {
	var last tail
	for i := range 100000 {
		_, _ = fmt.Fprintf(&last, "line %d\n", i)
	}
	if text := last.String(); len(text) > maxTail || !strings.HasSuffix(text, "line 99999\n") || !strings.HasPrefix(text, "line ") {
		t.Errorf("%d bytes, from %q to %q", len(text), text[:20], text[len(text)-20:])
	}
}

// A secret may only be recognized by the text before it.
func TestTailHasNoPiecesOfLines(t *testing.T) {
	var last tail
	_, _ = fmt.Fprintf(&last, "password=%s", strings.Repeat("planted", maxTail))
	if text := last.String(); text != "" {
		t.Errorf("%d bytes of a line whose beginning is lost", len(text))
	}
}

func TestJudgeRedactsTheEnvironment(t *testing.T) {
	launch := &launch{hosts: judgedHosts, secrets: redact.SecretValues([]string{"DB_PASSWORD=planted horse"})}
	got := launch.judge(1, "RuntimeError: cannot log in with planted horse\n", "", reached(judgedHosts...), began)
	if text := fmt.Sprintf("%+v", got); strings.Contains(text, "planted") || got.Error != "RuntimeError: cannot log in with [redacted]" {
		t.Errorf("the report is %s", text)
	}
}
