// SPDX-License-Identifier: Apache-2.0

package networkpolicy

import (
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write golden files")

func pod(namespace, name, address string, labels map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "web", Protocol: corev1.ProtocolTCP, ContainerPort: 8080}}}}},
		Status:     corev1.PodStatus{PodIP: address, Phase: corev1.PodRunning},
	}
}

// state has two jobs in one namespace and a pod in another.
func state(t *testing.T, policies ...string) State {
	t.Helper()
	finished, onNode := pod("team", "finished", "10.199.128.2", nil), pod("team", "on-node", "10.199.0.2", nil)
	finished.Status.Phase, onNode.Spec.HostNetwork = corev1.PodSucceeded, true
	s := State{
		Addresses: netip.MustParsePrefix("10.199.128.0/17"),
		Pods: []*corev1.Pod{
			pod("other", "web", "10.199.128.5", map[string]string{"app": "web"}),
			pod("team", "b-worker", "10.199.128.4", map[string]string{"job": "b"}),
			pod("team", "a-worker", "10.199.128.3", map[string]string{"job": "a"}),
			pod("team", "a-launcher", "10.199.128.2", map[string]string{"job": "a"}),
			pod("team", "starting", "", map[string]string{"job": "a"}),
			finished, onNode,
		},
		Namespaces: []*corev1.Namespace{
			{ObjectMeta: metav1.ObjectMeta{Name: "team"}},
			{ObjectMeta: metav1.ObjectMeta{Name: "other", Labels: map[string]string{"kubernetes.io/metadata.name": "other"}}},
		},
	}
	for _, text := range policies {
		policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "policy"}}
		if err := yaml.UnmarshalStrict([]byte(text), &policy.Spec); err != nil {
			t.Fatal(err)
		}
		s.Policies = append(s.Policies, policy)
	}
	return s
}

func TestRulesetIsAsReviewed(t *testing.T) {
	got := Ruleset(state(t,
		`{podSelector: {matchLabels: {job: a}}, policyTypes: [Ingress], ingress: [{from: [{podSelector: {matchLabels: {job: a}}}]}]}`,
		`{podSelector: {matchLabels: {job: b}}, policyTypes: [Ingress, Egress], egress: [{ports: [{protocol: UDP, port: 53}, {port: 443}]}]}`,
	))
	file := filepath.Join("testdata", "ruleset.golden")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// chain returns the rules of a chain.
func chain(ruleset, name string) (rules []string) {
	_, rest, found := strings.Cut(ruleset, "\tchain "+name+" {\n")
	if !found {
		return nil
	}
	body, _, _ := strings.Cut(rest, "\t}\n")
	for line := range strings.Lines(body) {
		rules = append(rules, strings.TrimSpace(line))
	}
	return rules
}

// A chain of job a's launcher ends with the drop.
func TestRules(t *testing.T) {
	const drop = `counter drop comment "team/a-launcher"`
	for name, tc := range map[string]struct {
		policies []string
		chain    string
		want     []string
	}{
		"no policy": {chain: "Ingress-10.199.128.2"},
		"a policy for other pods": {
			policies: []string{`{podSelector: {matchLabels: {job: b}}, policyTypes: [Ingress]}`}, chain: "Ingress-10.199.128.2",
		},
		"a policy for the other direction": {
			policies: []string{`{podSelector: {}, policyTypes: [Egress]}`}, chain: "Ingress-10.199.128.2",
		},
		"deny all": {
			policies: []string{`{podSelector: {}, policyTypes: [Ingress]}`}, chain: "Ingress-10.199.128.2", want: []string{drop},
		},
		"allow all": {
			policies: []string{`{podSelector: {}, policyTypes: [Ingress], ingress: [{}]}`}, chain: "Ingress-10.199.128.2", want: []string{"return", drop},
		},
		"blocks of IPv6 are left out": {
			policies: []string{`{podSelector: {}, policyTypes: [Ingress], ingress: [{from: [{ipBlock: {cidr: "::/0"}}, {ipBlock: {cidr: 10.0.0.0/8}}]}]}`},
			chain:    "Ingress-10.199.128.2", want: []string{"ip saddr 10.0.0.0/8 return", drop},
		},
		"policies are added up": {
			policies: []string{
				`{podSelector: {}, policyTypes: [Ingress]}`,
				`{podSelector: {}, policyTypes: [Ingress], ingress: [{ports: [{port: 22}]}]}`,
			},
			chain: "Ingress-10.199.128.2", want: []string{"tcp dport 22 return", drop},
		},
		"a selector without pods allows nothing": {
			policies: []string{`{podSelector: {}, policyTypes: [Ingress], ingress: [{from: [{podSelector: {matchLabels: {job: none}}}]}]}`},
			chain:    "Ingress-10.199.128.2", want: []string{drop},
		},
		"pods of the own namespace": {
			policies: []string{`{podSelector: {}, policyTypes: [Ingress], ingress: [{from: [{podSelector: {}}]}]}`},
			chain:    "Ingress-10.199.128.2", want: []string{"ip saddr { 10.199.128.2, 10.199.128.3, 10.199.128.4 } return", drop},
		},
		"pods of another namespace": {
			policies: []string{`{podSelector: {}, policyTypes: [Ingress], ingress: [{from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: other}}, podSelector: {matchLabels: {app: web}}}]}]}`},
			chain:    "Ingress-10.199.128.2", want: []string{"ip saddr { 10.199.128.5 } return", drop},
		},
		"a block with exceptions, and a range of ports": {
			policies: []string{`{podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 0.0.0.0/0, except: [10.0.0.0/8]}}], ports: [{protocol: UDP, port: 1024, endPort: 2048}]}]}`},
			chain:    "Egress-10.199.128.2", want: []string{"ip daddr 0.0.0.0/0 ip daddr != 10.0.0.0/8 udp dport 1024-2048 return", drop},
		},
		"all ports of a protocol": {
			policies: []string{`{podSelector: {}, policyTypes: [Ingress], ingress: [{ports: [{protocol: UDP}]}]}`},
			chain:    "Ingress-10.199.128.2", want: []string{"meta l4proto udp return", drop},
		},
		"a named port of the pod": {
			policies: []string{`{podSelector: {}, policyTypes: [Ingress], ingress: [{ports: [{port: web}, {port: none}]}]}`},
			chain:    "Ingress-10.199.128.2", want: []string{"tcp dport 8080 return", drop},
		},
		"a named port of the destination": {
			policies: []string{`{podSelector: {}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {job: b}}}], ports: [{port: web}]}]}`},
			chain:    "Egress-10.199.128.2", want: []string{"ip daddr 10.199.128.4 tcp dport 8080 return", drop},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, chain(Ruleset(state(t, tc.policies...)), tc.chain)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The order of objects in a cache is random; the rules must not change with it.
func TestRulesetDoesNotDependOnOrder(t *testing.T) {
	policies := []string{
		`{podSelector: {}, policyTypes: [Ingress], ingress: [{ports: [{port: 22}]}]}`,
		`{podSelector: {}, policyTypes: [Ingress], ingress: [{ports: [{port: 80}]}]}`,
	}
	one, other := state(t, policies...), state(t, policies...)
	slices.Reverse(other.Pods)
	slices.Reverse(other.Policies)
	if diff := cmp.Diff(Ruleset(one), Ruleset(other)); diff != "" {
		t.Error(diff)
	}
}
