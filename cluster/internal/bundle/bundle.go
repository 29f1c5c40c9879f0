// SPDX-License-Identifier: Apache-2.0

// Package bundle packs everything that the local cluster needs into one file, for
// machines without Go and without package registries.
package bundle

import (
	"archive/tar"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// Names in an unpacked bundle.
const (
	// recordFile marks the root of an unpacked bundle.
	recordFile = "bundle.json"
	// Programs has a folder for each module of the cluster, like the cache.
	Programs = "programs"
	// Host has the programs that a checkout takes from Debian packages.
	Host = "host"
	// Images has archives of images.
	Images = "images"
)

// magic ends a bundle, after the length of its archive as 8 bytes, big-endian: the
// format of the program unpack.
const magic = "TRIREMEB"

// Record describes a bundle.
type Record struct {
	// Kubernetes is the release whose programs the bundle contains.
	Kubernetes   string `json:"kubernetes"`
	Architecture string `json:"architecture"`
}

// Find returns the unpacked bundle that a program is in (as bin/NAME), or "".
func Find(program string) string {
	root := filepath.Dir(filepath.Dir(program))
	if _, err := os.Stat(filepath.Join(root, recordFile)); err != nil {
		return ""
	}
	return root
}

// Read returns the record of an unpacked bundle, and fails if its programs cannot run on
// this machine.
func Read(root string) (record Record, err error) {
	content, err := os.ReadFile(filepath.Join(root, recordFile))
	if err == nil {
		err = json.Unmarshal(content, &record)
	}
	if err == nil && record.Architecture != runtime.GOARCH {
		err = fmt.Errorf("it was made for %s, but this machine is %s", record.Architecture, runtime.GOARCH)
	}
	if err != nil {
		return record, fmt.Errorf("bundle %s: %w", root, err)
	}
	return record, nil
}

// Content collects what is packed: names in the bundle, with their paths on this machine.
type Content map[string]string

// AddTree adds a folder with everything in it.
func (c Content) AddTree(name, folder string) error {
	return filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		relative, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		c[filepath.Join(name, relative)] = path
		return nil
	})
}

// Write packs a bundle: the program that unpacks it, then the compressed archive.
func Write(ctx context.Context, file, unpack string, level int, record Record, content Content) error {
	partial := file + ".partial"
	defer os.Remove(partial)
	if err := write(ctx, partial, unpack, level, record, content); err != nil {
		return fmt.Errorf("write bundle %s: %w", file, err)
	}
	return os.Rename(partial, file)
}

func write(ctx context.Context, file, unpack string, level int, record Record, content Content) (err error) {
	to, err := os.OpenFile(file, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	if err := copyFile(to, unpack); err != nil {
		return err
	}
	start, err := to.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	if err := compress(ctx, to, level, func(archive io.Writer) error { return writeTar(archive, record, content) }); err != nil {
		return err
	}
	end, err := to.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	_, err = to.Write(append(binary.BigEndian.AppendUint64(nil, uint64(end-start)), magic...))
	return err
}

// compress runs zstd: Go's own implementation has no level that compresses as much.
func compress(ctx context.Context, to *os.File, level int, write func(io.Writer) error) error {
	var complaints strings.Builder
	// With a window of 128 MiB, what is repeated in several programs is stored once.
	command := exec.CommandContext(ctx, "zstd", fmt.Sprintf("-%d", level), "--long=27", "-T0", "--quiet", "--stdout")
	command.Stdout, command.Stderr = to, &complaints
	archive, err := command.StdinPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return err
	}
	written := errors.Join(write(archive), archive.Close())
	if err := command.Wait(); err != nil {
		return fmt.Errorf("zstd: %w\n%s", errors.Join(err, ctx.Err()), complaints.String())
	}
	return written
}

func writeTar(to io.Writer, record Record, content Content) error {
	archive := tar.NewWriter(to)
	described, err := json.Marshal(record)
	if err != nil {
		return err
	}
	header := &tar.Header{Name: recordFile, Mode: 0o644, Size: int64(len(described))}
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	if _, err := archive.Write(described); err != nil {
		return err
	}
	var names []string
	for name := range content {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if err := appendFile(archive, name, content[name]); err != nil {
			return err
		}
	}
	return archive.Close()
}

// appendFile adds a file or a symbolic link. Owner and times are not those of this
// machine, so that the same programs give the same bundle.
func appendFile(archive *tar.Writer, name, path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		target, err := os.Readlink(path)
		if err != nil {
			return err
		}
		return archive.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target})
	}
	header := &tar.Header{Name: name, Mode: int64(info.Mode().Perm()), Size: info.Size()}
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	return copyFile(archive, path)
}

func copyFile(to io.Writer, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(to, file)
	return err
}
