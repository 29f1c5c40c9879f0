// SPDX-License-Identifier: Apache-2.0

// Package surface is all that can be asked of a server, as the server itself tells it:
// in its OpenAPI document, and by gRPC's reflection. A path or a method that is added
// is in every test that goes by it.
package surface

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// Route is a path of REST that the server's own document has.
type Route struct{ Method, Path string }

// fewestRoutes and fewestMethods are how many there are at least: a document that is
// read wrongly has fewer.
const (
	fewestRoutes  = 40
	fewestMethods = 25
)

// Routes are all of a document.
func Routes(t testing.TB, document []byte) (all []Route) {
	t.Helper()
	var read struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal(document, &read); err != nil {
		t.Fatal(err)
	}
	for path, methods := range read.Paths {
		for method := range methods {
			if method = strings.ToUpper(method); slices.Contains([]string{"GET", "POST", "PUT", "PATCH", "DELETE"}, method) {
				all = append(all, Route{method, path})
			}
		}
	}
	if len(all) < fewestRoutes {
		t.Fatalf("the document has only %d routes", len(all))
	}
	slices.SortFunc(all, func(a, b Route) int { return strings.Compare(a.Path+a.Method, b.Path+b.Method) })
	return all
}

// In is the route for a job of a namespace, with what it needs to be sent.
func (route Route) In(namespace, name string) (path string, body io.Reader) {
	path = strings.NewReplacer("{namespace}", namespace, "{name}", name, "{index}", "0").Replace(route.Path)
	if !strings.Contains(route.Path, "{namespace}") && !route.ForCluster() {
		path += "?namespace=" + namespace
	}
	switch {
	case route.Method == http.MethodPut && strings.Contains(path, "/trainingruntimes/"):
		return path, strings.NewReader(TrainingRuntime(name))
	case route.Method != http.MethodPost:
		return path, nil
	case strings.HasSuffix(path, "/trainingruntimes"), strings.HasSuffix(path, "/runtimes/validate"):
		return path, strings.NewReader(TrainingRuntime("new"))
	case strings.HasSuffix(path, "/runtimetests"):
		return path, strings.NewReader(`{"kind":"TrainingRuntime","runtime":"` + name + `","image":"example"}`)
	case strings.HasSuffix(path, "/trainjobs"), strings.HasSuffix(path, "/preflight"):
		return path, strings.NewReader(TrainJob("new"))
	case strings.HasSuffix(path, "/mpijobs"):
		return path, strings.NewReader(MPIJob("new"))
	}
	return path, nil
}

// ForCluster says whether a route is about what has no namespace.
func (route Route) ForCluster() bool {
	return strings.HasPrefix(route.Path, "/api/v1/clustertrainingruntimes") || slices.Contains([]string{"/api/v1/user", "/api/v1/runtimes/validate"}, route.Path)
}

// TrainingRuntime is one that the API server accepts, as JSON. Whoever replaces it has
// read it before.
func TrainingRuntime(name string) string {
	return strings.ReplaceAll(`{"apiVersion":"kubeflow.org/v2alpha1","kind":"TrainingRuntime","metadata":{"name":"NAME","resourceVersion":"1"},"spec":{
	"mlPolicy":{"mpiImplementation":"OpenMPI"},"template":{"spec":{"replicatedJobs":[
	{"name":"launcher","template":{"spec":{"containers":[{"name":"launcher","image":"example"}]}}},
	{"name":"worker","template":{"spec":{"containers":[{"name":"worker","image":"example"}]}}}]}}}}`, "NAME", name)
}

// MPIJob is one that the API server accepts, as JSON.
func MPIJob(name string) string {
	return strings.ReplaceAll(`{"apiVersion":"kubeflow.org/v2beta1","kind":"MPIJob","metadata":{"name":"NAME"},"spec":{"mpiReplicaSpecs":{
	"Launcher":{"replicas":1,"template":{"spec":{"containers":[{"name":"launcher","image":"example","command":["mpirun","true"]}]}}},
	"Worker":{"replicas":2,"template":{"spec":{"containers":[{"name":"worker","image":"example"}]}}}}}}`, "NAME", name)
}

// TrainJob is one that the API server accepts, as JSON.
func TrainJob(name string) string {
	return strings.ReplaceAll(`{"apiVersion":"kubeflow.org/v2alpha1","kind":"TrainJob","metadata":{"name":"NAME"},"spec":{
	"runtimeRef":{"kind":"ClusterTrainingRuntime","name":"mpi-openmpi-cpu"},"trainer":{"image":"example","command":["true"]}}}`, "NAME", name)
}
