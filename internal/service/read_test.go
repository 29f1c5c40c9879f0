package service

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

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
	reading *sync.RWMutex
	broken  atomic.Bool
}

func (gate *gate) Allow(_ context.Context, _ *access.Caller, rights access.Rights) error {
	if !gate.reading.TryRLock() {
		gate.broken.Store(true)
	} else {
		defer gate.reading.RUnlock()
	}
	return gate.answers[rights.Namespace]
}

// places is a source of a job in each of some namespaces.
type places struct {
	live.Source
	namespaces []string
	reading    *sync.RWMutex
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
			reading := &sync.RWMutex{}
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
