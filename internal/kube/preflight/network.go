// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
)

var (
	agentPort = ports{corev1.ProtocolTCP, job.AgentPort, job.AgentPort}
	// sshPort: the sshd of an image may listen here instead.
	sshPort = ports{corev1.ProtocolTCP, 22, 22}
	// highPorts is the ephemeral port range of Linux: mpirun's daemons connect back on
	// these ports, and ranks connect to each other.
	highPorts = ports{corev1.ProtocolTCP, 32768, 60999}
)

// blockage is a flow that policies block.
type blockage struct {
	what      string
	direction networkingv1.PolicyType
	policies  []string
}

// network finds NetworkPolicies that block traffic between the job's pods or to DNS.
func network(facts *Facts) []Finding {
	if facts.hasSucceeded() {
		return nil
	}
	if facts.Policies.Unknown != "" {
		return unknown("NetworkPolicies", facts.Policies.Unknown)
	}
	policies := facts.policies()
	var findings []Finding
	if blocked := facts.blockages(policies); len(blocked) > 0 {
		findings = append(findings, facts.blockedTraffic(blocked))
	}
	return append(findings, facts.blockedDNS(policies)...)
}

// policies returns those of the namespace, with the one that the operator will create
// for the job.
func (facts *Facts) policies() []networkingv1.NetworkPolicy {
	policies := facts.Policies.Value
	if facts.Stored || facts.Job == nil || facts.Job.NetworkPolicy == "" {
		return policies
	}
	own := plan.NetworkPolicy(facts.Job, nil, nil)
	own.Namespace = facts.Namespace
	return append(slices.Clone(policies), *own)
}

// blockages returns the connections of the job that policies block.
func (facts *Facts) blockages(policies []networkingv1.NetworkPolicy) (blocked []blockage) {
	launcher, worker := facts.side(training.RoleLauncher), facts.side(training.RoleWorker)
	for _, needed := range []struct {
		from, to side
		what     string
		// either: one of these ports is enough.
		either []ports
	}{
		{launcher, worker, "the launcher to the workers on port 2222", facts.loginPorts()},
		{worker, launcher, "workers to the launcher on high ports", []ports{highPorts}},
		{worker, worker, "workers to each other on high ports", []ports{highPorts}},
	} {
		if needed.from.pod == nil || needed.to.pod == nil {
			continue
		}
		for _, direction := range []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress} {
			var blocking []*networkingv1.NetworkPolicy
			for _, ports := range needed.either {
				if blocking = blockedBy(policies, flow{needed.from, needed.to, ports}, direction); blocking == nil {
					break
				}
			}
			if blocking != nil {
				blocked = append(blocked, blockage{needed.what, direction, namesOf(blocking)})
			}
		}
	}
	return blocked
}

// loginPorts are the ports on which workers accept the launcher.
func (facts *Facts) loginPorts() []ports {
	if facts.Job != nil && !facts.Job.WorkersRunAgent() {
		return []ports{agentPort, sshPort}
	}
	return []ports{agentPort}
}

// side returns a pod of a role. If the job's model is unknown, it is a pod with the
// labels that all jobs have.
func (facts *Facts) side(role string) side {
	pod := facts.example(role)
	if pod == nil && facts.Job == nil {
		pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: facts.Namespace, Labels: plan.PodLabels(facts.bare(), role)}}
	}
	return side{role: role, pod: pod, namespace: facts.namespaceLabels()}
}

// namespaceLabels contain at least the label that Kubernetes sets on every namespace.
func (facts *Facts) namespaceLabels() map[string]string {
	if labels := facts.labels(); labels != nil {
		return labels
	}
	return map[string]string{corev1.LabelMetadataName: facts.Namespace}
}

func namesOf(policies []*networkingv1.NetworkPolicy) (names []string) {
	for _, policy := range policies {
		names = append(names, policy.Name)
	}
	slices.Sort(names)
	return names
}

func (facts *Facts) blockedTraffic(blocked []blockage) Finding {
	var connections, culprits []string
	template := training.NetworkPolicyDefault
	for i, blockage := range blocked {
		direction := "ingress"
		if blockage.direction == networkingv1.PolicyTypeEgress {
			direction, template = "egress", training.NetworkPolicyRestricted
		}
		culprits = append(culprits, blockage.policies...)
		if i > 0 && blocked[i-1].what == blockage.what {
			connections[len(connections)-1] = blockage.what + " (ingress and egress)"
			continue
		}
		connections = append(connections, fmt.Sprintf("%s (%s)", blockage.what, direction))
	}
	slices.Sort(culprits)
	culprits = slices.Compact(culprits)
	finding := Finding{
		Rank:  facts.rank(Likely, training.StepWorkersReached, training.FailureSSHConnection, training.FailureMPIInitialization),
		Title: "NetworkPolicies block traffic between the job's pods", Object: "networkpolicy/" + culprits[0], Documentation: pageFailures,
		Cause: fmt.Sprintf("%s connections from %s.", subjectAndVerb(culprits, "block"), strings.Join(connections, ", from ")),
		Fix:   fmt.Sprintf("Add spec.networkPolicy: {template: %s} to the job, which allows traffic between its pods, and recreate it; or see kubectl describe networkpolicy %s -n %s", template, culprits[0], facts.Namespace),
	}
	if finding.Rank == Note && facts.reached(training.StepWorkersReached) {
		finding.Cause += " The launcher has reached the workers anyway: the policies are newer, or the network plugin of this cluster does not enforce them."
	}
	return finding
}

// subjectAndVerb joins names with a verb, which gets an s after a single name.
func subjectAndVerb(names []string, verb string) string {
	if len(names) == 1 {
		verb += "s"
	}
	return strings.Join(names, " and ") + " " + verb
}

// nameservers are the usual DNS pods of clusters: CoreDNS, and OpenShift's.
func nameservers() []side {
	return []side{
		{pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Labels: map[string]string{"k8s-app": "kube-dns"}}},
			namespace: map[string]string{corev1.LabelMetadataName: "kube-system"}},
		{pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "openshift-dns", Labels: map[string]string{"dns.operator.openshift.io/daemonset-dns": "default"}}},
			namespace: map[string]string{corev1.LabelMetadataName: "openshift-dns"}},
	}
}

// blockedDNS finds policies that block traffic from pods to all usual nameservers.
func (facts *Facts) blockedDNS(policies []networkingv1.NetworkPolicy) []Finding {
	for _, role := range []string{training.RoleLauncher, training.RoleWorker} {
		from := facts.side(role)
		if from.pod == nil {
			continue
		}
		var blocking []*networkingv1.NetworkPolicy
		open := slices.ContainsFunc(nameservers(), func(to side) bool {
			return slices.ContainsFunc([]int32{53, 5353}, func(port int32) bool {
				blocking = blockedBy(policies, flow{from, to, ports{corev1.ProtocolUDP, port, port}}, networkingv1.PolicyTypeEgress)
				return blocking == nil
			})
		})
		if open || opensToAddresses(policies, from.pod) {
			continue
		}
		culprits := namesOf(blocking)
		return []Finding{{
			Rank:  facts.rank(Likely, training.StepWorkersReached, training.FailureSSHConnection),
			Title: "NetworkPolicies block DNS for the job's pods", Object: "networkpolicy/" + culprits[0], Documentation: pageFailures,
			Cause: fmt.Sprintf("%s egress from the %s to port 53, so host names do not resolve.", subjectAndVerb(culprits, "block"), role),
			Fix:   "Add spec.networkPolicy: {template: Restricted} to the job, which allows DNS, and recreate it",
		}}
	}
	return nil
}

// opensToAddresses reports whether policies allow port 53 of some IP block. A node-local
// DNS cache or an external nameserver may be in it.
func opensToAddresses(policies []networkingv1.NetworkPolicy, from *corev1.Pod) bool {
	for _, policy := range isolating(policies, from, networkingv1.PolicyTypeEgress) {
		for _, rule := range rulesOf(policy, networkingv1.PolicyTypeEgress) {
			addresses := slices.ContainsFunc(rule.peers, func(peer networkingv1.NetworkPolicyPeer) bool { return peer.IPBlock != nil })
			if addresses && cover(rule.open(corev1.ProtocolUDP, from), ports{corev1.ProtocolUDP, 53, 53}) {
				return true
			}
		}
	}
	return false
}
