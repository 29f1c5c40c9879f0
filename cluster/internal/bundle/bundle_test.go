// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func writeFile(t *testing.T, path, content string, mode fs.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
}

// A bundle is run on a machine that has nothing on its PATH.
func TestBundleUnpacksItself(t *testing.T) {
	if _, err := exec.LookPath("zstd"); err != nil {
		t.Skip("zstd is not installed; `cluster bundle` installs it")
	}
	work := t.TempDir()
	writeFile(t, filepath.Join(work, "tree", "program"), "#!/bin/sh\n", 0o755)
	writeFile(t, filepath.Join(work, "tree", "folder", "data"), "data", 0o600)
	if err := os.Symlink("program", filepath.Join(work, "tree", "link")); err != nil {
		t.Fatal(err)
	}
	content := Content{"bin/cluster": filepath.Join(work, "tree", "program")}
	if err := content.AddTree("programs/a", filepath.Join(work, "tree")); err != nil {
		t.Fatal(err)
	}
	unpack := filepath.Join(work, "unpack")
	if output, err := exec.Command("go", "build", "-o", unpack, "../../unpack").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	want := Record{Kubernetes: "1.36", Architecture: runtime.GOARCH}
	file := filepath.Join(work, "bundle")
	if err := Write(context.Background(), file, unpack, 3, want, content); err != nil {
		t.Fatal(err)
	}
	target := filepath.Join(work, "target")
	command := exec.Command(file, target)
	command.Env = []string{"PATH="}
	if output, err := command.CombinedOutput(); err != nil || !strings.Contains(string(output), target+"/bin/cluster up") {
		t.Fatalf("%v\n%s", err, output)
	}
	if got := Find(filepath.Join(target, "bin", "cluster")); got != target {
		t.Errorf("the program is in bundle %q, want %q", got, target)
	}
	if got, err := Read(target); err != nil || got != want {
		t.Errorf("record %+v (%v)", got, err)
	}
	tree := map[string]string{}
	err := filepath.WalkDir(target, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			info, _ := entry.Info()
			tree[strings.TrimPrefix(path, target+"/")] = info.Mode().String()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{
		"bundle.json": "-rw-r--r--", "bin/cluster": "-rwxr-xr-x",
		"programs/a/program": "-rwxr-xr-x", "programs/a/folder/data": "-rw-------", "programs/a/link": "Lrwxrwxrwx",
	}
	if diff := cmp.Diff(files, tree); diff != "" {
		t.Errorf("unpacked (-want +got):\n%s", diff)
	}
	t.Run("half of it is refused", func(t *testing.T) {
		whole, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, file+".half", string(whole[:len(whole)-100]), 0o755)
		output, err := exec.Command(file+".half", filepath.Join(work, "other")).CombinedOutput()
		if err == nil || !strings.Contains(string(output), "copy the bundle again") {
			t.Errorf("%v\n%s", err, output)
		}
	})
}

func TestBundleOfAnotherArchitecture(t *testing.T) {
	root := t.TempDir()
	writeFile(t, filepath.Join(root, recordFile), `{"kubernetes":"1.36","architecture":"s390x"}`, 0o644)
	if _, err := Read(root); err == nil || !strings.Contains(err.Error(), "made for s390x") {
		t.Errorf("error %v", err)
	}
	if found := Find(filepath.Join(t.TempDir(), "bin", "cluster")); found != "" {
		t.Errorf("a program outside of a bundle is in %q", found)
	}
}

// The program runs with its own loader and libraries, wherever the folder is.
func TestDynamicProgramRunsAnywhere(t *testing.T) {
	program, err := exec.LookPath("cat")
	if err != nil {
		t.Fatal(err)
	}
	content := Content{}
	if err := content.AddDynamic(context.Background(), "host/cat", program, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	target := t.TempDir()
	for name, path := range content {
		bytes, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(target, name), string(bytes), 0o755)
	}
	command := exec.Command(filepath.Join(target, "host", "cat"), "/proc/self/maps")
	command.Dir = "/"
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	for _, line := range strings.Split(string(output), "\n") {
		if strings.Contains(line, "libc.so") && !strings.Contains(line, target) {
			t.Errorf("it uses a library of the machine: %s", line)
		}
	}
}

func TestLibrariesOfLdd(t *testing.T) {
	const output = "\tlinux-vdso.so.1 (0x00007f05399e5000)\n" +
		"\tlibmnl.so.0 => /lib/x86_64-linux-gnu/libmnl.so.0 (0x00007f0539698000)\n" +
		"\t/lib64/ld-linux-x86-64.so.2 (0x00007f05399e7000)\n"
	want := []string{"/lib/x86_64-linux-gnu/libmnl.so.0", "/lib64/ld-linux-x86-64.so.2"}
	if diff := cmp.Diff(want, libraries(output)); diff != "" {
		t.Errorf("libraries (-want +got):\n%s", diff)
	}
}
