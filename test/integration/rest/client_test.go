// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/trireme-mpi/trireme/internal/kube/jobview"
)

// insecure is a client that believes the certificate that the server made itself.
var insecure = &http.Client{
	Timeout:       time.Minute,
	Transport:     &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// answer is what a client got.
type answer struct {
	code   int
	header http.Header
	body   string
}

// ask sends a request of a person's, and reads the whole answer. A body that is text
// is JSON, unless a header says otherwise.
func (world *world) ask(t testing.TB, by *person, method, path, body string, headers ...string) answer {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, world.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+by.token)
	request.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	return send(t, request)
}

func send(t testing.TB, request *http.Request) answer {
	t.Helper()
	response, err := insecure.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	got := answer{code: response.StatusCode, header: response.Header, body: string(content)}
	if got.code >= 400 {
		got.checkShape(t, request)
	}
	return got
}

// checkShape: all errors have one shape.
func (got *answer) checkShape(t testing.TB, request *http.Request) {
	t.Helper()
	var told struct {
		Code                   int
		Reason, Message, Error string
		Details, Suggestions   []any
	}
	err := json.Unmarshal([]byte(got.body), &told)
	if err != nil || told.Code != got.code || told.Reason == "" || told.Message == "" || told.Error != told.Message || told.Details == nil || told.Suggestions == nil {
		t.Errorf("%s %s: %d is not in the common shape (%v): %s", request.Method, request.URL.Path, got.code, err, got.body)
	}
}

// wants asks for something, and for the code and the words of the answer.
func (world *world) wants(t testing.TB, by *person, method, path, body string, code int, words ...string) string {
	t.Helper()
	got := world.ask(t, by, method, path, body)
	if got.code != code {
		t.Errorf("%s %s: %d, want %d: %.500s", method, path, got.code, code, got.body)
	}
	for _, word := range words {
		if !strings.Contains(got.body, word) {
			t.Errorf("%s %s has no %q: %.500s", method, path, word, got.body)
		}
	}
	return got.body
}

// parsed reads an answer.
func parsed[Shape any](t testing.TB, body string) *Shape {
	t.Helper()
	made := new(Shape)
	if err := json.Unmarshal([]byte(body), made); err != nil {
		t.Fatalf("%v: %.500s", err, body)
	}
	return made
}

// jobs is the path of a person's jobs.
func (person *person) jobs(kind *jobview.Kind) string {
	return "/api/v1/namespaces/" + person.namespace + "/" + kind.Plural
}

// simpleJob is one that the API server accepts, as JSON. metadata is what else is in
// its metadata, as more JSON.
func simpleJob(kind *jobview.Kind, metadata string) string {
	if kind == jobview.TrainJobs {
		return fmt.Sprintf(`{"apiVersion":"kubeflow.org/v2alpha1","kind":"TrainJob","metadata":%s,"spec":{
		"runtimeRef":{"kind":"ClusterTrainingRuntime","name":"mpi"},"trainer":{"image":"example","command":["true"],"numNodes":2}}}`, metadata)
	}
	return fmt.Sprintf(`{"apiVersion":"kubeflow.org/v2beta1","kind":"MPIJob","metadata":%s,"spec":{"mpiReplicaSpecs":{
	"Launcher":{"replicas":1,"template":{"spec":{"containers":[{"name":"launcher","image":"example","command":["mpirun","true"]}]}}},
	"Worker":{"replicas":2,"template":{"spec":{"containers":[{"name":"worker","image":"example"}]}}}}}}`, metadata)
}

func named(kind *jobview.Kind, name string) string { return simpleJob(kind, `{"name":"`+name+`"}`) }
