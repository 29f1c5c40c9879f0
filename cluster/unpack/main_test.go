// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func archive(t *testing.T, headers ...tar.Header) *bytes.Buffer {
	t.Helper()
	var content bytes.Buffer
	writer := tar.NewWriter(&content)
	for _, header := range headers {
		header.Size = int64(len(header.Name))
		if header.Typeflag != tar.TypeReg {
			header.Size = 0
		}
		if err := writer.WriteHeader(&header); err != nil {
			t.Fatal(err)
		}
		if header.Size > 0 {
			if _, err := writer.Write([]byte(header.Name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	return &content
}

func TestNothingIsWrittenOutside(t *testing.T) {
	tests := map[string][]tar.Header{
		"a path to the parent":        {{Typeflag: tar.TypeReg, Name: "../outside", Mode: 0o644}},
		"an absolute path":            {{Typeflag: tar.TypeReg, Name: "/outside", Mode: 0o644}},
		"a file behind a link":        {{Typeflag: tar.TypeSymlink, Name: "link", Linkname: ".."}, {Typeflag: tar.TypeReg, Name: "link/outside", Mode: 0o644}},
		"a file twice":                {{Typeflag: tar.TypeReg, Name: "a", Mode: 0o644}, {Typeflag: tar.TypeReg, Name: "a", Mode: 0o644}},
		"a device":                    {{Typeflag: tar.TypeChar, Name: "null", Mode: 0o666}},
		"a hard link":                 {{Typeflag: tar.TypeLink, Name: "link", Linkname: "/etc/passwd"}},
		"a file instead of a symlink": {{Typeflag: tar.TypeSymlink, Name: "a", Linkname: "../outside"}, {Typeflag: tar.TypeReg, Name: "a", Mode: 0o644}},
	}
	for name, headers := range tests {
		t.Run(name, func(t *testing.T) {
			parent := t.TempDir()
			directory := filepath.Join(parent, "directory")
			if err := os.Mkdir(directory, 0o755); err != nil {
				t.Fatal(err)
			}
			root, err := os.OpenRoot(directory)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			if err := extract(archive(t, headers...), root); err == nil {
				t.Error("no error")
			}
			if _, err := os.Lstat(filepath.Join(parent, "outside")); err == nil {
				t.Error("a file was written outside of the directory")
			}
		})
	}
}

func TestWhatIsNoBundle(t *testing.T) {
	for name, content := range map[string]string{
		"an empty file":        "",
		"another program":      strings.Repeat("x", 100),
		"a length that is not": "archive\xff\xff\xff\xff\xff\xff\xff\xff" + magic,
		"longer than the file": "archive\x00\x00\x00\x00\x00\x00\x10\x00" + magic,
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "bundle")
			if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := unpack(file, t.TempDir()); err == nil || !strings.Contains(err.Error(), "copy") {
				t.Errorf("error %v does not say what to do", err)
			}
		})
	}
}

func TestOnlyIntoAnEmptyDirectory(t *testing.T) {
	directory := t.TempDir()
	if err := prepare(filepath.Join(directory, "new")); err != nil {
		t.Error(err)
	}
	if err := prepare(directory); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("error %v", err)
	}
	for _, arguments := range [][]string{{"bundle"}, {"bundle", "--help"}, {"bundle", ""}, {"bundle", "a", "b"}} {
		if _, err := run(arguments); err == nil || !strings.Contains(err.Error(), "usage") {
			t.Errorf("%q: error %v", arguments, err)
		}
	}
}
