// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestOtherSystemsGetAnAnswer: on a Mac the tool must build, and say why it
// does not work there.
func TestOtherSystemsGetAnAnswer(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "cluster")
	build := exec.Command("go", "build", "-o", binary, ".")
	build.Env = append(os.Environ(), "GOOS=darwin", "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	content, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	if want := "the local cluster needs Linux (namespaces, control groups); use a Linux virtual machine"; !bytes.Contains(content, []byte(want)) {
		t.Errorf("the program for another system does not say %q", want)
	}
}

func TestSourceIsFound(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	source := filepath.Clean(filepath.Join(here, "..", ".."))
	tests := map[string]struct {
		from string
		flag string
		want string
	}{
		"from the repository":       {from: filepath.Dir(source), want: source},
		"from the cluster's folder": {from: source, want: source},
		"from somewhere deep in it": {from: here, want: source},
		"as the flag says":          {from: "/", flag: "/elsewhere", want: "/elsewhere"},
		"not at all outside of one": {from: t.TempDir(), want: ""},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			t.Chdir(test.from)
			if got := (&options{source: test.flag}).findSource(); got != test.want {
				t.Errorf("found %q, want %q", got, test.want)
			}
		})
	}
}

func TestBadWordsGetHelp(t *testing.T) {
	tests := map[string]struct {
		arguments []string
		want      string
	}{
		"a component that is none":      {[]string{"logs", "kubelt"}, `component "kubelt" does not exist; use one of: etcd, kube-apiserver`},
		"an image that is none":         {[]string{"image", "mpi", "openmpi6"}, `image "openmpi6" does not exist; use one of: openmpi4, openmpi5, mpich, intelmpi, digits, notebook, horovod`},
		"a name that does not fit":      {[]string{"--name", "Trireme", "status"}, `cluster name "Trireme" must be trireme, or trireme- and up to 6`},
		"a block of another size":       {[]string{"--network", "10.1.2.0/24", "up"}, `network "10.1.2.0/24" must be the start of an IPv4 /16`},
		"a command that is none":        {[]string{"upp"}, `unknown command "upp"`},
		"an image command that is none": {[]string{"image", "lod"}, `unknown command "lod" for "cluster image"`},
		"fewer nodes than none":         {[]string{"up", "--fake-nodes", "-1"}, "--fake-nodes must be 0 or greater, not -1"},
		"an argument too many":          {[]string{"up", "now"}, `unknown command "now" for "cluster up"`},
		"status without a cluster":      {[]string{"--name", "trireme-none", "status"}, "the cluster is not running; start it with `up`"},
		"kubectl of another cluster":    {[]string{"--name", "trireme-none", "kubectl", "get", "nodes"}, "the cluster is not running; start it with `up`"},
		"an image without a cluster":    {[]string{"--name", "trireme-none", "image", "list"}, "the cluster is not running; start it with `up`"},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			t.Setenv("HOME", t.TempDir())
			command := newCommand()
			command.SetArgs(test.arguments)
			err := command.ExecuteContext(t.Context())
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error is %v, want one with %q", err, test.want)
			}
		})
	}
}

func TestWantedImages(t *testing.T) {
	tests := map[string]struct {
		names []string
		want  []string
	}{
		"every MPI, but not the demonstration": {nil, []string{"openmpi4", "openmpi5", "mpich", "intelmpi"}},
		"the demonstration, if it is named":    {[]string{"digits"}, []string{"digits"}},
		"each once, in the order of the list":  {[]string{"digits", "mpich", "digits"}, []string{"mpich", "digits"}},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			wanted, err := wantedImages(test.names)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, definitionNames(wanted)); diff != "" {
				t.Errorf("images (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLogIsPrintedAndFollowed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "component.log")
	write := func(name, content string, flags int) {
		t.Helper()
		file, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|flags, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.WriteString(content); err != nil {
			t.Fatal(err)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := printLog(t.Context(), io.Discard, path, false); err == nil || !strings.Contains(err.Error(), "the cluster was never started") {
		t.Errorf("no log at all: %v", err)
	}
	write(path+".1", "previous\n", 0)
	write(path, "current\n", 0)
	ctx, cancel := context.WithCancel(t.Context())
	reader, writer := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := printLog(ctx, writer, path, true)
		writer.Close()
		ended <- err
	}()
	lines := bufio.NewScanner(reader)
	expect := func(want string) {
		t.Helper()
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("read %q, want %q", lines.Text(), want)
		}
	}
	expect("previous")
	expect("current")
	write(path, "appended\n", os.O_APPEND)
	expect("appended")
	write(path, "new\n", os.O_TRUNC) // as rotation does
	expect("new")
	cancel()
	go func() { _, _ = io.Copy(io.Discard, reader) }()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
