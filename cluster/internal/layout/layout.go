// SPDX-License-Identifier: Apache-2.0

// Package layout defines the paths, ports and addresses of the local cluster.
package layout

import (
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
)

// DefaultName is the default name of a cluster.
const DefaultName = "trireme"

// Versions of what the cluster is built from, as users see them. KubernetesVersion is
// that of the default release.
const (
	KubernetesVersion = "v1.36.3"
	ContainerdVersion = "v2.4.2"
	JobSetVersion     = "v0.12.0"
)

// Ports, all inside the cluster's own network namespace, so that other programs of the
// machine cannot use them.
const (
	APIServerPort         = 6443
	EtcdClientPort        = 2379
	EtcdPeerPort          = 2380
	KubeletPort           = 10250
	ControllerManagerPort = 10257
	SchedulerPort         = 10259
	ProxyHealthPort       = 10256
	ProxyMetricsPort      = 10249
	DNSPort               = 53
	DNSReadyPort          = 8181
	JobSetHealthPort      = 8081
	JobSetMetricsPort     = 8443
	JobSetWebhookPort     = 9443
	KwokPort              = 10247
	RegistryPort          = 5000
	PrivateRegistryPort   = 5001
	NetworkPoliciesPort   = 10246
)

// Ports lists them all.
func Ports() []int {
	return []int{APIServerPort, EtcdClientPort, EtcdPeerPort, KubeletPort, ControllerManagerPort, SchedulerPort,
		ProxyHealthPort, ProxyMetricsPort, DNSPort, DNSReadyPort, JobSetHealthPort, JobSetMetricsPort, JobSetWebhookPort, KwokPort,
		RegistryPort, PrivateRegistryPort, NetworkPoliciesPort}
}

// ClusterDomain ends the names of Services and pods.
const ClusterDomain = "cluster.local"

// PauseImage holds a pod's namespaces open; nothing can be pulled, so it is ours.
const PauseImage = "trireme.local/pause:1"

// Layout holds the directories of one local cluster. Cache is shared by all clusters
// and can be deleted while none is running; Data is kept when the cluster is stopped;
// Run exists only while the cluster is running.
type Layout struct {
	// Name is also that of the network namespace, the control group, the node
	// and the context in the kubeconfig.
	Name   string
	Source string // the cluster/ folder of the checkout
	// Bundle is the unpacked bundle that contains all programs; empty in a checkout,
	// where they are built.
	Bundle  string
	Cache   string
	Data    string
	Run     string
	Network Network
	// Kubernetes is the release that the cluster runs.
	Kubernetes Kubernetes
	// NetworkPolicies is true if NetworkPolicies are enforced: the network is then routed
	// instead of bridged.
	NetworkPolicies bool
}

// namePattern prevents names that belong to other programs: stopping a cluster deletes
// the device and the control group with its name. The kernel allows 15 characters for
// a device.
var namePattern = regexp.MustCompile(`^trireme(-[a-z0-9]{1,6})?$`)

// New resolves the directories. All clusters share one cache; everything else depends
// on the name, so that a test cluster can run beside the developer's own.
func New(name, source, block string) (Layout, error) {
	if !namePattern.MatchString(name) {
		return Layout{}, fmt.Errorf("cluster name %q must be trireme, or trireme- and up to 6 lower case letters or digits", name)
	}
	network, err := ParseNetwork(block)
	if err != nil {
		return Layout{}, err
	}
	kubernetes, err := FindKubernetes(os.Getenv(KubernetesVariable))
	if err != nil {
		return Layout{}, err
	}
	cache := os.Getenv("TRIREME_CACHE")
	if cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return Layout{}, fmt.Errorf("find the cache directory: %w; set TRIREME_CACHE", err)
		}
		cache = filepath.Join(user, "trireme")
	}
	l := Layout{
		Name:       name,
		Source:     source,
		Cache:      cache,
		Data:       cmp.Or(os.Getenv("TRIREME_CLUSTER_DATA"), "/var/lib/"+name+"-cluster"),
		Run:        cmp.Or(os.Getenv("TRIREME_CLUSTER_RUN"), "/run/"+name+"-cluster"),
		Network:    network,
		Kubernetes: kubernetes,
	}
	for _, directory := range []*string{&l.Cache, &l.Data, &l.Run} {
		if !filepath.IsAbs(*directory) {
			return Layout{}, fmt.Errorf("directory %q must be an absolute path", *directory)
		}
		*directory = filepath.Clean(*directory)
	}
	// The kernel allows 107 characters for the path of a socket; this is the longest.
	if longest := 107 - len("/supervisor.sock"); len(l.Run) > longest {
		return Layout{}, fmt.Errorf("directory %q is too long for its sockets: the maximum is %d characters", l.Run, longest)
	}
	return l, nil
}

// NetworkNamespace is the file that holds the cluster's network namespace;
// `ip netns` knows it too.
func (l Layout) NetworkNamespace() string { return filepath.Join("/run/netns", l.Name) }

// HostDevice is the machine's end of the link to the cluster.
func (l Layout) HostDevice() string { return l.Name + "0" }

// Files and directories by what they are for.

func (l Layout) ImageCache() string      { return filepath.Join(l.Cache, "images") }
func (l Layout) BuildLogs() string       { return filepath.Join(l.Cache, "logs") }
func (l Layout) PKI() string             { return filepath.Join(l.Data, "pki") }
func (l Layout) Config() string          { return filepath.Join(l.Data, "config") }
func (l Layout) Logs() string            { return filepath.Join(l.Data, "logs") }
func (l Layout) PodLogs() string         { return filepath.Join(l.Data, "pod-logs") }
func (l Layout) Volumes() string         { return filepath.Join(l.Data, "volumes") }
func (l Layout) EtcdData() string        { return filepath.Join(l.Data, "etcd") }
func (l Layout) ImageStore() string      { return filepath.Join(l.Data, "containerd") }
func (l Layout) AdminKubeconfig() string { return filepath.Join(l.Data, "admin.kubeconfig") }
func (l Layout) Hidden() string          { return filepath.Join(l.Data, "hidden") }
func (l Layout) Registry() string        { return filepath.Join(l.Data, "registry") }
func (l Layout) RegistryProgram() string { return filepath.Join(l.Data, "bin", "registry") }
func (l Layout) GPUPlugin() string       { return filepath.Join(l.Data, "bin", "nvidia-device-plugin") }
func (l Layout) GPUConfig() string       { return filepath.Join(l.Data, "nvidia-device-plugin.yaml") }
func (l Layout) GPUHook() string         { return filepath.Join(l.Data, "bin", "nvidia-cdi-hook") }
func (l Layout) HostFilesRuntime() string {
	return filepath.Join(l.Data, "bin", "runc-with-host-files")
}
func (l Layout) HostFiles() string       { return filepath.Join(l.ImageStore(), "host-files.json") }
func (l Layout) Pids() string            { return filepath.Join(l.Run, "pids") }
func (l Layout) ContainerdState() string { return filepath.Join(l.Run, "containerd") }
func (l Layout) ContainerdSocket() string {
	return filepath.Join(l.Run, "containerd.sock")
}
func (l Layout) SupervisorSocket() string { return filepath.Join(l.Run, "supervisor.sock") }

// MachineRecord is the state of the machine before the first cluster; all clusters
// share it.
func (l Layout) MachineRecord() string { return "/run/trireme-machine.json" }

// Lock is held by commands that change the cluster.
func (l Layout) Lock() string { return filepath.Join(l.Cache, "locks", l.Name) }

// Kubeconfig is the kubeconfig of a component.
func (l Layout) Kubeconfig(component string) string {
	return filepath.Join(l.Config(), component+".kubeconfig")
}

// Log is the log of a component, including restarts.
func (l Layout) Log(component string) string {
	return filepath.Join(l.Logs(), component+".log")
}

// HostPaths are directories with fixed names that kubelet, containerd, the CNI library
// and the device plugin use. In the cluster's mount namespace, each is one of our directories, so
// that another kubelet or containerd on this machine is not affected (kubelet deletes
// every socket in device-plugins when it starts).
func (l Layout) HostPaths() map[string]string {
	return map[string]string{
		"/var/lib/kubelet":    filepath.Join(l.Hidden(), "kubelet"),
		"/var/log/containers": filepath.Join(l.Hidden(), "container-logs"),
		"/var/lib/cni":        filepath.Join(l.Run, "cni"),
		"/run/containerd":     filepath.Join(l.Run, "shims"),
		"/run/cdi":            filepath.Join(l.Run, "cdi"),
	}
}

// Network is one block of addresses, divided into the link between the machine and the
// cluster, the Services and the pods.
type Network struct {
	Block netip.Prefix
}

// DefaultNetwork is a part of the private range that common tools do not use.
const DefaultNetwork = "10.199.0.0/16"

// ParseNetwork accepts an IPv4 /16.
func ParseNetwork(block string) (Network, error) {
	prefix, err := netip.ParsePrefix(block)
	if err != nil {
		return Network{}, fmt.Errorf("network %q: %w; use a block such as %s", block, err, DefaultNetwork)
	}
	if !prefix.Addr().Is4() || prefix.Bits() != 16 || prefix.Masked() != prefix {
		return Network{}, fmt.Errorf("network %q must be the start of an IPv4 /16, such as %s", block, DefaultNetwork)
	}
	return Network{Block: prefix}, nil
}

func (n Network) address(third, fourth byte) netip.Addr {
	octets := n.Block.Addr().As4()
	return netip.AddrFrom4([4]byte{octets[0], octets[1], third, fourth})
}

// Host is the machine's address on the link; pods reach programs on the machine at it.
func (n Network) Host() netip.Addr { return n.address(0, 1) }

// Node is the cluster's address: API server, kubelet and DNS.
func (n Network) Node() netip.Addr { return n.address(0, 2) }

// Link holds Host and Node.
func (n Network) Link() netip.Prefix { return netip.PrefixFrom(n.address(0, 0), 24) }

// Services is the range of ClusterIPs.
func (n Network) Services() netip.Prefix { return netip.PrefixFrom(n.address(64, 0), 18) }

// KubernetesService is the ClusterIP of the API server.
func (n Network) KubernetesService() netip.Addr { return n.address(64, 1) }

// Pods is the range of pod addresses.
func (n Network) Pods() netip.Prefix { return netip.PrefixFrom(n.address(128, 0), 17) }

// Registry is the address of the registry that anyone can use.
func (n Network) Registry() string { return fmt.Sprintf("%s:%d", n.Node(), RegistryPort) }

// PrivateRegistry is the address of the registry that asks for a password.
func (n Network) PrivateRegistry() string {
	return fmt.Sprintf("%s:%d", n.Node(), PrivateRegistryPort)
}

// APIServer is the URL that every client uses.
func (n Network) APIServer() string {
	return fmt.Sprintf("https://%s:%d", n.Node(), APIServerPort)
}
