// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"net/http"
	"net/http/httptest"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

func TestRandomPathIsRequired(t *testing.T) {
	random := &randomPath{}
	reached := http.HandlerFunc(func(writer http.ResponseWriter, _ *http.Request) { writer.WriteHeader(http.StatusNoContent) })
	guarded := random.guard(map[string]http.Handler{"/validate/mpijob": reached})["/validate/mpijob/"]
	if guarded == nil {
		t.Fatal("the webhook is not served below its path")
	}
	want := func(path string, code int) {
		t.Helper()
		recorder := httptest.NewRecorder()
		guarded.ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, path, http.NoBody))
		if recorder.Code != code {
			t.Errorf("%s is answered with %d, want %d", path, recorder.Code, code)
		}
	}
	want("/validate/mpijob/", http.StatusNotFound)
	random.set("one")
	want("/validate/mpijob/", http.StatusNotFound)
	want("/validate/mpijob/one", http.StatusNoContent)
	want("/validate/mpijob/two", http.StatusNotFound)
	random.set("two")
	random.set("two")
	want("/validate/mpijob/one", http.StatusNoContent)
	want("/validate/mpijob/two", http.StatusNoContent)
	random.set("three")
	want("/validate/mpijob/one", http.StatusNotFound)
	want("/validate/mpijob/one/", http.StatusNotFound)
}

func TestSetPath(t *testing.T) {
	service := func(path *string) *admissionregistrationv1.WebhookClientConfig {
		return &admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Name: "trireme-webhook", Path: path}}
	}
	address := func(text string) *admissionregistrationv1.WebhookClientConfig {
		return &admissionregistrationv1.WebhookClientConfig{URL: &text}
	}
	const name = "mpijob-validation.kubeflow.org"
	for title, tc := range map[string]struct {
		webhook string
		client  *admissionregistrationv1.WebhookClientConfig
		end     string
		want    string
		wantNew bool
	}{
		"a Service without a path":     {name, service(nil), "", "/validate/mpijob", true},
		"a Service with its path":      {name, service(new("/validate/mpijob")), "", "/validate/mpijob", false},
		"a random suffix":              {name, service(new("/validate/mpijob")), "/abc", "/validate/mpijob/abc", true},
		"no random suffix any more":    {name, service(new("/validate/mpijob/abc")), "", "/validate/mpijob", true},
		"an address":                   {name, address("https://localhost:9443"), "/abc", "https://localhost:9443/validate/mpijob/abc", true},
		"an address with its path":     {name, address("https://localhost:9443/validate/mpijob"), "", "https://localhost:9443/validate/mpijob", false},
		"a webhook of others":          {"other.example", service(new("/other")), "/abc", "/other", false},
		"an address that is not one":   {name, address("://"), "", "://", false},
		"a webhook that changes a job": {"job-creator.kubeflow.org", service(nil), "/abc", "/mutate/creator/abc", true},
	} {
		t.Run(title, func(t *testing.T) {
			isNew := setPath(tc.webhook, tc.client, tc.end)
			got := tc.client.URL
			if tc.client.Service != nil {
				got = tc.client.Service.Path
			}
			if isNew != tc.wantNew || got == nil || *got != tc.want {
				t.Errorf("got %v (new: %t), want %s (new: %t)", got, isNew, tc.want, tc.wantNew)
			}
		})
	}
}
