// SPDX-License-Identifier: Apache-2.0

// Package build builds the cluster's programs from their Go modules and keeps them in
// the cache under a hash of their sources.
package build

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/trireme-mpi/trireme/cluster/internal/bundle"
	"github.com/trireme-mpi/trireme/cluster/internal/host"
	"github.com/trireme-mpi/trireme/cluster/internal/layout"
)

// Module is one folder with a go.mod, and what is built from it.
type Module struct {
	Name      string
	Directory string
	Programs  []Program
	// Links are other names of the first program, which selects its function by name.
	Links []string
	// Extra are files taken from the module's dependencies, such as CRDs:
	// name in the result -> module and path in it.
	Extra map[string]ModuleFile
}

// Program is a binary and its main package.
type Program struct {
	Name    string
	Package string
	LDFlags string
	Tags    string
}

// ModuleFile is a file or folder inside a dependency.
type ModuleFile struct {
	Module string
	Path   string
}

// DefaultKubernetes is the module of the default release of Kubernetes. Every cluster
// needs it: it also contains CoreDNS, kwok and JobSet.
const DefaultKubernetes = "kubernetes"

// Kubernetes is the name of the module with the programs of Kubernetes itself.
func Kubernetes(l layout.Layout) string {
	if l.Kubernetes.IsDefault() {
		return DefaultKubernetes
	}
	return "kubernetes-" + l.Kubernetes.Release
}

// kubernetesPrograms are names of the multi-call binary in every release.
var kubernetesPrograms = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl"}

func kubernetesLDFlags(k layout.Kubernetes) string {
	return "-X k8s.io/component-base/version.gitVersion=" + k.Version +
		" -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=" + k.Minor() +
		" -X k8s.io/client-go/pkg/version.gitVersion=" + k.Version
}

// Modules lists the modules that the cluster is built from.
func Modules(l layout.Layout) []Module {
	modules := commonModules(l)
	if !l.Kubernetes.IsDefault() {
		name := Kubernetes(l)
		modules = append(modules, Module{
			Name:      name,
			Directory: filepath.Join(l.Source, "components", name),
			Programs:  []Program{{Name: "kubernetes", Package: ".", LDFlags: kubernetesLDFlags(l.Kubernetes)}},
			Links:     kubernetesPrograms,
		})
	}
	return modules
}

// commonModules are needed with every release of Kubernetes.
func commonModules(l layout.Layout) []Module {
	defaultRelease := layout.Releases()[0]
	const containerd = "github.com/containerd/containerd/v2"
	containerdVersion := "-X " + containerd + "/version.Version=" + layout.ContainerdVersion
	// Without unused snapshotters, which would make the build longer.
	const containerdTags = "no_btrfs,no_devmapper,no_zfs"
	jobSetFile := func(path string) ModuleFile { return ModuleFile{"sigs.k8s.io/jobset", "config/components/" + path} }
	kwokStage := func(path string) ModuleFile { return ModuleFile{"sigs.k8s.io/kwok", "kustomize/stage/" + path} }
	return []Module{
		{
			Name:      DefaultKubernetes,
			Directory: filepath.Join(l.Source, "components", DefaultKubernetes),
			Programs: []Program{
				{Name: "kubernetes", Package: ".", LDFlags: kubernetesLDFlags(defaultRelease)},
				{Name: "jobset", Package: "sigs.k8s.io/jobset"},
			},
			Links: append(slices.Clone(kubernetesPrograms), "coredns", "kwok"),
			Extra: map[string]ModuleFile{
				"jobset-crd.yaml":           jobSetFile("crd/bases/jobset.x-k8s.io_jobsets.yaml"),
				"jobset-role.yaml":          jobSetFile("rbac/role.yaml"),
				"jobset-webhook.yaml":       jobSetFile("webhook/manifests.yaml"),
				"kwok-node-initialize.yaml": kwokStage("node/fast/node-initialize.yaml"),
				"kwok-node-heartbeat.yaml":  kwokStage("node/heartbeat-with-lease/node-heartbeat-with-lease.yaml"),
				"kwok-pod-ready.yaml":       kwokStage("pod/fast/pod-ready.yaml"),
				"kwok-pod-delete.yaml":      kwokStage("pod/fast/pod-delete.yaml"),
			},
		},
		{
			Name:      "containerd",
			Directory: filepath.Join(l.Source, "components", "containerd"),
			Programs: []Program{
				{Name: "containerd", Package: containerd + "/cmd/containerd", LDFlags: containerdVersion, Tags: containerdTags},
				{Name: "containerd-shim-runc-v2", Package: containerd + "/cmd/containerd-shim-runc-v2", LDFlags: containerdVersion},
				{Name: "ctr", Package: containerd + "/cmd/ctr", LDFlags: containerdVersion},
			},
		},
		{
			Name:      "pause",
			Directory: filepath.Join(l.Source, "pause"),
			Programs:  []Program{{Name: "pause", Package: "."}},
		},
	}
}

// Registry is not one of Modules: it is built only for those who use it.
func Registry(l layout.Layout) Module {
	return Module{
		Name:      "registry",
		Directory: filepath.Join(l.Source, "components", "registry"),
		Programs:  []Program{{Name: "registry", Package: "."}},
	}
}

// Unpack is the program at the start of a bundle. It is built only for bundles.
func Unpack(l layout.Layout) Module {
	return Module{
		Name:      "unpack",
		Directory: filepath.Join(l.Source, "unpack"),
		Programs:  []Program{{Name: "unpack", Package: "."}},
	}
}

// HostFiles is the program that adds directories of the machine to containers. It is built
// only for images that need it.
func HostFiles(l layout.Layout) Module {
	return Module{
		Name:      "host-files",
		Directory: filepath.Join(l.Source, "hostfiles"),
		Programs:  []Program{{Name: "runc-with-host-files", Package: "."}},
	}
}

// NVIDIA is built only for machines with GPUs, and needs a C compiler: NVIDIA's library of
// the driver is loaded at run time, by C.
func NVIDIA(l layout.Layout) Module {
	return Module{
		Name:      nvidia,
		Directory: filepath.Join(l.Source, "components", nvidia),
		Programs: []Program{
			{Name: "nvidia-device-plugin", Package: "github.com/NVIDIA/k8s-device-plugin/cmd/nvidia-device-plugin"},
			{Name: "nvidia-cdi-hook", Package: "github.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-cdi-hook"},
		},
	}
}

const nvidia = "nvidia"

// Named finds one of the modules.
func Named(l layout.Layout, name string) Module {
	for _, module := range Modules(l) {
		if module.Name == name {
			return module
		}
	}
	panic("build: no module " + name)
}

// Output is the directory that holds, or will hold, the module's programs.
func Output(ctx context.Context, l layout.Layout, m Module) (string, error) {
	if l.Bundle != "" {
		return bundled(l.Bundle, m)
	}
	hash, err := m.hash(ctx)
	if err != nil {
		return "", fmt.Errorf("build %s: %w", m.Name, err)
	}
	return filepath.Join(l.Cache, m.Name, hash), nil
}

// bundled is the directory of a module's programs in an unpacked bundle. It keeps the
// name that it has in the cache: the hash of its sources.
func bundled(root string, m Module) (string, error) {
	entries, err := os.ReadDir(filepath.Join(root, bundle.Programs, m.Name))
	if err != nil || len(entries) != 1 {
		return "", errors.Join(fmt.Errorf("bundle %s does not contain %s; unpack it again, or make one that does", root, m.Name), err)
	}
	return filepath.Join(root, bundle.Programs, m.Name, entries[0].Name()), nil
}

// buildFlags are those of every program.
var buildFlags = []string{"-mod=readonly", "-trimpath", "-buildvcs=false"}

// hash covers the module's own files and the way it is built; go.sum covers
// every dependency's content.
func (m Module) hash(ctx context.Context) (string, error) {
	files, err := os.ReadDir(m.Directory)
	if err != nil || len(files) == 0 {
		return "", errors.Join(fmt.Errorf("%s contains no source: use a complete checkout", m.Directory), err)
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "%+v\n%q\n", m.withoutDirectory(), buildFlags)
	toolchain, err := goCommand(ctx, m.Directory, "env", "GOVERSION", "GOARCH").Output()
	if err != nil {
		return "", fmt.Errorf("get the version of Go: %w; install Go 1.26.6 or newer and put it on PATH", err)
	}
	sum.Write(toolchain)
	for _, file := range files {
		content, err := os.ReadFile(filepath.Join(m.Directory, file.Name()))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(sum, "%s %d\n", file.Name(), len(content))
		sum.Write(content)
	}
	return fmt.Sprintf("%x", sum.Sum(nil))[:12], nil
}

func (m Module) withoutDirectory() Module {
	m.Directory = ""
	return m
}

// goCommand runs go in the module's directory, without the user's Go settings. It is
// interrupted and not killed, so that it can remove gigabytes of temporary files.
func goCommand(ctx context.Context, directory string, arguments ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, "go", append([]string{"-C", directory}, arguments...)...)
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = 5 * time.Second
	return command
}

// Ensure returns the directory of the module's programs, and builds them if they are
// not in the cache. If another process is building them, Ensure waits for it and calls
// waiting with its description.
func Ensure(ctx context.Context, l layout.Layout, m Module, waiting func(string)) (directory string, built bool, err error) {
	directory, err = Output(ctx, l, m)
	if err != nil {
		return "", false, err
	}
	if used(directory) {
		return directory, false, nil
	}
	unlock, err := host.Lock(ctx, filepath.Join(l.Cache, "locks", "build-"+m.Name), func(holder string) { waiting("for " + holder) })
	if err != nil {
		return "", false, fmt.Errorf("build %s: %w", m.Name, err)
	}
	defer unlock()
	if used(directory) {
		return directory, false, nil
	}
	if err := host.CheckBuildSpace(l); err != nil {
		return "", false, fmt.Errorf("build %s: %w", m.Name, err)
	}
	if err := m.build(ctx, l, directory); err != nil {
		return "", false, fmt.Errorf("build %s: %w", m.Name, err)
	}
	return directory, true, nil
}

// used reports whether the result exists, and updates its time of last use.
func used(directory string) bool {
	if _, err := os.Stat(directory); err != nil {
		return false
	}
	now := time.Now()
	_ = os.Chtimes(directory, now, now) // a cache that may only be read is fine
	return true
}

// build works in a temporary directory and renames it at the end, so that an
// interrupted build does not count as complete.
func (m Module) build(ctx context.Context, l layout.Layout, directory string) error {
	partial := directory + ".partial"
	if err := os.RemoveAll(partial); err != nil {
		return err
	}
	if err := os.MkdirAll(partial, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(partial)
	if err := os.MkdirAll(l.BuildLogs(), 0o755); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(l.BuildLogs(), m.Name+".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	for _, program := range m.Programs {
		if err := m.compile(ctx, program, partial, log); err != nil {
			return err
		}
	}
	for _, link := range m.Links {
		if err := os.Symlink(m.Programs[0].Name, filepath.Join(partial, link)); err != nil {
			return err
		}
	}
	for name, file := range m.Extra {
		if err := m.copyExtra(ctx, file, filepath.Join(partial, name)); err != nil {
			return err
		}
	}
	if err := os.Rename(partial, directory); err != nil {
		return err
	}
	return removeOlder(filepath.Dir(directory))
}

// compile makes a static binary: the machine needs no C compiler, and every
// image can run it.
func (m Module) compile(ctx context.Context, p Program, directory string, log io.Writer) error {
	arguments := append(slices.Clone(buildFlags),
		"-tags", p.Tags, "-ldflags", "-s -w "+p.LDFlags, "-o", filepath.Join(directory, p.Name), p.Package)
	command := goCommand(ctx, m.Directory, append([]string{"build"}, arguments...)...)
	if m.Name == nvidia {
		// Not a field: the hash of every module would change. Symbols of the driver's
		// library are found when they are first called.
		command.Env = append(command.Env, "CGO_ENABLED=1", "CGO_LDFLAGS=-Wl,-z,lazy -Wl,--unresolved-symbols=ignore-in-object-files")
	}
	var output bytes.Buffer
	command.Stdout = io.MultiWriter(&output, log)
	command.Stderr = command.Stdout
	if err := command.Run(); err != nil {
		return fmt.Errorf("go build %s: %w\n%s", p.Package, errors.Join(err, ctx.Err()), host.Tail(output.String(), 10))
	}
	return nil
}

func (m Module) copyExtra(ctx context.Context, file ModuleFile, target string) error {
	command := goCommand(ctx, m.Directory, "list", "-m", "-f", "{{.Dir}}", file.Module)
	var complaints bytes.Buffer
	command.Stderr = &complaints
	output, err := command.Output()
	if err != nil {
		return fmt.Errorf("find module %s: %w\n%s", file.Module, errors.Join(err, ctx.Err()), host.Tail(complaints.String(), 5))
	}
	content, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(output)), file.Path))
	if err != nil {
		return err
	}
	return os.WriteFile(target, content, 0o644)
}

// removeOlder keeps only the most recently used results: switching between two
// branches does not cause a rebuild, and the disk does not fill up.
func removeOlder(parent string) error {
	const kept = 3
	entries, err := os.ReadDir(parent)
	if err != nil {
		return err
	}
	type result struct {
		path string
		time int64
	}
	var results []result
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil && entry.IsDir() {
			results = append(results, result{filepath.Join(parent, entry.Name()), info.ModTime().UnixNano()})
		}
	}
	slices.SortFunc(results, func(a, b result) int { return int(b.time - a.time) })
	for _, old := range results[min(kept, len(results)):] {
		if running(old.path) {
			continue
		}
		if err := os.RemoveAll(old.path); err != nil {
			return err
		}
	}
	return nil
}

// running reports whether a process was started from the directory: a running cluster
// needs its programs for restarts.
func running(directory string) bool {
	executables, _ := filepath.Glob("/proc/[0-9]*/exe")
	return slices.ContainsFunc(executables, func(link string) bool {
		executable, err := os.Readlink(link)
		return err == nil && strings.HasPrefix(executable, directory+"/")
	})
}
