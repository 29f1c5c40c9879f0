// SPDX-License-Identifier: Apache-2.0

package initializer

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// volume returns a PVC with a dataset and a cache of the Hugging Face libraries.
func volume(t *testing.T) string {
	directory := t.TempDir()
	write(t, directory, map[string]string{
		"sets/mnist/train/0.png": "zero", "sets/mnist/run.sh": "#!/bin/sh", "sets/mnist/empty": "", "sets/mnist/" + journalFile: "of another run",
		"hub/blobs/abc": "weights", "hub/snapshots/1/config.json": "{}", "other": "not below",
	})
	for _, made := range []struct{ target, name string }{
		{"train/0.png", "sets/mnist/first.png"}, {"train", "sets/mnist/folder"}, {"../run.sh", "sets/mnist/train/up.sh"},
		{"../../blobs/abc", "hub/snapshots/1/model.bin"}, {"sets", "current"},
	} {
		if err := os.Symlink(made.target, filepath.Join(directory, made.name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(directory, "sets/mnist/nothing/below"), 0o777); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]fs.FileMode{"sets/mnist/run.sh": 0o750, "sets/mnist/train/0.png": 0o444, "sets/mnist/train": 0o755, "sets/mnist/nothing": 0o700, "sets/mnist/nothing/below": 0o755} {
		if err := os.Chmod(filepath.Join(directory, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	return directory
}

func TestCopyPVC(t *testing.T) {
	from := volume(t)
	long := time.Now().Add(-1000 * time.Hour).Truncate(time.Second)
	if err := os.Chtimes(filepath.Join(from, "sets/mnist/run.sh"), long, long); err != nil {
		t.Fatal(err)
	}
	runner := newRunner(t, nil)
	runner.fetched("pvc://claim/sets/mnist", "--from", from)
	want := map[string]string{
		"train/0.png": "zero", "run.sh": "#!/bin/sh", "empty": "", "first.png": "zero", "train/up.sh": "#!/bin/sh",
	}
	for name, mode := range map[string]fs.FileMode{
		"run.sh": 0o750, "train/0.png": 0o444, "train": fs.ModeDir | 0o755, "nothing": fs.ModeDir | 0o700, "nothing/below": fs.ModeDir | 0o755,
		"first.png": fs.ModeSymlink | 0o777, "folder": fs.ModeSymlink | 0o777,
	} {
		info, err := os.Lstat(filepath.Join(runner.directory, name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != mode {
			t.Errorf("%s has the mode %s, want %s", name, info.Mode(), mode)
		}
		if name == "run.sh" && !info.ModTime().Equal(long) {
			t.Errorf("%s is of %s, want %s", name, info.ModTime(), long)
		}
	}
	if target, err := os.Readlink(filepath.Join(runner.directory, "folder")); err != nil || target != "train" {
		t.Errorf("folder is %q: %v", target, err)
	}
	if err := os.Remove(filepath.Join(runner.directory, "folder")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, runner.files()); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	output := runner.fetched("pvc://claim/sets/mnist", "--from", from)
	if want := "0 files and 0 B left to fetch"; !strings.Contains(output, want) {
		t.Errorf("no %q in\n%s", want, output)
	}
	if target, err := os.Readlink(filepath.Join(runner.directory, "folder")); err != nil || target != "train" {
		t.Errorf("the link was not made again: %q, %v", target, err)
	}
}

func TestPVCPaths(t *testing.T) {
	cases := map[string]struct {
		uri  string
		want map[string]string
	}{
		"one file":                   {"pvc://claim/sets/mnist/train/0.png", map[string]string{"0.png": "zero"}},
		"behind a link":              {"pvc://claim/current/mnist/train/", map[string]string{"0.png": "zero", "up.sh": "#!/bin/sh"}},
		"a cache of the libraries":   {"pvc://claim/hub/snapshots/1", map[string]string{"config.json": "{}", "model.bin": "weights"}},
		"a path that is not so neat": {"pvc://claim//hub/./snapshots//1/", map[string]string{"config.json": "{}", "model.bin": "weights"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			runner := newRunner(t, nil)
			runner.fetched(tc.uri, "--from", volume(t))
			if diff := cmp.Diff(tc.want, runner.files()); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPVCErrors(t *testing.T) {
	const remedy = "; replace it with the file it should point to, or with a relative link"
	link := func(target string) func(*testing.T, string) {
		return func(t *testing.T, from string) {
			if err := os.Symlink(target, filepath.Join(from, "sets/mnist/link")); err != nil {
				t.Fatal(err)
			}
		}
	}
	cases := map[string]struct {
		uri, want string
		prepare   func(*testing.T, string)
	}{
		"no such path":          {uri: "pvc://claim/nothing", want: `"nothing" does not exist on PVC claim; check the path in storageUri`},
		"nothing in it":         {uri: "pvc://claim/sets/mnist/nothing/below", want: `"sets/mnist/nothing/below" on PVC claim is empty; check the path in storageUri`},
		"a link out":            {prepare: link("../../../../etc/passwd"), want: `the symbolic link "link" on PVC claim is broken, or points outside the copied directory` + remedy},
		"an absolute link":      {prepare: link("/etc/passwd"), want: `the symbolic link "link" on PVC claim is broken, or points outside the copied directory` + remedy},
		"a link to nothing":     {prepare: link("nothing/there"), want: `the symbolic link "link" on PVC claim is broken, or points outside the copied directory` + remedy},
		"a link to a directory": {prepare: link("../../hub"), want: `the symbolic link "link" on PVC claim is broken, or points outside the copied directory` + remedy},
		"a circle":              {prepare: link("link"), want: `the symbolic link "link" on PVC claim is broken, or points outside the copied directory` + remedy},
		"a path that is a device": {uri: "pvc://claim/pipe", prepare: func(t *testing.T, from string) {
			if err := syscall.Mkfifo(filepath.Join(from, "pipe"), 0o666); err != nil {
				t.Fatal(err)
			}
		}, want: `"pipe" on PVC claim is neither a file nor a directory; check the path in storageUri`},
		"a path behind a link out": {uri: "pvc://claim/out/passwd", prepare: func(t *testing.T, from string) {
			if err := os.Symlink("/etc", filepath.Join(from, "out")); err != nil {
				t.Fatal(err)
			}
		}, want: `cannot read "out/passwd" on PVC claim: a symbolic link in the path points outside the directory; remove the link from the PVC`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			from := volume(t)
			if tc.prepare != nil {
				tc.prepare(t, from)
			}
			uri := tc.uri
			if uri == "" {
				uri = "pvc://claim/sets/mnist"
			}
			runner := newRunner(t, nil)
			runner.refused(uri, tc.want, "--from", from)
		})
	}
	newRunner(t, nil).refused("pvc://claim/x", "PVC claim is not mounted at /nowhere; see the events of the pod", "--from", "/nowhere")
}

func TestSpecialFilesAreSkipped(t *testing.T) {
	from := volume(t)
	if err := syscall.Mkfifo(filepath.Join(from, "sets/mnist/pipe"), 0o666); err != nil {
		t.Fatal(err)
	}
	write(t, from, map[string]string{"lost+found/x": "x"})
	output := newRunner(t, nil).fetched("pvc://claim/sets/mnist", "--from", from)
	if want := `skipping "pipe" on PVC claim: it is not a file, directory or symbolic link`; !strings.Contains(output, want) {
		t.Errorf("no %q in\n%s", want, output)
	}
	runner := newRunner(t, nil)
	runner.fetched("pvc://claim", "--from", from)
	if _, err := os.Stat(filepath.Join(runner.directory, "lost+found")); err == nil {
		t.Error("lost+found was copied")
	}
}

// The PVC of the job and the copied PVC may be the same.
func TestSourceIsDestination(t *testing.T) {
	const overlap = "pvc://claim%s and its destination overlap on the same PVC; use another PVC in storage, or another path in storageUri"
	cases := map[string]struct{ uri, into, want string }{
		"the same directory":         {uri: "pvc://claim/sets/mnist", into: "sets/mnist"},
		"the same, behind a link":    {uri: "pvc://claim/current/mnist", into: "sets/mnist"},
		"a file that is in it":       {uri: "pvc://claim/sets/mnist/run.sh", into: "sets/mnist"},
		"the destination is below":   {uri: "pvc://claim/sets", into: "sets/copy", want: strings.ReplaceAll(overlap, "%s", "/sets")},
		"the destination is above":   {uri: "pvc://claim/sets/mnist", into: "sets", want: strings.ReplaceAll(overlap, "%s", "/sets/mnist")},
		"the whole claim":            {uri: "pvc://claim", into: "copy", want: strings.ReplaceAll(overlap, "%s", "")},
		"beside each other is right": {uri: "pvc://claim/sets/mnist/train/0.png", into: "copy"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			from := volume(t)
			before := filesIn(t, filepath.Join(from, "hub"))
			runner := newRunner(t, nil)
			runner.directory = filepath.Join(from, tc.into)
			if tc.want != "" {
				runner.refused(tc.uri, tc.want, "--from", from)
				return
			}
			output := runner.fetched(tc.uri, "--from", from)
			if same := strings.Contains(output, "is already in the destination"); same != (tc.into != "copy") {
				t.Errorf("in its place: %t\n%s", same, output)
			}
			if diff := cmp.Diff(before, filesIn(t, filepath.Join(from, "hub"))); diff != "" {
				t.Errorf("something else changed:\n%s", diff)
			}
		})
	}
}
