// SPDX-License-Identifier: Apache-2.0

// Package networkpolicy asks an evaluator of NetworkPolicies, which is not ours,
// who reaches whom under the policies that we make.
//
// It is a module of its own, because the evaluator's dependencies are old and
// must stay out of the product's go.mod.
package networkpolicy

import (
	"maps"

	"github.com/mattfenwick/cyclonus/pkg/matcher"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
)

// end is one end of a flow: a pod, or an address outside of the cluster.
type end struct {
	namespace string
	labels    map[string]string
	address   string
	// policy that this end's own job has.
	policy *networkingv1.NetworkPolicy
}

func (end end) peer() *matcher.TrafficPeer {
	if end.namespace == "" {
		return &matcher.TrafficPeer{IP: end.address}
	}
	return &matcher.TrafficPeer{IP: end.address, Internal: &matcher.InternalPeer{
		Namespace: end.namespace, PodLabels: end.labels,
		NamespaceLabels: map[string]string{corev1.LabelMetadataName: end.namespace},
	}}
}

// reaches tells whether traffic gets from one end to another under a policy and
// those that the ends have by themselves.
func reaches(policy *networkingv1.NetworkPolicy, from, to end, port int, protocol corev1.Protocol) bool {
	policies := []*networkingv1.NetworkPolicy{policy}
	for _, end := range []end{from, to} {
		if end.policy != nil {
			policies = append(policies, end.policy)
		}
	}
	traffic := &matcher.Traffic{Source: from.peer(), Destination: to.peer(), ResolvedPort: port, Protocol: protocol}
	return matcher.BuildNetworkPolicies(false, policies).IsTrafficAllowed(traffic).IsAllowed()
}

// jobOf is the job that all is about, of a kind.
func jobOf(kind job.Kind, template training.NetworkPolicyTemplate) *job.Job {
	return &job.Job{Kind: kind, Namespace: "team-a", Name: "resnet", NetworkPolicy: template}
}

func otherThan(kind job.Kind) job.Kind {
	if kind == job.KindMPIJob {
		return job.KindTrainJob
	}
	return job.KindMPIJob
}

// cluster is who there is, in the namespace of a job and elsewhere. Neighbours
// are there with a policy of their own and without, so that it can be told which
// side stops a flow.
type cluster struct {
	launcher, worker, secondWorker, initializer end

	neighbour, guardedNeighbour end
	// twin is a pod of a job of the same name and the other kind.
	twin, guardedTwin end
	// foreigner has nothing to do with training; halfNamed and halfTyped have one
	// of the two labels that make a pod the job's.
	foreigner, halfNamed, halfTyped end

	// namesake is a pod of a job of the same name and kind in another namespace.
	namesake, foreignerElsewhere       end
	dns, openshiftDNS, nodeDNS         end
	storageInCluster, internet, server end
}

func clusterOf(kind job.Kind) *cluster {
	made := jobOf(kind, training.NetworkPolicyDefault)
	neighbour, twin, namesake := *made, *made, *made
	neighbour.Name, twin.Kind, namesake.Namespace = "bert", otherThan(kind), "team-b"
	one := map[string]string{training.LabelReplicaIndex: "1"}
	return &cluster{
		launcher:     podOf(made, training.RoleLauncher, nil),
		worker:       podOf(made, training.RoleWorker, map[string]string{training.LabelReplicaIndex: "0"}),
		secondWorker: podOf(made, training.RoleWorker, one),
		initializer:  podOf(made, training.RoleInitializer, nil),

		neighbour:        podOf(&neighbour, training.RoleWorker, one),
		guardedNeighbour: guarded(&neighbour),
		twin:             podOf(&twin, training.RoleWorker, one),
		guardedTwin:      guarded(&twin),
		foreigner:        end{namespace: "team-a", labels: map[string]string{"app": "web"}, address: "10.0.0.20"},
		halfNamed:        end{namespace: "team-a", labels: map[string]string{training.LabelJobName: made.Name}, address: "10.0.0.21"},
		halfTyped:        end{namespace: "team-a", labels: map[string]string{training.LabelJobType: kind.Type()}, address: "10.0.0.22"},

		namesake:           podOf(&namesake, training.RoleLauncher, nil),
		foreignerElsewhere: end{namespace: "team-b", labels: map[string]string{"app": "web"}, address: "10.0.1.20"},
		dns:                end{namespace: "kube-system", labels: map[string]string{"k8s-app": "kube-dns"}, address: "10.0.2.2"},
		openshiftDNS:       end{namespace: "openshift-dns", labels: map[string]string{"dns.operator.openshift.io/daemonset-dns": "default"}, address: "10.0.2.3"},
		nodeDNS:            end{address: "169.254.20.10"},
		storageInCluster:   end{namespace: "storage", labels: map[string]string{"app": "s3"}, address: "10.0.3.2"},
		internet:           end{address: "203.0.113.7"},
		server:             end{address: "192.0.2.1"},
	}
}

// podOf is a pod of a job, with the labels that the plan finds it by.
func podOf(made *job.Job, role string, more map[string]string) end {
	labels := plan.RoleSelector(made, role)
	maps.Copy(labels, more)
	return end{namespace: made.Namespace, labels: labels, address: "10.0.0.10"}
}

// guarded is a worker of a job that lets everything out and only itself in.
func guarded(made *job.Job) end {
	pod := podOf(made, training.RoleWorker, map[string]string{training.LabelReplicaIndex: "0"})
	pod.policy = plan.NetworkPolicy(made, nil, nil)
	return pod
}
