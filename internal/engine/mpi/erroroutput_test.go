// SPDX-License-Identifier: Apache-2.0

package mpi

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// transcripts are of Open MPI 4.1.4 and 5.0.7, MPICH 4.2.1 and Intel MPI 2021.18 on
// three hosts. Rank 1 is the one that fails.
var transcripts = map[string]Failure{
	"openmpi4-abort":      {Kind: RankFailed, Rank: 1, ExitCode: 5, Text: "MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD"},
	"openmpi4-agentfails": {Kind: InitFailed, Rank: -1, Text: "ORTE was unable to reliably start one or more daemons"},
	"openmpi4-daemonlost": {Kind: DaemonLost, Rank: -1, Host: "train-worker-1", Text: "ORTE has lost communication with a remote daemon"},
	"openmpi4-exception":  {Kind: RankFailed, Rank: 1, ExitCode: 1, Text: "rank 1 exited with code 1"},
	"openmpi4-exit3":      {Kind: RankFailed, Rank: 1, ExitCode: 3, Text: "rank 1 exited with code 3"},
	"openmpi4-notfound":   {Kind: InitFailed, Rank: 2, Host: "train-worker-1", Text: "Executable: /nonexistent/train"},
	"openmpi4-segv": {Kind: RankFailed, Rank: 1, Host: "train-worker-0", Signal: 11,
		Text: "process rank 1 on node train-worker-0 exited on signal 11 (Segmentation fault)"},
	"openmpi4-sigkill": {Kind: RankFailed, Rank: 1, Host: "train-worker-0", Signal: 9,
		Text: "process rank 1 on node train-worker-0 exited on signal 9 (Killed)"},
	"openmpi4-slots": {Kind: InitFailed, Rank: -1, Text: "There are not enough slots available in the system to satisfy the 12 slots"},

	"openmpi5-abort": {Kind: RankFailed, Rank: 1, Host: "train-worker-0", ExitCode: 5, Text: "MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD"},
	// PRRTE does not distinguish an agent that fails from a daemon that dies.
	"openmpi5-agentfails": {Kind: DaemonLost, Rank: -1, Host: "train-worker-1", Text: "PRTE has lost communication with a remote daemon"},
	"openmpi5-daemonlost": {Kind: DaemonLost, Rank: -1, Host: "train-worker-1", Text: "PRTE has lost communication with a remote daemon"},
	"openmpi5-exception":  {Kind: RankFailed, Rank: 1, ExitCode: 1, Text: "rank 1 exited with code 1"},
	"openmpi5-exit3":      {Kind: RankFailed, Rank: 1, ExitCode: 3, Text: "rank 1 exited with code 3"},
	"openmpi5-notfound":   {Kind: InitFailed, Rank: 0, Host: "train-worker-0", Text: "Executable: /nonexistent/train"},
	"openmpi5-segv": {Kind: RankFailed, Rank: 1, Host: "train-worker-0", Signal: 11,
		Text: "process rank 1 on node train-worker-0 exited on signal 11 (Segmentation fault)"},
	"openmpi5-sigkill": {Kind: RankFailed, Rank: 1, Host: "train-worker-0", Signal: 9,
		Text: "process rank 1 on node train-worker-0 exited on signal 9 (Killed)"},
	"openmpi5-slots": {Kind: InitFailed, Rank: -1, Text: "There are not enough slots available in the system to satisfy the 12 slots"},

	"mpich-abort":      {Kind: RankFailed, Rank: 1, ExitCode: 5, Text: "Abort(5) on node 1 (rank 1 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 5)"},
	"mpich-agentfails": {Kind: InitFailed, Rank: -1, Text: "Launch proxy failed"},
	"mpich-daemonlost": {Kind: DaemonLost, Rank: -1, Text: "assert (!closed) failed"},
	"mpich-poddied":    {Kind: DaemonLost, Rank: -1, Text: "assert (!closed) failed"},
	"mpich-exception":  {Kind: RankFailed, Rank: -1},
	"mpich-exit3":      {Kind: RankFailed, Rank: -1, Text: "one of the processes terminated badly"},
	// Rank 1 exited 3; the box is of rank 0, which Hydra killed.
	"mpich-exit3-stdout":   {Kind: RankFailed, Rank: -1, Host: "train-worker-0", Signal: 9, Unsure: true, Text: "EXIT CODE: 9"},
	"mpich-notfound":       {Kind: InitFailed, Rank: -1, Host: "train-worker-1", Text: "execvp error on file /nonexistent/train (No such file or directory)"},
	"mpich-segv":           {Kind: RankFailed, Rank: -1, Host: "train-worker-0", Signal: 11, Text: "Caught signal 11"},
	"mpich-segv-stdout":    {Kind: RankFailed, Rank: -1, Host: "train-worker-0", Signal: 11, Text: "EXIT CODE: 11"},
	"mpich-sigkill":        {Kind: RankFailed, Rank: -1, Text: "one of the processes terminated badly"},
	"mpich-sigkill-stdout": {Kind: RankFailed, Rank: -1, Host: "train-worker-1", Signal: 9, Unsure: true, Text: "EXIT CODE: 9"},
	// mpiexec was terminated from outside: its output has no cause.
	"mpich-ended-while-hung": {},
	"mpich-well":             {},

	"intelmpi-abort":             {Kind: RankFailed, Rank: 1, ExitCode: 5, Text: "Abort(5) on node 1 (rank 1 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 5)"},
	"intelmpi-agentfails":        {Kind: InitFailed, Rank: -1, Host: "train-worker-1", Text: "Unable to run bstrap_proxy on train-worker-1"},
	"intelmpi-daemonlost":        {Kind: DaemonLost, Rank: -1, Host: "train-worker-1", Text: "Downstream from host train-worker-1 exited abnormally"},
	"intelmpi-poddied":           {Kind: DaemonLost, Rank: -1, Host: "train-worker-1", Text: "Downstream from host train-worker-1 exited abnormally"},
	"intelmpi-exception":         {Kind: RankFailed, Rank: -1},
	"intelmpi-exit3-stdout":      {Kind: RankFailed, Rank: -1, Host: "train-worker-0", Signal: 9, Unsure: true, Text: "KILLED BY SIGNAL: 9 (Killed)"},
	"intelmpi-notfound":          {Kind: InitFailed, Rank: -1, Host: "train-worker-2", Text: "execvp error on file /nonexistent/train (No such file or directory)"},
	"intelmpi-segv-1slot-stdout": {Kind: RankFailed, Rank: 1, Host: "train-worker-1", Signal: 11, Text: "KILLED BY SIGNAL: 11 (Segmentation fault)"},
	"intelmpi-segv-stdout":       {Kind: RankFailed, Rank: 1, Host: "train-worker-0", Signal: 11, Text: "KILLED BY SIGNAL: 11 (Segmentation fault)"},
	"intelmpi-sigkill-stdout":    {Kind: RankFailed, Rank: -1, Host: "train-worker-0", Signal: 9, Unsure: true, Text: "KILLED BY SIGNAL: 9 (Killed)"},
}

func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/erroroutput/*.txt")
	if err != nil || len(files) != len(transcripts) {
		t.Errorf("%d transcripts and %d expected failures (%v)", len(files), len(transcripts), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		t.Run(name, func(t *testing.T) {
			want, known := transcripts[name]
			if !known {
				t.Fatal("the transcript has no expected failure")
			}
			checkFailure(t, transcript(t, name), want)
		})
	}
}

func TestParseErrorOutput(t *testing.T) {
	tests := map[string]struct {
		tail string
		want Failure
	}{
		"nothing":       {},
		"only progress": {tail: "epoch 1 loss 0.3\nKilled\n"},
		"MPICH's stderr before its stdout": {
			tail: transcript(t, "mpich-sigkill") + transcript(t, "mpich-sigkill-stdout"), want: transcripts["mpich-sigkill-stdout"],
		},
		"the first of two causes": {
			tail: transcript(t, "openmpi4-sigkill") + transcript(t, "openmpi4-daemonlost"), want: transcripts["openmpi4-sigkill"],
		},
		"an exception in tagged output": {
			tail: "[1,3]<stderr>:Traceback (most recent call last):\n[1,3]<stderr>:  File \"t.py\", line 1\n[1,3]<stderr>:torch.OutOfMemoryError: token=hunter2\n",
			want: Failure{Kind: RankFailed, Rank: 3},
		},
		"a program whose path leads to a key": {
			tail: "[proxy:0@w] HYDU_create_process (l.c:73): execvp error on file /etc/ssh-auth/id_rsa (Permission denied)\n",
			want: Failure{Kind: InitFailed, Rank: -1, Host: "w", Text: "execvp error on file ... (Permission denied)"},
		},
		"a program that is an assignment": {
			tail: "[proxy:0@w] HYDU_create_process (l.c:73): execvp error on file TOKEN=hunter2 (No such file or directory)\n",
			want: Failure{Kind: InitFailed, Rank: -1, Host: "w", Text: "execvp error on file TOKEN=... (No such file or directory)"},
		},
		"a proxy that cannot find the launcher": {
			tail: "[proxy:0:0@train-worker-0] HYDU_sock_connect (sock.c:113): unable to get host address for train-launcher (1)\n",
			want: Failure{Kind: InitFailed, Rank: -1, Text: "unable to get host address for train-launcher"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) { checkFailure(t, tc.tail, tc.want) })
	}
}

func checkFailure(t *testing.T, tail string, want Failure) {
	t.Helper()
	got, found := ParseErrorOutput(tail)
	if found != (want.Kind != "") {
		t.Errorf("found %v", found)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("failure (-want +got):\n%s", diff)
	}
}

func transcript(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "erroroutput", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func FuzzParseErrorOutput(f *testing.F) {
	for name := range transcripts {
		text, err := os.ReadFile(filepath.Join("testdata", "erroroutput", name+".txt"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Fuzz(func(t *testing.T, tail string) {
		failure, found := ParseErrorOutput(tail)
		if found != (failure.Kind != "") {
			t.Errorf("found %v with kind %q", found, failure.Kind)
		}
		if len(failure.Text) > maxText || strings.ContainsFunc(failure.Text, func(r rune) bool { return r < ' ' || r >= 0x7f }) {
			t.Errorf("text is not one short printable line: %q", failure.Text)
		}
		if len(failure.Host) > maxHost || failure.Rank < -1 {
			t.Errorf("host %q, rank %d", failure.Host, failure.Rank)
		}
	})
}
