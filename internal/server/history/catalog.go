// SPDX-License-Identifier: Apache-2.0

package history

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"path"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/trireme-mpi/trireme/internal/engine/history"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// Names of a record's two blobs. The log is written first: a log without a record does not
// count, and is deleted when the catalog is opened.
const (
	recordSuffix = ".record"
	logSuffix    = ".log"
)

// errNoRecord: there is no such record.
var errNoRecord = errors.New("there is no such record")

// errTooLarge: a record is larger than the store may be.
var errTooLarge = errors.New("the record is larger than the store may be")

// Catalog has the summaries of all records in memory, and the rest in a store. It belongs
// to one process, so what is in memory is what is in the store.
type Catalog struct {
	store     Store
	retention history.Retention
	clock     clock.PassiveClock
	log       *slog.Logger
	metrics   *metrics

	// writing is held while the store changes, mutex while the map does.
	writing sync.Mutex
	mutex   sync.RWMutex
	entries map[history.Key]entry
}

// entry is a record in memory.
type entry struct {
	summary history.Summary
	bytes   int64
}

// openCatalog reads the summaries of all records. Corrupt ones are skipped and stay in the
// store, for whoever can repair them.
func openCatalog(ctx context.Context, store Store, retention history.Retention, clock clock.PassiveClock, metrics *metrics, log *slog.Logger) (*Catalog, error) {
	c := &Catalog{store: store, retention: retention, clock: clock, log: log, metrics: metrics, entries: map[history.Key]entry{}}
	blobs, err := store.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the records in the store: %w", err)
	}
	sizes := map[string]int64{}
	for _, blob := range blobs {
		sizes[blob.Name] = blob.Bytes
	}
	for name, size := range sizes {
		stem, isRecord := strings.CutSuffix(name, recordSuffix)
		if !isRecord {
			continue
		}
		record, err := c.readRecord(ctx, name)
		if errors.Is(err, errCorrupt) {
			continue
		}
		if err != nil {
			return nil, err
		}
		c.entries[record.Key] = entry{summary: record.Summary, bytes: size + sizes[stem+logSuffix]}
	}
	for name := range sizes {
		stem, isLog := strings.CutSuffix(name, logSuffix)
		if _, hasRecord := sizes[stem+recordSuffix]; isLog && !hasRecord {
			c.deleteBlob(ctx, name)
		}
	}
	c.measure()
	return c, nil
}

// readRecord reads a record, and checks that it is the one of its name.
func (c *Catalog) readRecord(ctx context.Context, name string) (*history.Record, error) {
	content, err := c.read(ctx, name)
	if err != nil {
		return nil, err
	}
	var record history.Record
	if err := json.Unmarshal(content, &record); err != nil || record.Path()+recordSuffix != path.Clean(name) {
		c.reportCorrupt(name, err)
		return nil, errCorrupt
	}
	return &record, nil
}

func (c *Catalog) read(ctx context.Context, name string) ([]byte, error) {
	blob, err := c.store.Get(ctx, name)
	if err != nil {
		c.metrics.errors.WithLabelValues(operationRead).Inc()
		return nil, fmt.Errorf("read %s from the store: %w", name, err)
	}
	content, err := unseal(blob)
	if err != nil {
		c.reportCorrupt(name, err)
	}
	return content, err
}

func (c *Catalog) reportCorrupt(name string, err error) {
	c.metrics.corrupt.Inc()
	c.log.Error("a record of the history is corrupt and is not shown; delete it from the store, or restore it", "name", name, "error", err)
}

// Save writes a record and its log, and deletes old records to make room.
func (c *Catalog) Save(ctx context.Context, record *history.Record, log []byte) error {
	if !record.Valid() {
		return fmt.Errorf("%s is not a valid name of a record", record.Path())
	}
	content, err := json.Marshal(record)
	if err != nil {
		return err
	}
	sealedRecord, err := seal(content)
	if err != nil {
		return err
	}
	sealedLog, err := seal(log)
	if err != nil {
		return err
	}
	size := int64(len(sealedRecord) + len(sealedLog))
	if !c.retention.Fits(size) {
		return fmt.Errorf("%w: it has %d bytes", errTooLarge, size)
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	c.retain(ctx, record.Key, size)
	if err := c.put(ctx, record.Path()+logSuffix, sealedLog); err != nil {
		return err
	}
	if err := c.put(ctx, record.Path()+recordSuffix, sealedRecord); err != nil {
		return err
	}
	c.mutex.Lock()
	c.entries[record.Key] = entry{summary: record.Summary, bytes: size}
	c.mutex.Unlock()
	c.metrics.written.Inc()
	c.measure()
	return nil
}

func (c *Catalog) put(ctx context.Context, name string, blob []byte) error {
	if err := c.store.Put(ctx, name, blob); err != nil {
		c.metrics.errors.WithLabelValues(operationWrite).Inc()
		return fmt.Errorf("write %s to the store: %w", name, err)
	}
	return nil
}

// Sweep deletes what is too old.
func (c *Catalog) Sweep(ctx context.Context) {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.retain(ctx, history.Key{}, 0)
}

// retain deletes what must be deleted before some bytes are written for a record. A record
// of the same job is replaced, so it does not count.
func (c *Catalog) retain(ctx context.Context, replaced history.Key, incoming int64) {
	var stored []history.Stored
	c.mutex.RLock()
	for key, one := range c.entries {
		if key != replaced {
			stored = append(stored, history.Stored{Key: key, FinishTime: one.summary.FinishTime, Bytes: one.bytes})
		}
	}
	c.mutex.RUnlock()
	for _, removal := range c.retention.Removals(stored, incoming, c.clock.Now()) {
		if c.remove(ctx, removal.Key) != nil {
			return
		}
		c.metrics.removed.WithLabelValues(string(removal.Cause)).Inc()
	}
}

// Delete deletes a record on request.
func (c *Catalog) Delete(ctx context.Context, key history.Key) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	if !c.Has(key) {
		return errNoRecord
	}
	if err := c.remove(ctx, key); err != nil {
		return err
	}
	c.metrics.removed.WithLabelValues(string(history.CauseRequest)).Inc()
	return nil
}

// remove deletes the record before its log: a log alone is deleted later.
func (c *Catalog) remove(ctx context.Context, key history.Key) error {
	for _, suffix := range []string{recordSuffix, logSuffix} {
		if err := c.deleteBlob(ctx, key.Path()+suffix); err != nil {
			return err
		}
	}
	c.mutex.Lock()
	delete(c.entries, key)
	c.mutex.Unlock()
	c.measure()
	return nil
}

func (c *Catalog) deleteBlob(ctx context.Context, name string) error {
	err := c.store.Delete(ctx, name)
	if err != nil {
		c.metrics.errors.WithLabelValues(operationDelete).Inc()
		c.log.Error("delete a record of the history from the store; it is deleted later", "name", name, "error", err)
	}
	return err
}

// Has reports whether there is a record.
func (c *Catalog) Has(key history.Key) bool {
	c.mutex.RLock()
	defer c.mutex.RUnlock()
	_, exists := c.entries[key]
	return exists
}

// List returns the summaries of a namespace's jobs of a kind, without those that are too
// old and not deleted yet.
func (c *Catalog) List(namespace types.UID, kind job.Kind) (summaries []history.Summary) {
	c.mutex.RLock()
	defer c.mutex.RUnlock()
	now := c.clock.Now()
	for key, one := range c.entries {
		if key.NamespaceUID == namespace && key.Kind == kind && !c.retention.Expired(one.summary.FinishTime, now) {
			summaries = append(summaries, one.summary)
		}
	}
	return summaries
}

// Record reads a record.
func (c *Catalog) Record(ctx context.Context, key history.Key) (*history.Record, error) {
	return c.readRecord(ctx, key.Path()+recordSuffix)
}

// Log reads the log of a record.
func (c *Catalog) Log(ctx context.Context, key history.Key) (iter.Seq2[history.Line, error], error) {
	content, err := c.read(ctx, key.Path()+logSuffix)
	if err != nil {
		return nil, err
	}
	return func(yield func(history.Line, error) bool) {
		decoder := json.NewDecoder(bytes.NewReader(content))
		for decoder.More() {
			var line history.Line
			err := decoder.Decode(&line)
			if !yield(line, err) || err != nil {
				return
			}
		}
	}, nil
}

func (c *Catalog) measure() {
	c.mutex.RLock()
	defer c.mutex.RUnlock()
	total := int64(0)
	for one := range maps.Values(c.entries) {
		total += one.bytes
	}
	c.metrics.records.Set(float64(len(c.entries)))
	c.metrics.bytes.Set(float64(total))
}

// sweepInterval is how often old records are deleted.
const sweepInterval = time.Minute

// sweep deletes old records until the context ends.
func (c *Catalog) sweep(ctx context.Context) {
	ticker := time.NewTicker(sweepInterval)
	defer ticker.Stop()
	for {
		c.Sweep(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
