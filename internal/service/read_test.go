package service

import (
	"context"
	"iter"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trireme-mpi/trireme/internal/access"
	"github.com/trireme-mpi/trireme/internal/jobview"
	"github.com/trireme-mpi/trireme/internal/live"
	"github.com/trireme-mpi/trireme/internal/problem"
)

var (
	forbidden = problem.New(http.StatusForbidden, "Forbidden", "You may not")
	away      = problem.New(http.StatusServiceUnavailable, "ServiceUnavailable", "The cluster cannot be asked")
)

// gate is a guard that answers by namespace.
type gate struct {
	access.Guard
	answers map[string]error
	// reading is held while jobs are read: nobody may be asked then.
	reading *sync.Mutex
	broken  atomic.Bool
}

func (gate *gate) Allow(_ context.Context, _ *access.Caller, rights access.Rights) error {
	if !gate.reading.TryLock() {
		gate.broken.Store(true)
	} else {
		defer gate.reading.Unlock()
	}
	return gate.answers[rights.Namespace]
}

// places is a source of a job in each of some namespaces.
type places struct {
	live.Source
	namespaces []string
	reading    *sync.Mutex
}

func (places *places) List(_ context.Context, _ *jobview.Kind, query live.Query) (*live.Page, error) {
	places.reading.Lock()
	defer places.reading.Unlock()
	page := &live.Page{}
	for _, namespace := range places.namespaces {
		if query.Allowed == nil || query.Allowed(namespace) {
			page.Entries = append(page.Entries, live.Entry{Row: &jobview.Row{Namespace: namespace}})
		}
	}
	return page, nil
}

func TestListsShowWhatMayBeListed(t *testing.T) {
	tests := map[string]struct {
		answers map[string]error
		want    []string
		err     error
	}{
		"everything":          {nil, []string{"a", "b", "c"}, nil},
		"one namespace":       {map[string]error{"": forbidden, "a": forbidden, "c": forbidden}, []string{"b"}, nil},
		"none":                {map[string]error{"": forbidden, "a": forbidden, "b": forbidden, "c": forbidden}, nil, nil},
		"nobody can be asked": {map[string]error{"": away}, nil, away},
		"not of all of them":  {map[string]error{"": forbidden, "b": away}, nil, away},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			reading := &sync.Mutex{}
			guard := &gate{answers: test.answers, reading: reading}
			service := New(Options{Guard: guard, Jobs: func(*access.Caller) live.Source {
				return &places{namespaces: []string{"a", "b", "c"}, reading: reading}
			}})
			page, err := service.List(access.WithCaller(t.Context(), &access.Caller{}), jobview.MPIJobs, live.Query{})
			if err != test.err {
				t.Fatalf("error %v, want %v", err, test.err)
			}
			var found []string
			if page != nil {
				for _, entry := range page.Entries {
					found = append(found, entry.Row.Namespace)
				}
			}
			if difference := cmp.Diff(test.want, found); difference != "" {
				t.Error(difference)
			}
			if guard.broken.Load() {
				t.Error("rights were asked for while jobs were read, and everybody else waited")
			}
		})
	}
}

// A stream that says something every millisecond, until its context ends.
func ticking(ctx context.Context) iter.Seq2[int, error] {
	return func(yield func(int, error) bool) {
		for number := 0; ; number++ {
			select {
			case <-ctx.Done():
				yield(0, ctx.Err())
				return
			case <-time.After(time.Millisecond):
				if !yield(number, nil) {
					return
				}
			}
		}
	}
}

func TestStreamsEndWithTheirRight(t *testing.T) {
	var asked atomic.Int32
	allowed := func(context.Context) error {
		switch asked.Add(1) {
		case 1:
			return nil
		case 2:
			return away
		default:
			return forbidden
		}
	}
	var last error
	told := map[int]bool{}
	for number, err := range whileAllowed(t.Context(), 5*time.Millisecond, allowed, ticking) {
		told[number], last = true, err
	}
	if last != error(forbidden) {
		t.Errorf("it ended with %v", last)
	}
	if asked.Load() != 3 {
		t.Errorf("the right was asked for %d times", asked.Load())
	}
	if len(told) < 3 {
		t.Errorf("it has said no more than %v", slices.Sorted(maps.Keys(told)))
	}
}

// Nothing is left of a stream that its reader has ended.
func TestStreamsThatEndAskNoMore(t *testing.T) {
	var asked atomic.Int32
	var used context.Context
	begin := func(ctx context.Context) iter.Seq2[int, error] { used = ctx; return ticking(ctx) }
	for range whileAllowed(t.Context(), time.Millisecond, func(context.Context) error { asked.Add(1); return nil }, begin) {
		break
	}
	if used.Err() == nil {
		t.Error("its context goes on")
	}
	before := asked.Load()
	time.Sleep(20 * time.Millisecond)
	if after := asked.Load(); after > before+1 {
		t.Errorf("the right was asked for %d times afterwards", after-before)
	}
}
