// SPDX-License-Identifier: Apache-2.0

package addon

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/trireme-mpi/trireme/cluster/internal/component"
	"github.com/trireme-mpi/trireme/cluster/internal/layout"
)

const authority = "-----BEGIN CERTIFICATE-----\nnot really\n-----END CERTIFICATE-----\n"

// The manifests as controller-gen writes them for JobSet, but shorter.
var jobSetManifests = map[string]string{
	"jobset-crd.yaml": `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: jobsets.jobset.x-k8s.io
`,
	"jobset-role.yaml": `---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: manager-role
rules:
- apiGroups: [batch]
  resources: [jobs]
  verbs: [create]
`,
	"jobset-webhook.yaml": `---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata:
  name: mutating-webhook-configuration
webhooks:
- name: mjobset.kb.io
  clientConfig:
    service: {name: webhook-service, namespace: system, path: /mutate-jobset-x-k8s-io-v1alpha2-jobset}
  failurePolicy: Fail
- name: mpod.kb.io
  clientConfig:
    service: {name: webhook-service, namespace: system, path: /mutate--v1-pod}
  failurePolicy: Fail
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata:
  name: validating-webhook-configuration
webhooks:
- name: vjobset.kb.io
  clientConfig:
    service: {name: webhook-service, namespace: system, path: /validate-jobset-x-k8s-io-v1alpha2-jobset}
  failurePolicy: Fail
- name: vpod.kb.io
  clientConfig:
    service: {name: webhook-service, namespace: system, path: /validate--v1-pod}
  failurePolicy: Fail
`,
}

// prepare writes what the build and `up` would have.
func prepare(t *testing.T) (l layout.Layout, kubernetes string) {
	t.Helper()
	network, err := layout.ParseNetwork("10.199.0.0/16")
	if err != nil {
		t.Fatal(err)
	}
	l = layout.Layout{Name: "mine", Data: t.TempDir(), Network: network}
	if err := os.Mkdir(l.PKI(), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(l.PKI(), component.ClusterAuthority+".crt"), authority)
	kubernetes = t.TempDir()
	for name, content := range jobSetManifests {
		write(t, filepath.Join(kubernetes, name), content)
	}
	return l, kubernetes
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func names(objects []*unstructured.Unstructured) []string {
	var all []string
	for _, object := range objects {
		all = append(all, object.GetKind()+" "+object.GetName())
	}
	return all
}

func TestObjects(t *testing.T) {
	l, kubernetes := prepare(t)
	objects, err := Objects(l, kubernetes)
	if err != nil {
		t.Fatal(err)
	}
	got := names(objects)
	for _, want := range []string{
		"StorageClass local",
		"CustomResourceDefinition jobsets.jobset.x-k8s.io",
		"ClusterRole trireme:jobset",
		"MutatingWebhookConfiguration jobset-mutating-webhook-configuration",
		"ValidatingWebhookConfiguration jobset-validating-webhook-configuration",
		"ClusterRoleBinding trireme:kube-apiserver-kubelet-client",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("%s is missing among %q", want, got)
		}
	}
	// A webhook that exists before the controller's rights do would refuse
	// pods for longer than needed.
	if first, last := got[0], got[len(got)-1]; !strings.HasPrefix(first, "ClusterRole") || !strings.Contains(last, "WebhookConfiguration") {
		t.Errorf("rights do not come first and webhooks last: %q", got)
	}
	twice := map[string]bool{}
	for _, name := range got {
		if twice[name] {
			t.Errorf("%s exists twice: one would overwrite the other", name)
		}
		twice[name] = true
	}
}

// Each right belongs to the user of a certificate; a typing error would show
// only as a component that may do nothing.
func TestRightsGoToUsersThatExist(t *testing.T) {
	l, kubernetes := prepare(t)
	objects, err := Objects(l, kubernetes)
	if err != nil {
		t.Fatal(err)
	}
	users, roles := map[string]bool{}, map[string]bool{}
	for _, leaf := range component.Leaves(l)[component.ClusterAuthority] {
		users[leaf.CommonName] = true
	}
	for _, object := range objects {
		if object.GetKind() == "ClusterRole" {
			roles[object.GetName()] = true
		}
	}
	bound := map[string]bool{}
	for _, object := range objects {
		if object.GetKind() != "ClusterRoleBinding" {
			continue
		}
		role, _, _ := unstructured.NestedString(object.Object, "roleRef", "name")
		if !roles[role] && !strings.HasPrefix(role, "system:") {
			t.Errorf("%s gives the role %s, which does not exist", object.GetName(), role)
		}
		if role == "cluster-admin" {
			t.Errorf("%s allows everything", object.GetName())
		}
		subjects, _, _ := unstructured.NestedSlice(object.Object, "subjects")
		for _, subject := range subjects {
			fields := subject.(map[string]any)
			name, _ := fields["name"].(string)
			if fields["kind"] != "User" || !users[name] {
				t.Errorf("%s is for %v, who has no certificate", object.GetName(), fields)
			}
			bound[name] = true
		}
	}
	for _, client := range []string{"trireme:coredns", "trireme:storage", "trireme:jobset", "trireme:kwok"} {
		if !bound[client] {
			t.Errorf("%s may do nothing", client)
		}
	}
}

func TestWebhooksAreReachedByAddress(t *testing.T) {
	l, kubernetes := prepare(t)
	objects, err := Objects(l, kubernetes)
	if err != nil {
		t.Fatal(err)
	}
	onlyJobSets := map[string]any{"matchExpressions": []any{
		map[string]any{"key": "jobset.sigs.k8s.io/jobset-name", "operator": "Exists"},
	}}
	client := func(path string) map[string]any {
		return map[string]any{
			"url":      "https://10.199.0.2:9443" + path,
			"caBundle": base64.StdEncoding.EncodeToString([]byte(authority)),
		}
	}
	want := map[string]any{
		"mjobset.kb.io": map[string]any{"clientConfig": client("/mutate-jobset-x-k8s-io-v1alpha2-jobset"), "failurePolicy": "Fail"},
		"vjobset.kb.io": map[string]any{"clientConfig": client("/validate-jobset-x-k8s-io-v1alpha2-jobset"), "failurePolicy": "Fail"},
		"mpod.kb.io":    map[string]any{"clientConfig": client("/mutate--v1-pod"), "failurePolicy": "Fail", "objectSelector": onlyJobSets},
		"vpod.kb.io":    map[string]any{"clientConfig": client("/validate--v1-pod"), "failurePolicy": "Fail", "objectSelector": onlyJobSets},
	}
	got := map[string]any{}
	for _, object := range objects {
		webhooks, _, err := unstructured.NestedSlice(object.Object, "webhooks")
		if err != nil {
			t.Fatal(err)
		}
		for _, webhook := range webhooks {
			fields := webhook.(map[string]any)
			name := fields["name"].(string)
			delete(fields, "name")
			got[name] = fields
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("webhooks (-want +got):\n%s", diff)
	}
}

func TestObjectsSaysWhatIsWrong(t *testing.T) {
	tests := map[string]struct {
		damage    func(t *testing.T, l layout.Layout, kubernetes string)
		wantError string
	}{
		"a manifest is missing": {
			damage: func(t *testing.T, _ layout.Layout, kubernetes string) {
				if err := os.Remove(filepath.Join(kubernetes, "jobset-role.yaml")); err != nil {
					t.Fatal(err)
				}
			},
			wantError: "jobset-role.yaml",
		},
		"the authority is missing": {
			damage: func(t *testing.T, l layout.Layout, _ string) {
				if err := os.RemoveAll(l.PKI()); err != nil {
					t.Fatal(err)
				}
			},
			wantError: component.ClusterAuthority + ".crt",
		},
		"a manifest does not parse": {
			damage: func(t *testing.T, _ layout.Layout, kubernetes string) {
				write(t, filepath.Join(kubernetes, "jobset-crd.yaml"), "a: [")
			},
			wantError: "jobset-crd.yaml",
		},
		"webhooks have moved in a newer JobSet": {
			damage: func(t *testing.T, _ layout.Layout, kubernetes string) {
				write(t, filepath.Join(kubernetes, "jobset-webhook.yaml"), "kind: MutatingWebhookConfiguration\nmetadata: {name: m}\n")
			},
			wantError: "jobset-m has no webhooks",
		},
		"a webhook is no object": {
			damage: func(t *testing.T, _ layout.Layout, kubernetes string) {
				write(t, filepath.Join(kubernetes, "jobset-webhook.yaml"), "kind: MutatingWebhookConfiguration\nmetadata: {name: m}\nwebhooks: [text]\n")
			},
			wantError: "webhook 0 is not an object",
		},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			l, kubernetes := prepare(t)
			test.damage(t, l, kubernetes)
			_, err := Objects(l, kubernetes)
			if err == nil || !strings.Contains(err.Error(), test.wantError) {
				t.Fatalf("error %v, want one with %q", err, test.wantError)
			}
			if strings.Contains(err.Error(), "%!") {
				t.Errorf("error %q has an argument too few or too many", err)
			}
		})
	}
}

// fakeAPIServer knows the resources of the addons and notes what is applied.
func fakeAPIServer(t *testing.T, refuse string) (config *rest.Config, applied *[]string) {
	t.Helper()
	resources := map[string][]metav1.APIResource{
		"rbac.authorization.k8s.io/v1":    {{Name: "clusterroles", Kind: "ClusterRole"}, {Name: "clusterrolebindings", Kind: "ClusterRoleBinding"}},
		"storage.k8s.io/v1":               {{Name: "storageclasses", Kind: "StorageClass"}},
		"apiextensions.k8s.io/v1":         {{Name: "customresourcedefinitions", Kind: "CustomResourceDefinition"}},
		"admissionregistration.k8s.io/v1": {{Name: "mutatingwebhookconfigurations", Kind: "MutatingWebhookConfiguration"}, {Name: "validatingwebhookconfigurations", Kind: "ValidatingWebhookConfiguration"}},
	}
	groups := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	for groupVersion := range resources {
		group, version, _ := strings.Cut(groupVersion, "/")
		discovery := metav1.GroupVersionForDiscovery{GroupVersion: groupVersion, Version: version}
		groups.Groups = append(groups.Groups, metav1.APIGroup{Name: group, Versions: []metav1.GroupVersionForDiscovery{discovery}, PreferredVersion: discovery})
	}
	applied = &[]string{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		groupVersion, isGroup := strings.CutPrefix(r.URL.Path, "/apis/")
		switch {
		case r.Method == http.MethodPatch:
			body, _ := io.ReadAll(r.Body)
			// One request at a time: nothing else touches the list.
			*applied = append(*applied, r.URL.Path)
			if r.URL.Query().Get("fieldManager") != fieldManager || r.URL.Query().Get("force") != "true" ||
				r.Header.Get("Content-Type") != "application/apply-patch+yaml" {
				t.Errorf("%s %s with type %s is no forced server-side apply", r.Method, r.URL, r.Header.Get("Content-Type"))
			}
			if refuse != "" && strings.Contains(r.URL.Path, refuse) {
				w.WriteHeader(http.StatusForbidden)
				_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Message: "not today", Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden})
				return
			}
			_, _ = w.Write(body)
		case r.URL.Path == "/api":
			_ = json.NewEncoder(w).Encode(metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}})
		case r.URL.Path == "/apis":
			_ = json.NewEncoder(w).Encode(groups)
		case isGroup && resources[groupVersion] != nil:
			_ = json.NewEncoder(w).Encode(metav1.APIResourceList{
				TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: groupVersion, APIResources: resources[groupVersion],
			})
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL}, applied
}

func TestApplySendsEveryObject(t *testing.T) {
	l, kubernetes := prepare(t)
	config, applied := fakeAPIServer(t, "")
	if err := Apply(context.Background(), config, l, kubernetes); err != nil {
		t.Fatal(err)
	}
	objects, err := Objects(l, kubernetes)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, object := range objects {
		plural := strings.ToLower(object.GetKind()) + "s"
		if object.GetKind() == "StorageClass" {
			plural = "storageclasses"
		}
		want = append(want, "/apis/"+object.GetAPIVersion()+"/"+plural+"/"+object.GetName())
	}
	if diff := cmp.Diff(want, *applied); diff != "" {
		t.Errorf("applied (-want +got):\n%s", diff)
	}
}

func TestApplyNamesTheObjectThatIsRefused(t *testing.T) {
	l, kubernetes := prepare(t)
	config, _ := fakeAPIServer(t, "storageclasses")
	err := Apply(context.Background(), config, l, kubernetes)
	if err == nil || !strings.Contains(err.Error(), "apply StorageClass local") || !strings.Contains(err.Error(), "not today") {
		t.Errorf("error %v does not say which object was refused and why", err)
	}
}
