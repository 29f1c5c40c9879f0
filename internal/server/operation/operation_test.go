// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trireme-mpi/trireme/internal/server/auth"
)

func TestIsStream(t *testing.T) {
	for target, want := range map[string]bool{
		"GET /api/v1/watch/namespaces/n/mpijobs":                           true,
		"GET /api/v1/namespaces/n/mpijobs/hello/logs?follow=true":          true,
		"GET /api/v1/mpijobs/hello/logs?namespace=n&follow=true":           true,
		"GET /api/v1/namespaces/n/mpijobs/hello/logs/launcher?follow=true": true,
		"GET /api/v1/namespaces/n/mpijobs/hello/logs":                      false,
		"GET /api/v1/namespaces/n/mpijobs":                                 false,
		"GET /api/v1/namespaces/n/mpijobs?follow=true":                     false,
		"GET /openapi.json?follow=true":                                    false,
		"HEAD /api/v1/watch/namespaces/n/mpijobs":                          false,
		"POST /api/v1/namespaces/n/mpijobs?follow=true":                    false,
		"POST /api/v1/watch/namespaces/n/mpijobs":                          false,
	} {
		method, path, _ := strings.Cut(target, " ")
		request := httptest.NewRequest(method, path, nil)
		request.Header.Set("Accept", "text/event-stream")
		request.Header.Set("Upgrade", "websocket")
		if got := Find(request).IsStream(request); got != want {
			t.Errorf("%s: %v", target, got)
		}
	}
}

func TestFind(t *testing.T) {
	type found struct{ Call, Kind, Namespace, Name string }
	for target, want := range map[string]found{
		"POST /api/v1/namespaces/n/mpijobs":             {"POST /api/v1/namespaces/{namespace}/mpijobs", "MPIJob", "n", ""},
		"POST /api/v1/namespaces/n/trainjobs/a/restart": {"POST /api/v1/namespaces/{namespace}/trainjobs/{name}/restart", "TrainJob", "n", "a"},
		"HEAD /api/v1/namespaces/n/mpijobs/a":           {"GET /api/v1/namespaces/{namespace}/mpijobs/{name}", "MPIJob", "n", "a"},
		"PUT /api/v1/namespaces/n/mpijobs/a":            {"", "MPIJob", "n", "a"},
		"POST /api/v1/namespaces/n/mpijobs/a/unknown":   {},
		"POST /api/v1/../namespaces/n/mpijobs":          {},
		"POST /":                                        {},
	} {
		method, path, _ := strings.Cut(target, " ")
		request := httptest.NewRequest(method, path, nil)
		match := Find(request)
		got := found{Kind: match.Kind, Namespace: match.Namespace, Name: match.Name}
		if match.Operation != nil {
			got.Call = match.Call
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", target, diff)
		}
		if request.Pattern != "" || request.PathValue("namespace") != "" {
			t.Errorf("%s: Find has changed the request", target)
		}
	}
}

func TestRecord(t *testing.T) {
	for call, want := range map[string]auth.Record{
		"POST /api/v1/namespaces/{namespace}/mpijobs":                  {Verb: "create", Kind: "MPIJob"},
		"POST /api/v1/namespaces/{namespace}/trainjobs/{name}/suspend": {Verb: "patch", Kind: "TrainJob"},
		"POST /api/v1/namespaces/{namespace}/preflight":                {},
		"PUT /api/v1/clustertrainingruntimes/{name}":                   {Verb: "update", Kind: "ClusterTrainingRuntime"},
		"GET /api/v1/mpijobs":                                          {},
		"/training.TrainJobService/DeleteTrainJob":                     {Verb: "delete", Kind: "TrainJob"},
		"/training.JobService/Restart":                                 {Verb: "create"},
	} {
		row, known := Lookup(call)
		if !known {
			t.Errorf("%s has no row", call)
			continue
		}
		if diff := cmp.Diff(&want, row.Record()); diff != "" {
			t.Errorf("%s: %s", call, diff)
		}
	}
}

func TestRowsAreComplete(t *testing.T) {
	kinds := map[string]string{}
	for _, row := range Table {
		if _, path, isREST := strings.Cut(row.Call, " "); isREST {
			if kind, known := kinds[path]; known && kind != row.Kind {
				t.Errorf("%s has the kinds %q and %q", path, kind, row.Kind)
			}
			kinds[path] = row.Kind
		}
		isWrite := row.Verb == "create" || row.Verb == "update" || row.Verb == "patch" || row.Verb == "delete"
		if row.Verb == "" || isWrite != (row.Audit == AuditChange) {
			t.Errorf("%s has verb %q and audit class %d", row.Call, row.Verb, row.Audit)
		}
	}
}
