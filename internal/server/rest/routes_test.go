// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trireme-mpi/trireme/internal/server/operation"
)

// The table of operations has exactly the routes that are served.
func TestEachRouteHasARow(t *testing.T) {
	type facts struct {
		Kind      string
		CanStream bool
	}
	served, inTable := map[string]facts{}, map[string]facts{}
	for _, row := range operation.Table {
		if !strings.HasPrefix(row.Call, "/") {
			inTable[row.Call] = facts{Kind: row.Kind, CanStream: row.Stream != operation.NoStream}
		}
	}
	for _, route := range allRoutes() {
		pattern := route.method + " " + route.path
		kind := inTable[pattern].Kind
		if route.kind != nil {
			kind = string(route.kind.Kind)
		}
		served[pattern] = facts{Kind: kind, CanStream: route.stream != nil}
	}
	if diff := cmp.Diff(served, inTable); diff != "" {
		t.Errorf("routes that are served (-) and in the table of operations (+):\n%s", diff)
	}
}
