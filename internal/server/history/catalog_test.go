// SPDX-License-Identifier: Apache-2.0

package history

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/trireme-mpi/trireme/internal/engine/history"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

var now = time.Date(2026, 11, 19, 12, 0, 0, 0, time.UTC)

// opened is a catalog on a directory, with a clock.
type opened struct {
	*Catalog
	path  string
	clock *testingclock.FakePassiveClock
}

func open(t *testing.T, path string, retention history.Retention) *opened {
	t.Helper()
	store, err := OpenDirectory(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	o := &opened{path: path, clock: testingclock.NewFakePassiveClock(now)}
	if o.Catalog, err = openCatalog(t.Context(), store, retention, o.clock, newMetrics(), slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	return o
}

func recordOf(namespace, uid types.UID, age time.Duration) *history.Record {
	return &history.Record{
		Summary: history.Summary{
			Key: history.Key{NamespaceUID: namespace, Kind: job.KindTrainJob, UID: uid}, Namespace: "team", Name: "job-" + string(uid), State: "Succeeded",
			CreationTime: now.Add(-age - time.Hour), FinishTime: now.Add(-age),
		},
		Job: json.RawMessage(`{"kind":"TrainJob"}`), Events: []history.RecordedEvent{},
	}
}

func (o *opened) save(t *testing.T, record *history.Record, log string) {
	t.Helper()
	if err := o.Save(t.Context(), record, []byte(log)); err != nil {
		t.Fatal(err)
	}
}

func (o *opened) uids(namespace types.UID) (uids []string) {
	for _, summary := range o.List(namespace, job.KindTrainJob) {
		uids = append(uids, string(summary.UID))
	}
	slices.Sort(uids)
	return uids
}

func (o *opened) files(t *testing.T) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(o.path, func(path string, entry os.DirEntry, err error) error {
		if err == nil && path != o.path {
			relative, _ := filepath.Rel(o.path, path)
			files = append(files, relative)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// valueOf returns the value of a counter or a gauge.
func valueOf(t *testing.T, metric prometheus.Collector) float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(metric)
	families, err := registry.Gather()
	if err != nil || len(families) != 1 {
		t.Fatalf("%v, %v", families, err)
	}
	one := families[0].GetMetric()[0]
	return one.GetCounter().GetValue() + one.GetGauge().GetValue()
}

func lineJSON(text string) string {
	return fmt.Sprintf(`{"time":"2026-11-19T12:00:00Z","pod":"p","text":%q}`+"\n", text)
}

func texts(t *testing.T, c *Catalog, key history.Key) (texts []string) {
	t.Helper()
	lines, err := c.Log(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	for line, err := range lines {
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, line.Text)
	}
	return texts
}

// What was saved is there after a restart, and only in its own namespace.
func TestRecordsSurviveRestarts(t *testing.T) {
	path := t.TempDir()
	first := open(t, path, history.Retention{})
	saved := recordOf("aa", "1", time.Hour)
	first.save(t, saved, lineJSON("one")+lineJSON("two"))
	first.save(t, recordOf("bb", "2", time.Hour), "")
	for name, o := range map[string]*opened{"before": first, "after": open(t, path, history.Retention{})} {
		if diff := cmp.Diff([]string{"1"}, o.uids("aa")); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		record, err := o.Record(t.Context(), saved.Key)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(saved, record); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if diff := cmp.Diff([]string{"one", "two"}, texts(t, o.Catalog, saved.Key)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if count := valueOf(t, o.metrics.records); count != 2 {
			t.Errorf("%s: %v records are counted, want 2", name, count)
		}
	}
}

// Old records leave the store, too.
func TestRetention(t *testing.T) {
	o := open(t, t.TempDir(), history.Retention{MaxAge: 2 * time.Hour})
	o.save(t, recordOf("aa", "1", time.Hour), "")
	o.save(t, recordOf("aa", "2", 0), "")
	o.clock.SetTime(now.Add(90 * time.Minute))
	if diff := cmp.Diff([]string{"2"}, o.uids("aa")); diff != "" {
		t.Errorf("before the sweep: %s", diff)
	}
	o.Sweep(t.Context())
	if diff := cmp.Diff([]string{"aa", "aa/trainjobs", "aa/trainjobs/2.log", "aa/trainjobs/2.record"}, o.files(t)); diff != "" {
		t.Error(diff)
	}
	if removed := valueOf(t, o.metrics.removed.WithLabelValues("age")); removed != 1 {
		t.Errorf("%v removals are counted", removed)
	}
	if err := o.Delete(t.Context(), recordOf("aa", "2", 0).Key); err != nil {
		t.Fatal(err)
	}
	if files := o.files(t); len(files) > 0 {
		t.Errorf("after the deletion: %v", files)
	}
	if err := o.Delete(t.Context(), recordOf("aa", "2", 0).Key); !errors.Is(err, errNoRecord) {
		t.Error(err)
	}
}

// The store never has more than its limit: the oldest records make room.
func TestSizeLimit(t *testing.T) {
	const limit = 4000
	o := open(t, t.TempDir(), history.Retention{MaxBytes: limit})
	for i := range 20 {
		o.save(t, recordOf("aa", types.UID(fmt.Sprintf("%02d", i)), time.Duration(20-i)*time.Minute), lineJSON("text"))
		if bytes := valueOf(t, o.metrics.bytes); bytes > limit {
			t.Fatalf("after %d records, the store has %v bytes", i+1, bytes)
		}
	}
	left := o.uids("aa")
	if len(left) == 0 || len(left) == 20 || left[len(left)-1] != "19" {
		t.Errorf("records %v are left", left)
	}
	large := recordOf("aa", "ff", 0)
	large.Job = json.RawMessage(fmt.Sprintf("%q", incompressible(limit)))
	if err := o.Save(t.Context(), large, nil); !errors.Is(err, errTooLarge) {
		t.Errorf("a record that is too large: %v", err)
	}
	if diff := cmp.Diff(left, o.uids("aa")); diff != "" {
		t.Errorf("a record that is too large has removed others: %s", diff)
	}
}

// incompressible is a text of hashes.
func incompressible(length int) string {
	var text strings.Builder
	for i := 0; text.Len() < 2*length; i++ {
		sealed, _ := seal(fmt.Append(nil, i))
		text.Write(sealed[:64])
	}
	return text.String()
}

// A corrupt record is not shown, does not hide others, and stays for a repair.
func TestCorruption(t *testing.T) {
	truncate := func(content []byte) []byte { return content[:len(content)-1] }
	for name, tc := range map[string]struct {
		file    string
		change  func([]byte) []byte
		wantGot []string
	}{
		"a record is cut off":        {"aa/trainjobs/1.record", truncate, []string{"2"}},
		"a record is empty":          {"aa/trainjobs/1.record", func([]byte) []byte { return nil }, []string{"2"}},
		"a bit of a record":          {"aa/trainjobs/1.record", func(c []byte) []byte { c[len(c)/2] ^= 1; return c }, []string{"2"}},
		"a record of another job":    {"aa/trainjobs/1.record", func([]byte) []byte { return sealedRecord("aa", "3") }, []string{"2"}},
		"another namespace's record": {"aa/trainjobs/1.record", func([]byte) []byte { return sealedRecord("bb", "1") }, []string{"2"}},
		"a log is cut off":           {"aa/trainjobs/1.log", truncate, []string{"1", "2"}},
	} {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir()
			before := open(t, path, history.Retention{})
			for _, uid := range []types.UID{"1", "2"} {
				before.save(t, recordOf("aa", uid, time.Hour), lineJSON("text"))
			}
			file := filepath.Join(path, tc.file)
			content, err := os.ReadFile(file)
			if err == nil {
				err = os.WriteFile(file, tc.change(content), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			files := before.files(t)
			o := open(t, path, history.Retention{})
			if diff := cmp.Diff(tc.wantGot, o.uids("aa")); diff != "" {
				t.Error(diff)
			}
			_, recordErr := before.Record(t.Context(), recordOf("aa", "1", 0).Key)
			_, logErr := before.Log(t.Context(), recordOf("aa", "1", 0).Key)
			if !errors.Is(errors.Join(recordErr, logErr), errCorrupt) || valueOf(t, before.metrics.corrupt) != 1 {
				t.Errorf("a read returns %v and %v, and %v are counted", recordErr, logErr, valueOf(t, before.metrics.corrupt))
			}
			if diff := cmp.Diff(files, o.files(t)); diff != "" {
				t.Errorf("files have changed: %s", diff)
			}
		})
	}
}

func sealedRecord(namespace, uid types.UID) []byte {
	content, _ := json.Marshal(recordOf(namespace, uid, time.Hour))
	sealed, _ := seal(content)
	return sealed
}

// What an interrupted write leaves is removed at the start.
func TestInterruptedWrites(t *testing.T) {
	path := t.TempDir()
	open(t, path, history.Retention{}).save(t, recordOf("aa", "1", time.Hour), "")
	for _, name := range []string{"aa/trainjobs/" + unfinished + "2.record", "aa/trainjobs/2.log"} {
		if err := os.WriteFile(filepath.Join(path, name), []byte("part"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o := open(t, path, history.Retention{})
	if diff := cmp.Diff([]string{"aa", "aa/trainjobs", "aa/trainjobs/1.log", "aa/trainjobs/1.record"}, o.files(t)); diff != "" {
		t.Error(diff)
	}
}

// broken is a store that fails, as if it were full.
type broken struct{ Store }

func (broken) Put(context.Context, string, []byte) error {
	return errors.New("no space left on device")
}

func TestFullStoreIsCounted(t *testing.T) {
	o := open(t, t.TempDir(), history.Retention{})
	o.store = broken{o.store}
	if err := o.Save(t.Context(), recordOf("aa", "1", 0), nil); err == nil || o.Has(recordOf("aa", "1", 0).Key) {
		t.Errorf("the record counts as saved: %v", err)
	}
	if count := valueOf(t, o.metrics.errors.WithLabelValues(operationWrite)); count != 1 {
		t.Errorf("%v errors are counted", count)
	}
}

// A name from outside never leaves the directory.
func TestDirectoryIsNotLeft(t *testing.T) {
	path := t.TempDir()
	store, err := OpenDirectory(filepath.Join(path))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if err := store.Put(t.Context(), "../escaped", []byte("x")); err == nil {
		t.Error("a file was written outside of the directory")
	}
	if o := open(t, t.TempDir(), history.Retention{}); o.Save(t.Context(), recordOf("../a", "1", 0), nil) == nil {
		t.Error("a record was saved with a path as its name")
	}
}

func TestSpoolKeepsTheNewestLines(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for name, tc := range map[string]struct {
		lines, limit int
		wantFirst    string
	}{
		"all fit":     {10, 10_000, "line 0"},
		"some do not": {1000, 10_000, ""},
		"no lines":    {0, 10_000, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSpool(root, "s", int64(tc.limit))
			defer s.remove()
			for i := range tc.lines {
				s.add(history.Line{Text: fmt.Sprintf("line %d", i)})
			}
			log, kept, omitted, err := s.read()
			if err != nil || len(log) > tc.limit || kept+omitted != tc.lines || kept != bytes.Count(log, []byte("\n")) {
				t.Fatalf("%d bytes, %d lines, %d omitted: %v", len(log), kept, omitted, err)
			}
			if tc.lines > 0 && !strings.Contains(string(log), fmt.Sprintf(`"line %d"`, tc.lines-1)) {
				t.Errorf("the newest line is missing")
			}
			if tc.wantFirst != "" && (omitted > 0 || !strings.Contains(string(log), `"`+tc.wantFirst+`"`)) {
				t.Errorf("%d lines are missing", omitted)
			}
			if tc.lines == 1000 && (omitted == 0 || len(log) < tc.limit/2-100) {
				t.Errorf("%d bytes are kept, and %d lines omitted", len(log), omitted)
			}
		})
	}
	entries, err := os.ReadDir(root.Name())
	if err != nil || len(entries) > 0 {
		t.Errorf("left: %v %v", entries, err)
	}
}

func TestLongLinesAreCut(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	s := newSpool(root, "s", 1<<20)
	s.add(history.Line{Text: strings.Repeat("é", maxText)})
	log, kept, _, err := s.read()
	var line history.Line
	if err != nil || kept != 1 || json.Unmarshal(log, &line) != nil || !strings.HasSuffix(line.Text, fmt.Sprintf("é … (%d more bytes)", maxText)) {
		t.Errorf("%d lines, %v, ends with %q", kept, err, line.Text[max(0, len(line.Text)-40):])
	}
}
