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

// claim is an origin of the files of a PersistentVolumeClaim, which is mounted.
type pvc struct {
	location
	// root is the whole claim. Every name is looked up below it, links included:
	// nothing outside of the claim can be read through it.
	root *os.Root
	// base is the directory of the claim that paths of entries are relative to.
	base string
	// single is the only file that is fetched, if the source is a file.
	single string
	// destination is left out of what is copied, and must not hold the source.
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

// isIn says whether the source is the destination itself, seen through another
// mount of the same volume, or a file that is in it already.
func (c *pvc) isDestination(destination string) bool {
	base, err := c.root.Stat(c.base)
	if err != nil {
		return false
	}
	info, err := os.Stat(destination)
	return err == nil && os.SameFile(base, info)
}

// apartFrom refuses a destination above the source. One below it is found while
// the source is listed.
func (c *pvc) checkOverlap(destination fs.FileInfo) error {
	c.destination = destination
	for directory := c.base; ; directory = path.Dir(directory) {
		if info, err := c.root.Stat(directory); err == nil && os.SameFile(info, destination) {
			return c.overlapError()
		}
		if directory == "." {
			return nil
		}
	}
}

func (c *pvc) overlapError() error {
	return &Failure{
		What:   fmt.Sprintf("%s and its destination overlap on the same PVC", c.location),
		Advice: "use another PVC in storage, or another path in storageUri",
	}
}

func (c *pvc) revision() string { return "" }

func (c *pvc) listed() int64 { return 0 }

func (c *pvc) list(ctx context.Context) ([]entry, error) {
	if c.single != "" {
		info, err := c.root.Stat(path.Join(c.base, c.single))
		if err != nil {
			return nil, c.unreadable(c.single, err)
		}
		return []entry{copiedFile(c.single, info)}, nil
	}
	tree, err := c.root.OpenRoot(c.base)
	if err != nil {
		return nil, c.unreadable(".", err)
	}
	defer tree.Close()
	var entries []entry
	err = fs.WalkDir(tree.FS(), ".", func(name string, found fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		// What file systems keep for themselves is root's, and nobody's data.
		if name == "lost+found" {
			return fs.SkipDir
		}
		if err != nil {
			return c.unreadable(name, err)
		}
		if name == "." || isOwn(name) {
			return nil
		}
		e, err := c.entry(tree, name, found)
		if err == nil && e != nil {
			entries = append(entries, *e)
		}
		return err
	})
	if err == nil && len(entries) == 0 {
		err = &Failure{What: fmt.Sprintf("%q on PVC %s is empty", c.path, c.container), Advice: "check the path in storageUri"}
	}
	return entries, err
}

func (c *pvc) entry(tree *os.Root, name string, found fs.DirEntry) (*entry, error) {
	info, err := found.Info()
	if err != nil {
		return nil, c.unreadable(name, err)
	}
	switch {
	case info.IsDir():
		if c.destination != nil && os.SameFile(info, c.destination) {
			return nil, c.overlapError()
		}
		// Whoever owns a directory must be able to fill it.
		return &entry{kind: directoryEntry, path: name, mode: info.Mode().Perm() | 0o700}, nil
	case info.Mode().IsRegular():
		file := copiedFile(name, info)
		return &file, nil
	case info.Mode().Type() == fs.ModeSymlink:
		return c.link(tree, name)
	}
	c.logf("skipping %q on PVC %s: it is not a file, directory or symbolic link", name, c.container)
	return nil, nil
}

// link copies a link that stays inside of what is copied as a link. One that
// leads elsewhere on the claim becomes what it leads to, if that is a file: the
// cache of the Hugging Face libraries looks like that.
func (c *pvc) link(tree *os.Root, name string) (*entry, error) {
	if _, err := tree.Stat(name); err == nil {
		target, err := tree.Readlink(name)
		if err != nil {
			return nil, c.unreadable(name, err)
		}
		return &entry{kind: linkEntry, path: name, version: target}, nil
	}
	if info, err := c.root.Stat(path.Join(c.base, name)); err == nil && info.Mode().IsRegular() {
		file := copiedFile(name, info)
		return &file, nil
	}
	return nil, &Failure{
		What:   fmt.Sprintf("the symbolic link %q on PVC %s is broken, or points outside the copied directory", name, c.container),
		Advice: "replace it with the file it should point to, or with a relative link",
	}
}

func copiedFile(name string, info fs.FileInfo) entry {
	return entry{
		path: name, size: info.Size(), version: strconv.FormatInt(info.ModTime().UnixNano(), 10), modified: info.ModTime().UnixNano(),
		// Whoever owns a copy must be able to read it.
		mode: info.Mode().Perm() | 0o400,
	}
}

func (c *pvc) open(_ context.Context, entry entry, offset int64) (*content, error) {
	file, err := c.root.Open(path.Join(c.base, entry.path))
	if err != nil {
		return nil, c.unreadable(entry.path, err)
	}
	info, err := file.Stat()
	if err == nil && (info.Size() != entry.size || info.ModTime().UnixNano() != entry.modified) {
		err = &Failure{What: fmt.Sprintf("%q on PVC %s changed while it was copied", entry.path, c.container), Advice: "restart the job when nothing writes to it"}
	}
	if err == nil {
		_, err = file.Seek(offset, io.SeekStart)
	}
	if err != nil {
		file.Close()
		return nil, c.unreadable(entry.path, err)
	}
	return &content{ReadCloser: file, offset: offset}, nil
}

func (c *pvc) interrupted(_ context.Context, entry entry, err error) error {
	return c.unreadable(entry.path, err)
}

func (c *pvc) unreadable(name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return &Failure{What: fmt.Sprintf("%q on PVC %s no longer exists", name, c.container), Advice: "restart the job when nothing writes to it", cause: err}
	}
	return explainDiskError(err, strings.TrimSpace(fmt.Sprintf("read %q on PVC %s", name, c.container)))
}
