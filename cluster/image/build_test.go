// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// fakeCommand puts a shell script in front of all other commands of that name.
func fakeCommand(t *testing.T, name, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// fakeMmdebstrap runs body where mmdebstrap would make a root file system.
func fakeMmdebstrap(t *testing.T, body string) {
	t.Helper()
	fakeCommand(t, "mmdebstrap", `[ "$1" = --version ] && exit 0`+"\n"+body)
}

// tinyRootfs is a shell command that writes a root file system of one file, and
// notes each of its runs in a file.
func tinyRootfs(t *testing.T) (command, runs string) {
	t.Helper()
	var content bytes.Buffer
	writer := tar.NewWriter(&content)
	if err := appendFile(writer, "etc/motd", 0o644, 3, strings.NewReader("hi\n")); err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	rootfs := writeFile(t, filepath.Join(dir, "rootfs.tar"), content.Bytes())
	runs = filepath.Join(dir, "runs")
	return fmt.Sprintf("echo run >> '%s'; echo 'I: success' >&2; cat '%s'", runs, rootfs), runs
}

// fakePip downloads a wheel that has the given files.
func fakePip(t *testing.T, files map[string]entry) {
	t.Helper()
	var content bytes.Buffer
	archive := zip.NewWriter(&content)
	for name, file := range files {
		header := &zip.FileHeader{Name: name, Method: zip.Deflate}
		header.SetMode(os.FileMode(file.Mode))
		writer, err := archive.CreateHeader(header)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := writer.Write([]byte(file.Content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	wheel := writeFile(t, filepath.Join(t.TempDir(), "demo-1-py3-none-any.whl"), content.Bytes())
	fakeCommand(t, "python3", fmt.Sprintf(`
for argument; do
	case $argument in --dest=*) mkdir -p "${argument#--dest=}" && cp '%s' "${argument#--dest=}";; esac
done`, wheel))
}

func TestBuildOfPackages(t *testing.T) {
	rootfs, _ := tinyRootfs(t)
	fakeMmdebstrap(t, rootfs)
	def, cacheDir := sample(), filepath.Join(t.TempDir(), "images")
	var log bytes.Buffer
	path, err := Build(t.Context(), def, cacheDir, &log)
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(filepath.Join(cacheDir, "sample-"+def.Hash()+".tar"), path); diff != "" {
		t.Errorf("path (-want +got):\n%s", diff)
	}
	for _, ref := range []string{def.Ref, def.ExactRef()} {
		_, config, files := readImage(t, path, ref)
		if diff := cmp.Diff(map[string]entry{"etc/motd": {0o644, "hi\n"}}, files); diff != "" {
			t.Errorf("files of %s (-want +got):\n%s", ref, diff)
		}
		if diff := cmp.Diff(def.Env, config.Config.Env); diff != "" {
			t.Errorf("environment of %s (-want +got):\n%s", ref, diff)
		}
	}
	if diff := cmp.Diff([]string{filepath.Base(path)}, fileNames(t, cacheDir)); diff != "" {
		t.Errorf("files in the cache (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff("I: success\n", log.String()); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

// The scripts of packages for another architecture cannot run here.
func TestBuildForAnotherArchitecture(t *testing.T) {
	rootfs, _ := tinyRootfs(t)
	arguments := filepath.Join(t.TempDir(), "arguments")
	fakeMmdebstrap(t, fmt.Sprintf(`echo "$SOURCE_DATE_EPOCH $*" > '%s'; %s`, arguments, rootfs))
	path, err := Build(t.Context(), MPITest("arm64"), t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, config, _ := readImage(t, path, MPITest("arm64").Ref)
	if config.Architecture != "arm64" {
		t.Errorf("architecture is %s, want arm64", config.Architecture)
	}
	got, err := os.ReadFile(arguments)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1 --variant=extract ", " --architectures=arm64 ", " --extract-hook=ln -s mpirun.openmpi "} {
		if !strings.Contains(string(got), want) {
			t.Errorf("mmdebstrap is called with %s, want %q", got, want)
		}
	}
}

func TestBuildOfWheels(t *testing.T) {
	rootfs, _ := tinyRootfs(t)
	fakeMmdebstrap(t, rootfs)
	fakePip(t, map[string]entry{
		"demo/__init__.py":               {0o600, "import demo"},
		"demo-1.data/data/bin/mpirun":    {0o700, "launch"},
		"demo-1.data/data/lib/libmpi.so": {0o644, "library"},
		"demo-1.data/data/bin/bench-mpi": {0o755, "benchmark"},
		"demo-1.data/platlib/extra.py":   {0o644, "extra"},
	})
	def := sampleWithWheels()
	path, err := Build(t.Context(), def, t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}

	_, _, files := readImage(t, path, def.Ref)
	const modules = "usr/local/lib/python3.13/dist-packages/"
	want := map[string]entry{
		"etc/motd":                   {0o644, "hi\n"},
		modules + "demo/__init__.py": {0o644, "import demo"},
		modules + "extra.py":         {0o644, "extra"},
		"usr/local/bin/mpirun":       {0o755, "launch"},
		"usr/local/lib/libmpi.so":    {0o644, "library"},
	}
	if diff := cmp.Diff(want, files); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestBuildUsesTheCache(t *testing.T) {
	rootfs, runs := tinyRootfs(t)
	fakeMmdebstrap(t, rootfs)
	cacheDir := t.TempDir()
	older, stranger := "sample-0123456789ab.tar", "sample-two-0123456789ab.tar"
	writeFile(t, filepath.Join(cacheDir, older), nil)
	writeFile(t, filepath.Join(cacheDir, stranger), nil)
	for range 2 {
		if _, err := Build(t.Context(), sample(), cacheDir, nil); err != nil {
			t.Fatal(err)
		}
	}

	got, err := os.ReadFile(runs)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("run\n", string(got)); diff != "" {
		t.Errorf("runs of mmdebstrap (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{tarName(sample()), stranger}, fileNames(t, cacheDir)); diff != "" {
		t.Errorf("files in the cache (-want +got):\n%s", diff)
	}
}

func TestBuildFails(t *testing.T) {
	rootfs, _ := tinyRootfs(t)
	withoutPython := sampleWithWheels()
	withoutPython.Python = ""
	withoutTag := sample()
	withoutTag.Ref = "Example.test/Sample"
	tests := map[string]struct {
		def     Definition
		prepare func(*testing.T)
		want    []string
	}{
		"with the last messages of mmdebstrap": {
			sample(),
			func(t *testing.T) {
				fakeMmdebstrap(t, "cat /dev/zero | head -c 100000; seq 1 99 >&2; echo 'E: no such suite' >&2; exit 3")
			},
			[]string{"build image sample", "Debian bookworm", "debian-archive-keyring", "exit status 3", "98\n99\nE: no such suite"},
		},
		"with the package that has mmdebstrap": {
			sample(),
			func(t *testing.T) { t.Setenv("PATH", t.TempDir()) },
			[]string{"install the Debian package mmdebstrap"},
		},
		"with the package that has pip": {
			sampleWithWheels(),
			func(t *testing.T) {
				fakeMmdebstrap(t, rootfs)
				fakeCommand(t, "python3", "echo 'No module named pip' >&2; exit 1")
			},
			[]string{"install the Debian package python3-pip"},
		},
		"with the last messages of pip": {
			sampleWithWheels(),
			func(t *testing.T) {
				fakeMmdebstrap(t, rootfs)
				fakeCommand(t, "python3", `[ "$3" = --version ] && exit 0; echo 'No matching distribution' >&2; exit 1`)
			},
			[]string{"download demo==1", "No matching distribution"},
		},
		"on wheels for an unknown Python": {
			withoutPython,
			func(t *testing.T) { fakeMmdebstrap(t, rootfs); fakePip(t, nil) },
			[]string{"no Python version"},
		},
		"on a wheel with files of a kind it cannot place": {
			sampleWithWheels(),
			func(t *testing.T) {
				fakeMmdebstrap(t, rootfs)
				fakePip(t, map[string]entry{"demo-1.data/scripts/tool": {0o755, "#!python"}})
			},
			[]string{"unpack demo-1-py3-none-any.whl", `"scripts"`},
		},
		"on a wheel that leads out of the image": {
			sampleWithWheels(),
			func(t *testing.T) {
				fakeMmdebstrap(t, rootfs)
				fakePip(t, map[string]entry{"../../etc/passwd": {0o644, ""}})
			},
			[]string{"is outside of the wheel"},
		},
		"on a reference that is none": {
			withoutTag,
			func(t *testing.T) { fakeMmdebstrap(t, rootfs) },
			[]string{"image reference"},
		},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			test.prepare(t)
			cacheDir := t.TempDir()
			path, err := Build(t.Context(), test.def, cacheDir, nil)
			if err == nil {
				t.Fatalf("built %s, want an error", path)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error lacks %q:\n%v", want, err)
				}
			}
			if diff := cmp.Diff([]string(nil), fileNames(t, cacheDir)); diff != "" {
				t.Errorf("files left in the cache (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBuildCancelledEndsAllProcesses(t *testing.T) {
	childFile := filepath.Join(t.TempDir(), "child")
	fakeMmdebstrap(t, fmt.Sprintf("sleep 300 & echo $! > '%[1]s.new'; mv '%[1]s.new' '%[1]s'; wait", childFile))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cacheDir := t.TempDir()
	result := make(chan error, 1)
	go func() {
		_, err := Build(ctx, sample(), cacheDir, nil)
		result <- err
	}()

	var child int
	eventually(t, "mmdebstrap started a child", func() bool {
		content, err := os.ReadFile(childFile)
		if err != nil {
			return false
		}
		child, err = strconv.Atoi(strings.TrimSpace(string(content)))
		return err == nil
	})
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v, want %v", err, context.Canceled)
	}
	eventually(t, "the child ended", func() bool { return !running(child) })
	if diff := cmp.Diff([]string(nil), fileNames(t, cacheDir)); diff != "" {
		t.Errorf("files left in the cache (-want +got):\n%s", diff)
	}
}

// running tells whether a process is there and no zombie, which it stays where
// nobody collects orphans.
func running(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

func eventually(t *testing.T, condition string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if holds() {
			return
		}
	}
	t.Fatalf("waited in vain until %s", condition)
}
