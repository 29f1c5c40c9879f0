// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/internal/engine/config"
	"github.com/trireme-mpi/trireme/internal/testing/deployed"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

// Two replicas: each answers, one leads, and the other one leads when the first
// ends.
func TestReplicas(t *testing.T) {
	cluster := startCluster(t)
	if err := cluster.client.Delete(t.Context(), leadingTest()); err != nil {
		t.Fatal(err)
	}
	first := cluster.wantLeader(t, func(holder string) bool { return holder != "" })

	metrics := fmt.Sprintf("localhost:%d", deployed.FreePort(t))
	settings := deployed.Settings(t, func(settings *config.Config) { settings.Metrics.BindAddress = metrics })
	replica := cluster.run(t, settings)
	if holder, err := cluster.leader(t); err != nil || holder != first {
		t.Errorf("the second replica took the lead from %s: %s (%v)", first, holder, err)
	}
	deployed.InstallWebhooks(t, cluster.client, settings.Webhook.Port)
	cluster.waitUntilServed(t)
	t.Run("metrics", func(t *testing.T) { onlyReadersGetMetrics(t, cluster, metrics) })

	stopped := time.Now()
	cluster.operator.Stop(t)
	if took := time.Since(stopped); took > 10*time.Second {
		t.Errorf("an operator without work took %s to end", took)
	}
	stopped = time.Now()
	second := cluster.wantLeader(t, func(holder string) bool { return holder != "" && holder != first })
	// Without the Lease being given back it would be 15 s.
	if took := time.Since(stopped); took > 8*time.Second {
		t.Errorf("nobody led for %s", took)
	}
	replica.Stop(t)
	if holder, err := cluster.leader(t); err != nil || holder != "" {
		t.Errorf("%s ended, and %q leads (%v)", second, holder, err)
	}
}

func (cluster *cluster) leader(t *testing.T) (string, error) {
	t.Helper()
	var lease coordinationv1.Lease
	if err := cluster.client.Get(t.Context(), client.ObjectKeyFromObject(leadingTest()), &lease); err != nil {
		return "", err
	}
	if lease.Spec.HolderIdentity == nil {
		return "", nil
	}
	return *lease.Spec.HolderIdentity, nil
}

func (cluster *cluster) wantLeader(t *testing.T, wanted func(string) bool) (holder string) {
	t.Helper()
	eventually.Succeeds(t, "somebody leads", func() (err error) {
		if holder, err = cluster.leader(t); err == nil && !wanted(holder) {
			return fmt.Errorf("%q leads", holder)
		}
		return err
	})
	return holder
}

func onlyReadersGetMetrics(t *testing.T, cluster *cluster, address string) {
	reader := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "prometheus"}}
	cluster.create(t, reader)
	request := &authenticationv1.TokenRequest{}
	if err := cluster.client.SubResource("token").Create(t.Context(), reader, request); err != nil {
		t.Fatal(err)
	}
	token := request.Status.Token
	scraper := cluster.scraper(t)
	ask := func(method, token string) (int, string) {
		t.Helper()
		code, body, err := scrape(t, scraper, method, "https://"+address+"/metrics", token)
		if err != nil {
			t.Fatal(err)
		}
		return code, body
	}
	for name, tc := range map[string]struct {
		token string
		want  int
	}{
		"nobody":                    {want: http.StatusUnauthorized},
		"somebody unknown":          {token: "Bearer x", want: http.StatusUnauthorized},
		"somebody without a right":  {token: "Bearer " + token, want: http.StatusForbidden},
		"a token in another scheme": {token: "Basic " + token, want: http.StatusUnauthorized},
		"no token at all":           {token: "Bearer ", want: http.StatusUnauthorized},
	} {
		if code, body := ask(http.MethodGet, tc.token); code != tc.want || strings.Contains(body, "go_") {
			t.Errorf("%s is answered with %d, want %d:\n%s", name, code, tc.want, body)
		}
	}
	for _, document := range deployed.Manifests(t, "ClusterRole/trireme-metrics-reader") {
		cluster.createIfMissing(t, document)
	}
	cluster.create(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "prometheus"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "trireme-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: "prometheus"}},
	})
	eventually.Succeeds(t, "metrics for whoever has the right", func() error {
		if code, body := ask(http.MethodGet, "Bearer "+token); code != http.StatusOK || !strings.Contains(body, "controller_runtime_webhook_requests_total") {
			return fmt.Errorf("%d:\n%s", code, body)
		}
		return nil
	})
	// The right is to read.
	if code, _ := ask(http.MethodPost, "Bearer "+token); code != http.StatusForbidden {
		t.Errorf("whoever may read, and posts, is answered with %d", code)
	}
	if code, body, err := scrape(t, http.DefaultClient, http.MethodGet, "http://"+address+"/metrics", "Bearer "+token); err == nil && code == http.StatusOK {
		t.Errorf("metrics without TLS: %s", body)
	}
}

// scraper trusts the authority that the webhook's Secret names, and no other.
func (cluster *cluster) scraper(t *testing.T) *http.Client {
	t.Helper()
	var secret corev1.Secret
	if err := cluster.client.Get(t.Context(), client.ObjectKey{Namespace: deployed.Namespace, Name: config.Default().Webhook.SecretName}, &secret); err != nil {
		t.Fatal(err)
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(secret.Data["ca.crt"]) {
		t.Fatal(errors.New("the Secret has no authority"))
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authorities}}}
}

func scrape(t *testing.T, scraper *http.Client, method, address, authorization string) (int, string, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	if authorization != "" {
		request.Header.Set("Authorization", authorization)
	}
	response, err := scraper.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}
