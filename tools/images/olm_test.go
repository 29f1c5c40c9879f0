// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// olmFolders has what tools/olm writes, and the layout of a program.
func olmFolders(t *testing.T) settings {
	t.Helper()
	s := testSettings(t, repository)
	s.output = t.TempDir()
	for name, content := range map[string]string{
		"bundle/manifests/trireme.clusterserviceversion.yaml": "kind: ClusterServiceVersion\n",
		"bundle/metadata/annotations.yaml":                    "annotations: {operators.operatorframework.io.bundle.package.v1: trireme}\n",
		"catalog/trireme/catalog.yaml":                        "schema: olm.package\n",
	} {
		file := filepath.Join(s.output, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.CopyFS(filepath.Join(s.output, "images"), os.DirFS(layouts(t))); err != nil {
		t.Fatal(err)
	}
	return s
}

// OLM finds the files of bundle and catalog where it looks for them, and what it reads
// from labels.
func TestOLMImages(t *testing.T) {
	s := olmFolders(t)
	digests := map[string]v1.Hash{}
	for range 2 { // The same files give the same digests.
		if err := writeOLMImages(commit, s); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]struct {
			files        []string
			label, value string
		}{
			"bundle":  {[]string{"manifests/trireme.clusterserviceversion.yaml", "metadata/annotations.yaml"}, "operators.operatorframework.io.bundle.package.v1", "trireme"},
			"catalog": {[]string{"configs/trireme/catalog.yaml"}, "operators.operatorframework.io.index.configs.v1", "/configs"},
		} {
			index, tag, documents := readLayout(t, filepath.Join(s.output, "images", name))
			if tag != s.version || len(documents[intotoType]) != 1 {
				t.Errorf("%s has the tag %s and %d provenances, want %s and one", name, tag, len(documents[intotoType]), s.version)
			}
			digest := must(index.Digest())(t)
			if earlier, found := digests[name]; found && earlier != digest {
				t.Errorf("%s has another digest in the second build", name)
			}
			digests[name] = digest
			for platform, one := range platforms(t, index) {
				_, contents := files(t, one)
				for _, file := range want.files {
					if len(contents[file]) == 0 {
						t.Errorf("%s for %s lacks %s", name, platform, file)
					}
				}
				if labels := must(one.ConfigFile())(t).Config.Labels; labels[want.label] != want.value || labels["org.opencontainers.image.version"] != s.version {
					t.Errorf("%s for %s has the labels %v", name, platform, labels)
				}
			}
		}
	}
}

// They are pushed with the other images; the chart does not know them.
func TestPushOLMImages(t *testing.T) {
	s := olmFolders(t)
	if err := writeOLMImages(commit, s); err != nil {
		t.Fatal(err)
	}
	p, host := pushTo(t, startRegistry(t))
	p.layouts = filepath.Join(s.output, "images")
	logIn(t, host, password)
	var out bytes.Buffer
	if err := push(t.Context(), p, &out); err != nil {
		t.Fatal(err)
	}
	var pushed []string
	for line := range strings.Lines(out.String()) {
		reference, _, found := strings.Cut(line, "@")
		if found {
			pushed = append(pushed, strings.TrimPrefix(reference, host))
		}
	}
	if diff := cmp.Diff([]string{"/some/path/bundle:v1.2.3", "/some/path/catalog:v1.2.3", "/some/path/mpi-agent:v1.2.3"}, pushed); diff != "" {
		t.Errorf("pushed (-want +got):\n%s", diff)
	}
	values := string(must(os.ReadFile(filepath.Join(p.layouts, "values.yaml")))(t))
	if strings.Count(values, "digest:") != 1 {
		t.Errorf("the chart's values have other images than mpi-agent:\n%s", values)
	}
}

func TestOLMImagesWithoutABundle(t *testing.T) {
	s := testSettings(t, repository)
	if err := writeOLMImages(commit, s); err == nil || !strings.Contains(err.Error(), "make bundle") {
		t.Errorf("want an error that names make bundle, got %v", err)
	}
}
