// SPDX-License-Identifier: Apache-2.0

package component

import (
	"net"

	"github.com/trireme-mpi/trireme/cluster/internal/layout"
	"github.com/trireme-mpi/trireme/cluster/internal/pki"
)

// Three CAs, so that a certificate for one purpose is not valid for another: etcd must
// not trust every client that the API server trusts.
const (
	ClusterAuthority    = "cluster-ca"
	EtcdAuthority       = "etcd-ca"
	FrontProxyAuthority = "front-proxy-ca"
)

// Leaves lists every certificate by the authority that signs it.
func Leaves(l layout.Layout) map[string][]pki.Leaf {
	n := l.Network
	node, loopback := net.IP(n.Node().AsSlice()), net.IPv4(127, 0, 0, 1)
	return map[string][]pki.Leaf{
		EtcdAuthority: {
			{File: "etcd", CommonName: "etcd", DNSNames: []string{"localhost"}, IPs: []net.IP{loopback}},
			{File: "kube-apiserver-etcd-client", CommonName: "kube-apiserver"},
		},
		FrontProxyAuthority: {
			{File: "front-proxy-client", CommonName: "front-proxy-client"},
		},
		ClusterAuthority: {
			{File: "admin", CommonName: "kubernetes-admin", Organization: "system:masters"},
			{File: "kube-apiserver", CommonName: "kube-apiserver",
				DNSNames: []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc",
					"kubernetes.default.svc." + layout.ClusterDomain, "localhost"},
				IPs: []net.IP{node, loopback, net.IP(n.KubernetesService().AsSlice())}},
			{File: "kube-apiserver-kubelet-client", CommonName: "kube-apiserver-kubelet-client"},
			{File: "kube-apiserver-webhook-client", CommonName: "kube-apiserver-webhook-client"},
			{File: "kube-controller-manager", CommonName: "system:kube-controller-manager", IPs: []net.IP{loopback}},
			{File: "kube-scheduler", CommonName: "system:kube-scheduler", IPs: []net.IP{loopback}},
			{File: "kubelet", CommonName: "system:node:" + l.Name, Organization: "system:nodes",
				DNSNames: []string{l.Name}, IPs: []net.IP{node}},
			{File: "kube-proxy", CommonName: "system:kube-proxy"},
			{File: "coredns", CommonName: "trireme:coredns"},
			{File: "storage", CommonName: "trireme:storage"},
			{File: "jobset", CommonName: "trireme:jobset", IPs: []net.IP{node}},
			{File: "kwok", CommonName: "trireme:kwok"},
			{File: Registry, CommonName: "trireme:registry", IPs: []net.IP{node}},
			{File: PrivateRegistry, CommonName: "trireme:registry-private", IPs: []net.IP{node}},
			{File: NetworkPolicies, CommonName: "trireme:network-policies"},
		},
	}
}

// Clients are the components that hold a kubeconfig, under their leaf's name.
func Clients() []string {
	return []string{"kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "coredns", "storage", "jobset", "kwok", NetworkPolicies}
}
