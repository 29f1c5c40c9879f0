// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"debug/buildinfo"
	"errors"
	"flag"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdxlib"
)

var update = flag.Bool("update", false, "write golden files")

func TestReleaseVersion(t *testing.T) {
	for version, want := range map[string]bool{
		"v0.1.0": true, "v10.20.30": true, "v1.0.0-rc.1": true, "v1.0.0-alpha-2": true,
		"": false, "dev": false, "0.1.0": false, "v1": false, "v1.2": false, "v01.2.3": false, "v1.2.3+build": false,
		"v1.2.3-": false, "v1.2.3-a..b": false, " v1.2.3": false, "v1.2.3\n": false, "v1.2.3 --output /": false,
	} {
		err := checkReleaseVersion(version)
		if (err == nil) != want {
			t.Errorf("version %q: error is %v, want valid: %t", version, err, want)
		}
		if err != nil && !strings.Contains(err.Error(), "VERSION must be a semantic version with a leading v, such as v0.1.0") {
			t.Errorf("version %q: error is %v", version, err)
		}
	}
}

func TestReleaseNotes(t *testing.T) {
	changelog := filepath.Join(t.TempDir(), "CHANGELOG.md")
	writeFile(t, changelog, []byte("# Changelog\n\n## Unreleased\n- later\n\n## 0.2.0 - 2026-12-01\n\n### Added\n- two\n\n## [0.1.0]\n- one\n\n## 0.0.1\n"))
	for version, test := range map[string]struct{ want, wantError string }{
		"v0.2.0":  {want: "### Added\n- two\n"},
		"v0.1.0":  {want: "- one\n"},
		"v0.2":    {wantError: "has no section for v0.2"},
		"v0.3.0":  {wantError: `has no section for v0.3.0: add the heading "## 0.3.0"`},
		"v0.0.1":  {wantError: "has no changes below the heading of v0.0.1"},
		"v0.1x.0": {wantError: "has no section"},
	} {
		notes, err := releaseNotes(changelog, version)
		if diff := cmp.Diff(test.want, notes); diff != "" {
			t.Errorf("notes of %s (-want +got):\n%s", version, diff)
		}
		if (err != nil) != (test.wantError != "") || err != nil && !strings.Contains(err.Error(), test.wantError) {
			t.Errorf("%s: error is %v, want %q", version, err, test.wantError)
		}
	}
}

// A release that cannot be made must not delete the one before.
func TestPrepareChecksFirst(t *testing.T) {
	changelog := filepath.Join(t.TempDir(), "CHANGELOG.md")
	writeFile(t, changelog, []byte("## 0.1.0\n- one\n"))
	r := releaseSettings{settings: settings{output: t.TempDir()}}
	earlier := filepath.Join(r.output, "earlier")
	writeFile(t, earlier, nil)
	for version, key := range map[string]string{"dev": "", "v0.2.0": "", "v0.1.0": "missing.pem"} {
		r.version, r.key = version, key
		if err := prepare(r, changelog); err == nil {
			t.Errorf("version %q with key %q has no error", version, key)
		}
		if _, err := os.Stat(earlier); err != nil {
			t.Fatal(err)
		}
	}
	r.version, r.key = "v0.1.0", ""
	if err := prepare(r, changelog); err != nil {
		t.Fatal(err)
	}
	found := map[string]entry{}
	if err := folderEntries(found, r.output, ""); err != nil {
		t.Fatal(err)
	}
	want := map[string]entry{"release-notes.md": {filepath.Join(r.output, "release-notes.md"), 0o644}}
	if diff := cmp.Diff(want, found, cmp.AllowUnexported(entry{})); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestArchivesAreReproducible(t *testing.T) {
	for _, name := range []string{"archive.tar", "archive.tar.gz", "archive.zip"} {
		var archives [2][]byte
		for i := range archives {
			folder := t.TempDir()
			files := map[string]entry{"odh": {filepath.Join(folder, "odh"), 0o755}, "LICENSE": {filepath.Join(folder, "LICENSE"), 0o644}}
			for name, one := range files {
				writeFile(t, one.path, []byte("content of "+name))
				then := time.Unix(int64(i)*1_000_000, 0)
				if err := os.Chtimes(one.path, then, then); err != nil {
					t.Fatal(err)
				}
			}
			file := filepath.Join(folder, name)
			if err := writeArchive(file, files, commit.time); err != nil {
				t.Fatal(err)
			}
			archives[i] = must(os.ReadFile(file))(t)
		}
		if !bytes.Equal(archives[0], archives[1]) {
			t.Errorf("%s of the same files has other bytes", name)
		}
		modes, contents := readArchive(t, name, archives[0])
		if diff := cmp.Diff(map[string]fs.FileMode{"odh": 0o755, "LICENSE": 0o644}, modes); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if got := string(contents["odh"]); got != "content of odh" {
			t.Errorf("%s: content of odh is %q", name, got)
		}
	}
}

// readArchive returns the modes and contents of the files in an archive.
func readArchive(t *testing.T, name string, archive []byte) (modes map[string]fs.FileMode, contents map[string][]byte) {
	t.Helper()
	modes, contents = map[string]fs.FileMode{}, map[string][]byte{}
	if strings.HasSuffix(name, ".zip") {
		for _, file := range must(zip.NewReader(bytes.NewReader(archive), int64(len(archive))))(t).File {
			content := must(file.Open())(t)
			modes[file.Name], contents[file.Name] = file.Mode(), must(io.ReadAll(content))(t)
		}
		return modes, contents
	}
	var files io.Reader = bytes.NewReader(archive)
	if strings.HasSuffix(name, ".gz") {
		files = must(gzip.NewReader(files))(t)
	}
	for reader := tar.NewReader(files); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return modes, contents
		}
		if err != nil {
			t.Fatal(err)
		}
		modes[header.Name], contents[header.Name] = header.FileInfo().Mode(), must(io.ReadAll(reader))(t)
	}
}

// make check runs krew's validator on the golden file.
func TestKrewManifest(t *testing.T) {
	const golden = "testdata/krew/trireme.yaml"
	var archives []odhArchive
	for i, p := range odhPlatforms {
		archives = append(archives, odhArchive{p, p.archive("v1.2.3"), strings.Repeat(string("0123456789abcdef"[i]), 64)})
	}
	manifest := must(krewManifest("v1.2.3", archives))(t)
	if *update {
		writeFile(t, golden, manifest)
	}
	if diff := cmp.Diff(string(must(os.ReadFile(golden))(t)), string(manifest)); diff != "" {
		t.Errorf("manifest (-golden +got):\n%s", diff)
	}
}

// builtImages are all images of the chart, with digests that tell them apart.
func builtImages() (images []builtImage) {
	for i, image := range append(programNames(), testImage) {
		images = append(images, builtImage{image: image, digest: v1.Hash{Algorithm: "sha256", Hex: strings.Repeat(string("0123456789abcdef"[i]), 64)}})
	}
	return images
}

func TestChartAndManifests(t *testing.T) {
	helm := must(filepath.Abs(filepath.Join(repository, "bin/helm")))(t)
	if _, err := os.Stat(helm); err != nil {
		t.Skip("bin/helm is missing: run make bin/helm")
	}
	r := releaseSettings{settings: settings{repository: repository, version: "v1.2.3"}, registry: "registry.example/path", helm: helm}
	var charts [2][]byte
	for i := range charts {
		r.output = t.TempDir()
		file := must(packageChart(t.Context(), commit, r, builtImages()))(t)
		if name := filepath.Base(file); name != "trireme-1.2.3.tgz" {
			t.Errorf("the chart is %s", name)
		}
		charts[i] = must(os.ReadFile(file))(t)
		if err := writeManifests(t.Context(), r, file); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(charts[0], charts[1]) {
		t.Error("two packages of the chart have other bytes")
	}
	_, contents := readArchive(t, "chart.tar.gz", charts[0])
	values := string(contents["trireme/values.yaml"])
	for _, one := range builtImages() {
		if line := "{name: " + one.image + ", digest: " + one.digest.String() + "}"; !strings.Contains(values, line) {
			t.Errorf("the values of the chart do not contain %s", line)
		}
	}
	if contents["trireme/ci/local-values.yaml"] != nil {
		t.Error("the chart contains values of tests")
	}

	manifests := string(must(os.ReadFile(filepath.Join(r.output, "trireme.yaml")))(t))
	for _, part := range []string{
		"registry.example/path/operator@sha256:000", "registry.example/path/mpi-agent@sha256:222", "name: trainjobs.kubeflow.org", "name: mpijobs.kubeflow.org",
		"kubectl apply --server-side -f trireme.yaml", "kind: Namespace",
	} {
		if !strings.Contains(manifests, part) {
			t.Errorf("trireme.yaml does not contain %s", part)
		}
	}
	if strings.Contains(manifests, "helm.sh/hook") {
		t.Error("trireme.yaml contains hooks")
	}
	runtimes := string(must(os.ReadFile(filepath.Join(r.output, "trireme-runtimes.yaml")))(t))
	if found := strings.Count(runtimes, "\nkind: ClusterTrainingRuntime\n"); found != 4 {
		t.Errorf("trireme-runtimes.yaml has %d runtimes, want 4", found)
	}
}

func TestValuesWithoutAnImage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "values.yaml")
	writeFile(t, file, []byte("images:\n  registry: a\n  operator: {name: operator, digest: \"\"}\n"))
	err := pinImages(file, "registry.example", builtImages()[:2])
	if err == nil || !strings.Contains(err.Error(), "has 0 lines like ({name: server") {
		t.Errorf("error is %v", err)
	}
}

// TestODH compiles the command line for all platforms.
func TestODH(t *testing.T) {
	if !isThorough() {
		t.Skip("compiles odh for six platforms: runs in make test-all")
	}
	for _, p := range odhPlatforms {
		t.Run(p.String(), func(t *testing.T) {
			s := testSettings(t, repository)
			s.output = t.TempDir()
			built := must(buildODH(t.Context(), commit, s, p))(t)
			modes, contents := readArchive(t, built.name, must(os.ReadFile(filepath.Join(s.output, built.name)))(t))
			if modes[p.program()] != 0o755 || modes["LICENSE"] != 0o644 || contents["licenses/go/LICENSE"] == nil {
				t.Errorf("%s has the files %v", built.name, modes)
			}
			info := must(buildinfo.Read(bytes.NewReader(contents[p.program()])))(t)
			if got := (platform{setting(info, "GOOS"), setting(info, "GOARCH")}); got != p {
				t.Errorf("the program is for %s", got)
			}
			bill := must(spdxjson.Read(bytes.NewReader(must(os.ReadFile(filepath.Join(s.output, "odh-v1.2.3-"+p.String()+".spdx.json")))(t))))(t)
			if err := spdxlib.ValidateDocument(bill); err != nil {
				t.Error(err)
			}
			if checksum := bill.Packages[0].PackageChecksums[0].Value; checksum != built.digest {
				t.Errorf("the SBOM is of %s, want the archive %s", checksum, built.digest)
			}
		})
	}
}
