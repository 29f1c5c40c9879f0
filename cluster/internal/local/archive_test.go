// SPDX-License-Identifier: Apache-2.0

package local

import (
	"archive/tar"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// archiveOfLayout writes a layout of images as bin/images local does.
func archiveOfLayout(t *testing.T, images ...v1.Image) string {
	t.Helper()
	folder, file := t.TempDir(), filepath.Join(t.TempDir(), "image.tar")
	to, err := layout.Write(folder, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range images {
		if err := to.AppendImage(one); err != nil {
			t.Fatal(err)
		}
	}
	archive, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	writer := tar.NewWriter(archive)
	if err := errors.Join(writer.AddFS(os.DirFS(folder)), writer.Close(), archive.Close()); err != nil {
		t.Fatal(err)
	}
	return file
}

func newImage(t *testing.T) v1.Image {
	t.Helper()
	image, err := random.Image(100, 2)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

func TestOpenArchive(t *testing.T) {
	image := newImage(t)
	docker := filepath.Join(t.TempDir(), "image.tar")
	if err := tarball.WriteToFile(docker, name.MustParseReference("example.test/image:1"), image); err != nil {
		t.Fatal(err)
	}
	for format, file := range map[string]string{"Docker's format": docker, "OCI layout": archiveOfLayout(t, image)} {
		content, cleanUp, err := openArchive(file)
		if err != nil {
			t.Errorf("%s: %v", format, err)
			continue
		}
		// The manifest of Docker's format is written anew, so only its config is the same.
		want, wantErr := image.ConfigName()
		got, gotErr := content.ConfigName()
		if got != want || wantErr != nil || gotErr != nil {
			t.Errorf("%s: image %s, want %s (%v, %v)", format, got, want, wantErr, gotErr)
		}
		layers, err := content.Layers()
		if err != nil || len(layers) != 2 {
			t.Errorf("%s: %d layers, %v", format, len(layers), err)
		}
		cleanUp()
	}
}

func TestLayoutKeepsItsDigest(t *testing.T) {
	image := newImage(t)
	want, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	content, cleanUp, err := openArchive(archiveOfLayout(t, image))
	if err != nil {
		t.Fatal(err)
	}
	defer cleanUp()
	if got, err := content.Digest(); got != want || err != nil {
		t.Errorf("digest %s, want %s (%v)", got, want, err)
	}
}

func TestArchivesThatAreNoImage(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		text:                                  "EOF",
		filepath.Join(t.TempDir(), "missing"): "no such file",
		archiveOfLayout(t, newImage(t), newImage(t)): "has 2 images, not 1",
		archiveOfLayout(t):                           "has 0 images, not 1",
	} {
		if _, _, err := openArchive(file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error is %v, want %s", file, err, want)
		}
	}
}
