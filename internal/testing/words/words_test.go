// SPDX-License-Identifier: Apache-2.0

// Package words holds the texts that users see to the vocabulary in avoid.txt.
package words

import (
	_ "embed"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const repository = "../../.."

//go:embed avoid.txt
var avoidFile string

// phrase is something to avoid, and what to write instead.
type phrase struct {
	pattern *regexp.Regexp
	instead string
}

func phrases(t *testing.T) (all []phrase) {
	t.Helper()
	for line := range strings.Lines(avoidFile) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		pattern, instead, found := strings.Cut(line, "\t")
		if !found {
			t.Fatalf("avoid.txt: %q has no tab", line)
		}
		all = append(all, phrase{regexp.MustCompile(`(?i)\b(` + pattern + `)\b`), instead})
	}
	return all
}

// texts are the files that users read as they are.
var texts = []string{"README.md", "CHANGELOG.md", "SECURITY.md", "docs/*.md", "docs/user-guide/*.md", "docs/admin-guide/*.md", "docs/reference/*.md", "api/training/*.go", "api/v2alpha1/*_types.go", "api/v2beta1/*_types.go", "api/v2beta1/mpijob_status.go", "api/grpc/*/*.proto"}

// code are the folders whose string literals users read: messages, help, errors.
var code = []string{"cmd", "internal"}

// notForUsers are folders below code that only developers see.
var notForUsers = []string{"internal/testing"}

func TestTextsForUsersUseTheVocabulary(t *testing.T) {
	avoid := phrases(t)
	for _, pattern := range texts {
		files, err := filepath.Glob(filepath.Join(repository, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("no file like %s: %v", pattern, err)
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			number := 0
			for line := range strings.Lines(string(content)) {
				number++
				report(t, avoid, fmt.Sprintf("%s:%d", relative(file), number), line)
			}
		}
	}
}

func TestMessagesUseTheVocabulary(t *testing.T) {
	avoid := phrases(t)
	for _, folder := range code {
		err := filepath.WalkDir(filepath.Join(repository, folder), func(path string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir() && isNotForUsers(relative(path)):
				return filepath.SkipDir
			case strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go"):
				for _, literal := range literals(t, path, nil) {
					report(t, avoid, fmt.Sprintf("%s:%d", relative(path), literal.line), literal.text)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func isNotForUsers(folder string) bool {
	for _, name := range notForUsers {
		if folder == name {
			return true
		}
	}
	return false
}

func relative(path string) string {
	name, err := filepath.Rel(repository, path)
	if err != nil {
		return path
	}
	return name
}

func report(t *testing.T, avoid []phrase, where, text string) {
	t.Helper()
	for _, fault := range faults(avoid, text) {
		t.Errorf("%s: %s", where, fault)
	}
}

func faults(avoid []phrase, text string) (found []string) {
	for _, one := range avoid {
		if match := one.pattern.FindString(text); match != "" {
			found = append(found, fmt.Sprintf("%q: write %s (%s)", match, one.instead, strings.TrimSpace(text)))
		}
	}
	return found
}

type literal struct {
	line int
	text string
}

// literals are the string literals of a file that have more than one word.
func literals(t *testing.T, file string, source any) (found []literal) {
	t.Helper()
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(parsed, func(node ast.Node) bool {
		basic, is := node.(*ast.BasicLit)
		if !is || basic.Kind != token.STRING {
			return true
		}
		if text, err := strconv.Unquote(basic.Value); err == nil && strings.Contains(strings.TrimSpace(text), " ") {
			found = append(found, literal{set.Position(basic.Pos()).Line, text})
		}
		return true
	})
	return found
}

// The tests above prove nothing if they cannot see what they look for.
func TestFaultsAreSeen(t *testing.T) {
	source := "package p\nvar _ = \"All 5 pods have their place\"\nvar _ = `Start it anew`\nvar _ = \"gone\"\nvar _ = \"All 5 pods are scheduled\""
	var got []string
	for _, literal := range literals(t, "p.go", source) {
		for _, fault := range faults(phrases(t), literal.text) {
			got = append(got, fmt.Sprintf("%d: %s", literal.line, fault))
		}
	}
	want := []string{
		`2: "their place": write scheduled, schedule (All 5 pods have their place)`,
		`3: "anew": write recreate, restart, retry (Start it anew)`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
