// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"debug/buildinfo"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	registry "github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	intoto "github.com/in-toto/attestation/go/v1"
	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdxlib"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/trireme-mpi/trireme/cluster/image"
)

const repository = "../.."

// isThorough tells whether slow tests that rarely fail run, too: make test-all.
func isThorough() bool { return os.Getenv("THOROUGH") != "" }

var commit = source{commit: strings.Repeat("ab", 20), time: time.Date(2026, 11, 17, 20, 0, 0, 0, time.UTC)}

func testSettings(t *testing.T, from string) settings {
	return settings{
		repository: from, output: filepath.Join(t.TempDir(), "images"),
		version: "v1.2.3", ldflags: "-s -w", builder: "https://builder.example",
	}
}

// smallImage is a layout of the smallest program. It is built once for all tests.
var smallImage string

func TestMain(m *testing.M) {
	folder, err := os.MkdirTemp("", "images-")
	if err != nil {
		panic(err)
	}
	smallImage = filepath.Join(folder, "images")
	code := m.Run()
	os.RemoveAll(folder)
	os.Exit(code)
}

// layouts returns the folder with the layout of mpi-agent.
func layouts(t *testing.T) string {
	t.Helper()
	if _, err := os.Stat(smallImage); err == nil {
		return smallImage
	}
	s := testSettings(t, repository)
	s.output = smallImage
	if err := build(t.Context(), commit, s, []string{"mpi-agent"}); err != nil {
		t.Fatal(err)
	}
	return smallImage
}

// readLayout returns the image index of a layout and the documents attached, by media type.
func readLayout(t *testing.T, folder string) (index v1.ImageIndex, tag string, documents map[string][][]byte) {
	t.Helper()
	content := must(layout.ImageIndexFromPath(folder))(t)
	documents = map[string][][]byte{}
	for _, descriptor := range must(content.IndexManifest())(t).Manifests {
		if name := descriptor.Annotations[refName]; name != "" {
			tag, index = name, must(content.ImageIndex(descriptor.Digest))(t)
			continue
		}
		attached := must(content.Image(descriptor.Digest))(t)
		manifest := must(attached.Manifest())(t)
		if manifest.Subject == nil {
			t.Fatalf("%s refers to no image", descriptor.Digest)
		}
		document := must(layout.Path(folder).Bytes(manifest.Layers[0].Digest))(t)
		documents[manifest.ArtifactType] = append(documents[manifest.ArtifactType], document)
	}
	return index, tag, documents
}

func must[T any](value T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// platforms returns the images of an index by platform.
func platforms(t *testing.T, index v1.ImageIndex) map[string]v1.Image {
	t.Helper()
	images := map[string]v1.Image{}
	for _, descriptor := range must(index.IndexManifest())(t).Manifests {
		images[descriptor.Platform.String()] = must(index.Image(descriptor.Digest))(t)
	}
	return images
}

// files returns the modes and contents of the files in an image.
func files(t *testing.T, one v1.Image) (modes map[string]int64, contents map[string][]byte) {
	t.Helper()
	modes, contents = map[string]int64{}, map[string][]byte{}
	content := mutate.Extract(one)
	defer content.Close()
	for archive := tar.NewReader(content); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return modes, contents
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Typeflag == tar.TypeReg {
			modes[header.Name], contents[header.Name] = header.Mode, must(io.ReadAll(archive))(t)
		}
	}
}

func TestTwoBuildsHaveTheSameDigests(t *testing.T) {
	// Another folder, since paths of the machine must not be in the programs.
	elsewhere := t.TempDir()
	copySource := exec.Command("cp", "-r", "go.mod", "go.sum", "LICENSE", "api", "cmd", "internal", elsewhere)
	copySource.Dir = repository
	if message, err := copySource.CombinedOutput(); err != nil {
		t.Fatalf("copy the source: %v\n%s", err, message)
	}
	s := testSettings(t, elsewhere)
	if err := build(t.Context(), commit, s, []string{"mpi-agent"}); err != nil {
		t.Fatal(err)
	}
	// It contains the digests of everything.
	first := must(os.ReadFile(filepath.Join(layouts(t), "mpi-agent/index.json")))(t)
	second := must(os.ReadFile(filepath.Join(s.output, "mpi-agent/index.json")))(t)
	if diff := cmp.Diff(string(first), string(second)); diff != "" {
		t.Errorf("index.json of two builds (-first +second):\n%s", diff)
	}
}

func TestImage(t *testing.T) {
	index, tag, _ := readLayout(t, filepath.Join(layouts(t), "mpi-agent"))
	if tag != "v1.2.3" {
		t.Errorf("tag is %q, want v1.2.3", tag)
	}
	const prefix = "org.opencontainers.image."
	labels := map[string]string{
		prefix + "title": "Trireme mpi-agent", prefix + "description": "Starts MPI in the pods of a job",
		prefix + "source": repositoryURL, prefix + "version": "v1.2.3", prefix + "revision": commit.commit,
		prefix + "created": "2026-11-17T20:00:00Z", prefix + "licenses": "Apache-2.0",
	}
	if diff := cmp.Diff(labels, must(index.IndexManifest())(t).Annotations); diff != "" {
		t.Errorf("annotations of the index (-want +got):\n%s", diff)
	}
	images := platforms(t, index)
	if diff := cmp.Diff([]string{"linux/amd64", "linux/arm64"}, slices.Sorted(maps.Keys(images))); diff != "" {
		t.Errorf("platforms (-want +got):\n%s", diff)
	}
	for platform, one := range images {
		config := must(one.ConfigFile())(t)
		want := v1.Config{User: image.Nonroot, Entrypoint: []string{"/mpi-agent"}, Labels: labels}
		if diff := cmp.Diff(want, config.Config); diff != "" {
			t.Errorf("config of %s (-want +got):\n%s", platform, diff)
		}
		if !config.Created.Equal(commit.time) {
			t.Errorf("%s was created at %s, want the time of the commit", platform, config.Created)
		}
		checkFiles(t, one, "mpi-agent", strings.TrimPrefix(platform, "linux/"))
	}
}

// checkFiles fails unless an image has one program, the licence of every module that is
// linked into it, and nothing else.
func checkFiles(t *testing.T, one v1.Image, program, architecture string) {
	t.Helper()
	modes, contents := files(t, one)
	info, err := buildinfo.Read(bytes.NewReader(contents[program]))
	if err != nil {
		t.Fatal(err)
	}
	if got := setting(info, "GOARCH"); got != architecture {
		t.Errorf("%s is for %s, want %s", program, got, architecture)
	}
	for name, mode := range modes {
		switch {
		case name == program && mode == 0o755:
		case strings.HasPrefix(name, "licenses/") && mode == 0o644 && len(contents[name]) > 0:
		default:
			t.Errorf("%s has the file %s, mode %o, %d bytes", program, name, mode, len(contents[name]))
		}
	}
	for _, module := range append(info.Deps, &info.Main) {
		hasLicense := func(name string) bool { return strings.HasPrefix(name, "licenses/"+module.Path+"/") }
		if !slices.ContainsFunc(slices.Collect(maps.Keys(modes)), hasLicense) {
			t.Errorf("%s has no licence of %s", program, module.Path)
		}
	}
	if contents["licenses/go/LICENSE"] == nil {
		t.Errorf("%s has no licence of Go", program)
	}
}

func setting(info *buildinfo.BuildInfo, key string) string {
	for _, one := range info.Settings {
		if one.Key == key {
			return one.Value
		}
	}
	return ""
}

func TestSBOM(t *testing.T) {
	index, _, documents := readLayout(t, filepath.Join(layouts(t), "mpi-agent"))
	if len(documents[spdxType]) != 2 {
		t.Fatalf("%d SBOMs, want one for each platform", len(documents[spdxType]))
	}
	for _, content := range documents[spdxType] {
		document := must(spdxjson.Read(bytes.NewReader(content)))(t)
		if err := spdxlib.ValidateDocument(document); err != nil {
			t.Error(err)
		}
		versions := map[string]string{}
		for _, one := range document.Packages {
			versions[one.PackageName] = one.PackageVersion
		}
		for _, one := range platforms(t, index) {
			_, contents := files(t, one)
			info := must(buildinfo.Read(bytes.NewReader(contents["mpi-agent"])))(t)
			for _, module := range info.Deps {
				if versions[module.Path] != module.Version {
					t.Errorf("the SBOM has %s %q, the program %q", module.Path, versions[module.Path], module.Version)
				}
			}
			if versions["stdlib"] != info.GoVersion {
				t.Errorf("the SBOM has Go %q, the program %q", versions["stdlib"], info.GoVersion)
			}
		}
	}
}

func TestProvenance(t *testing.T) {
	index, _, documents := readLayout(t, filepath.Join(layouts(t), "mpi-agent"))
	if len(documents[intotoType]) != 1 {
		t.Fatalf("%d statements, want 1", len(documents[intotoType]))
	}
	statement := &intoto.Statement{}
	if err := protojson.Unmarshal(documents[intotoType][0], statement); err != nil {
		t.Fatal(err)
	}
	if err := statement.Validate(); err != nil {
		t.Error(err)
	}
	want := []string{must(index.Digest())(t).Hex}
	for _, one := range platforms(t, index) {
		want = append(want, must(one.Digest())(t).Hex)
	}
	var got []string
	for _, subject := range statement.Subject {
		got = append(got, subject.Digest["sha256"])
	}
	if diff := cmp.Diff(slices.Sorted(slices.Values(want)), slices.Sorted(slices.Values(got))); diff != "" {
		t.Errorf("subjects (-want +got):\n%s", diff)
	}
	for _, part := range []string{`"gitCommit":"` + commit.commit, "https://builder.example", "pkg:golang/golang.org/x/crypto@v", "pkg:golang/stdlib@1."} {
		if !strings.Contains(string(documents[intotoType][0]), part) {
			t.Errorf("the provenance does not contain %s:\n%s", part, documents[intotoType][0])
		}
	}
}

func TestModuleWithoutLicense(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "license.go"), []byte("package license"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := addLicenses(map[string]string{}, "example.test/module", folder, folder)
	if err == nil || !strings.Contains(err.Error(), "example.test/module has no licence file") {
		t.Errorf("error is %v", err)
	}
}

// A new module without a licence is found before a release, and so is a package of odh
// that does not exist on macOS or Windows.
func TestEveryProgramHasLicenses(t *testing.T) {
	check := func(program string, p platform) {
		found, err := licenseFiles(t.Context(), testSettings(t, repository), p, program)
		if err != nil {
			t.Errorf("%s for %s: %v", program, p, err)
		}
		if found["licenses/github.com/trireme-mpi/trireme/LICENSE"] == "" {
			t.Errorf("%s for %s has no licence of Trireme", program, p)
		}
	}
	for _, program := range programNames() {
		check(program, linux("amd64"))
	}
	for _, p := range odhPlatforms {
		check("odh", p)
	}
}

func TestLicenseOfAFolder(t *testing.T) {
	folder := t.TempDir()
	for _, name := range []string{"LICENSE", "third_party/fork/COPYING.txt", "other/LICENSE"} {
		file := filepath.Join(folder, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte("text"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	found := map[string]string{}
	if err := addLicenses(found, "example.test/module", folder, filepath.Join(folder, "third_party/fork")); err != nil {
		t.Fatal(err)
	}
	want := []string{"licenses/example.test/module/LICENSE", "licenses/example.test/module/third_party/fork/COPYING.txt"}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(found))); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestReadSource(t *testing.T) {
	folder := t.TempDir()
	git := func(arguments ...string) string {
		t.Helper()
		return strings.TrimSpace(string(must(output(t.Context(), folder, []string{
			"GIT_COMMITTER_DATE=1000000000 +0000", "GIT_CONFIG_GLOBAL=/dev/null",
		}, "git", append([]string{"-c", "user.name=t", "-c", "user.email=t@example.test"}, arguments...)...))(t)))
	}
	git("init", "--quiet")
	git("commit", "--quiet", "--allow-empty", "--message", "first")
	clean := source{commit: git("rev-parse", "HEAD"), time: time.Unix(1_000_000_000, 0).UTC()}
	got := must(readSource(t.Context(), folder))(t)
	if got != clean {
		t.Errorf("source is %v, want %v", got, clean)
	}
	if err := os.WriteFile(filepath.Join(folder, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SOURCE_DATE_EPOCH", "5")
	got = must(readSource(t.Context(), folder))(t)
	if want := (source{clean.commit + "-dirty", time.Unix(5, 0).UTC()}); got != want {
		t.Errorf("source with changes is %v, want %v", got, want)
	}
}

// archive writes an image of one file, as the cluster tool does.
func archive(t *testing.T, architecture, name, content string) string {
	t.Helper()
	var files bytes.Buffer
	writer := tar.NewWriter(&files)
	header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(content))}
	if err := errors.Join(writer.WriteHeader(header), second(io.WriteString(writer, content)), writer.Close()); err != nil {
		t.Fatal(err)
	}
	layer := must(tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files.Bytes())), nil }))(t)
	one := must(image.Assemble([]v1.Layer{layer}, architecture, v1.Config{Env: []string{"HOME=/tmp"}}))(t)
	path := filepath.Join(t.TempDir(), "image.tar")
	if err := tarball.WriteToFile(path, must(registry.NewTag("example.test/mpi-test:1"))(t), one); err != nil {
		t.Fatal(err)
	}
	return path
}

func second(_ int, err error) error { return err }

func TestMPITestImage(t *testing.T) {
	const control = "./var/lib/dpkg/status.d/libc6"
	s := testSettings(t, repository)
	s.fips = "v1.0.0"
	for _, architecture := range architectures {
		s.testArchives = append(s.testArchives, archive(t, architecture, control,
			"Package: libc6\nVersion: 2.41-12+deb13u4\nArchitecture: "+architecture+"\nDescription: C library\n continued\n"))
	}
	if err := writeTestImage(s.output, commit, s); err != nil {
		t.Fatal(err)
	}
	index, tag, documents := readLayout(t, filepath.Join(s.output, testImage))
	if tag != "v1.2.3" {
		t.Errorf("tag is %q, want v1.2.3: the image has no FIPS module", tag)
	}
	for platform, one := range platforms(t, index) {
		config := must(one.ConfigFile())(t).Config
		if config.User != image.Nonroot || !slices.Equal(config.Env, []string{"HOME=/tmp"}) {
			t.Errorf("%s has user %q and environment %v", platform, config.User, config.Env)
		}
		purl := "pkg:deb/debian/libc6@2.41-12%2Bdeb13u4?arch=" + strings.TrimPrefix(platform, "linux/")
		if !slices.ContainsFunc(documents[spdxType], func(d []byte) bool { return strings.Contains(string(d), purl) }) {
			t.Errorf("no SBOM has %s", purl)
		}
	}
}

func TestImageWithoutPackages(t *testing.T) {
	_, err := imageFromArchive(archive(t, "amd64", "etc/motd", "hi"))
	if err == nil || !strings.Contains(err.Error(), "no packages in /var/lib/dpkg/status.d") {
		t.Errorf("error is %v", err)
	}
}

// TestAllProgramsWithFIPS compiles every program for both platforms.
func TestAllProgramsWithFIPS(t *testing.T) {
	if !isThorough() {
		t.Skip("compiles every program twice: runs in make test-all")
	}
	s := testSettings(t, repository)
	s.fips = "v1.0.0"
	if err := build(t.Context(), commit, s, nil); err != nil {
		t.Fatal(err)
	}
	for _, program := range programNames() {
		index, tag, _ := readLayout(t, filepath.Join(s.output, program))
		if tag != "v1.2.3-fips" {
			t.Errorf("tag of %s is %q, want v1.2.3-fips", program, tag)
		}
		for platform, one := range platforms(t, index) {
			checkFiles(t, one, program, strings.TrimPrefix(platform, "linux/"))
			_, contents := files(t, one)
			info := must(buildinfo.Read(bytes.NewReader(contents[program])))(t)
			if got := setting(info, "GOFIPS140"); !strings.HasPrefix(got, "v1.0.0") {
				t.Errorf("%s for %s has FIPS module %q", program, platform, got)
			}
			if got := must(one.ConfigFile())(t).Config.Labels["org.kubeflow.trireme.fips140"]; got != "v1.0.0" {
				t.Errorf("the label of %s says FIPS module %q", program, got)
			}
		}
	}
}
