// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/trireme-mpi/trireme/internal/kube/jobview"
)

// count is how many jobs of both kinds there are in all namespaces.
func (world *world) count(t *testing.T) (count int) {
	t.Helper()
	for _, kind := range jobview.Kinds {
		list := kind.NewList()
		if err := world.admin.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		count += itemsOf(list)
	}
	return count
}

// bomb is YAML that is much larger than it looks.
func bomb() string {
	text := strings.Builder{}
	text.WriteString("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n")
	for level := '1'; level <= '9'; level++ {
		before := string(level - 1)
		text.WriteString("a" + string(level) + ": &a" + string(level) + " [" + strings.TrimSuffix(strings.Repeat("*a"+before+",", 10), ",") + "]\n")
	}
	return text.String()
}

// badInput: what is no request of ours is refused with a client's code, in the common
// shape, and changes nothing.
func badInput(t *testing.T, world *world) {
	const asYAML = "application/yaml"
	jobs, trainJobs := world.ada.jobs(jobview.MPIJobs), world.ada.jobs(jobview.TrainJobs)
	good := named(jobview.MPIJobs, "bad")
	before := world.count(t)
	tests := map[string]struct {
		method, path, body, contentType string
		code                            int
		words                           string
	}{
		"an unknown field":               {"POST", jobs, strings.Replace(good, `"spec":{`, `"spec":{"slots":2,`, 1), "", 400, "spec.slots"},
		"a field twice":                  {"POST", jobs, strings.Replace(good, `"spec":{`, `"spec":{"slotsPerWorker":2,"slotsPerWorker":3,`, 1), "", 400, "spec.slotsPerWorker"},
		"a wrong type":                   {"POST", jobs, strings.Replace(good, `"replicas":2`, `"replicas":"two"`, 1), "", 400, "replicas"},
		"a number out of range":          {"POST", jobs, strings.Replace(good, `"replicas":2`, `"replicas":99999999999`, 1), "", 400, "replicas"},
		"null":                           {"POST", jobs, "null", "", 400, "metadata.name"},
		"a list":                         {"POST", jobs, "[]", "", 400, "array"},
		"a list of jobs":                 {"POST", jobs, "[" + good + "]", "", 400, "array"},
		"a text":                         {"POST", jobs, `"job"`, "", 400, "string"},
		"half of it":                     {"POST", jobs, good[:len(good)/2], "", 400, "body"},
		"two of them":                    {"POST", jobs, good + good, "", 400, "body"},
		"nothing":                        {"POST", jobs, "", "", 400, "empty"},
		"not UTF-8":                      {"POST", jobs, strings.Replace(good, "example", "\xff\xfe", 1), "", 400, "UTF-8"},
		"nested without end":             {"POST", jobs, strings.Repeat(`{"a":`, 500_000), "", 400, ""},
		"lists without end":              {"POST", jobs, strings.Repeat(`[`, 4<<20-1), "", 400, ""},
		"a bomb":                         {"POST", jobs, bomb(), asYAML, 400, "YAML"},
		"YAML lists without end":         {"POST", jobs, strings.Repeat(`[`, 1<<20), asYAML, 400, ""},
		"10 MB":                          {"POST", jobs, strings.Repeat(" ", 10<<20) + good, "", 413, "bytes"},
		"a job of 1.75 MB":               {"POST", jobs, strings.Replace(good, "example", strings.Repeat("e", 7<<18), 1), "", 413, ""},
		"a job of 2 MB":                  {"POST", jobs, strings.Replace(good, "example", strings.Repeat("e", 2<<20), 1), "", 413, ""},
		"a job of 3.5 MB":                {"POST", jobs, strings.Replace(good, "example", strings.Repeat("e", 7<<19), 1), "", 413, ""},
		"a form":                         {"POST", jobs, "name=bad", "application/x-www-form-urlencoded", 415, "is not supported"},
		"another kind":                   {"POST", trainJobs, good, "", 400, ""},
		"another version":                {"POST", jobs, strings.Replace(good, "v2beta1", "v1", 1), "", 400, "kind"},
		"no name":                        {"POST", jobs, simpleJob(jobview.MPIJobs, "{}"), "", 400, "metadata.name"},
		"a name that is none":            {"POST", jobs, named(jobview.MPIJobs, "../../etc"), "", 422, "metadata.name"},
		"a very long name":               {"POST", jobs, named(jobview.MPIJobs, strings.Repeat("a", 1<<20)), "", 422, "metadata.name"},
		"another namespace":              {"POST", jobs, simpleJob(jobview.MPIJobs, `{"name":"bad","namespace":"team-bob"}`), "", 400, "metadata.namespace"},
		"two names":                      {"POST", trainJobs + "?name=one", named(jobview.TrainJobs, "two"), "", 400, "name"},
		"an unknown parameter":           {"POST", jobs + "?dryrun=All", good, "", 400, "dryrun"},
		"half a dry run":                 {"POST", jobs + "?dryRun=Some", good, "", 400, "dryRun"},
		"a namespace in the query":       {"POST", jobs + "?namespace=team-bob", good, "", 400, "namespace"},
		"no such limit":                  {"GET", jobs + "?limit=0", "", "", 400, "limit"},
		"too high a limit":               {"GET", jobs + "?limit=1001", "", "", 400, "limit"},
		"no such order":                  {"GET", jobs + "?sort=size", "", "", 400, "sort"},
		"a bad cursor":                   {"GET", jobs + "?continue=eyJzb3J0IjoiIn0", "", "", 400, "continue"},
		"no cursor at all":               {"GET", jobs + "?continue=%2e%2e%2f", "", "", 400, "continue"},
		"a bad selector":                 {"GET", jobs + "?labelSelector=a%3D%3D%3Db", "", "", 400, "labelSelector"},
		"an unknown field to choose":     {"GET", jobs + "?fieldSelector=spec.x%3D1", "", "", 400, "fieldSelector"},
		"a phase that is none":           {"GET", jobs + "?fieldSelector=status.phase%3DRuning", "", "", 400, "fieldSelector"},
		"two phases":                     {"GET", jobs + "?status=Failed&fieldSelector=status.phase%3DRunning", "", "", 400, "fieldSelector"},
		"not equal":                      {"GET", jobs + "?fieldSelector=metadata.name!%3Da", "", "", 400, "fieldSelector"},
		"a state that is none":           {"GET", jobs + "?status=Runing", "", "", 400, "status"},
		"up and away":                    {"GET", jobs + "/%2e%2e", "", "", 400, "name"},
		"up to another namespace":        {"GET", "/api/v1/namespaces/team-ada/mpijobs/..%2f..%2fteam-bob%2fmpijobs%2fsecret", "", "", 400, "name"},
		"a slash":                        {"GET", jobs + "/a%2fb", "", "", 400, "name"},
		"capitals":                       {"GET", jobs + "/Job", "", "", 400, "name"},
		"a zero byte":                    {"GET", jobs + "/a%00b", "", "", 400, "name"},
		"a namespace that is none":       {"GET", "/api/v1/namespaces/%2e%2e/mpijobs", "", "", 400, "namespace"},
		"a query with a slash":           {"GET", "/api/v1/mpijobs/job?namespace=team-ada%2f..%2fteam-bob", "", "", 400, "namespace"},
		"a query that goes up":           {"GET", "/api/v1/mpijobs/job/logs?namespace=..", "", "", 400, "namespace"},
		"a list of a query that is none": {"GET", "/api/v1/trainjobs?namespace=a%2fb", "", "", 400, "namespace"},
		"dots in the path":               {"GET", "/api/v1/namespaces/team-ada/../team-bob/mpijobs", "", "", 400, ""},
		"an empty part":                  {"GET", "/api/v1/namespaces//mpijobs", "", "", 400, ""},
		"nothing there":                  {"GET", "/api/v1/jobs", "", "", 404, "openapi"},
		"a slash at the end":             {"GET", jobs + "/", "", "", 404, ""},
		"a method that is none":          {"PUT", jobs + "/job", good, "", 405, "PUT"},
		"a worker that is none":          {"GET", jobs + "/job/logs/worker/-1", "", "", 400, "invalid worker index: -1"},
		"a time that is none":            {"GET", jobs + "/job/logs?since=yesterday", "", "", 400, "since"},
		"a watch as JSON":                {"GET", "/api/v1/watch/namespaces/team-ada/mpijobs", "", "", 406, "text/event-stream"},
		"a preflight of nothing":         {"POST", "/api/v1/namespaces/team-ada/preflight", `{"kind":"Pod"}`, "", 400, "kind"},
		"a grace that is none":           {"DELETE", jobs + "/job?gracePeriodSeconds=-1", "", "", 400, "gracePeriodSeconds"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			got := world.rawly(t, test.method, test.path, test.body, test.contentType)
			if got.code != test.code || !strings.Contains(got.body, test.words) {
				t.Errorf("%d, want %d with %q: %.300s", got.code, test.code, test.words, got.body)
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("it took %s to refuse", took)
			}
		})
	}
	if after := world.count(t); after != before {
		t.Errorf("there were %d jobs, and are %d", before, after)
	}
}

// rawly asks for a path as it is written: Go's client would tidy it up.
func (world *world) rawly(t *testing.T, method, path, body, contentType string) answer {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, world.url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	written, query, _ := strings.Cut(path, "?")
	decoded, err := url.PathUnescape(written)
	if err != nil {
		t.Fatal(err)
	}
	request.URL.Path, request.URL.RawPath, request.URL.RawQuery = decoded, written, query
	request.Header.Set("Authorization", "Bearer "+world.ada.token)
	request.Header.Set("Content-Type", "application/json")
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	return send(t, request)
}
