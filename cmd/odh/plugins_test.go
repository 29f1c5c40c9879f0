// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var plugins = []string{"kubectl-trireme", "kubectl_complete-trireme", "oc-trireme", "oc_complete-trireme"}

func TestPlugins(t *testing.T) {
	withODH := []string{"kubectl-odh", "kubectl-trireme", "kubectl_complete-odh", "kubectl_complete-trireme", "oc-trireme", "oc_complete-trireme"}
	for name, test := range map[string]struct {
		arguments []string
		// elsewhere and installed are other programs on the path and in the directory.
		elsewhere, installed string
		want                 []string
	}{
		"beside the build":             {want: plugins},
		"installed":                    {arguments: []string{"kubectl-odh"}, want: withODH},
		"another kubectl-odh":          {arguments: []string{"kubectl-odh"}, elsewhere: "kubectl-odh", want: plugins},
		"another one in the directory": {arguments: []string{"kubectl-odh"}, installed: "kubectl-odh", want: plugins},
	} {
		t.Run(name, func(t *testing.T) {
			directory, path := t.TempDir(), t.TempDir()
			writeProgram(t, path, test.elsewhere)
			writeProgram(t, directory, test.installed)
			t.Setenv("PATH", path+":"+os.Getenv("PATH"))
			// Twice: a second installation finds its own links.
			output := link(t, directory, test.arguments...) + link(t, directory, test.arguments...)
			if diff := cmp.Diff(test.want, links(t, directory)); diff != "" {
				t.Errorf("links (-want +got):\n%s", diff)
			}
			if other := test.elsewhere + test.installed; other != "" && !strings.Contains(output, other+" is another program") {
				t.Errorf("the output does not say why there is no link: %q", output)
			}
		})
	}
}

func writeProgram(t *testing.T, directory, name string) {
	t.Helper()
	if name == "" {
		return
	}
	if err := os.WriteFile(filepath.Join(directory, name), []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, directory string, arguments ...string) string {
	t.Helper()
	output, err := exec.CommandContext(t.Context(), "./plugins", append([]string{directory}, arguments...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	return string(output)
}

// links returns the names in the directory that are links to odh.
func links(t *testing.T, directory string) []string {
	t.Helper()
	entries, err := os.ReadDir(directory)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		if target, err := os.Readlink(filepath.Join(directory, entry.Name())); err == nil && target == "odh" {
			names = append(names, entry.Name())
		}
	}
	return names
}
