// SPDX-License-Identifier: Apache-2.0

package history

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// unfinished is the prefix of files that are being written.
const unfinished = ".writing-"

// Directory is a store in a directory, such as that of a persistent volume claim.
type Directory struct{ root *os.Root }

// OpenDirectory opens a directory, and removes what an interrupted write has left there.
func OpenDirectory(path string) (*Directory, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("open the directory of the history: %w", err)
	}
	d := &Directory{root: root}
	err = d.walk(func(name string, entry fs.DirEntry) error {
		if strings.HasPrefix(entry.Name(), unfinished) {
			return root.Remove(name)
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return d, nil
}

// Close closes the directory.
func (d *Directory) Close() error { return d.root.Close() }

// Put writes a file next to the final one, and renames it when it is on the disk.
func (d *Directory) Put(_ context.Context, name string, content []byte) error {
	folder, base := filepath.Split(name)
	if err := d.root.MkdirAll(filepath.Clean(folder), 0o700); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	temporary := folder + unfinished + base
	if err := d.writeFile(temporary, content); err != nil {
		_ = d.root.Remove(temporary)
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := d.root.Rename(temporary, name); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

func (d *Directory) writeFile(name string, content []byte) error {
	file, err := d.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

// Get reads a file.
func (d *Directory) Get(_ context.Context, name string) ([]byte, error) { return d.root.ReadFile(name) }

// Delete deletes a file, and its folders if they are empty.
func (d *Directory) Delete(_ context.Context, name string) error {
	if err := d.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for folder := filepath.Dir(name); folder != "."; folder = filepath.Dir(folder) {
		if d.root.Remove(folder) != nil {
			// It has other files.
			return nil
		}
	}
	return nil
}

// List returns all files.
func (d *Directory) List(context.Context) (blobs []Blob, err error) {
	err = d.walk(func(name string, entry fs.DirEntry) error {
		info, err := entry.Info()
		if err != nil {
			return err
		}
		blobs = append(blobs, Blob{Name: name, Bytes: info.Size()})
		return nil
	})
	return blobs, err
}

// walk visits all files. A volume may have folders of its own that cannot be read, such as
// lost+found.
func (d *Directory) walk(visit func(name string, entry fs.DirEntry) error) error {
	return fs.WalkDir(d.root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrPermission) && entry.IsDir():
			return fs.SkipDir
		case err != nil:
			return fmt.Errorf("read the directory of the history: %w", err)
		case !entry.Type().IsRegular():
			return nil
		}
		return visit(name, entry)
	})
}
