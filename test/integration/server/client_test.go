// SPDX-License-Identifier: Apache-2.0

package server

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/trireme-mpi/trireme/internal/server/apierror"
	"github.com/trireme-mpi/trireme/internal/testing/surface"
)

// insecure is a client that believes the certificate that the server made itself.
var insecure = clientWith()

// clientWith is such a client that shows certificates of its own.
func clientWith(certificates ...tls.Certificate) *http.Client {
	return &http.Client{Timeout: 2 * time.Minute, Transport: &http.Transport{
		ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: certificates},
	}}
}

// clientOver1 is such a client that speaks HTTP/1.1 only.
func clientOver1() *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}}}
}

// answer is what a client got.
type answer struct {
	code   int
	header http.Header
	body   string
	told   apierror.Error
}

// ask sends a request with a token, and reads the whole answer.
func ask(t testing.TB, method, url, token string, body io.Reader, headers ...string) answer {
	t.Helper()
	return askWith(t, insecure, method, url, token, body, headers...)
}

func askWith(t testing.TB, client *http.Client, method, url, token string, body io.Reader, headers ...string) answer {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := client.Do(request)
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
		if err := json.Unmarshal(content, &got.told); err != nil || got.told.Code != got.code || got.told.Message == "" {
			t.Errorf("%s %s: %d is not in the common shape (%v): %s", method, url, got.code, err, content)
		}
	}
	return got
}

// simpleMPIJob and simpleTrainJob are jobs that the API server accepts, as JSON.
func simpleMPIJob(name string) string   { return surface.MPIJob(name) }
func simpleTrainJob(name string) string { return surface.TrainJob(name) }
