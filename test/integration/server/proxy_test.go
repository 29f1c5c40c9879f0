// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/internal/testing/deployed"
)

func TestHeadersOfAProxy(t *testing.T) {
	cluster := sharedCluster.For(t)
	jane := cluster.person(t, "jane")
	ours, others := newAuthority(t), newAuthority(t)
	program := cluster.startServer(t, "--proxy-ca-file", deployed.Write(t, "proxies.crt", ours.pem), "--proxy-names", "oauth-proxy")
	url := program.url + "/api/v1/namespaces/" + jane.namespace + "/mpijobs"
	for name, test := range map[string]struct {
		client  *http.Client
		headers []string
		code    int
		message string
	}{
		"no certificate":                  {client: insecure, headers: []string{"X-Forwarded-User", "jane", "X-Forwarded-Access-Token", jane.token}, code: 401, message: "the request has no token"},
		"a certificate of somebody else":  {client: clientWith(others.issue(t, "oauth-proxy")), headers: []string{"X-Forwarded-Access-Token", jane.token}, code: 401, message: "the request has no token"},
		"a certificate of another's name": {client: clientWith(ours.issue(t, "jane")), headers: []string{"X-Forwarded-Access-Token", jane.token}, code: 401, message: "the request has no token"},
		"the proxy with a token":          {client: clientWith(ours.issue(t, "oauth-proxy")), headers: []string{"X-Forwarded-Access-Token", jane.token}, code: 200},
		"the proxy without a token":       {client: clientWith(ours.issue(t, "oauth-proxy")), headers: []string{"X-Forwarded-User", "jane"}, code: 401, message: "sends no token for that user"},
		"a certificate does not hurt":     {client: clientWith(others.issue(t, "x")), headers: []string{"Authorization", "Bearer " + jane.token}, code: 200},
	} {
		t.Run(name, func(t *testing.T) {
			if got := askWith(t, test.client, http.MethodGet, url, "", nil, test.headers...); got.code != test.code || !strings.Contains(got.told.Message, test.message) {
				t.Errorf("%d %s", got.code, got.body)
			}
		})
	}
}

// A proxy that is believed acts for whom it names, with that user's rights: also the
// API server sees the user.
func TestProxyThatIsBelieved(t *testing.T) {
	cluster := sharedCluster.For(t)
	jane, max := cluster.person(t, "jane"), cluster.person(t, "max")
	cluster.create(t, deployed.ManifestsWith(t, "complete", "ClusterRole*/trireme-server-impersonation"))
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: jane.namespace, Name: "team"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "mpijob-user"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "team-cv"}},
	}
	if err := cluster.client.Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	authority := newAuthority(t)
	program := cluster.startServer(t, "--proxy-ca-file", deployed.Write(t, "proxies.crt", authority.pem), "--proxy-names", "oauth-proxy", "--impersonate", "--proxy-groups-header", "X-Forwarded-Groups")
	proxy := clientWith(authority.issue(t, "oauth-proxy"))
	for name, test := range map[string]struct {
		method, namespace, groups, body string
		code                            int
	}{
		"reads where the group may":        {method: http.MethodGet, namespace: jane.namespace, groups: "team-cv", code: 200},
		"writes where the group may":       {method: http.MethodPost, namespace: jane.namespace, groups: "team-cv", body: simpleMPIJob("hello"), code: 201},
		"does not read without the group":  {method: http.MethodGet, namespace: jane.namespace, groups: "team-nlp", code: 403},
		"does not write without the group": {method: http.MethodPost, namespace: jane.namespace, groups: "team-nlp", body: simpleMPIJob("other"), code: 403},
		"does not read across the border":  {method: http.MethodGet, namespace: max.namespace, groups: "team-cv", code: 403},
		"is none of the cluster's own":     {method: http.MethodGet, namespace: max.namespace, groups: "system:masters", code: 401},
		"does not write across the border": {method: http.MethodPost, namespace: max.namespace, groups: "team-cv", body: simpleMPIJob("other"), code: 403},
	} {
		t.Run(name, func(t *testing.T) {
			got := askWith(t, proxy, test.method, program.url+"/api/v1/namespaces/"+test.namespace+"/mpijobs", "", strings.NewReader(test.body),
				"X-Forwarded-User", "paula", "X-Forwarded-Groups", test.groups)
			if got.code != test.code || got.code == 403 && !strings.Contains(got.told.Message, "paula") {
				t.Errorf("%d %s", got.code, got.body)
			}
		})
	}
}
