// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
)

// policies are written as people write them: the spec alone, each.
func policies(t *testing.T, specs ...string) func(*Facts) {
	t.Helper()
	return func(facts *Facts) {
		for i, text := range specs {
			policy := networkingv1.NetworkPolicy{}
			policy.Namespace, policy.Name = namespace, "policy-"+string(rune('a'+i))
			if err := yaml.UnmarshalStrict([]byte(text), &policy.Spec); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			facts.Policies.Value = append(facts.Policies.Value, policy)
		}
	}
}

const (
	denyAll     = `{podSelector: {}, policyTypes: [Ingress, Egress]}`
	denyIngress = `{podSelector: {}, policyTypes: [Ingress]}`
	denyEgress  = `{podSelector: {}, policyTypes: [Egress]}`
	allowDNS    = `{podSelector: {}, policyTypes: [Egress], egress: [{ports: [{port: 53, protocol: UDP}]}]}`
	sameJob     = `{podSelector: {}, policyTypes: [Ingress, Egress], ingress: [{from: [{podSelector: {matchLabels: {training.kubeflow.org/job-name: job}}}]}], egress: [{to: [{podSelector: {}}]}]}`
	openAgain   = `{podSelector: {}, policyTypes: [Ingress], ingress: [{}]}`
)

func TestNetwork(t *testing.T) {
	const (
		traffic = "likely: NetworkPolicies block traffic between the job's pods"
		dns     = "likely: NetworkPolicies block DNS for the job's pods"
	)
	in := func(rules string) string {
		return `{podSelector: {}, policyTypes: [Ingress], ingress: [` + rules + `]}`
	}
	table(t, network, pending, map[string]tableCase{
		"no policy":                  {},
		"everything is denied":       {change: policies(t, denyAll), want: []string{traffic, dns}, fix: "template: Restricted"},
		"the way in is denied":       {change: policies(t, denyIngress), want: []string{traffic}, fix: "template: Default"},
		"the way out is denied":      {change: policies(t, denyEgress), want: []string{traffic, dns}, fix: "template: Restricted"},
		"only DNS is open":           {change: policies(t, allowDNS), want: []string{traffic}},
		"the job's pods and DNS":     {change: policies(t, sameJob, allowDNS)},
		"denied, and opened again":   {change: policies(t, denyIngress, openAgain)},
		"other pods are denied":      {change: policies(t, `{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress, Egress]}`)},
		"launchers only are denied":  {change: policies(t, `{podSelector: {matchLabels: {training.kubeflow.org/replica-type: launcher}}, policyTypes: [Ingress]}`), want: []string{traffic}},
		"a policy without its types": {change: policies(t, `{podSelector: {}}`), want: []string{traffic}},
		"one whose types are meant":  {change: policies(t, `{podSelector: {}, ingress: [{}], egress: [{ports: [{port: 443}]}]}`), want: []string{traffic, dns}},

		"port 2222 alone is not enough":       {change: policies(t, in(`{ports: [{port: 2222}]}`)), want: []string{traffic}},
		"2222 and the high ports":             {change: policies(t, in(`{ports: [{port: 2222}, {port: 1024, endPort: 65535}]}`))},
		"the high ports in two parts":         {change: policies(t, in(`{ports: [{port: 2222}, {port: 40001, endPort: 65535}]}, {ports: [{port: 32768, endPort: 40000}]}`))},
		"the high ports with a hole":          {change: policies(t, in(`{ports: [{port: 2222}, {port: 40002, endPort: 65535}, {port: 32768, endPort: 40000}]}`)), want: []string{traffic}},
		"high ports without 2222":             {change: policies(t, in(`{ports: [{port: 30000, endPort: 65535}]}`)), want: []string{traffic}},
		"all ports of UDP":                    {change: policies(t, in(`{ports: [{protocol: UDP}]}`)), want: []string{traffic}},
		"all ports of TCP":                    {change: policies(t, in(`{ports: [{protocol: TCP}]}`))},
		"a port that no pod has":              {change: policies(t, in(`{ports: [{port: ssh}]}`)), want: []string{traffic}},
		"a named port, and the high ones":     {change: all(policies(t, in(`{ports: [{port: agent}, {port: 32768, endPort: 60999}]}`)), withPort("agent", job.AgentPort))},
		"a named port of another number":      {change: all(policies(t, in(`{ports: [{port: agent}, {port: 32768, endPort: 60999}]}`)), withPort("agent", 2200)), want: []string{traffic}},
		"pods of the namespace":               {change: policies(t, in(`{from: [{podSelector: {}}]}`))},
		"pods of another label":               {change: policies(t, in(`{from: [{podSelector: {matchLabels: {app: web}}}]}`)), want: []string{traffic}},
		"pods of this namespace by its name":  {change: policies(t, in(`{from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: team}}}]}`))},
		"pods of another namespace":           {change: policies(t, in(`{from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: other}}}]}`)), want: []string{traffic}},
		"of the namespace, and by label":      {change: policies(t, in(`{from: [{namespaceSelector: {}, podSelector: {matchLabels: {app: web}}}]}`)), want: []string{traffic}},
		"this namespace when it is not known": {change: all(policies(t, in(`{from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: team}}}]}`)), func(facts *Facts) { facts.NamespaceObject = Known[*corev1.Namespace]{} })},
		"every address":                       {change: policies(t, in(`{from: [{ipBlock: {cidr: 0.0.0.0/0}}]}`))},
		"some addresses, pods without any":    {change: policies(t, in(`{from: [{ipBlock: {cidr: 10.0.0.0/8}}]}`)), want: []string{traffic}},
		"the pods' addresses":                 {change: all(policies(t, in(`{from: [{ipBlock: {cidr: 10.0.0.0/8}}]}`)), withAddress)},
		"other addresses":                     {change: all(policies(t, in(`{from: [{ipBlock: {cidr: 192.168.0.0/16}}]}`)), withAddress), want: []string{traffic}},
		"the pods' addresses are excepted":    {change: all(policies(t, in(`{from: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.0.0.0/24]}}]}`)), withAddress), want: []string{traffic}},

		"an sshd of the image's own on 22": {change: all(policies(t, in(`{ports: [{port: 22}, {port: 32768, endPort: 60999}]}`)), func(facts *Facts) { facts.Job.Worker.Template.Spec.Containers[0].Command = []string{"sshd"} })},
		"port 22 and the agent":            {change: policies(t, in(`{ports: [{port: 22}, {port: 32768, endPort: 60999}]}`)), want: []string{traffic}},

		"DNS of kube-system":       {change: policies(t, sameJob, `{podSelector: {}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: kube-system}}}], ports: [{port: 53, protocol: UDP}]}]}`)},
		"DNS of OpenShift":         {change: policies(t, sameJob, `{podSelector: {}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: openshift-dns}}}], ports: [{port: 5353, protocol: UDP}]}]}`)},
		"DNS of the node":          {change: policies(t, sameJob, `{podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 169.254.20.10/32}}], ports: [{port: 53, protocol: UDP}]}]}`)},
		"DNS over TCP only":        {change: policies(t, sameJob, `{podSelector: {}, policyTypes: [Egress], egress: [{ports: [{port: 53}]}]}`), want: []string{dns}},
		"DNS that is not open":     {change: policies(t, sameJob), want: []string{dns}},
		"DNS of a namespace apart": {change: policies(t, sameJob, `{podSelector: {}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: web}}}], ports: [{port: 53, protocol: UDP}]}]}`), want: []string{dns}},

		"a job that runs all the same":    {change: all(policies(t, denyIngress), runs), want: []string{"note: NetworkPolicies block traffic between the job's pods"}},
		"a job that failed for it":        {change: all(policies(t, denyIngress), fails(training.FailureSSHConnection, "ssh")), want: []string{traffic}},
		"a job that failed otherwise":     {change: all(policies(t, denyIngress), fails(training.FailureTraining, "x")), want: []string{"note: NetworkPolicies block traffic between the job's pods"}},
		"a job that succeeded":            {change: all(policies(t, denyIngress), succeeds)},
		"policies that may not be listed": {change: func(facts *Facts) { facts.Policies.Unknown = "may not list networkpolicies" }, want: []string{"not known: NetworkPolicies"}},
	})
}

func withPort(name string, number int32) func(*Facts) {
	return func(facts *Facts) {
		for i := range facts.Pods.Value {
			facts.Pods.Value[i].Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: name, ContainerPort: number}}
		}
	}
}

func withAddress(facts *Facts) {
	for i := range facts.Pods.Value {
		facts.Pods.Value[i].Status.PodIP = "10.0.0.1"
	}
}

func TestBlockageInWords(t *testing.T) {
	facts := pending(kinds()[job.KindMPIJob], policies(t, denyAll, denyIngress))
	want := "policy-a and policy-b block connections from the launcher to the workers on port 2222 (ingress and egress), from workers to the launcher on high ports (ingress and egress), from workers to each other on high ports (ingress and egress)."
	if got := network(facts)[0].Cause; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// What the operator itself makes for a job opens what a namespace has closed.
func TestOwnPolicyHelps(t *testing.T) {
	for kind, model := range kinds() {
		model.NetworkPolicy = training.NetworkPolicyDefault
		if findings := network(submitted(model, policies(t, denyIngress))); len(findings) > 0 {
			t.Errorf("%s with Default: %+v", kind, findings)
		}
		if findings := network(submitted(model, policies(t, denyAll))); len(findings) == 0 {
			t.Errorf("%s with Default opens the way out", kind)
		}
		model.NetworkPolicy = training.NetworkPolicyRestricted
		if findings := network(submitted(model, policies(t, denyAll))); len(findings) > 0 {
			t.Errorf("%s with Restricted: %+v", kind, findings)
		}
		// Once it is stored, the policy is among those of the namespace.
		own := plan.NetworkPolicy(model, []int32{443}, nil)
		own.Namespace = namespace
		if findings := network(pending(model, policies(t, denyAll), func(facts *Facts) { facts.Policies.Value = append(facts.Policies.Value, *own) })); len(findings) > 0 {
			t.Errorf("%s with Restricted, stored: %+v", kind, findings)
		}
	}
}

// A namespace is asked without a job.
func TestNetworkOfANamespace(t *testing.T) {
	facts := func(specs ...string) *Facts {
		return submitted(kinds()[job.KindMPIJob], policies(t, specs...), func(facts *Facts) { facts.Job, facts.Name, facts.Kind = nil, "", "" })
	}
	if findings := network(facts(denyIngress)); len(findings) != 1 || findings[0].Rank != Likely {
		t.Errorf("%+v", findings)
	}
	if findings := network(facts(`{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress]}`)); len(findings) > 0 {
		t.Errorf("%+v", findings)
	}
}

func TestNames(t *testing.T) {
	started := func(facts *Facts) {
		for i := range facts.Pods.Value {
			facts.Pods.Value[i].Status.Phase, facts.Pods.Value[i].Status.PodIP = corev1.PodRunning, "10.0.0.1"
		}
	}
	noEndpoints := func(facts *Facts) { facts.Endpoints.Value = []discoveryv1.EndpointSlice{{}} }
	nameserver := func(ready corev1.ConditionStatus) func(*Facts) {
		return func(facts *Facts) {
			facts.Nameservers.Value = append(facts.Nameservers.Value, corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}}})
		}
	}
	noService := func(facts *Facts) { facts.Service.Value = nil }
	table(t, names, pending, map[string]tableCase{
		"names that are published":        {change: started},
		"a Service that is missing":       {change: noService, want: []string{"likely: The job's Service is missing"}, fix: "kubectl logs"},
		"a Service before there are pods": {change: all(noService, withoutPods)},
		"pods without an address":         {change: noEndpoints},
		"names that are not published":    {change: all(started, noEndpoints), want: []string{"likely: The job's Service has no endpoints"}, fix: "kubectl describe service job-worker -n team"},
		"one nameserver of two":           {change: all(nameserver("False"), nameserver("True"))},
		"no nameserver that is ready":     {change: nameserver("False"), want: []string{"likely: Cluster DNS is not ready"}, fix: "k8s-app=kube-dns"},
		"a job that runs":                 {change: all(runs, noService, nameserver("False"))},
		"a Service that may not be read":  {change: func(facts *Facts) { facts.Service = Known[*corev1.Service]{Unknown: "may not get"} }, want: []string{"not known: The job's Service"}},
		"endpoints that may not be read":  {change: func(facts *Facts) { facts.Endpoints.Unknown = "may not list" }, want: []string{"not known: Endpoints of the job's Service"}},
	})
}
