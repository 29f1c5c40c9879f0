// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Checksums of the lock file: "sha512-" and 64 bytes of one value.
const (
	ones    = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQ=="
	oneHash = "01010101010101010101010101010101010101010101010101010101010101010101010101010101010101010101010101010101010101010101010101010101"
)

// lock has two versions of a package, a package under another name, and one that is not
// part of the page.
const lock = `{"name": "trireme-web", "lockfileVersion": 3, "packages": {
  "": {"name": "trireme-web", "version": "0.0.0"},
  "node_modules/@codemirror/state": {"version": "6.5.2", "integrity": "sha512-` + ones + `"},
  "node_modules/@codemirror/lint/node_modules/@codemirror/state": {"version": "6.7.6", "integrity": "sha512-` + ones + `"},
  "node_modules/alias": {"name": "yaml", "version": "2.9.1", "integrity": "sha512-` + ones + `"},
  "node_modules/eslint": {"version": "10.14.0"}
}}`

const (
	reportHead = "# Licenses\n\nThe app bundles dependencies which contain the following licenses:\n"
	stateText  = "\n## @codemirror/state - 6.5.2 (MIT)\n\nMIT License\n\n## Conditions\n\nText.\n"
	newerText  = "\n## @codemirror/state - 6.7.6 (MIT OR (BSD-3-Clause AND ISC))\n\nMIT License\n"
	yamlText   = "\n## yaml - 2.9.1\n\nCopyright Eemeli Aro\n"
)

func writeFiles(t *testing.T, folder string, contents map[string]string) {
	t.Helper()
	for name, content := range contents {
		file := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNPMComponents(t *testing.T) {
	tests := map[string]struct {
		report, lock string
		want         []string
		wantError    string
	}{
		"the packages of the page": {
			report: reportHead + stateText + newerText + yamlText,
			want:   []string{"pkg:npm/%40codemirror/state@6.5.2", "pkg:npm/%40codemirror/state@6.7.6", "pkg:npm/yaml@2.9.1"},
		},
		"no package":             {report: "# Licenses\n\nThe app does not bundle any dependencies with licenses.\n", wantError: "lists no npm packages"},
		"another version":        {report: reportHead + "\n## yaml - 3.0.0 (ISC)\n\nText\n", wantError: "npm package yaml 3.0.0, which is not in"},
		"no licence":             {report: reportHead + "\n## yaml - 2.9.1 (ISC)\n" + stateText, wantError: "npm package yaml 2.9.1 has no licence file"},
		"no licence of the last": {report: reportHead + stateText + "\n## yaml - 2.9.1 (ISC)\n", wantError: "npm package yaml 2.9.1 has no licence file"},
		"no checksum":            {report: reportHead + yamlText, lock: strings.ReplaceAll(lock, "sha512-", "sha1-"), wantError: "has no SHA-512 checksum"},
		"no lock file":           {report: reportHead + yamlText, lock: "{", wantError: "package-lock.json: unexpected end"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			if tc.lock == "" {
				tc.lock = lock
			}
			writeFiles(t, folder, map[string]string{"licenses.md": tc.report, "package-lock.json": tc.lock})
			components, err := npmComponents(filepath.Join(folder, "licenses.md"), filepath.Join(folder, "package-lock.json"))
			if tc.wantError != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantError) {
					t.Errorf("error is %v, want %s", err, tc.wantError)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, one := range components {
				got = append(got, one.purl)
				if one.sha512 != oneHash {
					t.Errorf("checksum of %s is %s", one.purl, one.sha512)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("packages (-want +got):\n%s", diff)
			}
		})
	}
}

// repositoryWithPage is a module with a program that embeds the dashboard, and one that
// does not.
func repositoryWithPage(t *testing.T) settings {
	folder := t.TempDir()
	writeFiles(t, folder, map[string]string{
		"go.mod":                    "module github.com/trireme-mpi/trireme\n\ngo 1.26\n",
		"LICENSE":                   "text",
		"web/embed.go":              "package web\n",
		"web/package-lock.json":     lock,
		"cmd/server/main.go":        "package main\n\nimport _ \"github.com/trireme-mpi/trireme/web\"\n\nfunc main() {}\n",
		"cmd/mpi-agent/main.go":     "package main\n\nfunc main() {}\n",
		"web/dist/page/index.html":  "page",
		"web/dist/page/licenses.md": reportHead + stateText + yamlText,
	})
	return testSettings(t, folder)
}

func TestImageWithDashboard(t *testing.T) {
	s := repositoryWithPage(t)
	if err := build(t.Context(), commit, s, []string{"server", "mpi-agent"}); err != nil {
		t.Fatal(err)
	}
	const licenses = "licenses/npm/licenses.md"
	index, _, documents := readLayout(t, filepath.Join(s.output, "server"))
	for platform, one := range platforms(t, index) {
		_, contents := files(t, one)
		if got := string(contents[licenses]); got != reportHead+stateText+yamlText {
			t.Errorf("licences of the page in %s: %q", platform, got)
		}
	}
	for _, content := range documents[spdxType] {
		for _, want := range []string{`"name": "@codemirror/state"`, `"pkg:npm/%40codemirror/state@6.5.2"`, `"pkg:npm/yaml@2.9.1"`} {
			if !strings.Contains(indented(t, content), want) {
				t.Errorf("the SBOM has no %s:\n%s", want, content)
			}
		}
	}
	for _, want := range []string{`"uri": "pkg:npm/yaml@2.9.1"`, `"sha512": "` + oneHash + `"`} {
		if !strings.Contains(indented(t, documents[intotoType][0]), want) {
			t.Errorf("the provenance has no %s:\n%s", want, documents[intotoType][0])
		}
	}
	index, _, documents = readLayout(t, filepath.Join(s.output, "mpi-agent"))
	for platform, one := range platforms(t, index) {
		if _, contents := files(t, one); contents[licenses] != nil {
			t.Errorf("mpi-agent for %s has licences of npm packages, but no page", platform)
		}
	}
	for _, attached := range slices.Concat(documents[spdxType], documents[intotoType]) {
		if strings.Contains(string(attached), "pkg:npm/") {
			t.Errorf("mpi-agent has no page, but npm packages:\n%s", attached)
		}
	}
}

func indented(t *testing.T, content []byte) string {
	t.Helper()
	var value any
	if err := json.Unmarshal(content, &value); err != nil {
		t.Fatal(err)
	}
	return string(must(json.MarshalIndent(value, "", " "))(t))
}

func TestDashboardThatIsNotBuilt(t *testing.T) {
	s := repositoryWithPage(t)
	if err := os.Remove(filepath.Join(s.repository, "web/dist/page/licenses.md")); err != nil {
		t.Fatal(err)
	}
	if _, err := licenseFiles(t.Context(), s, linux("amd64"), "server"); err == nil || !strings.Contains(err.Error(), "run make web") {
		t.Errorf("error of a page without licences: %v", err)
	}
	if err := os.Remove(filepath.Join(s.repository, "web/dist/page/index.html")); err != nil {
		t.Fatal(err)
	}
	found := must(licenseFiles(t.Context(), s, linux("amd64"), "server"))(t)
	if path, found := found[npmLicenses]; found {
		t.Errorf("without a page, the program has the licences %s", path)
	}
}

// The package that embeds the page must be found under its name.
func TestProgramsWithDashboard(t *testing.T) {
	for _, program := range []string{"server", "odh"} {
		packages := string(must(output(t.Context(), repository, nil, "go", "list", "-deps", "./cmd/"+program))(t))
		if !slices.Contains(strings.Split(packages, "\n"), pagePackage) {
			t.Errorf("%s does not import %s", program, pagePackage)
		}
	}
}

// TestTwoBuildsOfTheDashboard builds the page twice with the same Node, and the server with
// each of them.
func TestTwoBuildsOfTheDashboard(t *testing.T) {
	if !isThorough() {
		t.Skip("builds the dashboard and the server twice: runs in make test-all")
	}
	modules := must(filepath.Abs(filepath.Join(repository, "web/node_modules")))(t)
	if _, err := os.Stat(filepath.Join(repository, "web/src/api/schema.d.ts")); err != nil {
		t.Skip("the packages of the dashboard are missing: run make web")
	}
	var layouts []string
	for _, folder := range []string{"first", "another/second"} {
		elsewhere := filepath.Join(t.TempDir(), folder)
		copySource := exec.Command("bash", "-c", `mkdir -p "$0" && tar --create --exclude=web/node_modules --exclude=web/dist/page `+
			`go.mod go.sum LICENSE api charts cmd internal web | tar --extract --directory "$0" && ln -s "$1" "$0/web/node_modules"`, elsewhere, modules)
		copySource.Dir = repository
		if message, err := copySource.CombinedOutput(); err != nil {
			t.Fatalf("copy the source: %v\n%s", err, message)
		}
		if _, err := output(t.Context(), repository, nil, "web/npm", "--prefix", filepath.Join(elsewhere, "web"), "run", "--silent", "build"); err != nil {
			t.Fatal(err)
		}
		s := testSettings(t, elsewhere)
		if err := build(t.Context(), commit, s, []string{"server"}); err != nil {
			t.Fatal(err)
		}
		layouts = append(layouts, filepath.Join(s.output, "server"))
	}
	index, _, documents := readLayout(t, layouts[0])
	for platform, one := range platforms(t, index) {
		if _, contents := files(t, one); contents[npmLicenses] == nil {
			t.Errorf("the server for %s has no dashboard, but the files %v", platform, slices.Sorted(maps.Keys(contents)))
		}
	}
	if !strings.Contains(string(documents[spdxType][0]), "pkg:npm/react@") {
		t.Error("the SBOM does not contain the dashboard's packages")
	}
	first := must(os.ReadFile(filepath.Join(layouts[0], "index.json")))(t)
	second := must(os.ReadFile(filepath.Join(layouts[1], "index.json")))(t)
	if diff := cmp.Diff(string(first), string(second)); diff != "" {
		t.Errorf("index.json of two builds (-first +second):\n%s", diff)
	}
}
