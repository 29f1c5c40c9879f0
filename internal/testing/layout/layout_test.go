// SPDX-License-Identifier: Apache-2.0

// Package layout holds the tree to ARCHITECTURE.md: which folders exist, which way
// imports point, and that the engine is pure.
package layout

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	repository = "../../.."
	module     = "github.com/trireme-mpi/trireme/"
)

// layers are the parts of internal/, and which other parts each may import. Parts may
// always import api/, their own packages and agent/protocol, which has no logic.
var layers = map[string][]string{
	"engine":      {},
	"agent":       {"engine"},
	"initializer": {},
	"kube":        {"engine"},
	"operator":    {"engine", "kube"},
	"server":      {"engine", "kube"},
	"cli":         {"engine", "kube", "server"},
}

// programs are the mains, and the part that each one runs.
var programs = map[string][]string{
	"initializer": {"initializer"},
	"mpi-agent":   {"agent"},
	"odh":         {"cli"},
	"operator":    {"operator", "engine"},
	"server":      {"server", "kube"},
}

// protocol is imported by the engine, and is the only part of the agent that is.
const protocol = "internal/agent/protocol"

// goPackage is what go list says about a package.
type goPackage struct {
	ImportPath string
	Imports    []string
	Deps       []string
	GoFiles    []string
	Dir        string
}

func packages(t *testing.T, patterns ...string) (found []goPackage) {
	t.Helper()
	list := exec.Command("go", append([]string{"list", "-json=ImportPath,Imports,Deps,GoFiles,Dir"}, patterns...)...)
	list.Dir = repository
	output, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	decoder := json.NewDecoder(strings.NewReader(string(output)))
	for {
		var one goPackage
		if err := decoder.Decode(&one); errors.Is(err, io.EOF) {
			return found
		} else if err != nil {
			t.Fatal(err)
		}
		found = append(found, one)
	}
}

func TestImportsPointOneWay(t *testing.T) {
	for _, importer := range packages(t, "./internal/...", "./cmd/...") {
		folder := strings.TrimPrefix(importer.ImportPath, module)
		for _, path := range importer.Imports {
			if imported, ours := strings.CutPrefix(path, module); ours && !mayImport(folder, imported) {
				t.Errorf("%s imports %s: see layers in internal/testing/layout", folder, imported)
			}
		}
	}
}

func mayImport(importer, imported string) bool {
	from, to := part(importer), part(imported)
	switch {
	case from == "testing", imported == protocol, !strings.HasPrefix(imported, "internal/"):
		return true
	case strings.HasPrefix(importer, "cmd/"):
		return slices.Contains(programs[from], to)
	case from == to:
		return true
	default:
		return slices.Contains(layers[from], to)
	}
}

// part is the second element of a path: engine in internal/engine/job.
func part(folder string) string {
	return strings.Split(folder+"/", "/")[1]
}

func TestForbiddenImportsAreSeen(t *testing.T) {
	for pair, want := range map[[2]string]bool{
		{"internal/engine/plan", "internal/engine/job"}:        true,
		{"internal/engine/plan", "internal/agent/protocol"}:    true,
		{"internal/engine/plan", "internal/agent"}:             false,
		{"internal/engine/plan", "internal/kube/partial"}:      false,
		{"internal/kube/preflight", "internal/server/auth"}:    false,
		{"internal/server/auth", "internal/cli"}:               false,
		{"internal/operator", "internal/operator/admission"}:   true,
		{"cmd/mpi-agent", "internal/operator"}:                 false,
		{"internal/operator", "api/training"}:                  true,
		{"internal/testing/player", "internal/agent/protocol"}: true,
	} {
		if got := mayImport(pair[0], pair[1]); got != want {
			t.Errorf("%s may import %s: %t, want %t", pair[0], pair[1], got, want)
		}
	}
}

func TestEveryPartHasItsImports(t *testing.T) {
	entries, err := os.ReadDir(filepath.Join(repository, "internal"))
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if _, known := layers[entry.Name()]; !known && entry.Name() != "testing" {
			t.Errorf("internal/%s is not in layers: say which parts it may import", entry.Name())
		}
	}
}

// folderInTable is a folder or file in the first column of a table.
var folderInTable = regexp.MustCompile("`([a-zA-Z0-9_./{},*-]+)`")

// listed are the names in the first column of the table of folders.
func listed(t *testing.T) (names []string) {
	t.Helper()
	document := read(t, "ARCHITECTURE.md")
	_, table, found := strings.Cut(document, "\n| folder |")
	if !found {
		t.Fatal("ARCHITECTURE.md has no table of folders")
	}
	for line := range strings.Lines(table) {
		if strings.TrimSpace(line) == "" {
			break
		}
		if cells := strings.Split(line, "|"); len(cells) > 1 {
			for _, match := range folderInTable.FindAllStringSubmatch(cells[1], -1) {
				names = append(names, strings.TrimSuffix(match[1], "/"))
			}
		}
	}
	if len(names) < 20 {
		t.Fatalf("only %v are in the table of folders", names)
	}
	return names
}

func TestEveryFolderIsInTheTable(t *testing.T) {
	names := listed(t)
	for _, one := range packages(t, "./internal/...", "./cmd/...", "./api/...") {
		folder := strings.TrimPrefix(one.ImportPath, module)
		if !slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(folder+"/", name+"/") }) {
			t.Errorf("%s is not in ARCHITECTURE.md's table of folders", folder)
		}
	}
}

// TestEveryFileThatIsNamedExists looks at every path in ARCHITECTURE.md. A bare file
// name follows the path before it: `internal/engine/plan/plan.go`, `support.go`.
func TestEveryFileThatIsNamedExists(t *testing.T) {
	looked := 0
	for line := range strings.Lines(read(t, "ARCHITECTURE.md")) {
		folder := ""
		for _, match := range folderInTable.FindAllStringSubmatch(line, -1) {
			name := match[1]
			isFile := regexp.MustCompile(`\.(go|yaml|md|proto)$`).MatchString(name)
			isFolder := strings.HasSuffix(name, "/")
			switch {
			case strings.Contains(name, "/") && !strings.HasPrefix(name, "/") && (isFile || isFolder || topLevel(name)):
				folder = filepath.Dir(name)
				if isFolder {
					folder = strings.TrimSuffix(name, "/")
				}
			case isFile && folder != "":
				name = filepath.Join(folder, name)
			default:
				continue
			}
			looked++
			for _, path := range expand(name) {
				if found, _ := filepath.Glob(filepath.Join(repository, path)); len(found) == 0 {
					t.Errorf("ARCHITECTURE.md names %s, which does not exist", path)
				}
			}
		}
	}
	if looked < 60 {
		t.Errorf("only %d paths were looked at", looked)
	}
}

// topLevel tells whether a path begins with a folder of the repository.
func topLevel(name string) bool {
	first, _, _ := strings.Cut(name, "/")
	return slices.Contains([]string{"api", "bench", "cluster", "cmd", "config", "demo", "docs", "internal", "test", "tools"}, first)
}

// expand writes out one pair of braces.
func expand(name string) []string {
	before, rest, found := strings.Cut(name, "{")
	if !found {
		return []string{name}
	}
	choices, after, _ := strings.Cut(rest, "}")
	var names []string
	for choice := range strings.SplitSeq(choices, ",") {
		names = append(names, before+choice+after)
	}
	return names
}

func read(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(repository, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// Diagrams name files without their folders.
func TestEveryFileInADiagramExists(t *testing.T) {
	names := map[string]bool{}
	err := filepath.WalkDir(repository, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && (entry.Name() == "bin" || entry.Name() == ".git") {
			return filepath.SkipDir
		}
		names[filepath.Base(path)] = true
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range regexp.MustCompile(`\b[a-z_]+\.go\b`).FindAllString(read(t, "ARCHITECTURE.md"), -1) {
		if !names[name] {
			t.Errorf("ARCHITECTURE.md names %s, which no folder has", name)
		}
	}
}

// The table of attacks names the test that tries each.
func TestEveryTestOfTheTableOfAttacksExists(t *testing.T) {
	table := read(t, "docs/adr/0010-bad-input-and-attacks.md")
	names := regexp.MustCompile(`\bTest[A-Z]\w+`).FindAllString(table, -1)
	if len(names) < 50 {
		t.Fatalf("only %d tests are named", len(names))
	}
	var sources strings.Builder
	err := filepath.WalkDir(repository, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && (entry.Name() == "bin" || entry.Name() == ".git") {
			return filepath.SkipDir
		}
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		content, err := os.ReadFile(path)
		sources.Write(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if !strings.Contains(sources.String(), "func "+name+"(") {
			t.Errorf("docs/adr/0010-bad-input-and-attacks.md names %s, which does not exist", name)
		}
	}
}
