// SPDX-License-Identifier: Apache-2.0

package jobservice

import (
	"context"
	"errors"
	"iter"
	"slices"
	"testing"

	"github.com/trireme-mpi/trireme/internal/kube/jobview"
	"github.com/trireme-mpi/trireme/internal/server/apierror"
	"github.com/trireme-mpi/trireme/internal/server/auth"
	"github.com/trireme-mpi/trireme/internal/server/jobwatch"
)

// played is a source whose watches send one job in each namespace, and then wait.
type played struct {
	jobwatch.Source
	watched chan jobwatch.Watch
	fails   error
}

func (p *played) Watch(ctx context.Context, kind *jobview.Kind, watch jobwatch.Watch) iter.Seq2[*jobwatch.Event, error] {
	p.watched <- watch
	return func(yield func(*jobwatch.Event, error) bool) {
		for _, namespace := range []string{"vision", "speech", "secret"} {
			if watch.Namespace != "" && watch.Namespace != namespace {
				continue
			}
			if !yield(&jobwatch.Event{Type: jobwatch.Added, Row: &jobview.Row{Kind: string(kind.Kind), Namespace: namespace}}, nil) {
				return
			}
		}
		if !yield(&jobwatch.Event{Type: jobwatch.Synced}, nil) {
			return
		}
		if p.fails != nil {
			yield(nil, p.fails)
			return
		}
		<-ctx.Done()
	}
}

// limitedGuard allows some namespaces; "" stands for all of them.
type limitedGuard struct {
	auth.Guard
	allowed []string
}

func (g limitedGuard) Allow(_ context.Context, _ *auth.Caller, permission auth.Permission) error {
	if slices.Contains(g.allowed, permission.Namespace) {
		return nil
	}
	return apierror.New(403, "Forbidden", "not allowed in "+permission.Namespace)
}

// watchAll returns the jobs that a caller sees until both kinds are synced.
func watchAll(t *testing.T, source *played, allowed []string, namespace string) (jobs []string, err error) {
	t.Helper()
	service := New(Options{Guard: limitedGuard{allowed: allowed}, Jobs: func(*auth.Caller) jobwatch.Source { return source }})
	events, err := service.WatchAll(auth.WithCaller(t.Context(), &auth.Caller{}), namespace, map[*jobview.Kind]string{})
	if err != nil {
		return nil, err
	}
	synced := 0
	for event, err := range events {
		if err != nil {
			return jobs, err
		}
		if event.Row != nil {
			jobs = append(jobs, event.Row.Kind+"/"+event.Row.Namespace)
		} else if synced++; synced == len(jobview.Kinds) && source.fails == nil {
			break
		}
	}
	slices.Sort(jobs)
	return jobs, nil
}

func TestWatchAllShowsOnlyAllowedNamespaces(t *testing.T) {
	for name, test := range map[string]struct {
		allowed   []string
		namespace string
		want      []string
	}{
		"all":            {[]string{""}, "", []string{"MPIJob/secret", "MPIJob/speech", "MPIJob/vision", "TrainJob/secret", "TrainJob/speech", "TrainJob/vision"}},
		"two namespaces": {[]string{"vision", "speech"}, "", []string{"MPIJob/speech", "MPIJob/vision", "TrainJob/speech", "TrainJob/vision"}},
		"none":           {nil, "", nil},
		"one of two":     {[]string{"vision", "speech"}, "vision", []string{"MPIJob/vision", "TrainJob/vision"}},
	} {
		t.Run(name, func(t *testing.T) {
			jobs, err := watchAll(t, &played{watched: make(chan jobwatch.Watch, 2)}, test.allowed, test.namespace)
			if err != nil || !slices.Equal(jobs, test.want) {
				t.Errorf("%v, %v", jobs, err)
			}
		})
	}
}

func TestWatchAllRefusesANamespace(t *testing.T) {
	_, err := watchAll(t, &played{watched: make(chan jobwatch.Watch, 2)}, []string{"vision"}, "secret")
	if apierror.From(err).Code != 403 {
		t.Errorf("%v", err)
	}
}

func TestWatchAllEndsWithAnError(t *testing.T) {
	failed := errors.New("lost")
	if _, err := watchAll(t, &played{watched: make(chan jobwatch.Watch, 2), fails: failed}, []string{""}, ""); !errors.Is(err, failed) {
		t.Errorf("%v", err)
	}
}

func TestWatchAllResumesEachKind(t *testing.T) {
	source := &played{watched: make(chan jobwatch.Watch, 2)}
	service := New(Options{Guard: limitedGuard{allowed: []string{""}}, Jobs: func(*auth.Caller) jobwatch.Source { return source }})
	since := map[*jobview.Kind]string{jobview.TrainJobs: "12", jobview.MPIJobs: "34"}
	if _, err := service.WatchAll(auth.WithCaller(t.Context(), &auth.Caller{}), "", since); err != nil {
		t.Fatal(err)
	}
	for _, kind := range jobview.Kinds {
		if watch := <-source.watched; watch.Since != since[kind] {
			t.Errorf("%s resumes from %q", kind.Kind, watch.Since)
		}
	}
	if _, err := service.WatchAll(auth.WithCaller(t.Context(), &auth.Caller{}), "", map[*jobview.Kind]string{jobview.Kinds[0]: "x"}); apierror.From(err).Code != 400 {
		t.Errorf("an invalid version: %v", err)
	}
}
