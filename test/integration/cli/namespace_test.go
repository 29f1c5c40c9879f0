// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// want fails unless a command succeeded and printed these lines.
func (o outcome) want(t *testing.T, lines ...string) {
	t.Helper()
	if got, want := o.stdout, strings.Join(lines, "\n")+"\n"; o.code != 0 || got != want {
		t.Errorf("exit code %d, want 0\ngot:\n%s\nwant:\n%s\nstderr:\n%s", o.code, got, want, o.stderr)
	}
}

func TestNamespacePrepare(t *testing.T) {
	cluster := startCluster(t)
	const password = "not-for-anybody"
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster.namespace(t), Name: "registry"}, Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{"registry.example":{"auth":"` + password + `"}}}`)},
	}
	if err := cluster.client.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	arguments := []string{"namespace", "prepare", "vision", "--editor", "group:vision", "--quota", "pods=10", "--pull-secret", secret.Namespace + "/registry"}
	prepare := func(more ...string) outcome {
		made := run(t, cluster.kubeconfig, "", append(arguments, more...)...)
		if strings.Contains(made.stdout+made.stderr, password) {
			t.Error("the secret is printed")
		}
		return made
	}
	lines := func(action string) (all []string) {
		for _, name := range []string{"namespace/vision", "resourcequota/trireme", "limitrange/trireme", "networkpolicy/trireme-default-deny",
			"networkpolicy/trireme-dns", "networkpolicy/trireme-jobs", "rolebinding/trireme-editors-trainjob-editor",
			"rolebinding/trireme-editors-mpijob-user", "secret/registry"} {
			all = append(all, name+" "+action)
		}
		return all
	}
	prepare("--dry-run=server").want(t, lines("created (server dry run)")...)
	if err := cluster.client.Get(t.Context(), client.ObjectKey{Name: "vision"}, &corev1.Namespace{}); !apierrors.IsNotFound(err) {
		t.Fatalf("a dry run created the namespace: %v", err)
	}
	prepare().want(t, lines("created")...)
	prepare().want(t, lines("unchanged")...)
	prepare("--dry-run=server").want(t, lines("unchanged (server dry run)")...)

	var copied corev1.Secret
	if err := cluster.client.Get(t.Context(), client.ObjectKey{Namespace: "vision", Name: "registry"}, &copied); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(copied.Data[corev1.DockerConfigJsonKey]), password) || copied.Type != secret.Type {
		t.Error("the secret is not a copy")
	}
	if got := prepare("-o", "yaml"); got.code != 0 || strings.Contains(got.stdout, "kind: Secret") || !strings.Contains(got.stdout, "kind: LimitRange") {
		t.Errorf("-o yaml: exit code %d\n%s%s", got.code, got.stdout, got.stderr)
	}

	t.Run("a change of somebody else", func(t *testing.T) { changedByAnother(t, cluster) })
	t.Run("without permission", func(t *testing.T) { withoutPermission(t, cluster) })
	t.Run("a role that the caller may not grant", func(t *testing.T) { escalation(t, cluster) })
}

// changedByAnother: a field that an administrator has set is not overwritten.
func changedByAnother(t *testing.T, cluster *cluster) {
	var policy networkingv1.NetworkPolicy
	if err := cluster.client.Get(t.Context(), client.ObjectKey{Namespace: "vision", Name: "trireme-jobs"}, &policy); err != nil {
		t.Fatal(err)
	}
	policy.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{}}
	if err := cluster.client.Update(t.Context(), &policy, client.FieldOwner("somebody")); err != nil {
		t.Fatal(err)
	}
	refused := run(t, cluster.kubeconfig, "", "namespace", "prepare", "vision", "--quota", "pods=77")
	if refused.code == 0 || !strings.Contains(refused.stderr, "--force-conflicts") || !strings.Contains(refused.stderr, "somebody") {
		t.Errorf("exit code %d\n%s", refused.code, refused.stderr)
	}
	var quota corev1.ResourceQuota
	if err := cluster.client.Get(t.Context(), client.ObjectKey{Namespace: "vision", Name: "trireme"}, &quota); err != nil {
		t.Fatal(err)
	}
	if pods := quota.Spec.Hard[corev1.ResourcePods]; pods.String() != "10" {
		t.Errorf("the quota was changed to %s although the command failed", pods.String())
	}
	forced := run(t, cluster.kubeconfig, "", "namespace", "prepare", "vision", "--quota", "pods=77", "--force-conflicts")
	if forced.code != 0 || !strings.Contains(forced.stdout, "networkpolicy/trireme-jobs configured") || !strings.Contains(forced.stdout, "resourcequota/trireme configured") {
		t.Errorf("exit code %d\n%s%s", forced.code, forced.stdout, forced.stderr)
	}
}

// withoutPermission: somebody who may do almost everything is refused, and nothing is
// created.
func withoutPermission(t *testing.T, cluster *cluster) {
	almost := cluster.identity(t, "almost")
	grant(t, cluster, "almost",
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces", "resourcequotas", "limitranges"}, Verbs: []string{"get", "create", "patch"}})
	refused := run(t, almost, "", "namespace", "prepare", "half")
	if refused.code != 4 || !strings.Contains(refused.stderr, "create networkpolicies") || strings.Contains(refused.stderr, "create limitranges") {
		t.Errorf("exit code %d\n%s", refused.code, refused.stderr)
	}
	if err := cluster.client.Get(t.Context(), client.ObjectKey{Name: "half"}, &corev1.Namespace{}); !apierrors.IsNotFound(err) {
		t.Errorf("a namespace is half made: %v", err)
	}
}

// escalation: who may create RoleBindings, but not grant these roles, is refused before
// anything is changed.
func escalation(t *testing.T, cluster *cluster) {
	some := cluster.identity(t, "some")
	all := []string{"get", "create", "patch"}
	grant(t, cluster, "some",
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces", "limitranges"}, Verbs: all},
		rbacv1.PolicyRule{APIGroups: []string{"networking.k8s.io"}, Resources: []string{"networkpolicies"}, Verbs: all},
		rbacv1.PolicyRule{APIGroups: []string{"rbac.authorization.k8s.io"}, Resources: []string{"rolebindings"}, Verbs: all})
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "trainjob-editor"},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{"kubeflow.org"}, Resources: []string{"trainjobs"}, Verbs: []string{"create"}}}}
	if err := cluster.client.Create(t.Context(), role); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"unborn": "bind clusterroles trainjob-editor", "vision": "trireme-editors-trainjob-editor"} {
		refused := run(t, some, "", "namespace", "prepare", name, "--editor", "user:some", "--default-requests", "cpu=7", "--force-conflicts")
		if refused.code != 4 || !strings.Contains(refused.stderr, want) {
			t.Errorf("%s: exit code %d\n%s", name, refused.code, refused.stderr)
		}
	}
	if err := cluster.client.Get(t.Context(), client.ObjectKey{Name: "unborn"}, &corev1.Namespace{}); !apierrors.IsNotFound(err) {
		t.Errorf("a namespace is half made: %v", err)
	}
	var limits corev1.LimitRange
	if err := cluster.client.Get(t.Context(), client.ObjectKey{Namespace: "vision", Name: "trireme"}, &limits); err != nil {
		t.Fatal(err)
	}
	if cpu := limits.Spec.Limits[0].DefaultRequest.Cpu(); cpu.String() != "100m" {
		t.Errorf("the LimitRange was changed to %s although the command failed", cpu)
	}
}

// grant gives a user permissions in the whole cluster.
func grant(t *testing.T, cluster *cluster, user string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: rules}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	for _, object := range []client.Object{role, binding} {
		if err := cluster.client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
}
