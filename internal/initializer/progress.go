// SPDX-License-Identifier: Apache-2.0

package initializer

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// progress counts files and bytes, and logs them regularly.
type progress struct {
	mutex  sync.Mutex
	output io.Writer
	redact redactor
	every  time.Duration
	// lastNotice is the time of the last notice.
	lastNotice time.Time

	files, allFiles int
	bytes, allBytes int64
	// received is the number of bytes downloaded by this run, reported the value in the
	// last log line.
	received, reported int64
	reportedAt         time.Time
}

// logf writes a line.
func (p *progress) logf(format string, arguments ...any) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.write(format, arguments...)
}

func (p *progress) write(format string, arguments ...any) {
	fmt.Fprintf(p.output, "trireme: %s\n", oneLine(p.redact.text(fmt.Sprintf(format, arguments...))))
}

// logSometimes writes a line, unless it has just written one.
func (p *progress) logSometimes(format string, arguments ...any) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if time.Since(p.lastNotice) < p.every {
		return
	}
	p.lastNotice = time.Now()
	p.write(format, arguments...)
}

// expect sets the total, and what is already present.
func (p *progress) expect(files, present int, bytes, presentBytes int64) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.allFiles, p.files, p.allBytes, p.bytes = files, present, bytes, presentBytes
	p.reportedAt = time.Now()
}

// addBytes counts received bytes or, if negative, discarded ones.
func (p *progress) addBytes(bytes int64) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.bytes += bytes
	p.received += max(bytes, 0)
}

// addPresent counts bytes that were already present.
func (p *progress) addPresent(bytes int64) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.bytes += bytes
}

// addFile counts a complete file.
func (p *progress) addFile() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.files++
}

// report logs the progress regularly, until it is stopped.
func (p *progress) report() (stop func()) {
	done := make(chan struct{})
	ticker := time.NewTicker(p.every)
	var group sync.WaitGroup
	group.Go(func() {
		for {
			select {
			case <-done:
				return
			case now := <-ticker.C:
				p.line(now)
			}
		}
	})
	return func() {
		ticker.Stop()
		close(done)
		group.Wait()
	}
}

func (p *progress) line(now time.Time) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	rate := float64(p.received-p.reported) / max(now.Sub(p.reportedAt).Seconds(), 0.001)
	p.write("%d of %d files, %s of %s, %s/s", p.files, p.allFiles, size(p.bytes), size(p.allBytes), size(int64(rate)))
	p.reported, p.reportedAt = p.received, now
}

// size formats a number of bytes.
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
