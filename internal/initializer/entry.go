// SPDX-License-Identifier: Apache-2.0

package initializer

import (
	"context"
	"io"
	"io/fs"
)

type entryKind uint8

const (
	fileEntry entryKind = iota
	directoryEntry
	linkEntry
)

// entry is a file, directory or link to download. It is small: some datasets have
// millions.
type entry struct {
	// path relative to the destination directory.
	path string
	size int64
	// version changes with the content. For a link it is the target.
	version string
	// checksum of the content, if it is known from the list. A file that does not match it
	// is compared with the checksum of the download.
	checksum checksum
	kind     entryKind
	// mode of a file or directory; 0 uses the umask.
	mode fs.FileMode
	// modified is the modification time to set, in nanoseconds; 0 for none.
	modified int64
}

// origin is the source of files.
type origin interface {
	// list returns all entries. After an error it can be called again and continues;
	// listed is its progress.
	list(ctx context.Context) ([]entry, error)
	listed() int64
	// open reads a file from an offset, or from the start if the origin does not support
	// offsets.
	open(ctx context.Context, entry entry, offset int64) (*content, error)
	// interrupted explains an error while a file was read.
	interrupted(ctx context.Context, entry entry, err error) error
	// revision is the resolved revision of the source, if it has one.
	revision() string
}

// content is a file being read.
type content struct {
	io.ReadCloser
	// offset of the first byte.
	offset int64
	// checksum of the whole file.
	checksum checksum
}
