// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

// page is a list as clients read it, of either kind.
type page struct {
	APIVersion, Kind string
	Metadata         metav1.ListMeta
	Items            []struct {
		APIVersion, Kind string
		Name, Namespace  string
		Metadata         metav1.ObjectMeta
	}
	Continue string
	Total    *int
}

func (page *page) names() []string {
	names := []string{}
	for _, item := range page.Items {
		names = append(names, item.Metadata.Name+item.Name)
	}
	return names
}

func lists(t *testing.T, world *world) {
	for _, kind := range jobview.Kinds {
		t.Run(string(kind.Kind), func(t *testing.T) {
			made := world.makeListed(t, kind)
			t.Run("pages", func(t *testing.T) { world.pages(t, kind, made) })
			t.Run("filters", func(t *testing.T) { world.filters(t, kind, made) })
			t.Run("shape", func(t *testing.T) { world.shape(t, kind) })
		})
	}
}

// makeListed makes jobs of both people's, and waits until the server knows them. It
// returns the names of Ada's.
func (world *world) makeListed(t *testing.T, kind *jobview.Kind) (names []string) {
	for number := range 12 {
		name := fmt.Sprintf("listed-%02d", number)
		names = append(names, name)
		shift := []string{"day", "night"}[number%2]
		world.wants(t, world.ada, "POST", world.ada.jobs(kind), simpleJob(kind, `{"name":"`+name+`","labels":{"set":"listed","shift":"`+shift+`"}}`), 201)
	}
	world.wants(t, world.bob, "POST", world.bob.jobs(kind), simpleJob(kind, `{"name":"listed-of-bob","labels":{"set":"listed"}}`), 201)
	world.setPhase(t, world.ada, kind, "listed-03", training.PhaseRunning)
	eventually.Succeeds(t, "all are listed", func() error {
		if found := len(world.list(t, world.ada, kind, "labelSelector=set%3Dlisted").Items); found != len(names) {
			return fmt.Errorf("%d are", found)
		}
		return nil
	})
	return names
}

func (world *world) list(t *testing.T, by *person, kind *jobview.Kind, query string) *page {
	t.Helper()
	return parsed[page](t, world.wants(t, by, "GET", by.jobs(kind)+"?"+query, "", 200))
}

func (world *world) pages(t *testing.T, kind *jobview.Kind, made []string) {
	for _, sort := range []string{"name", "-name", "creationTime", "-status"} {
		all := world.list(t, world.ada, kind, "labelSelector=set%3Dlisted&sort="+sort).names()
		var paged []string
		next := ""
		for {
			found := world.list(t, world.ada, kind, "labelSelector=set%3Dlisted&limit=5&sort="+sort+"&continue="+url.QueryEscape(next))
			paged = append(paged, found.names()...)
			next = found.Metadata.Continue + found.Continue
			if found.Total != nil && *found.Total != len(made) {
				t.Errorf("the total is %d", *found.Total)
			}
			if remaining := found.Metadata.RemainingItemCount; remaining != nil && int(*remaining) != len(made)-len(paged) {
				t.Errorf("%d remain after %d", *remaining, len(paged))
			}
			if next == "" {
				break
			}
		}
		if difference := cmp.Diff(all, paged); difference != "" || len(paged) != len(made) {
			t.Errorf("sorted by %s: %s", sort, difference)
		}
		if backwards := slices.Clone(made); sort == "-name" {
			slices.Reverse(backwards)
			if difference := cmp.Diff(backwards, paged); difference != "" {
				t.Error(difference)
			}
		}
	}
}

func (world *world) filters(t *testing.T, kind *jobview.Kind, made []string) {
	tests := map[string]struct {
		query string
		want  []string
	}{
		"labels":           {"labelSelector=set=listed,shift=night&search=listed-0", []string{"listed-01", "listed-03", "listed-05", "listed-07", "listed-09"}},
		"the whole name":   {"fieldSelector=metadata.name=listed-04", []string{"listed-04"}},
		"no part of it":    {"fieldSelector=metadata.name=listed-0", []string{}},
		"a phase":          {"labelSelector=set=listed&fieldSelector=status.phase=Running", []string{"listed-03"}},
		"a state":          {"labelSelector=set=listed&status=Running", []string{"listed-03"}},
		"another state":    {"labelSelector=set=listed&status=Succeeded", []string{}},
		"a part of a name": {"search=listed-1", []string{"listed-10", "listed-11"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			escaped := strings.NewReplacer("set=", "set%3D", "shift=", "shift%3D", "metadata.name=", "metadata.name%3D", "status.phase=", "status.phase%3D").Replace(test.query)
			if difference := cmp.Diff(test.want, world.list(t, world.ada, kind, escaped).names()); difference != "" {
				t.Error(difference)
			}
		})
	}
	t.Run("all namespaces", func(t *testing.T) {
		found := parsed[page](t, world.wants(t, world.ada, "GET", "/api/v1/"+kind.Plural+"?labelSelector=set%3Dlisted", "", 200))
		if difference := cmp.Diff(made, found.names()); difference != "" {
			t.Error(difference)
		}
		found = parsed[page](t, world.wants(t, world.bob, "GET", "/api/v1/"+kind.Plural+"?labelSelector=set%3Dlisted", "", 200))
		if difference := cmp.Diff([]string{"listed-of-bob"}, found.names()); difference != "" {
			t.Error(difference)
		}
	})
}

// shape: MPIJobs are Kubernetes' own list, TrainJobs are rows.
func (world *world) shape(t *testing.T, kind *jobview.Kind) {
	found := world.list(t, world.ada, kind, "limit=1")
	if kind == jobview.MPIJobs {
		if found.Kind != "MPIJobList" || found.APIVersion != "kubeflow.org/v2beta1" || found.Metadata.ResourceVersion == "" {
			t.Errorf("it is a %s of %s at %q", found.Kind, found.APIVersion, found.Metadata.ResourceVersion)
		}
		if item := found.Items[0]; item.Kind != "MPIJob" || item.APIVersion != "kubeflow.org/v2beta1" || item.Metadata.Namespace != world.ada.namespace {
			t.Errorf("an item is %+v", item)
		}
	} else if found.Items[0].Namespace != world.ada.namespace || found.Total == nil {
		t.Errorf("a row is %+v, the total %v", found.Items[0], found.Total)
	}
	body := world.wants(t, world.ada, "GET", world.ada.jobs(kind)+"?search=nothing-like-this", "", 200)
	if !strings.Contains(body, `"items":[]`) {
		t.Errorf("an empty list is %s", body)
	}
}
