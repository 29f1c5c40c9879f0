package initializer

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// ownPrefix is what all files of the initializer's own begin with. They stand at
// the top of the directory, as files: a program that takes every folder of a
// dataset for a class of images must not meet one of ours.
const ownPrefix = ".trireme-"

// Limits of Linux: NAME_MAX, and PATH_MAX with room for the directory.
const (
	maxName = 255
	maxPath = 3800
)

// pathOfKey is where an object goes, relative to the directory. The path is the
// key behind the prefix, unchanged, so that two keys never share a path; a key
// that cannot be a path is refused rather than bent.
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

// checkPath says whether a name from elsewhere can be a path below a directory.
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

// isOwn says whether a path is for the initializer's own files, such as those
// that came along when a directory was uploaded to where it is fetched from.
func isOwn(path string) bool {
	return strings.HasPrefix(path, ownPrefix)
}

// checkConflicts finds a file that would have to be a directory as well: object
// stores allow both a and a/b.
func checkConflicts(entries []entry) error {
	// Directories, each with a file that needs it: there are fewer of them.
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
