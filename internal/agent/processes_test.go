// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseStat(t *testing.T) {
	tests := map[string]struct {
		content   string
		want      process
		wantError bool
	}{
		"a sleeping process":        {content: "42 (orted) S 1 42 42 0 -1 4194560", want: process{id: 42, parent: 1}},
		"a zombie":                  {content: "43 (orted) Z 7 43 43 0", want: process{id: 43, parent: 7, zombie: true}},
		"a name with spaces":        {content: "44 (tmux: server) R 7 44", want: process{id: 44, parent: 7}},
		"a name that looks ended":   {content: "45 (a) Z 1 (b) S 9 45", want: process{id: 45, parent: 9}},
		"a name with a line break":  {content: "46 (a\nb) D 9 46", want: process{id: 46, parent: 9}},
		"an empty name":             {content: "47 () S 9 47\n", want: process{id: 47, parent: 9}},
		"nothing":                   {wantError: true},
		"no name":                   {content: "48 S 9", wantError: true},
		"parentheses the wrong way": {content: "48 )orted( S 9", wantError: true},
		"no state":                  {content: "48 (orted)", wantError: true},
		"no parent":                 {content: "48 (orted) S", wantError: true},
		"a parent that is a word":   {content: "48 (orted) S x", wantError: true},
		"a process that is a word":  {content: "x (orted) S 1", wantError: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := parseStat([]byte(tc.content))
			if (err != nil) != tc.wantError {
				t.Fatalf("error %v, want one: %v", err, tc.wantError)
			}
			if err != nil {
				return
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(process{})); diff != "" {
				t.Errorf("process (-want +got):\n%s", diff)
			}
		})
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("42 (orted) S 1 42 42 0 -1 4194560"))
	f.Add([]byte("42 (or)ted) Z 1"))
	f.Add([]byte(")("))
	f.Add([]byte("1 () "))
	f.Fuzz(func(_ *testing.T, content []byte) { _, _ = parseStat(content) })
}

func TestProcessTable(t *testing.T) {
	child := exec.Command("sleep", "20")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	}()
	want := process{id: child.Process.Pid, parent: os.Getpid()}
	if !slices.Contains(processTable(), want) {
		t.Errorf("the process table has no %+v", want)
	}
	if !slices.Contains(descendants(), child.Process.Pid) {
		t.Error("the child is not a descendant")
	}
	if slices.Contains(descendants(), os.Getpid()) {
		t.Error("we are our own descendant")
	}
}
