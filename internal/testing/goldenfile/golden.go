// SPDX-License-Identifier: Apache-2.0

// Package goldenfile compares what code makes with files that somebody has read.
package goldenfile

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write golden files")

// Check fails unless a file holds what was made.
func Check(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v (go test -update writes it)", err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// NoOthers fails if there are files that belong to no case.
func NoOthers(t *testing.T, pattern string, files map[string]bool) {
	t.Helper()
	there, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range there {
		if !files[file] {
			t.Errorf("%s belongs to no case", file)
		}
	}
}
