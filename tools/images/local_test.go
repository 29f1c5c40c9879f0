// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// The local cluster runs the image that users of the same commit get.
func TestLocalImagesHaveTheDigestsOfTheIndex(t *testing.T) {
	index, _, _ := readLayout(t, filepath.Join(layouts(t), "mpi-agent"))
	published := must(platforms(t, index)["linux/"+runtime.GOARCH].Digest())(t)

	s := testSettings(t, repository)
	p := pushSettings{registry: "trireme.local", chart: filepath.Join(repository, "charts/trireme/values.yaml")}
	if err := buildLocal(t.Context(), commit, s, p, []string{"mpi-agent"}); err != nil {
		t.Fatal(err)
	}
	values := string(must(os.ReadFile(filepath.Join(s.output, "values.yaml")))(t))
	if want := "digest: " + published.String(); !strings.Contains(values, want) {
		t.Errorf("values have no %q:\n%s", want, values)
	}
	var imported v1.IndexManifest
	archived := must(os.Open(filepath.Join(s.output, "mpi-agent.tar")))(t)
	defer archived.Close()
	if err := json.Unmarshal(archivedFile(t, archived, "index.json"), &imported); err != nil {
		t.Fatal(err)
	}
	if len(imported.Manifests) != 1 {
		t.Fatalf("the archive has %d images, want 1", len(imported.Manifests))
	}
	got := imported.Manifests[0]
	if want := "trireme.local/mpi-agent@" + published.String(); got.Digest != published || got.Annotations[containerdName] != want {
		t.Errorf("containerd imports %s as %q, want %q", got.Digest, got.Annotations[containerdName], want)
	}
}

func archivedFile(t *testing.T, from io.Reader, name string) []byte {
	t.Helper()
	for files := tar.NewReader(from); ; {
		header, err := files.Next()
		if err != nil {
			t.Fatalf("the archive has no %s: %v", name, err)
		}
		if header.Name == name {
			return must(io.ReadAll(files))(t)
		}
	}
}
