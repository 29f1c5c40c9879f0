// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestRuntimesInBodies(t *testing.T) {
	server, _, _ := serve(t, nil)
	const runtimes = "/api/v1/clustertrainingruntimes"
	for name, test := range map[string]struct {
		method, path, body string
		code               int
		want               string
	}{
		"an unknown field":         {http.MethodPost, runtimes, `{"metadata":{"name":"a"},"spec":{"mpi":1}}`, 400, "unknown or duplicate ClusterTrainingRuntime fields"},
		"another kind":             {http.MethodPost, runtimes, `{"apiVersion":"kubeflow.org/v2alpha1","kind":"TrainingRuntime"}`, 400, "must be ClusterTrainingRuntime"},
		"another name":             {http.MethodPut, runtimes + "/a", `{"metadata":{"name":"b"}}`, 400, "the path has"},
		"a list to be validated":   {http.MethodPost, "/api/v1/runtimes/validate", `[]`, 400, "is not a JSON object"},
		"a job to be validated":    {http.MethodPost, "/api/v1/runtimes/validate", `{"kind":"TrainJob"}`, 200, "instead of TrainingRuntime or ClusterTrainingRuntime"},
		"a test without a runtime": {http.MethodPost, "/api/v1/namespaces/n/runtimetests", `{"kind":"TrainingRuntime"}`, 400, "runtime: is required"},
		"a test with a wrong name": {http.MethodPost, "/api/v1/namespaces/n/runtimetests", `{"kind":"TrainingRuntime","runtime":"../a"}`, 400, "is not a valid name"},
		"a test with other fields": {http.MethodPost, "/api/v1/namespaces/n/runtimetests", `{"runtime":"a","gpu":1}`, 400, "unknown field"},
	} {
		t.Run(name, func(t *testing.T) {
			request, err := http.NewRequestWithContext(t.Context(), test.method, server.URL+test.path, strings.NewReader(test.body))
			if err != nil {
				t.Fatal(err)
			}
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			body, err := io.ReadAll(response.Body)
			if err != nil || response.StatusCode != test.code || !strings.Contains(string(body), test.want) {
				t.Errorf("%d %s %v, want %d with %q", response.StatusCode, body, err, test.code, test.want)
			}
		})
	}
}
