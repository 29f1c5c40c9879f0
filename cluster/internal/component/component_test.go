// SPDX-License-Identifier: Apache-2.0

package component

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/trireme-mpi/trireme/cluster/internal/layout"
	"github.com/trireme-mpi/trireme/cluster/internal/pki"
)

var update = flag.Bool("update", false, "write what the code gives to testdata")

// fixed is a layout that depends on nothing of the machine.
func fixed(t *testing.T) (layout.Layout, Programs) {
	t.Helper()
	network, err := layout.ParseNetwork("10.199.0.0/16")
	if err != nil {
		t.Fatal(err)
	}
	return layout.Layout{Name: "mine", Source: "/src", Cache: "/cache", Data: "/data", Run: "/run/mine", Network: network, NetworkPolicies: true, Kubernetes: layout.Releases()[0]},
		Programs{Kubernetes: "/cache/kubernetes/1", Addons: "/cache/kubernetes/1", Containerd: "/cache/containerd/2", CNI: "/usr/lib/cni", Runc: "/usr/sbin/runc", Tool: "/data/bin/cluster"}
}

func files(t *testing.T, l layout.Layout, p Programs) map[string][]byte {
	t.Helper()
	all, err := Files(l, p)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func named(t *testing.T, name string) Component {
	t.Helper()
	l, p := fixed(t)
	for _, c := range All(l, p) {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("no component %s", name)
	return Component{}
}

// flags gives the values of a component's arguments by their names.
func flags(c Component) map[string][]string {
	values := map[string][]string{}
	for _, argument := range c.Args {
		name, value, _ := strings.Cut(strings.TrimLeft(argument, "-"), "=")
		values[name] = append(values[name], value)
	}
	return values
}

// parsed is a generated configuration file as a YAML reader sees it.
func parsed(t *testing.T, name string) map[string]any {
	t.Helper()
	l, p := fixed(t)
	var content map[string]any
	if err := yaml.UnmarshalStrict(files(t, l, p)[configFile(l, name)], &content); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return content
}

// at walks into a parsed file.
func at(content map[string]any, path ...string) any {
	var value any = content
	for _, name := range path {
		inner, ok := value.(map[string]any)
		if !ok {
			return nil
		}
		value = inner[name]
	}
	return value
}

func assertGolden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
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
		t.Errorf("%s differs; if that is meant, run go test ./internal/component -update (-want +got):\n%s", file, diff)
	}
}

func TestComponentsAreAsReviewed(t *testing.T) {
	l, p := fixed(t)
	assertGolden(t, "components.golden", textOf(l, p))
}

// The arguments that depend on the release of Kubernetes, and where its programs are.
func TestComponentsOfOtherReleases(t *testing.T) {
	for _, release := range layout.Releases()[1:] {
		t.Run(release.Release, func(t *testing.T) {
			l, p := fixed(t)
			l.Kubernetes, p.Kubernetes = release, "/cache/kubernetes-"+release.Release+"/3"
			assertGolden(t, "components-"+release.Release+".golden", textOf(l, p))
		})
	}
}

func textOf(l layout.Layout, p Programs) string {
	var text strings.Builder
	for _, c := range All(l, p) {
		fmt.Fprintf(&text, "%s\n  path  %s\n", c.Name, c.Path)
		for _, after := range c.After {
			fmt.Fprintf(&text, "  after %s\n", after)
		}
		fmt.Fprintf(&text, "  ready %s %s\n", c.Ready.URL, c.Ready.Leaf)
		for _, argument := range c.Args {
			fmt.Fprintf(&text, "    %s\n", argument)
		}
	}
	return text.String()
}

func TestFilesAreAsReviewed(t *testing.T) {
	l, p := fixed(t)
	all := files(t, l, p)
	var text strings.Builder
	for _, path := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&text, "=== %s ===\n%s", path, all[path])
	}
	assertGolden(t, "files.golden", text.String())
}

func TestEveryTemplateBecomesAFile(t *testing.T) {
	l, p := fixed(t)
	entries, err := templates.ReadDir("templates")
	if err != nil {
		t.Fatal(err)
	}
	// hosts.toml is that of two registries.
	if got := len(files(t, l, p)); got != len(entries)+1 {
		t.Errorf("%d files from %d templates", got, len(entries))
	}
}

func TestStartOrder(t *testing.T) {
	l, p := fixed(t)
	// The task is defined where the supervisor is started (internal/local).
	after := map[string][]string{AddonsTask: {"kube-apiserver"}}
	for _, c := range All(l, p) {
		if _, twice := after[c.Name]; twice {
			t.Errorf("two components are called %s", c.Name)
		}
		after[c.Name] = c.After
	}
	for name, wanted := range after {
		for _, other := range wanted {
			if _, found := after[other]; !found {
				t.Errorf("%s waits for %s, which does not exist: it would wait for ever", name, other)
			}
		}
	}
	// Whatever has all it waits for starts; nobody may be left.
	started := map[string]bool{}
	for range after {
		for name, wanted := range after {
			if !slices.ContainsFunc(wanted, func(other string) bool { return !started[other] }) {
				started[name] = true
			}
		}
	}
	for name := range after {
		if !started[name] {
			t.Errorf("%s waits for itself by way of %v", name, after[name])
		}
	}
}

func TestNamesNeedNoCluster(t *testing.T) {
	l, p := fixed(t)
	l.NetworkPolicies = false
	var want []string
	for _, c := range All(l, p) {
		want = append(want, c.Name)
	}
	// Most machines have no GPU.
	want = slices.DeleteFunc(want, func(name string) bool { return name == GPUPlugin })
	if diff := cmp.Diff(want, Names()); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}

// authorityOf says who signs a leaf.
func authorityOf(l layout.Layout) map[string]string {
	signer := map[string]string{}
	for authority, leaves := range Leaves(l) {
		for _, leaf := range leaves {
			signer[leaf.File] = authority
		}
	}
	return signer
}

// texts is everything that a component gets to read: its arguments and files.
func texts(t *testing.T, l layout.Layout, p Programs) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, c := range All(l, p) {
		all["component "+c.Name] = strings.Join(append(c.Args, c.Ready.URL), "\n")
	}
	for path, content := range files(t, l, p) {
		all[path] = string(content)
	}
	return all
}

func TestEveryCertificateReferredToIsIssued(t *testing.T) {
	l, p := fixed(t)
	issued := map[string]bool{"service-account.key": true, "service-account.pub": true}
	for authority, leaves := range Leaves(l) {
		issued[authority+".crt"], issued[authority+".key"] = true, true
		for _, leaf := range leaves {
			if issued[leaf.File+".crt"] {
				t.Errorf("two certificates share the file %s", leaf.File)
			}
			issued[leaf.File+".crt"], issued[leaf.File+".key"] = true, true
		}
	}
	reference := regexp.MustCompile(regexp.QuoteMeta(l.PKI()) + `/([^\s"',]+)`)
	references := 0
	for source, text := range texts(t, l, p) {
		for _, match := range reference.FindAllStringSubmatch(text, -1) {
			references++
			if !issued[match[1]] {
				t.Errorf("%s refers to %s, which nobody makes", source, match[0])
			}
		}
	}
	if references < 20 {
		t.Errorf("only %d references found: the test looks for the wrong thing", references)
	}
}

func TestEveryKubeconfigReferredToIsWritten(t *testing.T) {
	l, p := fixed(t)
	signer, used := authorityOf(l), map[string]bool{}
	reference := regexp.MustCompile(regexp.QuoteMeta(l.Config()) + `/([^\s"',]+)\.kubeconfig`)
	for source, text := range texts(t, l, p) {
		for _, match := range reference.FindAllStringSubmatch(text, -1) {
			used[match[1]] = true
			if !slices.Contains(Clients(), match[1]) {
				t.Errorf("%s refers to %s, which nobody writes", source, match[0])
			}
		}
	}
	for _, client := range Clients() {
		if !used[client] {
			t.Errorf("nobody uses the kubeconfig of %s: a key lies about for nothing", client)
		}
		if signer[client] != ClusterAuthority {
			t.Errorf("the API server does not know the authority %q of client %s", signer[client], client)
		}
	}
}

func TestEveryConfigurationFileReferredToIsGenerated(t *testing.T) {
	l, p := fixed(t)
	all, used := files(t, l, p), map[string]bool{}
	reference := regexp.MustCompile(regexp.QuoteMeta(l.Config()) + `/[^\s"',]+`)
	for source, text := range texts(t, l, p) {
		for _, path := range reference.FindAllString(text, -1) {
			used[path] = true
			isDirectory := slices.Contains([]string{"cni", "jobset-certificate", "registries"}, filepath.Base(path))
			if _, found := all[path]; !found && !isDirectory && !strings.HasSuffix(path, ".kubeconfig") {
				t.Errorf("%s refers to %s, which nobody writes", source, path)
			}
		}
	}
	for path := range all {
		if !used[path] && !used[filepath.Dir(path)] && !used[filepath.Dir(filepath.Dir(path))] {
			t.Errorf("%s is written and never read", path)
		}
	}
}

func TestLeavesOpenNoOtherDoor(t *testing.T) {
	l, _ := fixed(t)
	signer := authorityOf(l)
	for leaf, want := range map[string]string{
		"etcd": EtcdAuthority, "kube-apiserver-etcd-client": EtcdAuthority,
		"front-proxy-client": FrontProxyAuthority, "admin": ClusterAuthority,
	} {
		if signer[leaf] != want {
			t.Errorf("%s is signed by %q, want %s", leaf, signer[leaf], want)
		}
	}
	users := map[string]string{}
	for _, leaf := range Leaves(l)[ClusterAuthority] {
		if other, taken := users[leaf.CommonName]; taken {
			t.Errorf("%s and %s are the same user %s", leaf.File, other, leaf.CommonName)
		}
		users[leaf.CommonName] = leaf.File
		if leaf.Organization == "system:masters" && leaf.File != "admin" {
			t.Errorf("%s is allowed everything", leaf.File)
		}
	}
	// The Node authorizer goes by exactly these two.
	kubelet := Leaves(l)[ClusterAuthority][slices.IndexFunc(Leaves(l)[ClusterAuthority], func(leaf pki.Leaf) bool { return leaf.File == "kubelet" })]
	if kubelet.CommonName != "system:node:mine" || kubelet.Organization != "system:nodes" {
		t.Errorf("kubelet is user %s of group %s", kubelet.CommonName, kubelet.Organization)
	}
}

// A probe that is not trusted, or does not trust, would never see a component
// become ready.
func TestProbesFitTheCertificates(t *testing.T) {
	l, p := fixed(t)
	leaves, signer := map[string]pki.Leaf{}, authorityOf(l)
	for _, signed := range Leaves(l) {
		for _, leaf := range signed {
			leaves[leaf.File] = leaf
		}
	}
	ports := map[string]string{}
	for _, c := range All(l, p) {
		if c.Ready.URL == "" || strings.HasPrefix(c.Ready.URL, "unix://") {
			continue
		}
		address, err := url.Parse(c.Ready.URL)
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		if other, taken := ports[address.Port()]; taken {
			t.Errorf("%s and %s answer on the same port %s", c.Name, other, address.Port())
		}
		ports[address.Port()] = c.Name
		if c.Ready.Leaf != "" && signer[c.Ready.Leaf] == "" {
			t.Errorf("%s is probed with %s, which nobody issues", c.Name, c.Ready.Leaf)
		}
		if address.Scheme != "https" {
			continue
		}
		ip := net.ParseIP(address.Hostname())
		if !slices.ContainsFunc(leaves[c.Name].IPs, ip.Equal) {
			t.Errorf("%s answers on %s, its certificate is for %v", c.Name, ip, leaves[c.Name].IPs)
		}
		if c.Ready.Leaf != "" && signer[c.Ready.Leaf] != signer[c.Name] {
			t.Errorf("%s trusts %s and is probed with a leaf of %s", c.Name, signer[c.Name], signer[c.Ready.Leaf])
		}
	}
}

func TestAPIServerIsSecured(t *testing.T) {
	l, _ := fixed(t)
	got := flags(named(t, "kube-apiserver"))
	for name, want := range map[string]string{
		"anonymous-auth":                "false",
		"authorization-mode":            "Node,RBAC",
		"client-ca-file":                crt(l, ClusterAuthority),
		"etcd-cafile":                   crt(l, EtcdAuthority),
		"requestheader-client-ca-file":  crt(l, FrontProxyAuthority),
		"requestheader-allowed-names":   "front-proxy-client",
		"kubelet-certificate-authority": crt(l, ClusterAuthority),
		"service-cluster-ip-range":      "10.199.64.0/18",
		"advertise-address":             "10.199.0.2",
	} {
		if diff := cmp.Diff([]string{want}, got[name]); diff != "" {
			t.Errorf("--%s (-want +got):\n%s", name, diff)
		}
	}
	plugins := strings.Split(strings.Join(got["enable-admission-plugins"], ","), ",")
	for _, want := range []string{"NodeRestriction", "OwnerReferencesPermissionEnforcement", "PodSecurity", "ResourceQuota"} {
		if !slices.Contains(plugins, want) {
			t.Errorf("admission plugin %s is not enabled: %v", want, plugins)
		}
	}
	for _, unwanted := range []string{"disable-admission-plugins", "insecure-port", "token-auth-file", "basic-auth-file"} {
		if values, found := got[unwanted]; found {
			t.Errorf("--%s is set to %v", unwanted, values)
		}
	}
}

func TestEtcdIsSecured(t *testing.T) {
	l, _ := fixed(t)
	got := flags(named(t, "etcd"))
	for _, name := range []string{"client-cert-auth", "peer-client-cert-auth"} {
		if diff := cmp.Diff([]string{""}, got[name]); diff != "" {
			t.Errorf("--%s (-want +got):\n%s", name, diff)
		}
	}
	for name, want := range map[string]string{
		"trusted-ca-file":      crt(l, EtcdAuthority),
		"peer-trusted-ca-file": crt(l, EtcdAuthority),
		"listen-client-urls":   "https://127.0.0.1:2379",
		"listen-peer-urls":     "https://127.0.0.1:2380",
	} {
		if diff := cmp.Diff([]string{want}, got[name]); diff != "" {
			t.Errorf("--%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestKubeletIsSecured(t *testing.T) {
	l, _ := fixed(t)
	got := parsed(t, "kubelet.yaml")
	for path, want := range map[string]any{
		"authentication.anonymous.enabled": false,
		"authentication.webhook.enabled":   true,
		"authentication.x509.clientCAFile": crt(l, ClusterAuthority),
		"authorization.mode":               "Webhook",
		"address":                          "10.199.0.2",
		"cgroupRoot":                       "/mine",
		"healthzPort":                      float64(0),
		// The read-only port answers everybody; its absence means none.
		"readOnlyPort": nil,
	} {
		if diff := cmp.Diff(want, at(got, strings.Split(path, ".")...)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
}

func TestOtherServersAreLocal(t *testing.T) {
	for _, name := range []string{"kube-controller-manager", "kube-scheduler"} {
		if diff := cmp.Diff([]string{"127.0.0.1"}, flags(named(t, name))["bind-address"]); diff != "" {
			t.Errorf("%s --bind-address (-want +got):\n%s", name, diff)
		}
	}
	if diff := cmp.Diff([]string{"127.0.0.1:10247"}, flags(named(t, "kwok"))["server-address"]); diff != "" {
		t.Errorf("kwok --server-address (-want +got):\n%s", diff)
	}
	proxy, jobSet := parsed(t, "kube-proxy.yaml"), parsed(t, "jobset.yaml")
	for what, address := range map[string]any{
		"kube-proxy's health":  at(proxy, "healthzBindAddress"),
		"kube-proxy's metrics": at(proxy, "metricsBindAddress"),
		"jobset's metrics":     at(jobSet, "metrics", "bindAddress"),
		"jobset's health":      at(jobSet, "health", "healthProbeBindAddress"),
	} {
		if text, _ := address.(string); !strings.HasPrefix(text, "127.0.0.1:") {
			t.Errorf("%s is on %v, where others reach it", what, address)
		}
	}
}

func TestNothingSpeaksPlainHTTPAcrossTheNetwork(t *testing.T) {
	l, p := fixed(t)
	plain := regexp.MustCompile(`http://[^\s"']*`)
	found := 0
	for source, text := range texts(t, l, p) {
		for _, address := range plain.FindAllString(text, -1) {
			found++
			if !strings.HasPrefix(address, "http://127.0.0.1:") {
				t.Errorf("%s has %s", source, address)
			}
		}
	}
	if found == 0 {
		t.Error("no URL found at all: the test looks for the wrong thing")
	}
}

func TestGangGatesAreTheSameEverywhere(t *testing.T) {
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		if diff := cmp.Diff([]string{"GenericWorkload=true,GangScheduling=true"}, flags(named(t, name))["feature-gates"]); diff != "" {
			t.Errorf("%s --feature-gates (-want +got):\n%s", name, diff)
		}
	}
}

func TestYAMLFilesParse(t *testing.T) {
	l, p := fixed(t)
	parsedFiles := 0
	for path, content := range files(t, l, p) {
		if filepath.Ext(path) != ".yaml" {
			continue
		}
		parsedFiles++
		var object struct{ APIVersion, Kind, Version string }
		if err := yaml.Unmarshal(content, &object); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		var strict map[string]any
		if err := yaml.UnmarshalStrict(content, &strict); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		// The registry's files have a version and no kind.
		if (object.APIVersion == "" || object.Kind == "") && object.Version == "" {
			t.Errorf("%s does not say what it is", path)
		}
	}
	if parsedFiles == 0 {
		t.Error("no YAML file at all")
	}
}

// YAML takes these for something else than a text.
func TestNamesThatMeanSomethingInYAML(t *testing.T) {
	l, p := fixed(t)
	for _, name := range []string{"no", "on", "true", "null", "y", "e1"} {
		l.Name = name
		var proxy map[string]any
		if err := yaml.Unmarshal(files(t, l, p)[configFile(l, "kube-proxy.yaml")], &proxy); err != nil {
			t.Fatal(err)
		}
		if got := at(proxy, "hostnameOverride"); got != name {
			t.Errorf("kube-proxy of cluster %q is on node %v", name, got)
		}
	}
}

func TestPodNetwork(t *testing.T) {
	// Only routed packets pass the rules of NetworkPolicies.
	for plugin, enforced := range map[string]bool{"bridge": false, "ptp": true} {
		t.Run(plugin, func(t *testing.T) { checkPodNetwork(t, plugin, enforced) })
	}
}

func checkPodNetwork(t *testing.T, wantPlugin string, enforced bool) {
	l, p := fixed(t)
	l.NetworkPolicies = enforced
	var network struct {
		CNIVersion string `json:"cniVersion"`
		Name       string `json:"name"`
		Plugins    []struct {
			Type string `json:"type"`
			IPAM struct {
				Type    string                `json:"type"`
				DataDir string                `json:"dataDir"`
				Ranges  [][]map[string]string `json:"ranges"`
			} `json:"ipam"`
		} `json:"plugins"`
	}
	if err := json.Unmarshal(files(t, l, p)[configFile(l, "cni/10-bridge.conflist")], &network); err != nil {
		t.Fatal(err)
	}
	if network.CNIVersion == "" || network.Name != "mine" || len(network.Plugins) == 0 {
		t.Fatalf("network list %+v is not complete", network)
	}
	plugin := network.Plugins[0]
	if plugin.Type != wantPlugin || plugin.IPAM.Type != "host-local" {
		t.Errorf("plugin %s with addresses of %s", plugin.Type, plugin.IPAM.Type)
	}
	if diff := cmp.Diff([][]map[string]string{{{"subnet": l.Network.Pods().String()}}}, plugin.IPAM.Ranges); diff != "" {
		t.Errorf("addresses of pods (-want +got):\n%s", diff)
	}
	// One of the paths that are ours inside the cluster's mount namespace.
	hidden := false
	for path := range l.HostPaths() {
		hidden = hidden || strings.HasPrefix(plugin.IPAM.DataDir, path+"/")
	}
	if !hidden {
		t.Errorf("addresses are noted in %s, which another Kubernetes may use, too", plugin.IPAM.DataDir)
	}
}

func TestEnvironmentIsNotTheCallers(t *testing.T) {
	_, p := fixed(t)
	t.Setenv("HTTPS_PROXY", "http://proxy.example:3128")
	t.Setenv("KUBECONFIG", "/home/someone/.kube/config")
	t.Setenv("PATH", "/home/someone/bin")
	names := map[string]string{}
	for _, variable := range Environment(p) {
		name, value, _ := strings.Cut(variable, "=")
		names[name] = value
		if strings.Contains(value, "someone") || strings.Contains(value, "proxy") {
			t.Errorf("%s comes from the caller", variable)
		}
	}
	if diff := cmp.Diff([]string{"HOME", "PATH"}, slices.Sorted(maps.Keys(names))); diff != "" {
		t.Errorf("variables (-want +got):\n%s", diff)
	}
	// containerd looks for its shim on PATH, and it must be ours.
	if !strings.HasPrefix(names["PATH"], p.Containerd+":") {
		t.Errorf("PATH %s does not begin with containerd's own directory", names["PATH"])
	}
}
