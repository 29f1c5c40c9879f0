// SPDX-License-Identifier: Apache-2.0

package jobwatch

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/trireme-mpi/trireme/internal/kube/jobview"
)

func listed(t *testing.T, source Source, query Query) (*Page, []string) {
	t.Helper()
	page, err := source.List(t.Context(), jobview.MPIJobs, query)
	must(t, err)
	var names []string
	for _, entry := range page.Entries {
		names = append(names, entry.Row.Namespace+"/"+entry.Row.Name)
	}
	return page, names
}

func TestFilters(t *testing.T) {
	cache := cacheOf(t, jobsFor(40))
	night, err := labels.Parse("shift=night")
	must(t, err)
	for name, test := range map[string]struct {
		query Query
		total int
	}{
		"all":                  {Query{}, 40},
		"a namespace":          {Query{Namespace: "team-3"}, 4},
		"no such namespace":    {Query{Namespace: "team"}, 0},
		"allowed ones":         {Query{Allowed: func(namespace string) bool { return namespace < "team-2" }}, 8},
		"none allowed":         {Query{Allowed: func(string) bool { return false }}, 0},
		"not the one asked":    {Query{Namespace: "team-3", Allowed: func(namespace string) bool { return namespace != "team-3" }}, 0},
		"a status":             {Query{Status: "running"}, 10},
		"no such status":       {Query{Status: "runnin"}, 0},
		"labels":               {Query{Labels: night}, 20},
		"the framework":        {Query{Runtime: "mpi"}, 40},
		"a runtime":            {Query{Runtime: "mpi-openmpi"}, 0},
		"a part of the name":   {Query{Name: "0001"}, 11},
		"the whole name":       {Query{ExactName: "job-00019"}, 1},
		"not the whole name":   {Query{ExactName: "job-0001"}, 0},
		"several at once":      {Query{Status: "Failed", Labels: night, Namespace: "team-3"}, 2},
		"more than a page has": {Query{Limit: 3}, 40},
	} {
		t.Run(name, func(t *testing.T) {
			page, names := listed(t, cache, test.query)
			shown := min(test.total, cmp.Or(test.query.Limit, DefaultLimit))
			if page.Total != test.total || len(names) != shown {
				t.Errorf("%d of %d, want %d of %d", len(names), page.Total, shown, test.total)
			}
			if page.Remaining != test.total-shown {
				t.Errorf("%d remain, want %d", page.Remaining, test.total-shown)
			}
			if page.ResourceVersion != "1000000" || (page.Continue != "") != (len(names) < test.total) {
				t.Errorf("version %s, continue %q", page.ResourceVersion, page.Continue)
			}
		})
	}
}

// TestPages: for any order and size, all pages together are the list, each job once, also
// if other jobs are created and deleted.
func TestPages(t *testing.T) {
	jobs := jobsFor(200)
	for _, sort := range append([]string{""}, Sorts...) {
		for _, sort := range []string{sort, "-" + sort} {
			if sort == "-" {
				continue
			}
			t.Run(sort, func(t *testing.T) {
				random := rand.New(rand.NewPCG(1, 2))
				cache := cacheOf(t, jobs)
				store := cache.kinds[jobview.MPIJobs].store
				_, all := listed(t, cache, Query{Sort: sort, Limit: 1000})
				if len(all) != 200 || !slices.IsSortedFunc(all, inOrder(store, sort)) {
					t.Fatalf("%d jobs, sorted: %t", len(all), slices.IsSortedFunc(all, inOrder(store, sort)))
				}
				var paged []string
				query := Query{Sort: sort}
				for number := 0; ; number++ {
					query.Limit = 1 + random.IntN(30)
					page, names := listed(t, cache, query)
					paged = append(paged, names...)
					if page.Remaining != len(all)-len(paged) {
						t.Errorf("%d remain after %d of %d", page.Remaining, len(paged), len(all))
					}
					if query.Continue = page.Continue; query.Continue == "" {
						break
					}
					// Delete the last job of the page, and create one that sorts
					// elsewhere.
					namespace, name, _ := strings.Cut(names[len(names)-1], "/")
					gone := mpiJob(namespace, name)
					gone.ResourceVersion = fmt.Sprint(1000001 + number)
					must(t, store.remove(gone))
				}
				if difference := gocmp.Diff(all, paged); difference != "" {
					t.Error(difference)
				}
			})
		}
	}
}

// inOrder compares two names by the sort order.
func inOrder(store *store, sort string) func(left, right string) int {
	rows := map[string]*jobview.Row{}
	for _, entry := range store.sorted {
		rows[entry.Row.Namespace+"/"+entry.Row.Name] = entry.Row
	}
	field, backwards := strings.CutPrefix(sort, "-")
	key := func(name string) string {
		row := rows[name]
		start := "~"
		if row.StartTime != nil {
			start = row.StartTime.UTC().Format("20060102150405")
		}
		return map[string]string{"name": row.Name, "creationTime": row.CreationTime.UTC().Format("20060102150405"), "startTime": start, "status": row.Status}[field] + "\x00" + row.Namespace + "\x00" + row.Name
	}
	return func(left, right string) int {
		if backwards {
			left, right = right, left
		}
		return strings.Compare(key(left), key(right))
	}
}

func TestBadQueries(t *testing.T) {
	cache := cacheOf(t, jobsFor(10))
	first, _ := listed(t, cache, Query{Limit: 1})
	encoded := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	for name, query := range map[string]Query{
		"a negative limit":          {Limit: -1},
		"a large limit":             {Limit: MaxLimit + 1},
		"an unknown order":          {Sort: "size"},
		"two signs":                 {Sort: "--name"},
		"only a sign":               {Sort: "-"},
		"no cursor":                 {Continue: "x"},
		"a cursor with more":        {Continue: first.Continue + "A"},
		"a cut cursor":              {Continue: first.Continue[:len(first.Continue)-3]},
		"another list's cursor":     {Continue: first.Continue, Sort: "name"},
		"a long cursor":             {Continue: strings.Repeat("A", 5000)},
		"a cursor of something":     {Continue: encoded(`{"sort":"","namespace":"a","name":"b","limit":1}`)},
		"a cursor of nothing":       {Continue: encoded(`{}`)},
		"two cursors":               {Continue: encoded(`{"sort":"","namespace":"a","name":"b"}{}`)},
		"a cursor with wrong types": {Continue: encoded(`{"sort":1}`)},
	} {
		t.Run(name, func(t *testing.T) {
			if page, err := cache.List(t.Context(), jobview.MPIJobs, query); codeOf(err) != 400 {
				t.Errorf("%+v, %v", page, err)
			}
		})
	}
}

// FuzzCursor: any text is either a cursor or an error of the client, and a page never
// exceeds its limit.
func FuzzCursor(f *testing.F) {
	cache := cacheOf(f, jobsFor(50))
	for _, sort := range Sorts {
		page, err := cache.List(f.Context(), jobview.MPIJobs, Query{Sort: sort, Limit: 7})
		must(f, err)
		f.Add(page.Continue, sort)
	}
	f.Add(base64.RawURLEncoding.EncodeToString([]byte(`{"sort":"","namespace":"a","name":"b"}`)), "")
	f.Fuzz(func(t *testing.T, text, sort string) {
		page, err := cache.List(t.Context(), jobview.MPIJobs, Query{Continue: text, Sort: sort, Limit: 7})
		if err != nil && codeOf(err) != 400 || err == nil && (len(page.Entries) > 7 || page.Total != 50) {
			t.Errorf("%+v %v", page, err)
		}
	})
}
