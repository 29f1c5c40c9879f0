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
		"ResolvConf":    configFile(l, "resolv.conf"),
		"ContainerdOpt": filepath.Join(l.ImageStore(), "opt"),
		"VolumePlugins": "/var/lib/kubelet/volume-plugins",
		"IPAMDirectory": "/var/lib/cni/networks",
	}
	targets := map[string]string{
		"Corefile":            "Corefile",
		"admission.yaml":      "admission.yaml",
		"webhooks.yaml":       "webhooks.yaml",
		"cni.conflist":        "cni/10-bridge.conflist",
		"containerd.toml":     "containerd.toml",
		"jobset.yaml":         "jobset.yaml",
		"kube-proxy.yaml":     "kube-proxy.yaml",
		"kube-scheduler.yaml": "kube-scheduler.yaml",
		"kubelet.yaml":        "kubelet.yaml",
		"kwok.yaml":           "kwok.yaml",
		"resolv.conf":         "resolv.conf",
	}
	files := make(map[string][]byte, len(targets))
	for source, target := range targets {
		var content bytes.Buffer
		if err := parsed.ExecuteTemplate(&content, source, values); err != nil {
			return nil, fmt.Errorf("configuration file %s: %w", target, err)
		}
		files[configFile(l, target)] = content.Bytes()
	}
	return files, nil
}
