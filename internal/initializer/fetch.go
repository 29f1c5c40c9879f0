// SPDX-License-Identifier: Apache-2.0

// Package initializer downloads a dataset or a model to a volume before the pods of a job
// are created: from S3, from the Hugging Face hub or from another PVC. It can be stopped
// at any time, and continues at the next start.
package initializer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"syscall"
	"time"
)

// task says what to download, and where to.
type task struct {
	kind      Kind
	uri       string
	directory string
	// from is the mount path of the PVC of a pvc:// URI.
	from string
	// parallel is the number of files to download at the same time.
	parallel    int
	environment Environment
	output      io.Writer
	timing      timing
}

// fetch is a task in progress.
type fetch struct {
	task
	origin      origin
	destination *destination
	progress    *progress
}

// fetchTask returns nil once the destination is complete.
func fetchTask(ctx context.Context, task task) error {
	at, err := parseURI(task.uri, task.kind)
	if err != nil {
		return usage("%v", err)
	}
	fetch := &fetch{task: task}
	fetch.progress = &progress{output: task.output, redact: newRedactor(task.environment), every: task.timing.report}
	switch at.scheme {
	case schemeS3:
		fetch.origin, err = newBucket(at, task.environment, task.timing.stall)
	case schemeHub:
		fetch.origin, err = newHub(at, task.environment, task.timing.stall)
	default:
		return fetch.copyPVC(ctx, at)
	}
	if err != nil {
		return err
	}
	return fetch.fetchInto(ctx, at, nil)
}

// copyPVC copies from a PVC, unless the source is the destination.
func (f *fetch) copyPVC(ctx context.Context, at location) error {
	source, err := newPVC(at, f.from, f.progress.logf)
	if err != nil {
		return err
	}
	defer source.root.Close()
	if source.isDestination(f.directory) {
		f.progress.logf("%s is already in the destination: the job uses the same PVC; nothing is copied", f.uri)
		return nil
	}
	f.origin = source
	return f.fetchInto(ctx, at, source)
}

// fetchInto downloads to the destination.
func (f *fetch) fetchInto(ctx context.Context, at location, source *pvc) (err error) {
	if f.destination, err = openDestination(ctx, f.directory, f.progress.logf); err != nil {
		return err
	}
	defer f.destination.close()
	if source != nil {
		info, err := f.destination.info()
		if err == nil {
			err = source.checkOverlap(info)
		}
		if err != nil {
			return explainDiskError(err, "read "+f.directory)
		}
	}
	if err := f.destination.prepareFor(at.String()); err != nil {
		return err
	}
	entries, err := f.list(ctx)
	if err != nil {
		return err
	}
	return f.explainFullVolume(f.fill(ctx, at, entries), entries)
}

func (f *fetch) list(ctx context.Context) (entries []entry, err error) {
	err = retry(ctx, f.timing, f.timing.maxFirstResponse, f.progress.logSometimes, f.origin.listed, func() error {
		entries, err = f.origin.list(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := checkConflicts(entries); err != nil {
		return nil, &Failure{What: err.Error(), Advice: "rename one of them at the source"}
	}
	return entries, nil
}

func (f *fetch) fill(ctx context.Context, at location, entries []entry) error {
	started := time.Now()
	missing, obsolete := f.compare(entries)
	complete := marker{URI: at.String(), Revision: f.origin.revision()}
	var missingBytes int64
	for _, entry := range entries {
		if entry.kind == fileEntry {
			complete.Files++
			complete.Bytes += entry.size
		}
	}
	for _, entry := range missing {
		missingBytes += entry.size - f.destination.partSize(*entry)
	}
	f.progress.expect(complete.Files, complete.Files-len(missing), complete.Bytes, complete.Bytes-missingBytes)
	f.progress.logf("%s: %d files, %s; %d files and %s left to fetch", f.uri, complete.Files, size(complete.Bytes), len(missing), size(missingBytes))
	if err := f.prepare(entries, missing, missingBytes, obsolete, complete); err != nil {
		return err
	}
	if err := f.downloadAll(ctx, missing); err != nil {
		return err
	}
	for _, line := range obsolete {
		if err := f.destination.forget(line); err != nil {
			return err
		}
	}
	if err := f.destination.finish(entries); err != nil {
		return err
	}
	if err := f.destination.mark(complete); err != nil {
		return err
	}
	took := time.Since(started)
	f.progress.logf("%s is complete in %s: %d files, %s; fetched %s in %s, %s/s", f.uri, f.directory, complete.Files, size(complete.Bytes),
		size(f.progress.received), took.Round(time.Second/10), size(int64(float64(f.progress.received)/max(took.Seconds(), 0.001))))
	return nil
}

// compare returns the missing files, the largest first, and the downloaded files that the
// source no longer has.
func (f *fetch) compare(entries []entry) (missing []*entry, obsolete []journalLine) {
	lines := f.destination.journal.lines
	for i := range entries {
		entry := &entries[i]
		if line := lines[entry.path]; line != nil {
			line.wanted = true
		}
		if entry.kind == fileEntry && !f.destination.has(*entry) {
			missing = append(missing, entry)
		}
	}
	for _, line := range lines {
		if !line.wanted {
			obsolete = append(obsolete, *line)
		}
	}
	slices.SortStableFunc(missing, func(a, b *entry) int { return cmp.Compare(b.size, a.size) })
	return missing, obsolete
}

// prepare checks the free space and creates directories. From here on the marker is not
// valid.
func (f *fetch) prepare(entries []entry, missing []*entry, bytes int64, obsolete []journalLine, wanted marker) error {
	if found, complete := f.destination.marker(); complete && (len(missing) > 0 || len(obsolete) > 0 || found != wanted) {
		if err := f.destination.unmark(); err != nil {
			return err
		}
	}
	if err := f.destination.removeParts(missing); err != nil {
		return err
	}
	if free, total, known := f.destination.space(); known && bytes > free {
		return &Failure{
			What:   fmt.Sprintf("it needs %s of free space, but the volume of %s has only %s free of %s", size(bytes), f.directory, size(free), size(total)),
			Advice: "use a larger PVC: set storage.size, or another claimName",
		}
	}
	return f.destination.createDirectories(entries)
}

// downloadAll downloads files in parallel, and stops at the first failure.
func (f *fetch) downloadAll(ctx context.Context, missing []*entry) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := f.progress.report()
	defer stop()
	queue := make(chan *entry)
	var group sync.WaitGroup
	for range max(1, min(f.parallel, len(missing))) {
		group.Go(func() {
			buffer := make([]byte, bufferSize)
			for entry := range queue {
				if err := f.fetchFile(ctx, *entry, buffer); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	for _, entry := range missing {
		select {
		case queue <- entry:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
	}
	close(queue)
	group.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

func (f *fetch) fetchFile(ctx context.Context, entry entry, buffer []byte) error {
	if adopted, err := f.adopt(ctx, entry, buffer); adopted || err != nil {
		return err
	}
	return f.download(ctx, entry, buffer)
}

// explainFullVolume adds the sizes of the volume and the data to a failure.
func (f *fetch) explainFullVolume(err error, entries []entry) error {
	full := errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
	_, total, known := f.destination.space()
	if failure, explained := asFailure(err); full && explained && known {
		var bytes int64
		for _, entry := range entries {
			bytes += entry.size
		}
		failure.Advice = fmt.Sprintf("the volume has %s in total, but %s alone needs %s: use a larger PVC (set storage.size, or another claimName)", size(total), f.uri, size(bytes))
	}
	return err
}
