// SPDX-License-Identifier: Apache-2.0

// Package docs runs every command that the documentation shows, in the order
// in which a reader meets them.
package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/trireme-mpi/trireme/internal/testing/localcluster"
)

const repository = localcluster.Repository

// Commands that run tests are not run by a test; that they exist and are what
// CI runs is checked instead.
var testCommands = []string{"make check", "make test-unit", "make test"}

// pages in the order of a newcomer. Every Markdown file with commands must be
// among them.
var pages = []string{
	"README.md", "docs/tutorial.md", "docs/user-guide/jobs.md", "docs/user-guide/migration.md", "docs/user-guide/server.md",
	"docs/admin-guide/install.md", "docs/admin-guide/mpi-operator.md", "docs/admin-guide/server.md", "docs/local-cluster.md", "CONTRIBUTING.md",
}

func TestDocumentedCommandsWork(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the commands start a cluster, which needs root")
	}
	// A cluster of its own: the reader's may be running on this machine.
	stop, err := localcluster.Start("trireme-docs", "10.197.0.0/16")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	// docs/user-guide/server.md asks for curl.
	if output, err := localcluster.Shell("command -v curl || tools/apt-install curl"); err != nil {
		t.Fatalf("install curl: %v\n%s", err, output)
	}
	for _, page := range pages {
		for _, block := range blocks(t, page) {
			settings := ""
			for _, line := range block {
				t.Run(page+": "+line, func(t *testing.T) { check(t, settings, line) })
				// Each line has a shell of its own; what a reader's shell would remember
				// goes before the lines that follow.
				if strings.HasPrefix(line, "eval ") || strings.HasPrefix(line, "export ") {
					settings += line + "\n"
				}
			}
		}
	}
}

func check(t *testing.T, settings, line string) {
	if slices.Contains(testCommands, line) {
		target := strings.TrimPrefix(line, "make ")
		if output, err := localcluster.Shell("make --dry-run " + target); err != nil {
			t.Errorf("%v\n%s", err, output)
		}
		return
	}
	// The page names the cluster that a reader has; here it has another name.
	line = strings.ReplaceAll(line, "/run/netns/trireme ", "/run/netns/trireme-docs ")
	output, err := localcluster.Shell(settings + line)
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	if line == "make demo" {
		for _, want := range []string{`test accuracy 9[6-9]\.\d %`, `(?m)^ +Finished +\d+ s`, `http://127\.0\.0\.1:\d+/#code=`} {
			if !regexp.MustCompile(want).MatchString(output) {
				t.Errorf("no %s in\n%s", want, output)
			}
		}
	}
}

// blocks are the lines of each `sh` block of a page.
func blocks(t *testing.T, page string) (all [][]string) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(repository, page))
	if err != nil {
		t.Fatal(err)
	}
	var block []string
	inside := false
	for _, line := range strings.Split(string(content), "\n") {
		switch {
		case line == "```sh":
			inside, block = true, nil
		case inside && line == "```":
			inside, all = false, append(all, block)
		case inside && line != "":
			block = append(block, line)
		}
	}
	return all
}

func TestEveryPageWithCommandsIsRun(t *testing.T) {
	err := filepath.WalkDir(repository, func(path string, entry os.DirEntry, err error) error {
		if err == nil && entry.IsDir() && entry.Name() == "node_modules" {
			return filepath.SkipDir
		}
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".md" {
			return err
		}
		page, err := filepath.Rel(repository, path)
		if err != nil {
			return err
		}
		if len(blocks(t, page)) > 0 && !slices.Contains(pages, page) {
			t.Errorf("%s shows commands that no test runs: add it to pages", page)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// No page and no script that users run tells them to trust whoever answers.
func TestCommandsVerifyTheServer(t *testing.T) {
	careless := regexp.MustCompile(`--?insecure\b|\bcurl\b[^|]* -[a-zA-Z]*k[a-zA-Z]* |--no-check-certificate|--tls-verify[ =]false|insecure-skip-tls-verify`)
	for _, line := range []string{"curl --insecure https://a", "grpcurl -insecure a:1 list", "curl -sSk https://a"} {
		if !careless.MatchString(line) {
			t.Fatalf("%s is not found", line)
		}
	}
	for _, folder := range []string{"README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "Makefile", "docs", "demo", "config", "bench/README.md", "cmd", "internal/cli"} {
		err := filepath.WalkDir(filepath.Join(repository, folder), func(path string, entry os.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			content, err := os.ReadFile(path)
			for number, line := range strings.Split(string(content), "\n") {
				// A signature with a key needs no transparency log.
				if careless.MatchString(strings.ReplaceAll(line, "--insecure-ignore-tlog", "")) {
					t.Errorf("%s:%d: %s", path, number+1, line)
				}
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// TestCIRunsWhatTheREADMESays and nothing else.
func TestCIRunsWhatTheREADMESays(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(repository, ".ci", "run"))
	if err != nil {
		t.Fatal(err)
	}
	var commands []string
	for _, line := range strings.Split(string(content), "\n") {
		if line != "" && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "set ") && !strings.HasPrefix(line, "cd ") {
			commands = append(commands, line)
		}
	}
	if !slices.Equal(commands, []string{"make test"}) {
		t.Errorf("CI runs %q", commands)
	}
	if !slices.ContainsFunc(blocks(t, "README.md"), func(block []string) bool { return slices.Contains(block, "make test") }) {
		t.Error("the README does not show make test")
	}
}

// TestLinksLeadSomewhere within the repository.
func TestLinksLeadSomewhere(t *testing.T) {
	linking := append(slices.Clone(pages), "ARCHITECTURE.md", "SECURITY.md", "docs/README.md", "bench/README.md")
	for _, pattern := range []string{"docs/*/*.md", "test/*/README.md", "test/manifests/*/README.md"} {
		files, err := filepath.Glob(filepath.Join(repository, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("no page like %s: %v", pattern, err)
		}
		for _, file := range files {
			page, err := filepath.Rel(repository, file)
			if err != nil {
				t.Fatal(err)
			}
			linking = append(linking, page)
		}
	}
	for _, page := range linking {
		content, err := os.ReadFile(filepath.Join(repository, page))
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range strings.Split(string(content), "](")[1:] {
			target, _, _ := strings.Cut(part, ")")
			if strings.Contains(target, "://") {
				continue
			}
			if err := leadsSomewhere(page, target); err != nil {
				t.Errorf("%s links to %s: %v", page, target, err)
			}
		}
	}
}

// leadsSomewhere: a file or folder is there, and has the heading that is meant.
func leadsSomewhere(page, target string) error {
	file, heading, _ := strings.Cut(target, "#")
	path := filepath.Join(repository, page)
	if file != "" {
		path = filepath.Join(filepath.Dir(path), file)
	}
	if heading == "" {
		_, err := os.Stat(path)
		return err
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for _, line := range strings.Split(string(content), "\n") {
		if title, isHeading := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); isHeading && strings.HasPrefix(line, "#") && anchor(title) == heading {
			return nil
		}
	}
	return fmt.Errorf("there is no heading %q", heading)
}

// anchor is the name that GitHub gives a heading: without punctuation.
func anchor(title string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_':
			return unicode.ToLower(r)
		default:
			return -1
		}
	}, title)
}
