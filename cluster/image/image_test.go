// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func sample() Definition {
	return Definition{
		Name:     "sample",
		Ref:      "example.test/sample:1",
		Suite:    "bookworm",
		Packages: []string{"python3"},
		Env:      []string{"PATH=/usr/bin"},
	}
}

func sampleWithWheels() Definition {
	def := sample()
	def.Pip = []string{"demo==1"}
	def.Python = "3.13"
	def.Exclude = []string{"/usr/local/bin/bench-*"}
	return def
}

func TestHash(t *testing.T) {
	tests := map[string]struct {
		change      func(*Definition)
		wantChanged bool
	}{
		"an equal definition has the same hash":   {func(*Definition) {}, false},
		"a copied list has the same hash":         {func(d *Definition) { d.Packages = slices.Clone(d.Packages) }, false},
		"another suite is another image":          {func(d *Definition) { d.Suite = "trixie" }, true},
		"one more package is another image":       {func(d *Definition) { d.Packages = append(d.Packages, "bash") }, true},
		"another wheel is another image":          {func(d *Definition) { d.Pip = []string{"demo==2"} }, true},
		"another Python is another image":         {func(d *Definition) { d.Python = "3.11" }, true},
		"other files left out are another image":  {func(d *Definition) { d.Exclude = nil }, true},
		"another hook is another image":           {func(d *Definition) { d.Hooks = []string{"true"} }, true},
		"unpacked only is another image":          {func(d *Definition) { d.IsUnpackedOnly = true }, true},
		"another architecture is another image":   {func(d *Definition) { d.Architecture = "sparc" }, true},
		"another environment is another image":    {func(d *Definition) { d.Env = []string{"PATH=/bin"} }, true},
		"another reference needs another tarball": {func(d *Definition) { d.Ref = "example.test/sample:2" }, true},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			changed := sampleWithWheels()
			test.change(&changed)
			before, after := sampleWithWheels().Hash(), changed.Hash()
			if got := before != after; got != test.wantChanged {
				t.Errorf("hash went from %s to %s; want changed: %t", before, after, test.wantChanged)
			}
			if len(after) != 12 {
				t.Errorf("hash %q has %d digits, want 12", after, len(after))
			}
		})
	}
}

func TestExactRefIsTheReferenceWithTheHash(t *testing.T) {
	def := sample()
	if diff := cmp.Diff("example.test/sample:1-"+def.Hash(), def.ExactRef()); diff != "" {
		t.Errorf("exact reference (-want +got):\n%s", diff)
	}
}

func TestHostTools(t *testing.T) {
	tests := map[string]struct {
		def  Definition
		want []string
	}{
		"packages need mmdebstrap":          {sample(), []string{"mmdebstrap"}},
		"wheels need pip beside mmdebstrap": {sampleWithWheels(), []string{"mmdebstrap", "python3-pip"}},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			var got []string
			for _, tool := range test.def.HostTools() {
				got = append(got, tool.Package)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("packages of the host (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDefinitions(t *testing.T) {
	got := map[string]string{}
	for _, def := range append(MPI(), Digits(), Notebook(), Horovod(), MPITest("amd64"), MPITest("arm64")) {
		got[def.Name] = def.Ref
		if len(def.Pip) > 0 && def.Python == "" {
			t.Errorf("image %s has wheels but no Python version", def.Name)
		}
		for _, ref := range []string{def.Ref, def.ExactRef()} {
			if _, err := name.NewTag(ref, name.StrictValidation); err != nil {
				t.Errorf("image %s: %v", def.Name, err)
			}
		}
	}
	want := map[string]string{
		"openmpi4":       "trireme.local/openmpi:4",
		"openmpi5":       "trireme.local/openmpi:5",
		"mpich":          "trireme.local/mpich:4",
		"intelmpi":       "trireme.local/intelmpi:2021",
		"digits":         "trireme.local/digits:1",
		"notebook":       "trireme.local/notebook:1",
		"horovod":        "trireme.local/horovod:0.28.1",
		"mpi-test-amd64": "trireme.local/mpi-test:1",
		"mpi-test-arm64": "trireme.local/mpi-test:1",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("references by name (-want +got):\n%s", diff)
	}
}

// entry is what tests compare of a file in an image.
type entry struct {
	Mode    int64
	Content string
}

// readImage returns the image under ref in a tar, its config and its files.
func readImage(t *testing.T, path, ref string) (v1.Image, *v1.ConfigFile, map[string]entry) {
	t.Helper()
	tag, err := name.NewTag(ref)
	if err != nil {
		t.Fatal(err)
	}
	image, err := tarball.ImageFromPath(path, &tag)
	if err != nil {
		t.Fatalf("read image %s: %v", ref, err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	content := mutate.Extract(image)
	defer content.Close()
	files := map[string]entry{}
	for reader := tar.NewReader(content); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return image, config, files
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = entry{header.Mode, string(data)}
	}
}
