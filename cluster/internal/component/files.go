// SPDX-License-Identifier: Apache-2.0

package component

import (
	"bytes"
	"embed"
	"fmt"
	"path/filepath"
	"text/template"

	"github.com/trireme-mpi/trireme/cluster/internal/layout"
)

//go:embed templates
var templates embed.FS

// Files returns the content of every configuration file by its path.
func Files(l layout.Layout, p Programs) (map[string][]byte, error) {
	parsed, err := template.New("").Option("missingkey=error").ParseFS(templates, "templates/*")
	if err != nil {
		return nil, fmt.Errorf("configuration templates: %w", err)
	}
	values := map[string]any{
		"Layout": l, "Network": l.Network, "Programs": p,
		"Name": l.Name, "ClusterDomain": layout.ClusterDomain, "PauseImage": layout.PauseImage,
		"Ports": map[string]int{
			"Kubelet": layout.KubeletPort, "ProxyHealth": layout.ProxyHealthPort, "ProxyMetrics": layout.ProxyMetricsPort,
			"DNSReady": layout.DNSReadyPort, "JobSetHealth": layout.JobSetHealthPort,
			"JobSetMetrics": layout.JobSetMetricsPort, "JobSetWebhook": layout.JobSetWebhookPort,
		},
		"ClientCA":      crt(l, ClusterAuthority),
		"Webhooks":      configFile(l, "webhooks.yaml"),
		"WebhookCert":   crt(l, "kube-apiserver-webhook-client"),
		"WebhookKey":    key(l, "kube-apiserver-webhook-client"),
		"KubeletCert":   crt(l, "kubelet"),
		"KubeletKey":    key(l, "kubelet"),
		"CNIConfig":     filepath.Join(l.Config(), "cni"),
		"JobSetCertDir": filepath.Join(l.Config(), "jobset-certificate"),
		"KubeconfigOf":  l.Kubeconfig,
		"CertOf":        func(leaf string) string { return crt(l, leaf) },
		"KeyOf":         func(leaf string) string { return key(l, leaf) },
		"RegistryHosts": configFile(l, "registries"),
		"ResolvConf":    configFile(l, "resolv.conf"),
		"ContainerdOpt": filepath.Join(l.ImageStore(), "opt"),
		"VolumePlugins": "/var/lib/kubelet/volume-plugins",
		"IPAMDirectory": "/var/lib/cni/networks",
	}
	// The template of each file.
	sources := map[string]string{
		"Corefile":               "Corefile",
		"admission.yaml":         "admission.yaml",
		"webhooks.yaml":          "webhooks.yaml",
		"cni/10-bridge.conflist": "cni.conflist",
		"containerd.toml":        "containerd.toml",
		"jobset.yaml":            "jobset.yaml",
		"kube-proxy.yaml":        "kube-proxy.yaml",
		"kube-scheduler.yaml":    "kube-scheduler.yaml",
		"kubelet.yaml":           "kubelet.yaml",
		"kwok.yaml":              "kwok.yaml",
		"resolv.conf":            "resolv.conf",
		"registry.yaml":          "registry.yaml",
		"registry-private.yaml":  "registry-private.yaml",
		// containerd looks for the settings of a registry in a folder with its address.
		filepath.Join("registries", l.Network.Registry(), "hosts.toml"):        "hosts.toml",
		filepath.Join("registries", l.Network.PrivateRegistry(), "hosts.toml"): "hosts.toml",
	}
	files := make(map[string][]byte, len(sources))
	for target, source := range sources {
		var content bytes.Buffer
		if err := parsed.ExecuteTemplate(&content, source, values); err != nil {
			return nil, fmt.Errorf("configuration file %s: %w", target, err)
		}
		files[configFile(l, target)] = content.Bytes()
	}
	return files, nil
}
