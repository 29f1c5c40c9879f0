// SPDX-License-Identifier: Apache-2.0

package jobservice

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trireme-mpi/trireme/internal/kube/jobview"
	"github.com/trireme-mpi/trireme/internal/server/apierror"
	"github.com/trireme-mpi/trireme/internal/server/auth"
	"github.com/trireme-mpi/trireme/internal/server/jobwatch"
)

var (
	forbidden = apierror.New(http.StatusForbidden, "Forbidden", "You may not")
	away      = apierror.New(http.StatusServiceUnavailable, "ServiceUnavailable", "The cluster cannot be asked")
)

// gate is a guard that decides by namespace.
type gate struct {
	auth.Guard
	answers map[string]error
	// reading is held while jobs are read: permissions must not be checked then.
	reading *sync.RWMutex
	broken  atomic.Bool
}

func (g *gate) Allow(_ context.Context, _ *auth.Caller, rights auth.Permission) error {
	if !g.reading.TryRLock() {
		g.broken.Store(true)
	} else {
		defer g.reading.RUnlock()
	}
	return g.answers[rights.Namespace]
}

// jobPerNamespace is a source with one job in each of some namespaces.
type jobPerNamespace struct {
	jobwatch.Source
	namespaces []string
	reading    *sync.RWMutex
}

func (p *jobPerNamespace) List(_ context.Context, _ *jobview.Kind, query jobwatch.Query) (*jobwatch.Page, error) {
	p.reading.Lock()
	defer p.reading.Unlock()
	page := &jobwatch.Page{}
	for _, namespace := range p.namespaces {
		if query.Allowed == nil || query.Allowed(namespace) {
			page.Entries = append(page.Entries, jobwatch.Entry{Row: &jobview.Row{Namespace: namespace}})
		}
	}
	return page, nil
}

func TestListsFollowPermissions(t *testing.T) {
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
			service := New(Options{Guard: guard, Jobs: func(*auth.Caller) jobwatch.Source {
				return &jobPerNamespace{namespaces: []string{"a", "b", "c"}, reading: reading}
			}})
			page, err := service.List(auth.WithCaller(t.Context(), &auth.Caller{}), jobview.MPIJobs, jobwatch.Query{})
			if !errors.Is(err, test.err) {
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
