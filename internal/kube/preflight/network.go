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
	loginPort = ports{corev1.ProtocolTCP, job.AgentPort, job.AgentPort}
	// sshPort is where an image's own sshd may listen as well.
	sshPort = ports{corev1.ProtocolTCP, 22, 22}
	// highPorts are those that Linux gives to programs which ask for any: mpirun's
	// daemons call back on them, and ranks reach each other.
	highPorts = ports{corev1.ProtocolTCP, 32768, 60999}
)

// blockage is a flow that policies hold back.
type blockage struct {
	what      string
	direction networkingv1.PolicyType
	policies  []string
}

// network finds NetworkPolicies that keep a job's pods from each other or from DNS.
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

// policies of the namespace, with the one that the job will have.
func (facts *Facts) policies() []networkingv1.NetworkPolicy {
	policies := facts.Policies.Value
	if facts.Stored || facts.Job == nil || facts.Job.NetworkPolicy == "" {
		return policies
	}
	own := plan.NetworkPolicy(facts.Job, nil)
	own.Namespace = facts.Namespace
	return append(slices.Clone(policies), *own)
}

// blockages are the connections of the job that policies hold back.
func (facts *Facts) blockages(policies []networkingv1.NetworkPolicy) (found []blockage) {
	launcher, worker := facts.side(training.RoleLauncher), facts.side(training.RoleWorker)
	for _, needed := range []struct {
		from, to side
		what     string
		// either of them is enough.
		either []ports
	}{
		{launcher, worker, "the launcher logs in to workers on port 2222", facts.loginPorts()},
		{worker, launcher, "workers call the launcher back on high ports", []ports{highPorts}},
		{worker, worker, "workers reach each other on high ports", []ports{highPorts}},
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
				found = append(found, blockage{needed.what, direction, namesOf(blocking)})
			}
		}
	}
	return found
}

// loginPorts are where workers answer the launcher.
func (facts *Facts) loginPorts() []ports {
	if facts.Job != nil && !facts.Job.WorkersRunAgent() {
		return []ports{loginPort, sshPort}
	}
	return []ports{loginPort}
}

// side is a pod of a role. Where the job is not known, it is a pod with the labels
// that every job's have.
func (facts *Facts) side(role string) side {
	pod := facts.example(role)
	if pod == nil && facts.Job == nil {
		pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: facts.Namespace, Labels: plan.PodLabels(facts.bare(), role)}}
	}
	return side{role: role, pod: pod, namespace: facts.namespaceLabels()}
}

// namespaceLabels are at least the one that Kubernetes sets on every namespace.
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
	var words, culprits []string
	template := training.NetworkPolicyDefault
	for i, blockage := range blocked {
		way := "in"
		if blockage.direction == networkingv1.PolicyTypeEgress {
			way, template = "out", training.NetworkPolicyRestricted
		}
		culprits = append(culprits, blockage.policies...)
		if i > 0 && blocked[i-1].what == blockage.what {
			words[len(words)-1] = blockage.what + " (in and out)"
			continue
		}
		words = append(words, fmt.Sprintf("%s (on the way %s)", blockage.what, way))
	}
	slices.Sort(culprits)
	culprits = slices.Compact(culprits)
	finding := Finding{
		Rank:  facts.rank(Likely, training.StepWorkersReached, training.FailureSSHConnection, training.FailureMPIInitialization),
		Title: "NetworkPolicies keep the job's pods from each other", Object: "networkpolicy/" + culprits[0], Documentation: pageFailures,
		Cause: fmt.Sprintf("%s that %s.", doing(culprits, "block"), strings.Join(words, ", that ")),
		Fix:   fmt.Sprintf("Add spec.networkPolicy: {template: %s} to the job, which lets its own pods through, and create it anew; or see kubectl describe networkpolicy %s -n %s", template, culprits[0], facts.Namespace),
	}
	if finding.Rank == Note && facts.reached(training.StepWorkersReached) {
		finding.Cause += " The launcher has reached the workers all the same: the policies came later, or this cluster's network does not enforce them."
	}
	return finding
}

// doing is what one does, or several do together.
func doing(who []string, verb string) string {
	if len(who) == 1 {
		verb += "s"
	}
	return strings.Join(who, " and ") + " " + verb
}

// nameservers as clusters have them: CoreDNS, and OpenShift's.
func nameservers() []side {
	return []side{
		{pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Labels: map[string]string{"k8s-app": "kube-dns"}}},
			namespace: map[string]string{corev1.LabelMetadataName: "kube-system"}},
		{pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "openshift-dns", Labels: map[string]string{"dns.operator.openshift.io/daemonset-dns": "default"}}},
			namespace: map[string]string{corev1.LabelMetadataName: "openshift-dns"}},
	}
}

// blockedDNS finds policies that keep pods from every nameserver that a cluster may
// have.
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
			Title: "NetworkPolicies keep the job's pods from DNS", Object: "networkpolicy/" + culprits[0], Documentation: pageFailures,
			Cause: fmt.Sprintf("%s nothing of the %s out to port 53, so that no host name is found.", doing(culprits, "let"), role),
			Fix:   "Add spec.networkPolicy: {template: Restricted} to the job, which opens the way to DNS, and create it anew",
		}}
	}
	return nil
}

// opensToAddresses tells whether port 53 of some addresses is open: a cache on the
// node, or a nameserver elsewhere, may be among them.
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
