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

// download is one file on its way.
type download struct {
	*fetch
	entry entry
	file  *os.File
	// offset is how much of it is in the part.
	offset int64
	// sum of what is in the part, as far as there is something to compare it with.
	sum      hash.Hash
	checksum checksum
	buffer   []byte
}

// download fetches one file to its end, over as many tries as it takes.
func (f *fetch) download(ctx context.Context, entry entry, buffer []byte) error {
	action := fmt.Sprintf("write %q", entry.path)
	file, err := f.destination.root.OpenFile(partOf(entry), os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return explainDiskError(err, action)
	}
	defer file.Close()
	// The last byte is always asked for: its answer brings the checksum along.
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

// restart goes back to an offset, and sums up what stands before it.
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

// endable ends reading a large file when there is no more use in it. It also
// keeps io.Copy to the buffer that it is given.
type contextReader struct {
	ctx    context.Context
	reader io.Reader
}

func (e contextReader) Read(buffer []byte) (int, error) {
	if e.ctx.Err() != nil {
		return 0, context.Cause(e.ctx)
	}
	return e.reader.Read(buffer)
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

// commit gives the file its name. Its time is set and not left to the volume,
// because some round it later, and then it would look changed.
func (d *download) commit() error {
	action := fmt.Sprintf("write %q", d.entry.path)
	entry, root, part := d.entry, d.destination.root, partOf(d.entry)
	if entry.mode != 0 {
		if err := d.file.Chmod(entry.mode); err != nil {
			return explainDiskError(err, action)
		}
	}
	// Some volumes say only now that they are full.
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

// note remembers that a file is there.
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

// adopt takes a file that is there, though nothing is known of it, if it is the
// right one: the last run may have been cut off before it could note it.
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
