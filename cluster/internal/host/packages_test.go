// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// onlyOnPath makes the scripts the only programs there are.
func onlyOnPath(t *testing.T, scripts map[string]string) (directory string) {
	t.Helper()
	directory = t.TempDir()
	for name, script := range scripts {
		if err := os.WriteFile(filepath.Join(directory, name), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", directory)
	t.Setenv("CALLS", filepath.Join(directory, "calls"))
	return directory
}

func TestInstall(t *testing.T) {
	present := Program{Package: "present-package", Candidates: []string{"/nonexistent", "present"}}
	absent := Program{Package: "absent-package", Candidates: []string{"absent"}}
	other := Program{Package: "other-package", Candidates: []string{"other", "/nonexistent"}}
	const install = "install --yes --no-install-recommends --no-remove -o DPkg::Lock::Timeout=120 "
	tests := map[string]struct {
		apt        string // script; "-" for none
		programs   []Program
		wantCalls  []string
		wantErrors []string
	}{
		"nothing is asked for": {apt: "exit 1"},
		"a program that is there needs no apt-get at all": {
			apt: "-", programs: []Program{present},
		},
		"a program that is there is left as it is": {
			apt: "exit 1", programs: []Program{present},
		},
		"only what is missing is installed": {
			programs: []Program{absent, present, other}, wantCalls: []string{install + "absent-package other-package"},
		},
		"package lists are fetched when the first try fails": {
			// The second try finds what the update brought.
			apt:       `[ "$1" = update ] && : > "$CALLS.updated"; [ -e "$CALLS.updated" ]`,
			programs:  []Program{absent},
			wantCalls: []string{install + "absent-package", "update", install + "absent-package"},
		},
		"a package that does not exist": {
			apt:       `[ "$1" = update ] || { echo "E: Unable to locate package $7" >&2; exit 100; }`,
			programs:  []Program{absent},
			wantCalls: []string{install + "absent-package", "update", install + "absent-package"},
			wantErrors: []string{
				"apt-get install", "exit status 100", "E: Unable to locate package absent-package",
				"repair apt (or install the packages manually) and retry",
			},
		},
		"no network for the update": {
			apt:        `echo "E: $1 failed"; exit 100`,
			programs:   []Program{absent},
			wantCalls:  []string{install + "absent-package", "update"},
			wantErrors: []string{"apt-get update", "E: update failed", "and retry"},
		},
		"no apt-get": {
			apt: "-", programs: []Program{absent, other},
			wantErrors: []string{"absent-package, other-package", "so is apt-get", "install them manually"},
		},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			scripts := map[string]string{"present": ""}
			if test.apt != "-" {
				scripts["apt-get"] = `echo "$@" >> "$CALLS"` + "\n[ \"$DEBIAN_FRONTEND\" = noninteractive ] || exit 77\n" + test.apt
			}
			directory := onlyOnPath(t, scripts)
			var log bytes.Buffer
			err := Install(context.Background(), &log, test.programs...)
			if (err == nil) != (test.wantErrors == nil) {
				t.Errorf("error %v, want one = %v", err, test.wantErrors != nil)
			}
			for _, want := range test.wantErrors {
				if err != nil && !strings.Contains(err.Error(), want) {
					t.Errorf("error does not say %q:\n%v", want, err)
				}
			}
			calls, err := os.ReadFile(filepath.Join(directory, "calls"))
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
			var got []string
			if len(calls) > 0 {
				got = strings.Split(strings.TrimSpace(string(calls)), "\n")
			}
			if diff := cmp.Diff(test.wantCalls, got); diff != "" {
				t.Errorf("calls of apt-get (-want +got):\n%s", diff)
			}
		})
	}
}

// The first update fails because another process holds the lock; the second comes after it.
func TestUpdateWaitsForTheLists(t *testing.T) {
	directory := onlyOnPath(t, map[string]string{"apt-get": `[ -e "$CALLS" ] || { : > "$CALLS"; exit 100; }`})
	opened, err := os.Create(filepath.Join(directory, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	var log bytes.Buffer
	if err := updateLists(context.Background(), &log, opened.Name()); err == nil {
		t.Error("retried without a lock")
	}
	if err := os.Remove(filepath.Join(directory, "calls")); err != nil {
		t.Fatal(err)
	}
	// Locks of open files are those of another process to F_GETLK.
	if err := unix.FcntlFlock(opened.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
		t.Fatal(err)
	}
	if err := updateLists(context.Background(), &log, opened.Name()); err != nil {
		t.Error(err)
	}
}

func TestInstallKeepsALog(t *testing.T) {
	onlyOnPath(t, map[string]string{"apt-get": "echo Setting up; echo a warning >&2"})
	var log bytes.Buffer
	if err := InstallPackages(context.Background(), &log, "some-package"); err != nil {
		t.Fatal(err)
	}
	if want := "Setting up\na warning\n"; log.String() != want {
		t.Errorf("log is %q, want %q", log.String(), want)
	}
}

func TestInstallCanBeInterrupted(t *testing.T) {
	onlyOnPath(t, map[string]string{"apt-get": "exit 0"})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var log bytes.Buffer
	if err := InstallPackages(ctx, &log, "some-package"); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want one that says it was cancelled", err)
	}
}

func TestTail(t *testing.T) {
	tests := map[string]struct {
		text  string
		lines int
		want  string
	}{
		"more lines than wanted":       {text: "a\nb\nc\n", lines: 2, want: "    b\n    c"},
		"as many as wanted":            {text: "a\nb", lines: 2, want: "    a\n    b"},
		"fewer than wanted":            {text: "a", lines: 2, want: "    a"},
		"blank lines at the end":       {text: "a\nb\n\n\n", lines: 1, want: "    b"},
		"nothing":                      {text: "", lines: 3, want: "    "},
		"blank lines between are kept": {text: "a\n\nb", lines: 3, want: "    a\n    \n    b"},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			if diff := cmp.Diff(test.want, Tail(test.text, test.lines)); diff != "" {
				t.Errorf("tail (-want +got):\n%s", diff)
			}
		})
	}
}
