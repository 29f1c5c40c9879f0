// SPDX-License-Identifier: Apache-2.0

package initializer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	journalFile = ownPrefix + "journal"
	markerFile  = ownPrefix + "complete.json"
	partSuffix  = ".part"
)

// destination is the directory to write to. Every path is resolved below it, including
// symbolic links: nothing outside can be written.
type destination struct {
	name    string
	root    *os.Root
	journal *journal
}

// openDestination creates the directory if needed, and waits until no other initializer
// writes to it: jobs that share a PVC may start at the same time.
func openDestination(ctx context.Context, directory string, logf func(string, ...any)) (*destination, error) {
	action := "write to " + directory
	parent, base := filepath.Split(filepath.Clean(directory))
	if err := os.MkdirAll(parent, 0o777); err != nil {
		return nil, explainDiskError(err, action)
	}
	// A symbolic link in place of the directory may only point to its own volume.
	volume, err := os.OpenRoot(parent)
	if err != nil {
		return nil, explainDiskError(err, action)
	}
	defer volume.Close()
	if err := volume.MkdirAll(base, 0o777); err != nil {
		return nil, explainDiskError(err, action)
	}
	root, err := volume.OpenRoot(base)
	if err != nil {
		return nil, explainDiskError(err, action)
	}
	d := &destination{name: directory, root: root}
	file, err := root.OpenFile(journalFile, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		d.close()
		return nil, explainDiskError(err, action)
	}
	d.journal = &journal{file: file}
	if err := lock(ctx, file, func() { logf("another initializer is writing to %s; waiting for it", directory) }); err != nil {
		d.close()
		return nil, err
	}
	if err := d.journal.read(); err != nil {
		d.close()
		return nil, explainDiskError(err, "read the journal of "+directory)
	}
	return d, nil
}

// lock waits for the lock of a file. Volumes without locks are used without.
func lock(ctx context.Context, file *os.File, waiting func()) error {
	for tries := 0; ; tries++ {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil
		}
		if tries == 0 {
			waiting()
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(500 * time.Millisecond):
		}
	}
}

func (d *destination) close() {
	if d.journal != nil {
		d.journal.file.Close()
	}
	d.root.Close()
}

func (d *destination) info() (fs.FileInfo, error) {
	return d.root.Stat(".")
}

// marker is the last file that is written: if it exists, the download is complete.
type marker struct {
	URI      string `json:"uri"`
	Revision string `json:"revision,omitempty"`
	Files    int    `json:"files"`
	Bytes    int64  `json:"bytes"`
}

func (d *destination) marker() (found marker, complete bool) {
	text, err := d.root.ReadFile(markerFile)
	if err != nil || json.Unmarshal(text, &found) != nil {
		return marker{}, false
	}
	return found, true
}

func (d *destination) unmark() error {
	if err := d.root.Remove(markerFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return explainDiskError(err, "write to "+d.name)
	}
	return nil
}

// mark writes the marker, once all files are safe on the volume.
func (d *destination) mark(complete marker) error {
	action := "complete " + d.name
	if err := unix.Syncfs(int(d.journal.file.Fd())); err != nil && !errors.Is(err, syscall.ENOSYS) {
		return explainDiskError(err, action)
	}
	text, err := json.MarshalIndent(complete, "", "  ")
	if err != nil {
		return err
	}
	temporary := markerFile + partSuffix
	if err := d.root.WriteFile(temporary, append(text, '\n'), 0o666); err != nil {
		return explainDiskError(err, action)
	}
	return explainDiskError(d.root.Rename(temporary, markerFile), action)
}

// prepareFor handles the existing content: complete content of another source may be in
// use, and is an error; incomplete content is removed.
func (d *destination) prepareFor(uri string) error {
	if found, complete := d.marker(); complete && found.URI != uri {
		return &Failure{
			What:   fmt.Sprintf("%s already holds %s", d.name, found.URI),
			Advice: "use another PVC for this job, or empty that directory first",
		}
	}
	if d.journal.uri == uri {
		return nil
	}
	for _, line := range d.journal.lines {
		if err := d.forget(*line); err != nil {
			return err
		}
	}
	if err := d.removeParts(nil); err != nil {
		return err
	}
	return explainDiskError(d.journal.reset(uri), "write to "+d.name)
}

// has tells whether an entry exists and is unchanged since it was downloaded.
func (d *destination) has(entry entry) bool {
	info, err := d.root.Lstat(entry.path)
	if err != nil {
		return false
	}
	switch entry.kind {
	case directoryEntry:
		return info.IsDir()
	case linkEntry:
		target, err := d.root.Readlink(entry.path)
		return err == nil && target == entry.version
	}
	line, known := d.journal.lines[entry.path]
	return known && line.Size == entry.size && line.Version == entry.version && line.describes(info)
}

// forget removes a downloaded file that is no longer needed, unless it was changed.
func (d *destination) forget(line journalLine) error {
	info, err := d.root.Lstat(line.Path)
	if err != nil || !line.describes(info) {
		return nil
	}
	return explainDiskError(d.root.Remove(line.Path), fmt.Sprintf("remove %q", line.Path))
}

// removeParts removes partial downloads that are no longer needed.
func (d *destination) removeParts(wanted []*entry) error {
	names, err := fs.Glob(d.root.FS(), ownPrefix+"*"+partSuffix)
	if err != nil || len(names) == 0 {
		return err
	}
	for _, entry := range wanted {
		part := partOf(*entry)
		names = slices.DeleteFunc(names, func(name string) bool { return name == part })
	}
	for _, name := range names {
		if err := d.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return explainDiskError(err, fmt.Sprintf("remove %q", name))
		}
	}
	return nil
}

// partOf is the name of an entry until it is complete. It depends on the version, so that
// no download continues the part of another version.
func partOf(entry entry) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%d", entry.path, entry.version, entry.size))
	return ownPrefix + hex.EncodeToString(sum[:12]) + partSuffix
}

// partSize returns the size of a partial download.
func (d *destination) partSize(entry entry) int64 {
	info, err := d.root.Lstat(partOf(entry))
	if err != nil || !info.Mode().IsRegular() {
		return 0
	}
	return min(info.Size(), entry.size)
}

// createDirectories creates the directories of entries.
func (d *destination) createDirectories(entries []entry) error {
	created := map[string]bool{".": true}
	for _, entry := range entries {
		directory := path.Dir(entry.path)
		if entry.kind == directoryEntry {
			directory = entry.path
		}
		if created[directory] {
			continue
		}
		if err := d.root.MkdirAll(directory, 0o777); err != nil {
			return explainDiskError(err, fmt.Sprintf("create the directory %q", directory))
		}
		created[directory] = true
	}
	return nil
}

// finish creates symbolic links, and sets the modes of directories, the innermost first.
func (d *destination) finish(entries []entry) error {
	for index := len(entries) - 1; index >= 0; index-- {
		entry := entries[index]
		switch {
		case entry.kind == directoryEntry:
			info, err := d.root.Stat(entry.path)
			if err == nil && info.Mode().Perm() != entry.mode {
				err = d.root.Chmod(entry.path, entry.mode)
			}
			if err != nil {
				return explainDiskError(err, fmt.Sprintf("set the mode of %q", entry.path))
			}
		case entry.kind == linkEntry && !d.has(entry):
			if err := d.link(entry); err != nil {
				return explainDiskError(err, fmt.Sprintf("create the symbolic link %q", entry.path))
			}
		}
	}
	return nil
}

func (d *destination) link(entry entry) error {
	part := partOf(entry)
	if err := d.root.Remove(part); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := d.root.Symlink(entry.version, part); err != nil {
		return err
	}
	return d.root.Rename(part, entry.path)
}

// space of the volume in bytes; ok is false if it is unknown.
func (d *destination) space() (free, total int64, ok bool) {
	var volume unix.Statfs_t
	if err := unix.Fstatfs(int(d.journal.file.Fd()), &volume); err != nil || volume.Blocks == 0 {
		return 0, 0, false
	}
	block := int64(volume.Bsize) //nolint:unconvert // Its type differs between platforms.
	return int64(volume.Bavail) * block, int64(volume.Blocks) * block, true
}
