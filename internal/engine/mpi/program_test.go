// SPDX-License-Identifier: Apache-2.0

package mpi

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

// The transcripts are of real programs; testdata/output/README.md says how they were
// recorded. Rank 3 of six is the one that fails.
func TestOutputOfTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/output/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no transcripts", err)
	}
	var got strings.Builder
	for _, file := range files {
		stderr, stdout := streams(t, file)
		failure, found := ParseErrorOutput(stderr + stdout)
		if !found {
			failure.Rank = -1
		}
		output := LastOutput(stderr, stdout, failure.Rank)
		fmt.Fprintf(&got, "%s\n  mpirun: %s\n  program: rank %d: %s\n", strings.TrimSuffix(filepath.Base(file), ".txt"), named(failure), output.Rank, output.Error)
		for _, line := range output.Lines {
			fmt.Fprintf(&got, "  | %s\n", line)
		}
	}
	golden := "testdata/output.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
}

func named(failure Failure) string {
	return fmt.Sprintf("%s rank %d host %q exit code %d signal %d unsure %t: %s", failure.Kind, failure.Rank, failure.Host, failure.ExitCode, failure.Signal, failure.Unsure, failure.Text)
}

// streams are the two parts of a transcript.
func streams(t *testing.T, file string) (stderr, stdout string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	stderr, stdout, found := strings.Cut(string(text), "-- stdout --\n")
	if !found {
		t.Fatalf("%s has no stdout", file)
	}
	return strings.TrimPrefix(stderr, "-- stderr --\n"), stdout
}

func TestLastOutput(t *testing.T) {
	ruler := strings.Repeat("-", 74) + "\n"
	help := ruler + "mpirun detected a thing\n" + ruler
	tests := map[string]struct {
		stderr, stdout string
		rank           int
		want           Output
	}{
		"nothing": {rank: -1, want: Output{Rank: -1}},
		"only progress on stdout": {
			stdout: "epoch 1\nepoch 2\n", rank: -1, want: Output{Rank: -1, Lines: []string{"epoch 1", "epoch 2"}},
		},
		"a ruler of the program's own": {
			stderr: ruler + "no memory\n" + help, rank: -1, want: Output{Rank: -1, Error: "no memory", Lines: []string{strings.TrimSpace(ruler), "no memory"}},
		},
		"an error on stdout and warnings on stderr": {
			stdout: "ERROR: no data\n", stderr: "warning: slow\n", rank: -1,
			want: Output{Rank: -1, SaysError: true, Error: "ERROR: no data", Lines: []string{"ERROR: no data", "warning: slow"}},
		},
		"a time in brackets is not Open MPI's host": {
			stderr: "[09:42:10] ERROR: no data\n", rank: -1, want: Output{Rank: -1, SaysError: true, Error: "[09:42:10] ERROR: no data", Lines: []string{"[09:42:10] ERROR: no data"}},
		},
		"lines of another rank": {
			stderr: "[1,3]<stderr>:ERROR: mine\n[1,2]<stderr>:ERROR: connection reset\n", rank: 3,
			want: Output{Rank: 3, SaysError: true, Error: "ERROR: mine", Lines: []string{"ERROR: mine"}},
		},
		"more than five lines": {
			stderr: "1\n2\n3\n4\n5\n6\n7\n", rank: -1, want: Output{Rank: -1, Error: "7", Lines: []string{"3", "4", "5", "6", "7"}},
		},
		"an exception that was handled long before": {
			stderr: "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\nKeyError: 1\n" + strings.Repeat("working\n", 6) + "ERROR: no data\n", rank: -1,
			want: Output{Rank: -1, SaysError: true, Error: "ERROR: no data", Lines: []string{tracebackHeader, `File "a.py", line 1, in f`, "KeyError: 1", "working", "ERROR: no data"}},
		},
		"an exception, and those of other ranks that it caused": {
			stderr: "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\nKeyError: 1\nTraceback (most recent call last):\n  File \"a.py\", line 9, in g\nConnectionError: closed\n", rank: -1,
			want: Output{Rank: -1, SaysError: true, Error: "KeyError: 1", Lines: []string{`File "a.py", line 1, in f`, "KeyError: 1"}},
		},
		"a traceback that was cut off": {
			stderr: "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\n", rank: -1,
			want: Output{Rank: -1, Error: `File "a.py", line 1, in f`, Lines: []string{"Traceback (most recent call last):", `File "a.py", line 1, in f`}},
		},
		"what a terminal would obey": {
			stderr: "\x1b[31mERROR\x1b[0m:\tbad\x07 \u202efile\u2066\x00 \xff\n", rank: -1, want: Output{Rank: -1, SaysError: true, Error: "ERROR: bad file \uFFFD", Lines: []string{"ERROR: bad file \uFFFD"}},
		},
		"a progress bar": {
			stderr: "10%\r20%\rERROR: no data\n", rank: -1, want: Output{Rank: -1, SaysError: true, Error: "ERROR: no data", Lines: []string{"ERROR: no data"}},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, LastOutput(tc.stderr, tc.stdout, tc.rank)); diff != "" {
				t.Errorf("output (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLastOutputIsBounded(t *testing.T) {
	for name, text := range map[string]string{
		"one long line":       strings.Repeat("x", 1<<20),
		"long lines":          strings.Repeat(strings.Repeat("日本語", 200)+"\n", 20),
		"a line of nonsense":  strings.Repeat("\xff\xfe", 10000),
		"lines of four bytes": strings.Repeat(strings.Repeat("😀", 100)+"1\n"+strings.Repeat("😀", 100)+"2\n", 20),
	} {
		t.Run(name, func(t *testing.T) {
			output := LastOutput(text, text, -1)
			all := strings.Join(output.Lines, "\n")
			if len(output.Lines) == 0 || len(output.Lines) > maxLines || len(all) > maxLineBytes+maxLines || len(output.Error) > maxLine || !utf8.ValidString(all+output.Error) {
				t.Errorf("%d lines of %d bytes, error of %d bytes", len(output.Lines), len(all), len(output.Error))
			}
		})
	}
}

func FuzzLastOutput(f *testing.F) {
	files, _ := filepath.Glob("testdata/output/*.txt")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text), "", 3)
	}
	f.Fuzz(func(t *testing.T, stderr, stdout string, rank int) {
		output := LastOutput(stderr, stdout, rank)
		all := strings.Join(output.Lines, "")
		if len(output.Lines) > maxLines || len(all) > maxLineBytes || len(output.Error) > maxLine || !utf8.ValidString(all+output.Error) {
			t.Errorf("%d lines of %d bytes, error %q", len(output.Lines), len(all), output.Error)
		}
		if strings.ContainsFunc(all+output.Error, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			t.Errorf("control characters in %q", all)
		}
	})
}
