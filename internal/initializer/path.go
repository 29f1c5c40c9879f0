// SPDX-License-Identifier: Apache-2.0

package initializer

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// ownPrefix is the prefix of the initializer's own files. They are at the top of the
// directory, as files: programs that take every folder of a dataset for a class of images
// must not find another folder.
const ownPrefix = ".trireme-"

// Limits of Linux: NAME_MAX, and PATH_MAX with room for the directory.
const (
	maxName = 255
	maxPath = 3800
)

// pathOfKey returns the path of an object, relative to the directory. It is the key after
// the prefix, unchanged, so that two keys never have the same path; a key that is not a
// valid path is refused.
func pathOfKey(prefix, key string) (string, error) {
	rest, below := strings.CutPrefix(key, prefix)
	if !below {
		return "", fmt.Errorf("the object %q is not below %q", key, prefix)
	}
	if err := checkPath(rest); err != nil {
		return "", fmt.Errorf("the object %q cannot be a file: %w", key, err)
	}
	return rest, nil
}

// checkPath checks whether a name from a source is a valid path below a directory.
func checkPath(name string) error {
	switch {
	case strings.HasPrefix(name, "/"):
		return errors.New("its path is absolute")
	case strings.Contains(name, "\x00"):
		return errors.New("its path has a zero byte")
	case slices.Contains(strings.Split(name, "/"), ".."):
		return errors.New("its path has .. segments")
	case name == "." || !fs.ValidPath(name):
		return errors.New("its path has an empty or . segment, or is not valid UTF-8")
	case len(name) > maxPath:
		return fmt.Errorf("its path is longer than %d bytes", maxPath)
	}
	for part := range strings.SplitSeq(name, "/") {
		if len(part) > maxName {
			return fmt.Errorf("a segment of its path is longer than %d bytes", maxName)
		}
	}
	return nil
}

// isOwn tells whether a path is one of the initializer's own files, which may have been
// uploaded with a directory.
func isOwn(path string) bool {
	return strings.HasPrefix(path, ownPrefix)
}

// checkConflicts finds a file that must also be a directory: object stores allow both a
// and a/b.
func checkConflicts(entries []entry) error {
	// Directories, each with a file that needs it: there are fewer directories than files.
	needed := map[string]string{}
	for _, entry := range entries {
		for directory := path.Dir(entry.path); directory != "." && needed[directory] == ""; directory = path.Dir(directory) {
			needed[directory] = entry.path
		}
	}
	for _, entry := range entries {
		if below := needed[entry.path]; below != "" && entry.kind != directoryEntry {
			return fmt.Errorf("%q and %q conflict: the first is a file where the second needs a directory", entry.path, below)
		}
	}
	return nil
}
