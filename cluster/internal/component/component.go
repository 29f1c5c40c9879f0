// SPDX-License-Identifier: Apache-2.0

// Package component describes the processes of the cluster: command line, dependencies
// and readiness probe. It is a table computed from the layout; the supervisor starts
// the processes.
package component

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/trireme-mpi/trireme/cluster/internal/layout"
)

// Component is one process of the cluster.
type Component struct {
	Name string
	// Path is the program; Args do not repeat it.
	Path string
	Args []string
	// Optional is true for components that run only while their program exists:
	// `registry up` and `registry down` create and delete it.
	Optional bool
	// Store is true for components that store the state of others and must stop last.
	Store bool
	// After lists components that must have been ready once before this one is started
	// for the first time.
	After []string
	Ready Probe
}

// IsWanted reports whether the component should run.
func (c Component) IsWanted() bool {
	if !c.Optional {
		return true
	}
	_, err := os.Stat(c.Path)
	return err == nil
}

// Probe is an HTTP GET that returns 200 when the component is ready. Leaf is the client
// certificate, if the component requires one.
type Probe struct {
	URL  string
	Leaf string
}

// Programs are the directories and files that components are started from.
type Programs struct {
	Kubernetes string // directory of the multi-call binary's links
	Addons     string // directory of coredns, kwok and jobset, and of their manifests
	Containerd string // directory of containerd, its shim and ctr
	Pause      string // directory of the pause program
	CNI        string // directory of Debian's CNI plugins
	Runc       string
	Host       string // directory of nft in a bundle; empty: that of the machine is used
	Tool       string // this program, which is also the storage provisioner
}

// All lists the components in the order in which `status` shows them.
func All(l layout.Layout, p Programs) []Component {
	all := []Component{
		etcd(l, p),
		apiServer(l, p),
		controllerManager(l, p),
		scheduler(l, p),
		containerd(l, p),
		kubelet(l, p),
		proxy(l, p),
		coreDNS(l, p),
		storage(l, p),
		jobSet(l, p),
		kwok(l, p),
		registry(l, Registry, l.Network.Registry()),
		registry(l, PrivateRegistry, l.Network.PrivateRegistry()),
		gpuPlugin(l),
	}
	if l.NetworkPolicies {
		all = append(all, networkPolicies(l, p))
	}
	return all
}

// Names lists the names of the components that every cluster can have, which excludes the
// plugin for GPUs; it does not need a built cluster.
func Names() []string {
	network, err := layout.ParseNetwork(layout.DefaultNetwork)
	if err != nil {
		panic(err) // a constant of ours
	}
	var names []string
	for _, c := range All(layout.Layout{Network: network}, Programs{}) {
		if c.Name != GPUPlugin {
			names = append(names, c.Name)
		}
	}
	return names
}

// AddonsTask is the step between the API server and the components that need
// what it creates: RBAC, the JobSet CRD, the storage class.
const AddonsTask = "addons"

func etcd(l layout.Layout, p Programs) Component {
	client := fmt.Sprintf("https://127.0.0.1:%d", layout.EtcdClientPort)
	peer := fmt.Sprintf("https://127.0.0.1:%d", layout.EtcdPeerPort)
	return Component{
		Name:  "etcd",
		Store: true,
		Path:  filepath.Join(p.Kubernetes, "etcd"),
		Args: []string{
			"--name=" + l.Name,
			"--data-dir=" + l.EtcdData(),
			"--listen-client-urls=" + client,
			"--advertise-client-urls=" + client,
			"--listen-peer-urls=" + peer,
			"--initial-advertise-peer-urls=" + peer,
			"--initial-cluster=" + l.Name + "=" + peer,
			"--client-cert-auth", "--peer-client-cert-auth",
			"--trusted-ca-file=" + crt(l, EtcdAuthority),
			"--cert-file=" + crt(l, "etcd"), "--key-file=" + key(l, "etcd"),
			"--peer-trusted-ca-file=" + crt(l, EtcdAuthority),
			"--peer-cert-file=" + crt(l, "etcd"), "--peer-key-file=" + key(l, "etcd"),
			"--log-level=warn",
		},
		Ready: Probe{URL: client + "/health", Leaf: "kube-apiserver-etcd-client"},
	}
}

func apiServer(l layout.Layout, p Programs) Component {
	return Component{
		Name:  "kube-apiserver",
		Path:  filepath.Join(p.Kubernetes, "kube-apiserver"),
		After: []string{"etcd"},
		Args: append([]string{
			"--advertise-address=" + l.Network.Node().String(),
			fmt.Sprintf("--secure-port=%d", layout.APIServerPort),
			"--service-cluster-ip-range=" + l.Network.Services().String(),
			"--allow-privileged=true",
			"--anonymous-auth=false",
			"--authorization-mode=Node,RBAC",
			"--enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement,PodSecurity,ResourceQuota",
			"--admission-control-config-file=" + configFile(l, "admission.yaml"),
			fmt.Sprintf("--etcd-servers=https://127.0.0.1:%d", layout.EtcdClientPort),
			"--etcd-cafile=" + crt(l, EtcdAuthority),
			"--etcd-certfile=" + crt(l, "kube-apiserver-etcd-client"),
			"--etcd-keyfile=" + key(l, "kube-apiserver-etcd-client"),
			"--client-ca-file=" + crt(l, ClusterAuthority),
			"--tls-cert-file=" + crt(l, "kube-apiserver"),
			"--tls-private-key-file=" + key(l, "kube-apiserver"),
			"--kubelet-certificate-authority=" + crt(l, ClusterAuthority),
			"--kubelet-client-certificate=" + crt(l, "kube-apiserver-kubelet-client"),
			"--kubelet-client-key=" + key(l, "kube-apiserver-kubelet-client"),
			// The node's name does not resolve on the machine.
			"--kubelet-preferred-address-types=InternalIP",
			"--service-account-issuer=https://kubernetes.default.svc",
			"--service-account-key-file=" + filepath.Join(l.PKI(), "service-account.pub"),
			"--service-account-signing-key-file=" + key(l, "service-account"),
			"--requestheader-client-ca-file=" + crt(l, FrontProxyAuthority),
			"--requestheader-allowed-names=front-proxy-client",
			"--requestheader-username-headers=X-Remote-User",
			"--requestheader-group-headers=X-Remote-Group",
			"--requestheader-extra-headers-prefix=X-Remote-Extra-",
			"--proxy-client-cert-file=" + crt(l, "front-proxy-client"),
			"--proxy-client-key-file=" + key(l, "front-proxy-client"),
			"--enable-aggregator-routing=true",
		}, l.Kubernetes.APIServerFlags()...),
		Ready: Probe{URL: l.Network.APIServer() + "/readyz", Leaf: "admin"},
	}
}

func controllerManager(l layout.Layout, p Programs) Component {
	return Component{
		Name:  "kube-controller-manager",
		Path:  filepath.Join(p.Kubernetes, "kube-controller-manager"),
		After: []string{"kube-apiserver"},
		Args: append(append(serving(l, "kube-controller-manager", layout.ControllerManagerPort), l.Kubernetes.GangFlags()...),
			"--kubeconfig="+l.Kubeconfig("kube-controller-manager"),
			"--authentication-kubeconfig="+l.Kubeconfig("kube-controller-manager"),
			"--authorization-kubeconfig="+l.Kubeconfig("kube-controller-manager"),
			"--use-service-account-credentials=true",
			"--service-account-private-key-file="+key(l, "service-account"),
			"--root-ca-file="+crt(l, ClusterAuthority),
			"--cluster-signing-cert-file="+crt(l, ClusterAuthority),
			"--cluster-signing-key-file="+key(l, ClusterAuthority),
			// There is one instance: leader election would only delay a restart until
			// the lease has expired.
			"--leader-elect=false",
			"--kube-api-qps=300", "--kube-api-burst=600",
		),
		Ready: Probe{URL: fmt.Sprintf("https://127.0.0.1:%d/healthz", layout.ControllerManagerPort)},
	}
}

func scheduler(l layout.Layout, p Programs) Component {
	return Component{
		Name:  "kube-scheduler",
		Path:  filepath.Join(p.Kubernetes, "kube-scheduler"),
		After: []string{"kube-apiserver"},
		Args: append(append(serving(l, "kube-scheduler", layout.SchedulerPort), l.Kubernetes.GangFlags()...),
			"--config="+configFile(l, "kube-scheduler.yaml"),
			"--authentication-kubeconfig="+l.Kubeconfig("kube-scheduler"),
			"--authorization-kubeconfig="+l.Kubeconfig("kube-scheduler"),
		),
		Ready: Probe{URL: fmt.Sprintf("https://127.0.0.1:%d/readyz", layout.SchedulerPort)},
	}
}

// serving are the flags for the certificates of controller-manager and scheduler.
func serving(l layout.Layout, leaf string, port int) []string {
	return []string{
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", port),
		"--tls-cert-file=" + crt(l, leaf),
		"--tls-private-key-file=" + key(l, leaf),
	}
}

func containerd(l layout.Layout, p Programs) Component {
	return Component{
		Name:  "containerd",
		Store: true,
		Path:  filepath.Join(p.Containerd, "containerd"),
		Args:  []string{"--config=" + configFile(l, "containerd.toml"), "--log-level=warn"},
		// A socket that accepts connections is enough; the kubelet checks the rest.
		Ready: Probe{URL: "unix://" + l.ContainerdSocket()},
	}
}

func kubelet(l layout.Layout, p Programs) Component {
	return Component{
		Name:  "kubelet",
		Path:  filepath.Join(p.Kubernetes, "kubelet"),
		After: []string{"kube-apiserver", "containerd"},
		Args: []string{
			"--config=" + configFile(l, "kubelet.yaml"),
			"--kubeconfig=" + l.Kubeconfig("kubelet"),
			"--hostname-override=" + l.Name,
			"--node-ip=" + l.Network.Node().String(),
		},
		Ready: Probe{
			URL:  fmt.Sprintf("https://%s:%d/healthz", l.Network.Node(), layout.KubeletPort),
			Leaf: "kube-apiserver-kubelet-client",
		},
	}
}

func proxy(l layout.Layout, p Programs) Component {
	return Component{
		Name:  "kube-proxy",
		Path:  filepath.Join(p.Kubernetes, "kube-proxy"),
		After: []string{"kube-apiserver"},
		Args:  []string{"--config=" + configFile(l, "kube-proxy.yaml")},
		// livez, because healthz also fails when the node is being deleted.
		Ready: Probe{URL: fmt.Sprintf("http://127.0.0.1:%d/livez", layout.ProxyHealthPort)},
	}
}

func coreDNS(l layout.Layout, p Programs) Component {
	return Component{
		Name:  "coredns",
		Path:  filepath.Join(p.Addons, "coredns"),
		After: []string{AddonsTask},
		Args:  []string{"-conf", configFile(l, "Corefile"), "-quiet"},
		Ready: Probe{URL: fmt.Sprintf("http://127.0.0.1:%d/ready", layout.DNSReadyPort)},
	}
}

func storage(l layout.Layout, p Programs) Component {
	return Component{
		Name:  "storage",
		Path:  p.Tool,
		After: []string{AddonsTask},
		Args:  []string{"storage-provisioner", "--kubeconfig", l.Kubeconfig("storage"), "--node", l.Name, "--directory", l.Volumes()},
	}
}

// NetworkPolicies is the name of the component that only some clusters have.
const NetworkPolicies = "network-policies"

func networkPolicies(l layout.Layout, p Programs) Component {
	address := fmt.Sprintf("127.0.0.1:%d", layout.NetworkPoliciesPort)
	return Component{
		Name:  NetworkPolicies,
		Path:  p.Tool,
		After: []string{AddonsTask},
		Args: []string{"enforce-network-policies", "--kubeconfig", l.Kubeconfig(NetworkPolicies),
			"--pods", l.Network.Pods().String(), "--health", address},
		Ready: Probe{URL: "http://" + address + "/"},
	}
}

func jobSet(l layout.Layout, p Programs) Component {
	return Component{
		Name:  "jobset",
		Path:  filepath.Join(p.Addons, "jobset"),
		After: []string{AddonsTask},
		Args: []string{
			"--kubeconfig=" + l.Kubeconfig("jobset"),
			"--config=" + configFile(l, "jobset.yaml"),
			"--zap-log-level=info",
		},
		Ready: Probe{URL: fmt.Sprintf("http://127.0.0.1:%d/readyz", layout.JobSetHealthPort)},
	}
}

// kwokStages define the behavior of simulated nodes and pods. They are kwok's own,
// except for the completion of a pod (templates/kwok.yaml).
var kwokStages = []string{"kwok-node-initialize.yaml", "kwok-node-heartbeat.yaml", "kwok-pod-ready.yaml", "kwok-pod-delete.yaml"}

func kwok(l layout.Layout, p Programs) Component {
	c := Component{
		Name:  "kwok",
		Path:  filepath.Join(p.Addons, "kwok"),
		After: []string{AddonsTask},
		Args: []string{
			"--kubeconfig=" + l.Kubeconfig("kwok"),
			"--manage-all-nodes=false",
			"--manage-nodes-with-annotation-selector=" + FakeNodeAnnotation + "=" + FakeNodeValue,
			"--node-ip=" + l.Network.Node().String(),
			// Like kubelets. Without Leases, a node counts as lost after 50 s, and its pods
			// as not ready.
			"--node-lease-duration-seconds=40",
			fmt.Sprintf("--server-address=127.0.0.1:%d", layout.KwokPort),
			"--config=" + configFile(l, "kwok.yaml"),
		},
		Ready: Probe{URL: fmt.Sprintf("http://127.0.0.1:%d/healthz", layout.KwokPort)},
	}
	for _, stage := range kwokStages {
		c.Args = append(c.Args, "--config="+filepath.Join(p.Addons, stage))
	}
	return c
}

// Fake nodes have this annotation (for kwok) and a taint of the same name (for pods,
// which must tolerate it).
const (
	FakeNodeAnnotation = "kwok.x-k8s.io/node"
	FakeNodeValue      = "fake"
)

// Registry and PrivateRegistry are the names of two optional components with the same
// program: only the second asks for a password.
const (
	Registry        = "registry"
	PrivateRegistry = "registry-private"
)

func registry(l layout.Layout, name, address string) Component {
	return Component{
		Name:     name,
		Optional: true,
		Path:     l.RegistryProgram(),
		Args:     []string{"serve", configFile(l, name+".yaml")},
		Ready:    Probe{URL: "https://" + address + "/"},
	}
}

// GPUPlugin is the name of NVIDIA's device plugin, an optional component. `gpu up` writes
// its configuration.
const GPUPlugin = "nvidia-device-plugin"

func gpuPlugin(l layout.Layout) Component {
	return Component{
		Name:     GPUPlugin,
		Optional: true,
		Path:     l.GPUPlugin(),
		After:    []string{"kubelet"},
		// It is a process of the machine: the driver is not in a directory of its own.
		Args: []string{
			"--config-file=" + l.GPUConfig(),
			"--container-driver-root=/",
			"--nvidia-cdi-hook-path=" + l.GPUHook(),
		},
		Ready: Probe{URL: "unix:///var/lib/kubelet/device-plugins/nvidia-gpu.sock"},
	}
}

func crt(l layout.Layout, leaf string) string { return filepath.Join(l.PKI(), leaf+".crt") }
func key(l layout.Layout, leaf string) string { return filepath.Join(l.PKI(), leaf+".key") }

func configFile(l layout.Layout, name string) string { return filepath.Join(l.Config(), name) }

// Environment is the environment of every component: nothing from the user's shell (a
// proxy setting would redirect cluster traffic), and a PATH with containerd's shim.
func Environment(p Programs) []string {
	path := []string{p.Containerd, p.Kubernetes, "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}
	if p.Host != "" {
		path = append([]string{p.Host}, path...)
	}
	return []string{"PATH=" + strings.Join(path, ":"), "HOME=/nonexistent"}
}
