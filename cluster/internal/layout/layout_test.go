// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// clean takes the caller's settings away, which would decide where things are.
func clean(t *testing.T) {
	t.Helper()
	for _, variable := range []string{"TRIREME_CACHE", "TRIREME_CLUSTER_DATA", "TRIREME_CLUSTER_RUN", KubernetesVariable, "XDG_CACHE_HOME"} {
		t.Setenv(variable, "")
	}
	t.Setenv("HOME", "/home/someone")
}

func TestNames(t *testing.T) {
	clean(t)
	tests := map[string]struct {
		name      string
		wantValid bool
	}{
		"the default":                      {name: DefaultName, wantValid: true},
		"one beside it":                    {name: "trireme-test", wantValid: true},
		"as long as may be":                {name: "trireme-a1b2c3", wantValid: true},
		"one character too long":           {name: "trireme-a1b2c3d"},
		"that of somebody else's device":   {name: "docker"},
		"one that only begins like ours":   {name: "triremes"},
		"empty":                            {name: ""},
		"a capital letter":                 {name: "Trireme"},
		"a leading digit":                  {name: "1trireme"},
		"a leading dash":                   {name: "-trireme"},
		"a trailing dash":                  {name: "trireme-"},
		"a dot":                            {name: "tri.reme"},
		"a slash, which would leave /run":  {name: "../etc"},
		"a line break after a valid name":  {name: "trireme\n"},
		"a letter that is not ASCII":       {name: "trirème"},
		"an underscore, which DNS refuses": {name: "tri_reme"},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			l, err := New(test.name, "/src", DefaultNetwork)
			if got := err == nil; got != test.wantValid {
				t.Fatalf("New(%q): error %v, want valid = %v", test.name, err, test.wantValid)
			}
			if err != nil {
				if !strings.Contains(err.Error(), "cluster name") {
					t.Errorf("error %q does not say that it is about the cluster's name", err)
				}
				return
			}
			// IFNAMSIZ of the kernel, less the final zero.
			if device := l.HostDevice(); len(device) > 15 {
				t.Errorf("device %q has %d characters, the kernel takes 15", device, len(device))
			}
		})
	}
}

func TestNetworks(t *testing.T) {
	tests := map[string]struct {
		block     string
		wantError string
	}{
		"the default":                   {block: DefaultNetwork},
		"another private block":         {block: "172.20.0.0/16"},
		"no length":                     {block: "10.199.0.0", wantError: "use a block such as " + DefaultNetwork},
		"not an address":                {block: "example.org/16", wantError: "use a block such as " + DefaultNetwork},
		"empty":                         {block: "", wantError: "use a block such as " + DefaultNetwork},
		"IPv6":                          {block: "fd00::/16", wantError: "must be the start of an IPv4 /16"},
		"IPv4 in the clothes of IPv6":   {block: "::ffff:10.199.0.0/112", wantError: "must be the start of an IPv4 /16"},
		"too small":                     {block: "10.199.0.0/24", wantError: "must be the start of an IPv4 /16"},
		"too large":                     {block: "10.0.0.0/8", wantError: "must be the start of an IPv4 /16"},
		"an address instead of a block": {block: "10.199.0.1/16", wantError: "must be the start of an IPv4 /16"},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			network, err := ParseNetwork(test.block)
			if test.wantError != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantError) || !strings.Contains(err.Error(), test.block) {
					t.Fatalf("error %v, want one with %q that names the block", err, test.wantError)
				}
				clean(t)
				if _, err := New("a", "/src", test.block); err == nil {
					t.Error("New accepts the network nevertheless")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := network.Block.String(); got != test.block {
				t.Errorf("block is %s, want %s", got, test.block)
			}
		})
	}
}

func TestCutsOfTheBlock(t *testing.T) {
	for _, block := range []string{DefaultNetwork, "192.168.0.0/16", "10.0.0.0/16", "10.255.0.0/16"} {
		t.Run(block, func(t *testing.T) {
			n, err := ParseNetwork(block)
			if err != nil {
				t.Fatal(err)
			}
			cuts := map[string]netip.Prefix{"link": n.Link(), "services": n.Services(), "pods": n.Pods()}
			for name, cut := range cuts {
				if cut.Masked() != cut {
					t.Errorf("%s %s has host bits set", name, cut)
				}
				if !n.Block.Contains(cut.Addr()) || cut.Bits() <= n.Block.Bits() {
					t.Errorf("%s %s is not within %s", name, cut, n.Block)
				}
				for other, overlapping := range cuts {
					if name != other && cut.Overlaps(overlapping) {
						t.Errorf("%s %s overlaps with %s %s", name, cut, other, overlapping)
					}
				}
			}
			for name, address := range map[string]netip.Addr{"host": n.Host(), "node": n.Node()} {
				if !n.Link().Contains(address) {
					t.Errorf("%s %s is not on the link %s", name, address, n.Link())
				}
			}
			if n.Host() == n.Node() {
				t.Errorf("machine and cluster share the address %s", n.Host())
			}
			// The API server takes the first address of the range for itself.
			if want := n.Services().Addr().Next(); n.KubernetesService() != want {
				t.Errorf("service of the API server is %s, want %s", n.KubernetesService(), want)
			}
			if want := "https://" + n.Node().String() + ":6443"; n.APIServer() != want {
				t.Errorf("API server is %s, want %s", n.APIServer(), want)
			}
		})
	}
}

func TestDirectories(t *testing.T) {
	type directories struct{ Cache, Data, Run string }
	tests := map[string]struct {
		environment map[string]string
		want        directories
		wantError   string
	}{
		"by default they follow from the name": {
			want: directories{"/home/someone/.cache/trireme", "/var/lib/trireme-mine-cluster", "/run/trireme-mine-cluster"},
		},
		"the user's cache directory is used": {
			environment: map[string]string{"XDG_CACHE_HOME": "/xdg"},
			want:        directories{"/xdg/trireme", "/var/lib/trireme-mine-cluster", "/run/trireme-mine-cluster"},
		},
		"each can be put elsewhere": {
			environment: map[string]string{"TRIREME_CACHE": "/c", "TRIREME_CLUSTER_DATA": "/d", "TRIREME_CLUSTER_RUN": "/r"},
			want:        directories{"/c", "/d", "/r"},
		},
		"a user without home can still say where the cache is": {
			environment: map[string]string{"HOME": "", "TRIREME_CACHE": "/c"},
			want:        directories{"/c", "/var/lib/trireme-mine-cluster", "/run/trireme-mine-cluster"},
		},
		"a user without home is told of the variable": {
			environment: map[string]string{"HOME": ""},
			wantError:   "TRIREME_CACHE",
		},
		"a relative cache is refused": {
			environment: map[string]string{"TRIREME_CACHE": "cache"},
			wantError:   `"cache" must be an absolute path`,
		},
		"relative data are refused": {
			environment: map[string]string{"TRIREME_CLUSTER_DATA": "./data"},
			wantError:   `"./data" must be an absolute path`,
		},
		"a relative run directory is refused": {
			environment: map[string]string{"TRIREME_CLUSTER_RUN": "run"},
			wantError:   `"run" must be an absolute path`,
		},
		"a run directory that leaves no room for a socket's name is refused": {
			environment: map[string]string{"TRIREME_CLUSTER_RUN": "/" + strings.Repeat("r", 91)},
			wantError:   "the maximum is 91 characters",
		},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			clean(t)
			for variable, value := range test.environment {
				t.Setenv(variable, value)
			}
			l, err := New("trireme-mine", "/src", DefaultNetwork)
			if test.wantError != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantError) {
					t.Fatalf("error %v, want one with %q", err, test.wantError)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, directories{l.Cache, l.Data, l.Run}); diff != "" {
				t.Errorf("directories (-want +got):\n%s", diff)
			}
			if l.Name != "trireme-mine" || l.Source != "/src" || l.Network.Block.String() != DefaultNetwork {
				t.Errorf("layout %+v lost what it was made of", l)
			}
		})
	}
}

// What the cluster mounts over, what it writes and what it deletes must all be
// its own: `reset` deletes Data and Run.
func TestEverythingIsBelowTheOwnDirectories(t *testing.T) {
	clean(t)
	l, err := New("trireme-mine", "/src", DefaultNetwork)
	if err != nil {
		t.Fatal(err)
	}
	below := func(path string, directories ...string) bool {
		for _, directory := range directories {
			if strings.HasPrefix(path, directory+string(os.PathSeparator)) && filepath.Clean(path) == path {
				return true
			}
		}
		return false
	}
	seen := map[string]string{}
	for path, ours := range l.HostPaths() {
		if !filepath.IsAbs(path) {
			t.Errorf("%s is not absolute", path)
		}
		if !below(ours, l.Data, l.Run) {
			t.Errorf("%s becomes %s, which is neither below %s nor %s", path, ours, l.Data, l.Run)
		}
		if other, taken := seen[ours]; taken {
			t.Errorf("%s and %s become the same directory %s", path, other, ours)
		}
		seen[ours] = path
	}
	for _, wanted := range []string{"/var/lib/kubelet", "/run/containerd", "/var/lib/cni"} {
		if _, found := l.HostPaths()[wanted]; !found {
			t.Errorf("%s of another Kubernetes on the machine would be used", wanted)
		}
	}
	for _, path := range []string{l.ImageCache(), l.BuildLogs()} {
		if !below(path, l.Cache) {
			t.Errorf("%s is not below the cache", path)
		}
	}
	for _, path := range []string{l.PKI(), l.Config(), l.Logs(), l.PodLogs(), l.Volumes(), l.EtcdData(), l.ImageStore(),
		l.AdminKubeconfig(), l.Hidden(), l.Registry(), l.RegistryProgram(), l.Kubeconfig("kubelet"), l.Log("kubelet")} {
		if !below(path, l.Data) {
			t.Errorf("%s is not below the data", path)
		}
	}
	for _, path := range []string{l.Pids(), l.ContainerdState(), l.ContainerdSocket(), l.SupervisorSocket()} {
		if !below(path, l.Run) {
			t.Errorf("%s outlives the cluster", path)
		}
	}
	if !below(l.Lock(), l.Cache) {
		t.Errorf("%s would go with the cluster that it locks", l.Lock())
	}
	if got, want := l.NetworkNamespace(), "/run/netns/trireme-mine"; got != want {
		t.Errorf("network namespace is %s, want %s, where `ip netns` looks", got, want)
	}
}

func TestTwoClustersShareNothingButTheCache(t *testing.T) {
	clean(t)
	one, err := New("trireme-one", "/src", DefaultNetwork)
	if err != nil {
		t.Fatal(err)
	}
	two, err := New("trireme-two", "/src", "10.77.0.0/16")
	if err != nil {
		t.Fatal(err)
	}
	if one.Cache != two.Cache {
		t.Errorf("caches %s and %s differ: everything would be built twice", one.Cache, two.Cache)
	}
	for what, pair := range map[string][2]string{
		"data":      {one.Data, two.Data},
		"run":       {one.Run, two.Run},
		"namespace": {one.NetworkNamespace(), two.NetworkNamespace()},
		"device":    {one.HostDevice(), two.HostDevice()},
	} {
		if pair[0] == pair[1] {
			t.Errorf("both clusters have the %s %s", what, pair[0])
		}
	}
	if one.Network.Block.Overlaps(two.Network.Block) {
		t.Errorf("networks %s and %s overlap", one.Network.Block, two.Network.Block)
	}
}
