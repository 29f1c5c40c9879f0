// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// served are the kinds that an API server serves, by group and version. Subresources are
// written with a slash.
type served map[string][]string

func (s served) ServeHTTP(response http.ResponseWriter, request *http.Request) {
	version := strings.TrimPrefix(request.URL.Path, "/apis/")
	kinds, found := s[version]
	if !found {
		answer(response, http.StatusNotFound, metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
			Status:   metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound,
		})
		return
	}
	resources := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}, GroupVersion: version}
	for _, name := range kinds {
		kind, subresource, isSubresource := strings.Cut(name, "/")
		resource := metav1.APIResource{Name: strings.ToLower(kind) + "s", Kind: kind, Namespaced: true, Verbs: metav1.Verbs{"create", "get", "list"}}
		if isSubresource {
			resource.Name, resource.Verbs = resource.Name+"/"+subresource, metav1.Verbs{"get", "patch", "update"}
		}
		resources.APIResources = append(resources.APIResources, resource)
	}
	answer(response, http.StatusOK, resources)
}

func answer(response http.ResponseWriter, code int, object any) {
	response.Header().Set("Content-Type", "application/json")
	response.WriteHeader(code)
	// The test itself fails if the client has closed the connection.
	_ = json.NewEncoder(response).Encode(object)
}

func discover(t *testing.T, handler http.Handler) (Available, error) {
	t.Helper()
	server := httptest.NewServer(handler)
	defer server.Close()
	client, err := discovery.NewDiscoveryClientForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return Discover(client)
}

func TestDiscover(t *testing.T) {
	tests := map[string]struct {
		served served
		want   Available
	}{
		"nothing":           {served: served{"v1": {"Pod"}}},
		"scheduler-plugins": {served: served{"scheduling.x-k8s.io/v1alpha1": {"ElasticQuota", "PodGroup", "PodGroup/status"}}, want: Available{Served: serving(job.Coscheduling)}},
		"Volcano":           {served: served{"scheduling.volcano.sh/v1beta1": {"Queue", "PodGroup"}}, want: Available{Served: serving(job.Volcano)}},
		"KAI":               {served: served{"scheduling.run.ai/v2alpha2": {"PodGroup"}}, want: Available{Served: serving(job.KAI)}},
		"Kubernetes 1.36":   {served: served{"scheduling.k8s.io/v1alpha2": {"Workload", "PodGroup"}}, want: hasAlpha},
		"Kubernetes 1.37":   {served: served{"scheduling.k8s.io/v1beta1": {"Workload", "PodGroup", "PodGroup/status"}, "scheduling.k8s.io/v1alpha3": {"CompositePodGroup"}}, want: hasBeta},
		"everything": {served: served{
			"scheduling.x-k8s.io/v1alpha1":  {"PodGroup"},
			"scheduling.volcano.sh/v1beta1": {"PodGroup"},
			"scheduling.run.ai/v2alpha2":    {"PodGroup"},
			"scheduling.k8s.io/v1beta1":     {"PodGroup"},
			"scheduling.k8s.io/v1alpha2":    {"PodGroup"},
		}, want: everything},

		"Kubernetes 1.35 has another version of the group": {served: served{"scheduling.k8s.io/v1": {"PriorityClass"}, "scheduling.k8s.io/v1alpha1": {"Workload"}}},
		"Kubernetes 1.37 with only the alpha of the group": {served: served{"scheduling.k8s.io/v1alpha3": {"CompositePodGroup", "PodGroup"}}},
		"the version without the kind":                     {served: served{"scheduling.k8s.io/v1alpha2": {"Workload"}, "scheduling.x-k8s.io/v1alpha1": {"ElasticQuota"}}},
		"a subresource is not the kind":                    {served: served{"scheduling.x-k8s.io/v1alpha1": {"PodGroup/status"}}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := discover(t, tc.served)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// An error is not the same as a missing scheduler: otherwise jobs would start without a
// gang because the API server was busy.
func TestDiscoverErrors(t *testing.T) {
	for name, code := range map[string]int{"forbidden": http.StatusForbidden, "broken": http.StatusInternalServerError} {
		t.Run(name, func(t *testing.T) {
			working := served{"scheduling.x-k8s.io/v1alpha1": {"PodGroup"}}
			got, err := discover(t, http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
				if strings.Contains(request.URL.Path, "volcano") {
					http.Error(response, name, code)
					return
				}
				working.ServeHTTP(response, request)
			}))
			if err == nil || !strings.HasPrefix(err.Error(), "read whether the API server serves PodGroup of scheduling.volcano.sh/v1beta1: ") {
				t.Errorf("error %v", err)
			}
			if len(got.Served) > 0 {
				t.Errorf("%+v with the error", got)
			}
		})
	}
}
