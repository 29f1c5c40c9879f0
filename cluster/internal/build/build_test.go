// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trireme-mpi/trireme/cluster/internal/layout"
)

// tiny says what it was linked with, and needs nothing but the runtime: the
// less there is to compile, the faster the test.
const tiny = `package main

var version = "none"

func main() { println(version) }
`

func write(t *testing.T, content string, path ...string) {
	t.Helper()
	file := filepath.Join(path...)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// tinyModule is a module of its own with one program.
func tinyModule(t *testing.T) Module {
	t.Helper()
	directory := t.TempDir()
	write(t, "module example.com/tiny\n\ngo 1.26\n", directory, "go.mod")
	write(t, tiny, directory, "main.go")
	return Module{Name: "tiny", Directory: directory, Programs: []Program{{Name: "tiny", Package: "."}}}
}

// cached lists what the module's part of the cache holds.
func cached(t *testing.T, l layout.Layout) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(l.Cache, "tiny"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	names := []string{}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// fakeGo puts a shell script in front of the real go, whose path it has in
// $real; words are what was asked of it.
func fakeGo(t *testing.T, script string) {
	t.Helper()
	real, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	directory := t.TempDir()
	content := fmt.Sprintf("#!/bin/sh\nreal='%s'\ncommand=$3\n%s\nexec \"$real\" \"$@\"\n", real, script)
	if err := os.WriteFile(filepath.Join(directory, "go"), []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", directory+string(os.PathListSeparator)+os.Getenv("PATH"))
}

func hash(t *testing.T, m Module) string {
	t.Helper()
	sum, err := m.hash(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

func TestHash(t *testing.T) {
	tests := map[string]struct {
		change   func(t *testing.T, m *Module)
		wantSame bool
	}{
		"nothing": {wantSame: true, change: func(*testing.T, *Module) {}},
		"the same files in another directory": {wantSame: true, change: func(t *testing.T, m *Module) {
			elsewhere := filepath.Join(t.TempDir(), "elsewhere")
			if err := os.CopyFS(elsewhere, os.DirFS(m.Directory)); err != nil {
				t.Fatal(err)
			}
			m.Directory = elsewhere
		}},
		"a directory whose name is a pattern": {wantSame: true, change: func(t *testing.T, m *Module) {
			elsewhere := filepath.Join(t.TempDir(), "[a-b]*")
			if err := os.CopyFS(elsewhere, os.DirFS(m.Directory)); err != nil {
				t.Fatal(err)
			}
			m.Directory = elsewhere
		}},
		"a file's content": {change: func(t *testing.T, m *Module) { write(t, tiny+"\n", m.Directory, "main.go") }},
		"one more file":    {change: func(t *testing.T, m *Module) { write(t, "package main\n", m.Directory, "more.go") }},
		"a file's name": {change: func(t *testing.T, m *Module) {
			if err := os.Rename(filepath.Join(m.Directory, "main.go"), filepath.Join(m.Directory, "name.go")); err != nil {
				t.Fatal(err)
			}
		}},
		"the dependencies":       {change: func(t *testing.T, m *Module) { write(t, "example.com/x v1 h1:x=\n", m.Directory, "go.sum") }},
		"the linker's flags":     {change: func(_ *testing.T, m *Module) { m.Programs[0].LDFlags = "-X main.version=1" }},
		"the build tags":         {change: func(_ *testing.T, m *Module) { m.Programs[0].Tags = "small" }},
		"one more program":       {change: func(_ *testing.T, m *Module) { m.Programs = append(m.Programs, Program{Name: "b", Package: "."}) }},
		"one more link":          {change: func(_ *testing.T, m *Module) { m.Links = []string{"other"} }},
		"one more file to take":  {change: func(_ *testing.T, m *Module) { m.Extra = map[string]ModuleFile{"a": {"m", "p"}} }},
		"the version of Go":      {change: func(t *testing.T, _ *Module) { fakeGo(t, "echo go9.99; echo amd64; exit") }},
		"the processor's family": {change: func(t *testing.T, _ *Module) { t.Setenv("GOARCH", "s390x") }},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			m := tinyModule(t)
			before := hash(t, m)
			test.change(t, &m)
			if after := hash(t, m); (before == after) != test.wantSame {
				t.Errorf("hash was %s and is %s, want it the same = %v", before, after, test.wantSame)
			}
		})
	}
}

func TestHashSaysWhatIsMissing(t *testing.T) {
	m := tinyModule(t)
	t.Run("the source", func(t *testing.T) {
		gone := m
		gone.Directory = filepath.Join(t.TempDir(), "gone")
		_, err := Output(context.Background(), layout.Layout{Cache: t.TempDir()}, gone)
		if err == nil || !strings.Contains(err.Error(), gone.Directory) || !strings.Contains(err.Error(), "complete checkout") {
			t.Errorf("error %v does not say which source is missing", err)
		}
	})
	t.Run("Go", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		_, err := Output(context.Background(), layout.Layout{Cache: t.TempDir()}, m)
		if err == nil || !strings.Contains(err.Error(), "install Go") {
			t.Errorf("error %v does not say that Go is missing", err)
		}
	})
}

func TestEnsureBuildsOnce(t *testing.T) {
	m := tinyModule(t)
	m.Programs[0].LDFlags = "-X main.version=v7"
	m.Links = []string{"first", "second"}
	// A dependency that is a folder beside, so that no network is needed.
	dependency := t.TempDir()
	write(t, "module example.com/dependency\n", dependency, "go.mod")
	write(t, "kind: CRD\n", dependency, "config", "crd.yaml")
	write(t, "module example.com/tiny\n\ngo 1.26\n\nrequire example.com/dependency v1.0.0\n\nreplace example.com/dependency => "+dependency+"\n", m.Directory, "go.mod")
	m.Extra = map[string]ModuleFile{"taken.yaml": {Module: "example.com/dependency", Path: "config/crd.yaml"}}
	// Settings of the caller must neither break the build nor change it.
	t.Setenv("GOFLAGS", "-mod=vendor")
	t.Setenv("CGO_ENABLED", "1")
	write(t, "go 1.26\n", filepath.Dir(m.Directory), "go.work")
	write(t, "//go:build cgo\n\npackage main\n\nfunc init() { version = \"with C\" }\n", m.Directory, "c.go")

	l := layout.Layout{Cache: filepath.Join(t.TempDir(), "cache")}
	directory, built, err := Ensure(context.Background(), l, m, unheard)
	if err != nil {
		t.Fatal(err)
	}
	if !built {
		t.Error("first call says that nothing was built")
	}
	if want, err := Output(context.Background(), l, m); err != nil || directory != want {
		t.Errorf("built in %s, want %s (%v)", directory, want, err)
	}
	for _, name := range []string{"tiny", "first", "second"} {
		output, err := exec.Command(filepath.Join(directory, name)).CombinedOutput()
		if err != nil || string(output) != "v7\n" {
			t.Errorf("%s says %q (%v), want v7", name, output, err)
		}
	}
	for _, link := range m.Links {
		// Relative, so that the cache can be moved.
		if target, err := os.Readlink(filepath.Join(directory, link)); err != nil || target != "tiny" {
			t.Errorf("link %s leads to %q (%v)", link, target, err)
		}
	}
	if content, err := os.ReadFile(filepath.Join(directory, "taken.yaml")); err != nil || string(content) != "kind: CRD\n" {
		t.Errorf("file of the dependency is %q (%v)", content, err)
	}
	assertStatic(t, filepath.Join(directory, "tiny"))
	if diff := cmp.Diff([]string{filepath.Base(directory)}, cached(t, l)); diff != "" {
		t.Errorf("cache (-want +got):\n%s", diff)
	}

	fakeGo(t, `[ "$command" = build ] && { echo must not build again; exit 1; }`)
	again, built, err := Ensure(context.Background(), l, m, unheard)
	if err != nil || built || again != directory {
		t.Errorf("second call gives %s, built = %v, error %v", again, built, err)
	}
}

func assertStatic(t *testing.T, file string) {
	t.Helper()
	binary, err := elf.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer binary.Close()
	for _, program := range binary.Progs {
		if program.Type == elf.PT_INTERP {
			t.Errorf("%s needs a dynamic linker, which an image may not have", file)
		}
	}
}

func TestFailingBuildLeavesNothing(t *testing.T) {
	tests := map[string]struct {
		damage     func(t *testing.T, m *Module)
		wantErrors []string
	}{
		"the compiler complains": {
			damage: func(t *testing.T, m *Module) {
				write(t, "package main\n\nfunc main() { undefinedName() }\n", m.Directory, "main.go")
			},
			wantErrors: []string{"build tiny: go build .", "undefined: undefinedName"},
		},
		"the second program fails after the first was built": {
			damage: func(_ *testing.T, m *Module) {
				m.Programs = append(m.Programs, Program{Name: "second", Package: "./second"})
			},
			wantErrors: []string{"go build ./second"},
		},
		"a dependency is not there": {
			damage: func(_ *testing.T, m *Module) {
				m.Extra = map[string]ModuleFile{"x": {Module: "example.com/nobody", Path: "x"}}
			},
			// In go's own words, too.
			wantErrors: []string{"find module example.com/nobody", "not a known dependency"},
		},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			m := tinyModule(t)
			test.damage(t, &m)
			l := layout.Layout{Cache: t.TempDir()}
			directory, built, err := Ensure(context.Background(), l, m, unheard)
			if err == nil || built || directory != "" {
				t.Fatalf("Ensure gives %q, built = %v, error %v", directory, built, err)
			}
			for _, want := range test.wantErrors {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error does not say %q:\n%v", want, err)
				}
			}
			if diff := cmp.Diff([]string{}, cached(t, l)); diff != "" {
				t.Errorf("cache (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCompilersWordsAreKeptInALog(t *testing.T) {
	m := tinyModule(t)
	write(t, "package main\n\nfunc main() { undefinedName() }\n", m.Directory, "main.go")
	l := layout.Layout{Cache: t.TempDir()}
	if _, _, err := Ensure(context.Background(), l, m, unheard); err == nil {
		t.Fatal("no error")
	}
	log, err := os.ReadFile(filepath.Join(l.BuildLogs(), "tiny.log"))
	if err != nil || !strings.Contains(string(log), "undefined: undefinedName") {
		t.Errorf("log is %q (%v)", log, err)
	}
}

func TestInterruptedBuildLeavesNothing(t *testing.T) {
	m, l := tinyModule(t), layout.Layout{Cache: t.TempDir()}
	notes := t.TempDir()
	started, cleaned := filepath.Join(notes, "started"), filepath.Join(notes, "cleaned")
	// Go removes its temporary files, gigabytes for Kubernetes, if it is asked
	// to end instead of killed.
	fakeGo(t, fmt.Sprintf(`[ "$command" = build ] && {
	trap ': > "%s"; exit 1' INT
	: > "%s"
	while :; do sleep 0.02; done
}`, cleaned, started))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	result := make(chan error, 1)
	go func() {
		_, _, err := Ensure(ctx, l, m, unheard)
		result <- err
	}()
	await(t, "the build begins", func() bool { _, err := os.Stat(started); return err == nil })
	if !slices.ContainsFunc(cached(t, l), func(name string) bool { return strings.HasSuffix(name, ".partial") }) {
		t.Errorf("cache holds %v: the build does not work beside the result", cached(t, l))
	}
	cancel()
	select {
	case err := <-result:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want one that says it was cancelled", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the build does not end")
	}
	if diff := cmp.Diff([]string{}, cached(t, l)); diff != "" {
		t.Errorf("cache (-want +got):\n%s", diff)
	}
	if _, err := os.Stat(cleaned); err != nil {
		t.Errorf("go was not given the time to clean up: %v", err)
	}
}

func await(t *testing.T, what string, reached func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !reached(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("in vain waited until %s", what)
		}
	}
}

func TestTwoAtOnceBuildOnce(t *testing.T) {
	m, l := tinyModule(t), layout.Layout{Cache: t.TempDir()}
	builds := filepath.Join(t.TempDir(), "builds")
	fakeGo(t, fmt.Sprintf(`[ "$command" = build ] && echo build >> '%s'`, builds))
	var group sync.WaitGroup
	results := make(chan string, 4)
	for range cap(results) {
		group.Go(func() {
			directory, built, err := Ensure(context.Background(), l, m, unheard)
			results <- fmt.Sprintf("%s %v %v", filepath.Dir(directory), built, err)
		})
	}
	group.Wait()
	close(results)
	count := map[string]int{}
	for result := range results {
		count[result]++
	}
	parent := filepath.Join(l.Cache, "tiny")
	if diff := cmp.Diff(map[string]int{parent + " true <nil>": 1, parent + " false <nil>": 3}, count); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
	if content, err := os.ReadFile(builds); err != nil || string(content) != "build\n" {
		t.Errorf("builds: %q (%v), want one", content, err)
	}
}

// result puts a directory into the cache that was used so many hours ago.
func result(t *testing.T, parent, name string, hours int) {
	t.Helper()
	write(t, "", parent, name, "program")
	when := time.Now().Add(-time.Duration(hours) * time.Hour)
	if err := os.Chtimes(filepath.Join(parent, name), when, when); err != nil {
		t.Fatal(err)
	}
}

func TestOldResultsAreRemoved(t *testing.T) {
	l := layout.Layout{Cache: t.TempDir()}
	parent := filepath.Join(l.Cache, "tiny")
	// Neither in the order of their names nor all within what an int32 holds.
	for name, hours := range map[string]int{"b": 1, "a": 50, "e": 2, "c": 5000, "d": 3} {
		result(t, parent, name, hours)
	}
	if err := removeOlder(parent); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"b", "d", "e"}, cached(t, l)); diff != "" {
		t.Errorf("cache (-want +got):\n%s", diff)
	}
	if err := removeOlder(parent); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"b", "d", "e"}, cached(t, l)); diff != "" {
		t.Errorf("cache after a second time (-want +got):\n%s", diff)
	}
}

func TestResultInUseIsNotOld(t *testing.T) {
	m, l := tinyModule(t), layout.Layout{Cache: t.TempDir()}
	directory, err := Output(context.Background(), l, m)
	if err != nil {
		t.Fatal(err)
	}
	parent, name := filepath.Split(directory)
	for other, hours := range map[string]int{"a": 1, "b": 2, "c": 3, name: 400} {
		result(t, parent, other, hours)
	}
	if _, built, err := Ensure(context.Background(), l, m, unheard); err != nil || built {
		t.Fatalf("built = %v, error %v", built, err)
	}
	if err := removeOlder(parent); err != nil {
		t.Fatal(err)
	}
	if got := cached(t, l); !slices.Contains(got, name) || slices.Contains(got, "c") {
		t.Errorf("cache holds %v: not the three used last, of which %s is one", got, name)
	}
}

// TestProgramsOfARunningClusterStay: a component that dies is started again
// from where it was.
func TestProgramsOfARunningClusterStay(t *testing.T) {
	l := layout.Layout{Cache: t.TempDir()}
	parent := filepath.Join(l.Cache, "tiny")
	for name, hours := range map[string]int{"a": 1, "b": 2, "c": 3, "idle": 4, "running": 5} {
		result(t, parent, name, hours)
	}
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(sleep)
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(parent, "running", "sleep")
	if err := os.WriteFile(program, content, 0o755); err != nil {
		t.Fatal(err)
	}
	result(t, parent, "running", 5)
	process := exec.Command(program, "60")
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = process.Process.Kill()
		_ = process.Wait()
	})
	if err := removeOlder(parent); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a", "b", "c", "running"}, cached(t, l)); diff != "" {
		t.Errorf("cache (-want +got):\n%s", diff)
	}
}

func TestModules(t *testing.T) {
	l := layout.Layout{Source: "/src"}
	for _, name := range []string{"kubernetes", "containerd", "pause"} {
		m := Named(l, name)
		if m.Name != name || len(m.Programs) == 0 || !strings.HasPrefix(m.Directory, "/src/") {
			t.Errorf("module %s is %+v", name, m)
		}
	}
	if slices.ContainsFunc(Modules(l), func(m Module) bool { return m.Name == Registry(l).Name }) {
		t.Error("the registry would be built with every cluster")
	}
	defer func() {
		if recover() == nil {
			t.Error("an unknown module is no error of the programmer")
		}
	}()
	Named(l, "nobody")
}

// Another release of Kubernetes is built besides the default one, which stays as it is.
func TestModulesOfReleases(t *testing.T) {
	names := func(l layout.Layout) (all []string) {
		for _, m := range Modules(l) {
			all = append(all, m.Name)
		}
		return all
	}
	standard := []string{"kubernetes", "containerd", "pause"}
	for _, release := range layout.Releases() {
		l := layout.Layout{Source: "/src", Kubernetes: release}
		want, wantName := standard, "kubernetes"
		if !release.IsDefault() {
			wantName = "kubernetes-" + release.Release
			want = append(slices.Clone(standard), wantName)
		}
		if diff := cmp.Diff(want, names(l)); diff != "" {
			t.Errorf("modules of %s (-want +got):\n%s", release.Release, diff)
		}
		own := Named(l, Kubernetes(l))
		if own.Name != wantName || own.Directory != "/src/components/"+wantName || !strings.Contains(own.Programs[0].LDFlags, "gitVersion="+release.Version+" ") {
			t.Errorf("module of %s: %+v", release.Release, own)
		}
		if diff := cmp.Diff(Named(layout.Layout{Source: "/src"}, DefaultKubernetes), Named(l, DefaultKubernetes)); diff != "" {
			t.Errorf("%s changes the default module (-before +after):\n%s", release.Release, diff)
		}
	}
}

// The build of the default release takes ten minutes: a change of this text causes it.
func TestLinkerFlagsOfTheDefault(t *testing.T) {
	const want = "-X k8s.io/component-base/version.gitVersion=v1.36.3 -X k8s.io/component-base/version.gitMajor=1" +
		" -X k8s.io/component-base/version.gitMinor=36 -X k8s.io/client-go/pkg/version.gitVersion=v1.36.3"
	m := Named(layout.Layout{}, DefaultKubernetes)
	if diff := cmp.Diff(want, m.Programs[0].LDFlags); diff != "" {
		t.Error(diff)
	}
	links := []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl", "coredns", "kwok"}
	if diff := cmp.Diff(links, m.Links); diff != "" {
		t.Error(diff)
	}
}

// unheard is for callers that nobody keeps waiting.
func unheard(string) {}
