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

// entry is one thing to fetch. It is small: some datasets have millions.
type entry struct {
	// path is where it goes, relative to the directory.
	path string
	size int64
	// version changes when the content does. Of a link it is where it leads to.
	version string
	// checksum of the content, as far as is known before it is read. What fits it
	// is right; what does not is judged by the checksum that comes with the content.
	checksum checksum
	kind     entryKind
	// mode of a file or directory; 0 leaves it to the umask.
	mode fs.FileMode
	// modified is when it last changed, in nanoseconds, if that is to be kept.
	modified int64
}

// origin is where things are fetched from.
type origin interface {
	// list names everything there is. Called again after an error, it goes on where
	// it was; listed is how far that is.
	list(ctx context.Context) ([]entry, error)
	listed() int64
	// open reads a file from an offset on, or from the beginning if the origin
	// cannot do otherwise.
	open(ctx context.Context, entry entry, offset int64) (*content, error)
	// interrupted explains an error in the middle of a file.
	interrupted(ctx context.Context, entry entry, err error) error
	// revision is what the source was resolved to by list, if it has such.
	revision() string
}

// content is a file being read.
type content struct {
	io.ReadCloser
	// offset is where it begins.
	offset int64
	// checksum of the whole file.
	checksum checksum
}
