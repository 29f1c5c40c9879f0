// SPDX-License-Identifier: Apache-2.0

package initializer

import (
	"context"
	"fmt"
	"hash"
	"io"
	"os"
	"time"
)

const bufferSize = 256 << 10

// download is the download of one file.
type download struct {
	*fetch
	entry entry
	file  *os.File
	// offset is the size of the partial file.
	offset int64
	// sum is the hash of the partial file, if there is a checksum to compare with.
	sum      hash.Hash
	checksum checksum
	buffer   []byte
}

// download downloads one file, with as many retries as needed.
func (f *fetch) download(ctx context.Context, entry entry, buffer []byte) error {
	action := fmt.Sprintf("write %q", entry.path)
	file, err := f.destination.root.OpenFile(partOf(entry), os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return explainDiskError(err, action)
	}
	defer file.Close()
	// The last byte is always requested: its response has the checksum.
	download := &download{fetch: f, entry: entry, file: file, buffer: buffer, offset: max(min(f.destination.partSize(entry), entry.size-1), 0)}
	if err := file.Truncate(download.offset); err != nil {
		return explainDiskError(err, action)
	}
	position := func() int64 { return download.offset }
	return retry(ctx, f.timing, f.timing.maxIdle, f.progress.logSometimes, position, func() error {
		err := download.try(ctx)
		if failure, explained := asFailure(err); explained && failure.corrupt {
			if err := download.restart(ctx, 0, checksum{}); err != nil {
				return err
			}
		}
		return err
	})
}

func (d *download) try(ctx context.Context) error {
	if d.entry.size > 0 {
		content, err := d.origin.open(ctx, d.entry, d.offset)
		if err != nil {
			return err
		}
		defer content.Close()
		if content.offset != d.offset || d.sum == nil || content.checksum != d.checksum {
			if err := d.restart(ctx, content.offset, content.checksum); err != nil {
				return err
			}
		}
		if err := d.receive(ctx, content); err != nil {
			return err
		}
	}
	if !d.checksum.matches(d.sum) {
		return d.corruptFile(fmt.Sprintf("has the wrong %s: expected %s", d.checksum.algorithm, d.checksum.sum))
	}
	return d.commit()
}

// restart goes back to an offset, and hashes the content before it.
func (d *download) restart(ctx context.Context, offset int64, checksum checksum) error {
	action := fmt.Sprintf("write %q", d.entry.path)
	if offset != d.offset {
		d.progress.addBytes(offset - d.offset)
		d.offset = offset
	}
	if err := d.file.Truncate(offset); err != nil {
		return explainDiskError(err, action)
	}
	if _, err := d.file.Seek(0, io.SeekStart); err != nil {
		return explainDiskError(err, action)
	}
	d.checksum, d.sum = checksum, checksum.newHash(d.entry.size)
	if d.sum == nil {
		_, err := d.file.Seek(offset, io.SeekStart)
		return explainDiskError(err, action)
	}
	_, err := io.CopyBuffer(d.sum, contextReader{ctx, d.file}, d.buffer)
	return explainDiskError(err, action)
}

// contextReader stops reading a large file when the context ends. It also makes io.Copy
// use the given buffer.
type contextReader struct {
	ctx    context.Context
	reader io.Reader
}

func (c contextReader) Read(buffer []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.reader.Read(buffer)
}

func (d *download) receive(ctx context.Context, content io.Reader) error {
	for {
		count, err := content.Read(d.buffer)
		if d.offset+int64(count) > d.entry.size {
			return d.corruptFile(fmt.Sprintf("is longer than the announced %s", size(d.entry.size)))
		}
		if count > 0 {
			if _, err := d.file.Write(d.buffer[:count]); err != nil {
				return explainDiskError(err, fmt.Sprintf("write %q", d.entry.path))
			}
			if d.sum != nil {
				d.sum.Write(d.buffer[:count])
			}
			d.offset += int64(count)
			d.progress.addBytes(int64(count))
		}
		switch {
		case err == io.EOF && d.offset < d.entry.size:
			return d.origin.interrupted(ctx, d.entry, io.ErrUnexpectedEOF)
		case err == io.EOF:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return d.origin.interrupted(ctx, d.entry, err)
		}
	}
}

func (d *download) corruptFile(what string) error {
	return &Failure{
		What:      fmt.Sprintf("the file %q %s", d.entry.path, what),
		Advice:    "it is corrupt at its source, was corrupted in transit, or is being written: restart the job, or upload the file again",
		temporary: true,
		corrupt:   true,
	}
}

// commit renames the file to its final name. It sets the modification time, because some
// volumes round it later, and the file would look changed.
func (d *download) commit() error {
	action := fmt.Sprintf("write %q", d.entry.path)
	entry, root, part := d.entry, d.destination.root, partOf(d.entry)
	if entry.mode != 0 {
		if err := d.file.Chmod(entry.mode); err != nil {
			return explainDiskError(err, action)
		}
	}
	// Some volumes only report now that they are full.
	if err := d.file.Close(); err != nil {
		return explainDiskError(err, action)
	}
	modified := time.Now().Truncate(time.Second)
	if entry.modified != 0 {
		modified = time.Unix(0, entry.modified)
	}
	if err := root.Chtimes(part, modified, modified); err != nil {
		return explainDiskError(err, action)
	}
	if err := root.Rename(part, entry.path); err != nil {
		return explainDiskError(err, action)
	}
	return d.recordFile(entry)
}

// recordFile adds a complete file to the journal.
func (f *fetch) recordFile(entry entry) error {
	info, err := f.destination.root.Lstat(entry.path)
	if err == nil {
		err = f.destination.journal.add(journalLine{Path: entry.path, Size: entry.size, Version: entry.version, Modified: info.ModTime().UnixNano()})
	}
	if err != nil {
		return explainDiskError(err, fmt.Sprintf("write %q", entry.path))
	}
	f.progress.addFile()
	return nil
}

// adopt uses an existing file that is not in the journal, if its content is right: the
// last run may have stopped before it could record it.
func (f *fetch) adopt(ctx context.Context, entry entry, buffer []byte) (bool, error) {
	root := f.destination.root
	info, err := root.Lstat(entry.path)
	if err != nil || !info.Mode().IsRegular() || info.Size() != entry.size {
		return false, nil
	}
	if entry.checksum.algorithm == noChecksum {
		if entry.modified == 0 || entry.modified != info.ModTime().UnixNano() {
			return false, nil
		}
	} else {
		file, err := root.Open(entry.path)
		if err != nil {
			return false, nil
		}
		defer file.Close()
		sum := entry.checksum.newHash(entry.size)
		if _, err := io.CopyBuffer(sum, contextReader{ctx, file}, buffer); err != nil || !entry.checksum.matches(sum) {
			return false, nil
		}
	}
	f.progress.addPresent(entry.size - f.destination.partSize(entry))
	return true, f.recordFile(entry)
}
