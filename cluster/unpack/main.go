// SPDX-License-Identifier: Apache-2.0

// Command unpack is the first part of a bundle: it unpacks the archive behind it. A
// machine without tar and zstd can unpack a bundle, too.
package main

import (
	"archive/tar"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"github.com/klauspost/compress/zstd"
)

// magic ends a bundle, after the length of its archive as 8 bytes, big-endian.
const magic = "TRIREMEB"

func main() {
	directory, err := run(os.Args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "unpack:", err)
		os.Exit(1)
	}
	fmt.Printf("Unpacked into %s. To start the cluster and install Trireme, as root:\n  %s/bin/cluster up\n  %s/install\n", directory, directory, directory)
}

func run(arguments []string) (directory string, err error) {
	if len(arguments) != 2 || arguments[1] == "" || arguments[1][0] == '-' {
		return "", fmt.Errorf("usage: %s DIRECTORY; the directory must be new or empty", arguments[0])
	}
	directory = arguments[1]
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	if err := prepare(directory); err != nil {
		return "", err
	}
	return directory, unpack(self, directory)
}

// prepare creates the directory. Files that are there already would be mixed with those
// of the bundle.
func prepare(directory string) error {
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return err
	}
	entries, err := os.ReadDir(directory)
	if err == nil && len(entries) > 0 {
		err = fmt.Errorf("directory %s is not empty: use a new one", directory)
	}
	return err
}

func unpack(bundle, directory string) error {
	file, err := os.Open(bundle)
	if err != nil {
		return err
	}
	defer file.Close()
	archive, err := archiveOf(file)
	if err != nil {
		return fmt.Errorf("%s: %w", bundle, err)
	}
	content, err := zstd.NewReader(archive)
	if err != nil {
		return err
	}
	defer content.Close()
	root, err := os.OpenRoot(directory)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := extract(content, root); err != nil {
		return fmt.Errorf("unpack %s into %s: %w", bundle, directory, err)
	}
	return nil
}

// archiveOf finds the archive by the trailer of the bundle.
func archiveOf(bundle *os.File) (io.Reader, error) {
	info, err := bundle.Stat()
	if err != nil {
		return nil, err
	}
	var trailer [8 + len(magic)]byte
	end := info.Size() - int64(len(trailer))
	if _, err := bundle.ReadAt(trailer[:], max(end, 0)); err != nil || string(trailer[8:]) != magic {
		return nil, errors.New("this file contains no archive, or is not complete: copy the bundle again")
	}
	length := int64(binary.BigEndian.Uint64(trailer[:8])) //nolint:gosec // Compared below.
	if length <= 0 || length > end {
		return nil, errors.New("the bundle is not complete: copy it again")
	}
	return io.NewSectionReader(bundle, end-length, length), nil
}

// extract writes files, folders and symbolic links. Nothing is written outside of the
// root.
func extract(archive io.Reader, root *os.Root) error {
	for files := tar.NewReader(archive); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := path.Clean(header.Name)
		if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
			return err
		}
		switch header.Typeflag {
		case tar.TypeDir:
			err = root.MkdirAll(name, 0o755)
		case tar.TypeSymlink:
			err = root.Symlink(header.Linkname, name)
		case tar.TypeReg:
			err = write(root, name, header.FileInfo().Mode().Perm(), files)
		default:
			err = fmt.Errorf("%s has the unexpected type %q", name, header.Typeflag)
		}
		if err != nil {
			return err
		}
	}
}

func write(root *os.Root, name string, mode fs.FileMode, content io.Reader) error {
	file, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	return errors.Join(err, file.Close())
}
