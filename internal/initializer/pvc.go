// SPDX-License-Identifier: Apache-2.0

package initializer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
)

// pvc has the files of a mounted PersistentVolumeClaim.
type pvc struct {
	location
	// root is the whole PVC. Every path is resolved below it, including symbolic links:
	// nothing outside can be read.
	root *os.Root
	// base is the directory of the PVC that paths of entries are relative to.
	base string
	// single is the name of the file, if the source is one file.
	single string
	// destination must not overlap with the source.
	destination fs.FileInfo
	logf        func(format string, arguments ...any)
}

func newPVC(at location, directory string, logf func(string, ...any)) (*pvc, error) {
	if directory == "" {
		return nil, usage("pvc://%s needs --from with the mount path of the PVC", at.container)
	}
	root, err := os.OpenRoot(directory)
	if err != nil {
		return nil, &Failure{What: fmt.Sprintf("PVC %s is not mounted at %s", at.container, directory), Advice: "see the events of the pod", cause: err}
	}
	p := &pvc{location: at, root: root, base: ".", logf: logf}
	if at.path != "" {
		p.base = at.path
	}
	info, err := root.Stat(p.base)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, &Failure{What: fmt.Sprintf("%q does not exist on PVC %s", at.path, at.container), Advice: "check the path in storageUri"}
	case err != nil:
		return nil, explainDiskError(err, fmt.Sprintf("read %q on PVC %s", at.path, at.container))
	case info.Mode().IsRegular():
		p.base, p.single = path.Dir(p.base), path.Base(p.base)
	case !info.IsDir():
		return nil, &Failure{What: fmt.Sprintf("%q on PVC %s is neither a file nor a directory", at.path, at.container), Advice: "check the path in storageUri"}
	}
	return p, nil
}

// isDestination tells whether the source is the destination itself, through another mount
// of the same volume, or a file in it.
func (p *pvc) isDestination(destination string) bool {
	base, err := p.root.Stat(p.base)
	if err != nil {
		return false
	}
	info, err := os.Stat(destination)
	return err == nil && os.SameFile(base, info)
}

// checkOverlap refuses a destination above the source. A destination below it is found
// while the source is listed.
func (p *pvc) checkOverlap(destination fs.FileInfo) error {
	p.destination = destination
	for directory := p.base; ; directory = path.Dir(directory) {
		if info, err := p.root.Stat(directory); err == nil && os.SameFile(info, destination) {
			return p.overlapError()
		}
		if directory == "." {
			return nil
		}
	}
}

func (p *pvc) overlapError() error {
	return &Failure{
		What:   fmt.Sprintf("%s and its destination overlap on the same PVC", p.location),
		Advice: "use another PVC in storage, or another path in storageUri",
	}
}

func (p *pvc) revision() string { return "" }

func (p *pvc) listed() int64 { return 0 }

func (p *pvc) list(ctx context.Context) ([]entry, error) {
	if p.single != "" {
		info, err := p.root.Stat(path.Join(p.base, p.single))
		if err != nil {
			return nil, p.unreadable(p.single, err)
		}
		return []entry{copiedFile(p.single, info)}, nil
	}
	tree, err := p.root.OpenRoot(p.base)
	if err != nil {
		return nil, p.unreadable(".", err)
	}
	defer tree.Close()
	var entries []entry
	err = fs.WalkDir(tree.FS(), ".", func(name string, found fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		// lost+found belongs to the file system.
		if name == "lost+found" {
			return fs.SkipDir
		}
		if err != nil {
			return p.unreadable(name, err)
		}
		if name == "." || isOwn(name) {
			return nil
		}
		e, err := p.entry(tree, name, found)
		if err == nil && e != nil {
			entries = append(entries, *e)
		}
		return err
	})
	if err == nil && len(entries) == 0 {
		err = &Failure{What: fmt.Sprintf("%q on PVC %s is empty", p.path, p.container), Advice: "check the path in storageUri"}
	}
	return entries, err
}

func (p *pvc) entry(tree *os.Root, name string, found fs.DirEntry) (*entry, error) {
	info, err := found.Info()
	if err != nil {
		return nil, p.unreadable(name, err)
	}
	switch {
	case info.IsDir():
		if p.destination != nil && os.SameFile(info, p.destination) {
			return nil, p.overlapError()
		}
		// The owner of a directory must be able to write to it.
		return &entry{kind: directoryEntry, path: name, mode: info.Mode().Perm() | 0o700}, nil
	case info.Mode().IsRegular():
		file := copiedFile(name, info)
		return &file, nil
	case info.Mode().Type() == fs.ModeSymlink:
		return p.link(tree, name)
	}
	p.logf("skipping %q on PVC %s: it is not a file, directory or symbolic link", name, p.container)
	return nil, nil
}

// link copies a symbolic link within the source as a link. A link to a file elsewhere on
// the PVC is copied as a file: the cache of the Hugging Face libraries has such links.
func (p *pvc) link(tree *os.Root, name string) (*entry, error) {
	if _, err := tree.Stat(name); err == nil {
		target, err := tree.Readlink(name)
		if err != nil {
			return nil, p.unreadable(name, err)
		}
		return &entry{kind: linkEntry, path: name, version: target}, nil
	}
	if info, err := p.root.Stat(path.Join(p.base, name)); err == nil && info.Mode().IsRegular() {
		file := copiedFile(name, info)
		return &file, nil
	}
	return nil, &Failure{
		What:   fmt.Sprintf("the symbolic link %q on PVC %s is broken, or points outside the copied directory", name, p.container),
		Advice: "replace it with the file it should point to, or with a relative link",
	}
}

func copiedFile(name string, info fs.FileInfo) entry {
	return entry{
		path: name, size: info.Size(), version: strconv.FormatInt(info.ModTime().UnixNano(), 10), modified: info.ModTime().UnixNano(),
		// The owner of a copy must be able to read it.
		mode: info.Mode().Perm() | 0o400,
	}
}

func (p *pvc) open(_ context.Context, entry entry, offset int64) (*content, error) {
	file, err := p.root.Open(path.Join(p.base, entry.path))
	if err != nil {
		return nil, p.unreadable(entry.path, err)
	}
	info, err := file.Stat()
	if err == nil && (info.Size() != entry.size || info.ModTime().UnixNano() != entry.modified) {
		err = &Failure{What: fmt.Sprintf("%q on PVC %s changed while it was copied", entry.path, p.container), Advice: "restart the job when nothing writes to it"}
	}
	if err == nil {
		_, err = file.Seek(offset, io.SeekStart)
	}
	if err != nil {
		file.Close()
		return nil, p.unreadable(entry.path, err)
	}
	return &content{ReadCloser: file, offset: offset}, nil
}

func (p *pvc) interrupted(_ context.Context, entry entry, err error) error {
	return p.unreadable(entry.path, err)
}

func (p *pvc) unreadable(name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return &Failure{What: fmt.Sprintf("%q on PVC %s no longer exists", name, p.container), Advice: "restart the job when nothing writes to it", cause: err}
	}
	return explainDiskError(err, strings.TrimSpace(fmt.Sprintf("read %q on PVC %s", name, p.container)))
}
