// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kuberuntime "k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/internal/testing/deployed"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

// forgedReview says that somebody else has created a job.
func forgedReview(t *testing.T, namespace, name string) []byte {
	t.Helper()
	job := mpiJob(namespace, name)
	raw, err := json.Marshal(job)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "forged", Operation: admissionv1.Create, Namespace: namespace, Name: name, UserInfo: authenticationv1.UserInfo{Username: "ada@example.com"},
			Kind:   metav1.GroupVersionKind{Group: "kubeflow.org", Version: "v2beta1", Kind: "MPIJob"},
			Object: kuberuntime.RawExtension{Raw: raw},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// post sends a review to the operator itself, past the API server.
func (cluster *cluster) post(t *testing.T, path string, review []byte, certificates ...tls.Certificate) (int, string, error) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: certificates}}
	defer transport.CloseIdleConnections()
	url := fmt.Sprintf("https://localhost:%d%s", cluster.port, path)
	response, err := (&http.Client{Transport: transport}).Post(url, "application/json", bytes.NewReader(review))
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}

// auditLine is the one about an object; it arrives a moment after the answer.
func (cluster *cluster) auditLine(t *testing.T, name string) (line map[string]any) {
	t.Helper()
	eventually.Succeeds(t, "the audit", func() error {
		lines := cluster.audit.About(t, name)
		if len(lines) != 1 {
			return fmt.Errorf("there are %d lines about %s", len(lines), name)
		}
		line = lines[0]
		return nil
	})
	return line
}

// A pod that reaches the webhook's port learns nothing, and writes no audit line.
func TestOnlyTheAPIServerIsAnswered(t *testing.T) {
	cluster := sharedCluster.For(t)
	namespace := cluster.namespace(t, nil)
	for _, path := range []string{"/validate/mpijob", "/validate/trainjob", "/validate/trainingruntime", "/validate/clustertrainingruntime", "/mutate/creator"} {
		for name, tc := range map[string]struct {
			certificates []tls.Certificate
			want         int
		}{
			"nobody":                    {nil, http.StatusUnauthorized},
			"a user of the same issuer": {[]tls.Certificate{cluster.authority.Client(t, "mallory")}, http.StatusForbidden},
		} {
			if code, body, err := cluster.post(t, path, forgedReview(t, namespace, "forged"), tc.certificates...); err != nil || code != tc.want || strings.Contains(body, "response") {
				t.Errorf("%s at %s: %d %q (%v), want %d", name, path, code, body, err, tc.want)
			}
		}
		another := deployed.NewAuthority(t).Client(t, deployed.WebhookClient)
		if code, body, err := cluster.post(t, path, forgedReview(t, namespace, "forged"), another); err == nil {
			t.Errorf("the certificate of another issuer at %s: %d %q", path, code, body)
		}
	}
	if code, body, err := cluster.post(t, "/validate/mpijob", forgedReview(t, namespace, "genuine"), cluster.authority.Client(t, deployed.WebhookClient)); err != nil || code != http.StatusOK {
		t.Errorf("the API server's certificate: %d %q (%v)", code, body, err)
	}
	if line := cluster.auditLine(t, "genuine"); line["unverified"] != nil {
		t.Errorf("the audit says %v, want a line that is not marked", line)
	}
	if lines := cluster.audit.About(t, "forged"); len(lines) > 0 {
		t.Errorf("the audit says %v", lines)
	}
}

// Without an authority anybody may be asking: the answer tells nothing of a
// namespace, and the audit line says so.
func TestUnverifiedCallers(t *testing.T) {
	cluster := startClusterOf(t, nil)
	namespace := cluster.namespace(t, nil)
	cluster.create(t, runtime(namespace, "mpi"))
	cluster.quota(t, namespace, "team", resources("requests.nvidia.com/gpu", "3577"), resources("requests.nvidia.com/gpu", "3573"))
	for kind, create := range map[string]func() error{
		"MPIJob":   func() error { return cluster.client.Create(t.Context(), mpiJob(namespace, "large"), dryRun) },
		"TrainJob": func() error { return cluster.client.Create(t.Context(), trainJob(namespace, "large"), dryRun) },
	} {
		err := refusalOf(t, "which does not fit into ResourceQuota team", create)
		for _, secret := range []string{"3577", "3573", "available 4", "Available", "Current usage", "to 2 "} {
			if contains(err, secret) {
				t.Errorf("the answer to a %s tells %q: %v", kind, secret, err)
			}
		}
		if !contains(err, "kubectl describe resourcequota") {
			t.Errorf("the answer to a %s does not say what to do: %v", kind, err)
		}
	}
	for _, path := range []string{"/validate/mpijob", "/validate/mpijob/", "/validate/mpijob/0123456789abcdef0123456789abcdef", "/mutate/creator", "/mutate/creator/"} {
		if code, body, err := cluster.post(t, path, forgedReview(t, "default", "guessed")); err != nil || code != http.StatusNotFound {
			t.Errorf("%s: %d %q (%v), want 404", path, code, body, err)
		}
	}
	// Whoever may read the webhook configuration knows the path.
	if code, body, err := cluster.post(t, cluster.path(t, "mpijob-validation.kubeflow.org"), forgedReview(t, "default", "forged")); err != nil || code != http.StatusOK {
		t.Fatalf("%d %q (%v)", code, body, err)
	}
	if lines := cluster.audit.About(t, "guessed"); len(lines) > 0 {
		t.Errorf("the audit says %v", lines)
	}
	if line := cluster.auditLine(t, "forged"); line["unverified"] != true {
		t.Errorf("the audit says %v, want a line that is marked unverified", line)
	}
}

// path is where the API server calls a webhook.
func (cluster *cluster) path(t *testing.T, webhook string) string {
	t.Helper()
	var configuration admissionregistrationv1.ValidatingWebhookConfiguration
	if err := cluster.client.Get(t.Context(), client.ObjectKey{Name: "trireme"}, &configuration); err != nil {
		t.Fatal(err)
	}
	for i := range configuration.Webhooks {
		if configuration.Webhooks[i].Name == webhook {
			address, err := url.Parse(*configuration.Webhooks[i].ClientConfig.URL)
			if err != nil {
				t.Fatal(err)
			}
			return address.Path
		}
	}
	t.Fatalf("there is no webhook %s", webhook)
	return ""
}

// Replicas agree on the path, and keep it when they restart. A path that somebody
// changes is written again, and a new one is generated where it is removed.
func TestWebhookPathIsShared(t *testing.T) {
	cluster := startClusterOf(t, nil)
	first := cluster.path(t, "mpijob-validation.kubeflow.org")
	if !regexp.MustCompile("^/validate/mpijob/[0-9a-f]{32}$").MatchString(first) {
		t.Fatalf("the path is %s", first)
	}
	replica := cluster.run(t, deployed.Settings(t))
	if again := cluster.path(t, "mpijob-validation.kubeflow.org"); again != first {
		t.Errorf("another replica changed the path from %s to %s", first, again)
	}
	replica.Stop(t)

	deployed.InstallWebhooks(t, cluster.client, cluster.port)
	cluster.waitUntilServed(t)
	if again := cluster.path(t, "mpijob-validation.kubeflow.org"); again != first {
		t.Errorf("the path was %s, and is %s after the configurations were installed again", first, again)
	}

	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: deployed.Namespace, Name: "trireme-webhook"}}
	if err := cluster.client.Patch(t.Context(), secret, client.RawPatch("application/merge-patch+json", []byte(`{"data":{"path":null}}`))); err != nil {
		t.Fatal(err)
	}
	eventually.Succeeds(t, "another path", func() error {
		if now := cluster.path(t, "mpijob-validation.kubeflow.org"); now == first || now == "/validate/mpijob" {
			return fmt.Errorf("it is %s", now)
		}
		return nil
	})
	cluster.waitUntilServed(t)
	// The API server may not know the new one yet.
	if code, body, err := cluster.post(t, first, forgedReview(t, "default", "previous")); err != nil || code != http.StatusOK {
		t.Errorf("the previous path: %d %q (%v)", code, body, err)
	}
}
