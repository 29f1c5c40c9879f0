// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// entry is a file of an archive.
type entry struct {
	// path is where its content is on this machine.
	path string
	mode fs.FileMode
}

// archiveWriter writes the header of the next file, and returns where its content goes.
type archiveWriter func(name string, mode fs.FileMode, size int64) (io.Writer, error)

// writeArchive writes files to a .zip, .tar.gz or .tar. The same files and time give the
// same bytes on every machine.
func writeArchive(file string, files map[string]entry, modified time.Time) (err error) {
	to, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	var archive io.Closer
	var add archiveWriter
	switch {
	case strings.HasSuffix(file, ".zip"):
		archive, add = zipWriter(to, modified)
	case strings.HasSuffix(file, ".tar.gz"):
		compressed := gzip.NewWriter(to)
		defer func() { err = errors.Join(err, compressed.Close()) }()
		archive, add = tarWriter(compressed, modified)
	default:
		archive, add = tarWriter(to, modified)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := addFile(add, name, files[name]); err != nil {
			return fmt.Errorf("write %s: %w", file, err)
		}
	}
	return archive.Close()
}

func tarWriter(to io.Writer, modified time.Time) (io.Closer, archiveWriter) {
	archive := tar.NewWriter(to)
	return archive, func(name string, mode fs.FileMode, size int64) (io.Writer, error) {
		return archive, archive.WriteHeader(&tar.Header{
			Typeflag: tar.TypeReg, Name: name, Mode: int64(mode), Size: size, ModTime: modified, Format: tar.FormatPAX,
		})
	}
}

func zipWriter(to io.Writer, modified time.Time) (io.Closer, archiveWriter) {
	archive := zip.NewWriter(to)
	return archive, func(name string, mode fs.FileMode, _ int64) (io.Writer, error) {
		header := &zip.FileHeader{Name: name, Method: zip.Deflate, Modified: modified}
		header.SetMode(mode)
		return archive.CreateHeader(header)
	}
}

func addFile(add archiveWriter, name string, one entry) error {
	from, err := os.Open(one.path)
	if err != nil {
		return err
	}
	defer from.Close()
	info, err := from.Stat()
	if err != nil {
		return err
	}
	to, err := add(name, one.mode, info.Size())
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return err
}

// folderEntries adds the files of a folder under a name.
func folderEntries(files map[string]entry, folder, name string) error {
	return filepath.WalkDir(folder, func(file string, found fs.DirEntry, err error) error {
		if err != nil || found.IsDir() {
			return err
		}
		relative, err := filepath.Rel(folder, file)
		files[path.Join(name, filepath.ToSlash(relative))] = entry{file, 0o644}
		return err
	})
}
