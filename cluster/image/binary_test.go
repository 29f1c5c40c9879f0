// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const binaryRef = "example.test/tool:1"

// minimalELF is as much of a program as tells what it needs to run.
func minimalELF(t *testing.T, machine elf.Machine, segments ...elf.ProgType) []byte {
	t.Helper()
	const headerSize, segmentSize = 64, 56
	header := elf.Header64{
		Type:      uint16(elf.ET_EXEC),
		Machine:   uint16(machine),
		Version:   uint32(elf.EV_CURRENT),
		Phoff:     headerSize,
		Ehsize:    headerSize,
		Phentsize: segmentSize,
		Phnum:     uint16(len(segments)),
	}
	copy(header.Ident[:], elf.ELFMAG)
	header.Ident[elf.EI_CLASS] = byte(elf.ELFCLASS64)
	header.Ident[elf.EI_DATA] = byte(elf.ELFDATA2LSB)
	header.Ident[elf.EI_VERSION] = byte(elf.EV_CURRENT)

	var program bytes.Buffer
	if err := binary.Write(&program, binary.LittleEndian, header); err != nil {
		t.Fatal(err)
	}
	for _, segment := range segments {
		if err := binary.Write(&program, binary.LittleEndian, elf.Prog64{Type: uint32(segment)}); err != nil {
			t.Fatal(err)
		}
	}
	return program.Bytes()
}

func writeFile(t *testing.T, path string, content []byte) string {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFromBinary(t *testing.T) {
	program := minimalELF(t, elf.EM_AARCH64, elf.PT_LOAD)
	binary := writeFile(t, filepath.Join(t.TempDir(), "tool"), program)
	out := filepath.Join(t.TempDir(), "tool.tar")
	if err := FromBinary(binary, binaryRef, out); err != nil {
		t.Fatal(err)
	}

	_, config, files := readImage(t, out, binaryRef)
	if diff := cmp.Diff(map[string]entry{"tool": {0o755, string(program)}}, files); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	type setup struct {
		Platform, User string
		Entrypoint     []string
	}
	want := setup{"linux/arm64", "65532:65532", []string{"/tool"}}
	got := setup{config.OS + "/" + config.Architecture, config.Config.User, config.Config.Entrypoint}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"tool.tar"}, fileNames(t, filepath.Dir(out))); diff != "" {
		t.Errorf("files left beside the tar (-want +got):\n%s", diff)
	}
}

func TestBinaryWithFiles(t *testing.T) {
	dir := t.TempDir()
	binary := writeFile(t, filepath.Join(dir, "tool"), minimalELF(t, elf.EM_X86_64, elf.PT_LOAD))
	license := writeFile(t, filepath.Join(dir, "text"), []byte("free"))
	files := map[string]string{"licenses/b/LICENSE": license, "licenses/a/LICENSE": license}
	image, err := Binary(binary, files, filepath.Join(dir, "layer.tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	var names []string
	for reader := tar.NewReader(content); ; {
		header, err := reader.Next()
		if err != nil {
			break
		}
		names = append(names, header.Name)
	}
	if diff := cmp.Diff([]string{"tool", "licenses/a/LICENSE", "licenses/b/LICENSE"}, names); diff != "" {
		t.Errorf("order of files (-want +got):\n%s", diff)
	}
}

func TestFromBinaryIsDeterministic(t *testing.T) {
	var digests []string
	for range 2 {
		binary := writeFile(t, filepath.Join(t.TempDir(), "tool"), minimalELF(t, elf.EM_X86_64, elf.PT_LOAD))
		out := filepath.Join(t.TempDir(), "tool.tar")
		if err := FromBinary(binary, binaryRef, out); err != nil {
			t.Fatal(err)
		}
		image, _, _ := readImage(t, out, binaryRef)
		digest, err := image.Digest()
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, digest.String())
	}
	if diff := cmp.Diff(digests[0], digests[1]); diff != "" {
		t.Errorf("digests of two images of one binary (-first +second):\n%s", diff)
	}
}

func TestFromBinaryRefuses(t *testing.T) {
	dir := t.TempDir()
	static := writeFile(t, filepath.Join(dir, "static"), minimalELF(t, elf.EM_X86_64, elf.PT_LOAD))
	tests := map[string]struct {
		binary, ref, want string
	}{
		"a program that needs a loader": {
			writeFile(t, filepath.Join(dir, "dynamic"), minimalELF(t, elf.EM_X86_64, elf.PT_INTERP, elf.PT_LOAD)),
			binaryRef, "CGO_ENABLED=0",
		},
		"a command of the host":             {"/bin/ls", binaryRef, "dynamically linked"},
		"a script":                          {writeFile(t, filepath.Join(dir, "script"), []byte("#!/bin/sh\nexit 0\n")), binaryRef, "not an ELF binary"},
		"an empty file":                     {writeFile(t, filepath.Join(dir, "empty"), nil), binaryRef, "not an ELF binary"},
		"a machine that no node is":         {writeFile(t, filepath.Join(dir, "sparc"), minimalELF(t, elf.EM_SPARCV9)), binaryRef, "only amd64 and arm64"},
		"a file that is not there":          {filepath.Join(dir, "absent"), binaryRef, "no such file"},
		"a reference that has no tag":       {static, "example.test/tool", "image reference"},
		"a reference with a forbidden sign": {static, "example.test/tool:a b", "image reference"},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			outDir := t.TempDir()
			err := FromBinary(test.binary, test.ref, filepath.Join(outDir, "image.tar"))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error is %v, want one with %q", err, test.want)
			}
			if diff := cmp.Diff([]string(nil), fileNames(t, outDir)); diff != "" {
				t.Errorf("files left behind (-want +got):\n%s", diff)
			}
		})
	}
}

func fileNames(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}
