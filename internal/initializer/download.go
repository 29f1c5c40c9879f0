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
func (fetch *fetch) download(ctx context.Context, entry entry, buffer []byte) error {
	doing := fmt.Sprintf("write %q", entry.path)
	file, err := fetch.destination.root.OpenFile(partOf(entry), os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return onDisk(err, doing)
	}
	defer file.Close()
	// The last byte is always asked for: its answer brings the checksum along.
	download := &download{fetch: fetch, entry: entry, file: file, buffer: buffer, offset: max(min(fetch.destination.partSize(entry), entry.size-1), 0)}
	if err := file.Truncate(download.offset); err != nil {
		return onDisk(err, doing)
	}
	position := func() int64 { return download.offset }
	return persist(ctx, fetch.timing, fetch.timing.patience, fetch.progress.notice, position, func() error {
		err := download.try(ctx)
		if failure, explained := asFailure(err); explained && failure.damaged {
			if err := download.restart(ctx, 0, checksum{}); err != nil {
				return err
			}
		}
		return err
	})
}

func (download *download) try(ctx context.Context) error {
	if download.entry.size > 0 {
		content, err := download.origin.open(ctx, download.entry, download.offset)
		if err != nil {
			return err
		}
		defer content.Close()
		if content.offset != download.offset || download.sum == nil || content.checksum != download.checksum {
			if err := download.restart(ctx, content.offset, content.checksum); err != nil {
				return err
			}
		}
		if err := download.receive(ctx, content); err != nil {
			return err
		}
	}
	if !download.checksum.fits(download.sum) {
		return download.damaged(fmt.Sprintf("arrived with another %s than %s", download.checksum.algorithm, download.checksum.sum))
	}
	return download.commit()
}

// restart goes back to an offset, and sums up what stands before it.
func (download *download) restart(ctx context.Context, offset int64, checksum checksum) error {
	doing := fmt.Sprintf("write %q", download.entry.path)
	if offset != download.offset {
		download.progress.move(offset - download.offset)
		download.offset = offset
	}
	if err := download.file.Truncate(offset); err != nil {
		return onDisk(err, doing)
	}
	if _, err := download.file.Seek(0, io.SeekStart); err != nil {
		return onDisk(err, doing)
	}
	download.checksum, download.sum = checksum, checksum.newHash(download.entry.size)
	if download.sum == nil {
		_, err := download.file.Seek(offset, io.SeekStart)
		return onDisk(err, doing)
	}
	_, err := io.CopyBuffer(download.sum, endable{ctx, download.file}, download.buffer)
	return onDisk(err, doing)
}

// endable ends reading a large file when there is no more use in it. It also
// keeps io.Copy to the buffer that it is given.
type endable struct {
	ctx    context.Context
	reader io.Reader
}

func (endable endable) Read(buffer []byte) (int, error) {
	if endable.ctx.Err() != nil {
		return 0, context.Cause(endable.ctx)
	}
	return endable.reader.Read(buffer)
}

func (download *download) receive(ctx context.Context, content io.Reader) error {
	for {
		count, err := content.Read(download.buffer)
		if download.offset+int64(count) > download.entry.size {
			return download.damaged(fmt.Sprintf("is longer than the %s that were promised", size(download.entry.size)))
		}
		if count > 0 {
			if _, err := download.file.Write(download.buffer[:count]); err != nil {
				return onDisk(err, fmt.Sprintf("write %q", download.entry.path))
			}
			if download.sum != nil {
				download.sum.Write(download.buffer[:count])
			}
			download.offset += int64(count)
			download.progress.move(int64(count))
		}
		switch {
		case err == io.EOF && download.offset < download.entry.size:
			return download.origin.interrupted(ctx, download.entry, io.ErrUnexpectedEOF)
		case err == io.EOF:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return download.origin.interrupted(ctx, download.entry, err)
		}
	}
}

func (download *download) damaged(what string) error {
	return &Failure{
		What:      fmt.Sprintf("the file %q %s", download.entry.path, what),
		Advice:    "it is damaged where it is stored or on the way, or is being written: start the job again, or store it anew",
		temporary: true,
		damaged:   true,
	}
}

// commit gives the file its name. Its time is set and not left to the volume,
// because some round it later, and then it would look changed.
func (download *download) commit() error {
	doing := fmt.Sprintf("write %q", download.entry.path)
	entry, root, part := download.entry, download.destination.root, partOf(download.entry)
	if entry.mode != 0 {
		if err := download.file.Chmod(entry.mode); err != nil {
			return onDisk(err, doing)
		}
	}
	// Some volumes say only now that they are full.
	if err := download.file.Close(); err != nil {
		return onDisk(err, doing)
	}
	modified := time.Now().Truncate(time.Second)
	if entry.modified != 0 {
		modified = time.Unix(0, entry.modified)
	}
	if err := root.Chtimes(part, modified, modified); err != nil {
		return onDisk(err, doing)
	}
	if err := root.Rename(part, entry.path); err != nil {
		return onDisk(err, doing)
	}
	return download.note(entry)
}

// note remembers that a file is there.
func (fetch *fetch) note(entry entry) error {
	info, err := fetch.destination.root.Lstat(entry.path)
	if err == nil {
		err = fetch.destination.journal.add(journalLine{Path: entry.path, Size: entry.size, Version: entry.version, Modified: info.ModTime().UnixNano()})
	}
	if err != nil {
		return onDisk(err, fmt.Sprintf("write %q", entry.path))
	}
	fetch.progress.done()
	return nil
}

// adopt takes a file that is there, though nothing is known of it, if it is the
// right one: the last run may have been cut off before it could note it.
func (fetch *fetch) adopt(ctx context.Context, entry entry, buffer []byte) (bool, error) {
	root := fetch.destination.root
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
		if _, err := io.CopyBuffer(sum, endable{ctx, file}, buffer); err != nil || !entry.checksum.fits(sum) {
			return false, nil
		}
	}
	fetch.progress.found(entry.size - fetch.destination.partSize(entry))
	return true, fetch.note(entry)
}
