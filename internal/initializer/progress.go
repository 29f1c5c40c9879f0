package initializer

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// progress counts what is there and says so now and then.
type progress struct {
	mutex  sync.Mutex
	output io.Writer
	redact redactor
	every  time.Duration
	// noticed is when a notice was last let through.
	noticed time.Time

	files, allFiles int
	bytes, allBytes int64
	// received is what came in by this run, and reported how much of it the last
	// line knew of.
	received, reported int64
	reportedAt         time.Time
}

// say writes a line.
func (progress *progress) say(format string, arguments ...any) {
	progress.mutex.Lock()
	defer progress.mutex.Unlock()
	progress.write(format, arguments...)
}

func (progress *progress) write(format string, arguments ...any) {
	fmt.Fprintf(progress.output, "trireme: %s\n", sentence(progress.redact.text(fmt.Sprintf(format, arguments...))))
}

// notice writes a line, unless it did so only just now.
func (progress *progress) notice(format string, arguments ...any) {
	progress.mutex.Lock()
	defer progress.mutex.Unlock()
	if time.Since(progress.noticed) < progress.every {
		return
	}
	progress.noticed = time.Now()
	progress.write(format, arguments...)
}

// expect says how much there is in all, and how much of it is there already.
func (progress *progress) expect(files, present int, bytes, presentBytes int64) {
	progress.mutex.Lock()
	defer progress.mutex.Unlock()
	progress.allFiles, progress.files, progress.allBytes, progress.bytes = files, present, bytes, presentBytes
	progress.reportedAt = time.Now()
}

// move counts bytes that arrived or, below zero, that were thrown away.
func (progress *progress) move(bytes int64) {
	progress.mutex.Lock()
	defer progress.mutex.Unlock()
	progress.bytes += bytes
	progress.received += max(bytes, 0)
}

// found counts bytes that were there and did not have to arrive.
func (progress *progress) found(bytes int64) {
	progress.mutex.Lock()
	defer progress.mutex.Unlock()
	progress.bytes += bytes
}

// done counts a file.
func (progress *progress) done() {
	progress.mutex.Lock()
	defer progress.mutex.Unlock()
	progress.files++
}

// report says now and then how far it is, until it is stopped.
func (progress *progress) report() (stop func()) {
	done := make(chan struct{})
	ticker := time.NewTicker(progress.every)
	var group sync.WaitGroup
	group.Go(func() {
		for {
			select {
			case <-done:
				return
			case now := <-ticker.C:
				progress.line(now)
			}
		}
	})
	return func() {
		ticker.Stop()
		close(done)
		group.Wait()
	}
}

func (progress *progress) line(now time.Time) {
	progress.mutex.Lock()
	defer progress.mutex.Unlock()
	rate := float64(progress.received-progress.reported) / max(now.Sub(progress.reportedAt).Seconds(), 0.001)
	progress.write("%d of %d files, %s of %s, %s/s", progress.files, progress.allFiles, size(progress.bytes), size(progress.allBytes), size(int64(rate)))
	progress.reported, progress.reportedAt = progress.received, now
}

// size in the unit that leaves few digits.
func size(bytes int64) string {
	const step = 1024
	if bytes < step {
		return fmt.Sprintf("%d B", bytes)
	}
	value, unit := float64(bytes)/step, 0
	for value >= step && unit < 5 {
		value /= step
		unit++
	}
	return fmt.Sprintf("%.1f %ciB", value, "KMGTPE"[unit])
}
