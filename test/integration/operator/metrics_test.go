// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/testing/deployed"
)

// prometheus is somebody who may read the metrics of the shared cluster.
var prometheus struct {
	sync.Once
	client *http.Client
	token  string
}

func metricOf(job client.Object, name string) string {
	if isMPIJob(job) {
		return "training_operator_mpijob_" + name
	}
	return "training_operator_trainjob_" + name
}

// runningMetric: that of MPIJobs has a name of its own.
func runningMetric(job client.Object) string {
	if isMPIJob(job) {
		return metricOf(job, "running_total")
	}
	return metricOf(job, "running")
}

// untilMetric waits until a metric has a value; one that is not there has 0.
func (place *place) untilMetric(name, labels string, want float64) {
	place.Helper()
	prometheus.Do(func() { place.installPrometheus() })
	place.Eventually(name+labels, func() error {
		code, body, err := place.scrape(prometheus.token)
		if err != nil || code != http.StatusOK {
			return fmt.Errorf("metrics are answered with %d (%v)", code, err)
		}
		got := 0.0
		for line := range strings.Lines(body) {
			if value, found := strings.CutPrefix(strings.TrimSpace(line), name+labels+" "); found {
				if got, err = strconv.ParseFloat(value, 64); err != nil {
					return err
				}
			}
		}
		if got != want {
			return fmt.Errorf("it is %g, want %g", got, want)
		}
		return nil
	})
}

func (place *place) scrape(token string) (int, string, error) {
	request, err := http.NewRequest(http.MethodGet, "https://"+place.settings.Metrics.BindAddress+"/metrics", nil)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := prometheus.client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}

// installPrometheus makes an account with the role for readers, and trusts the
// operator's authority.
func (place *place) installPrometheus() {
	place.Helper()
	for _, document := range deployed.Manifests(place, "ClusterRole/trireme-metrics-reader") {
		place.cluster.create(place.TB, document)
	}
	prometheus.token = place.tokenOf("prometheus")
	place.cluster.create(place.TB, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "prometheus"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "trireme-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: deployed.Namespace, Name: "prometheus"}},
	})
	var secret corev1.Secret
	if err := place.client.Get(place.Context(), client.ObjectKey{Namespace: deployed.Namespace, Name: place.settings.Webhook.SecretName}, &secret); err != nil {
		place.Fatal(err)
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(secret.Data["ca.crt"]) {
		place.Fatal("the webhook's Secret has no authority")
	}
	prometheus.client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authorities}}}
}

// tokenOf makes an account, and a token of it.
func (place *place) tokenOf(name string) string {
	place.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: deployed.Namespace, Name: name}}
	place.cluster.create(place.TB, account)
	request := &authenticationv1.TokenRequest{}
	if err := place.client.SubResource("token").Create(place.Context(), account, request); err != nil {
		place.Fatal(err)
	}
	return request.Status.Token
}

func TestMetricsAreForReaders(t *testing.T) {
	place := parallel(t)
	prometheus.Do(func() { place.installPrometheus() })
	for who, tc := range map[string]struct {
		token string
		want  int
	}{
		"nobody":                    {want: http.StatusUnauthorized},
		"somebody without the role": {token: place.tokenOf("stranger"), want: http.StatusForbidden},
	} {
		code, body, err := place.scrape(tc.token)
		if err != nil || code != tc.want || strings.Contains(body, "training_operator") {
			t.Errorf("%s is answered with %d (%v), want %d:\n%s", who, code, err, tc.want, body)
		}
	}
}

// Namespaces come and go; their series must not pile up.
func TestMetricsOfADeletedNamespaceGo(t *testing.T) {
	place := parallel(t)
	job := mpiJob("train", func(job *v2beta1.MPIJob) { job.Spec.RunPolicy.Suspend = new(true) })
	place.Create(job)
	labels := fmt.Sprintf("{namespace=%q}", place.Namespace)
	place.untilMetric(metricOf(job, "created_total"), labels, 1)
	// It is suspended by its user, so it waits for nothing.
	place.untilMetric(metricOf(job, "queued_total"), labels, 0)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: place.Namespace}}
	for _, object := range []client.Object{job, namespace} {
		if err := place.client.Delete(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	// What kube-controller-manager does once a namespace is empty.
	if err := place.client.SubResource("finalize").Update(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	place.untilMetric(metricOf(job, "created_total"), labels, 0)
}
