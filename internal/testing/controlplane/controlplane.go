// SPDX-License-Identifier: Apache-2.0

// Package controlplane gives tests a real API server with its etcd: the same
// build that the local cluster runs, started by envtest, with nothing
// downloaded.
package controlplane

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// startTimeout is how long etcd and kube-apiserver may take until they answer.
const startTimeout = 3 * time.Minute

// Start starts etcd and kube-apiserver, with the feature gates of the local
// cluster, and stops them when the test ends. The environment's fields that describe
// what to install (CRDs, webhooks) are the caller's to set; nil installs
// nothing.
func Start(t testing.TB, environment *envtest.Environment) *envtest.Environment {
	t.Helper()
	if environment == nil {
		environment = &envtest.Environment{}
	}
	environment.BinaryAssetsDirectory = assets(t)
	// A machine that does other things besides takes its time.
	environment.ControlPlaneStartTimeout = startTimeout
	environment.CRDInstallOptions.MaxTime = startTimeout
	flags := environment.ControlPlane.GetAPIServer().Configure()
	// As on the local cluster: gangs can be described, and an owner reference
	// needs permission for the owner, as it does on OpenShift.
	for _, argument := range KubernetesOf(t).APIServerFlags {
		name, value, _ := strings.Cut(strings.TrimPrefix(argument, "--"), "=")
		flags.Append(name, value)
	}
	flags.Append("enable-admission-plugins", "OwnerReferencesPermissionEnforcement")
	// Also if it has started in part.
	t.Cleanup(func() {
		if err := environment.Stop(); err != nil {
			t.Errorf("stop the API server: %v", err)
		}
	})
	if _, err := environment.Start(); err != nil {
		t.Fatalf("start the API server: %v", err)
	}
	return environment
}

// assets is the folder with kube-apiserver, etcd and kubectl. The cluster tool
// knows where its build puts them, and builds them if they are not there.
// KUBEBUILDER_ASSETS, where set, is a person's wish for another build.
func assets(t testing.TB) string {
	t.Helper()
	if directory := os.Getenv("KUBEBUILDER_ASSETS"); directory != "" {
		return directory
	}
	output, err := clusterTool("assets")
	if err != nil {
		t.Fatalf("build the API server: %v; `make cluster-build` shows more", err)
	}
	return strings.TrimSpace(string(output))
}

// Kubernetes describes the release that TRIREME_KUBERNETES_VERSION chooses.
type Kubernetes struct {
	Version string `json:"version"`
	// GangAPI is the group and version of native gang scheduling; empty if the release
	// has none.
	GangAPI        string   `json:"gangAPI"`
	APIServerFlags []string `json:"apiServerFlags"`
}

// KubernetesOf is what the cluster tool, which builds all releases, says of the chosen one.
func KubernetesOf(t testing.TB) Kubernetes {
	t.Helper()
	release, err := chosenRelease()
	if err != nil {
		t.Fatalf("read the settings of the API server: %v", err)
	}
	return release
}

var chosenRelease = sync.OnceValues(func() (release Kubernetes, err error) {
	output, err := clusterTool("assets", "--settings")
	if err != nil {
		return release, err
	}
	return release, json.Unmarshal(output, &release)
})

func clusterTool(arguments ...string) ([]byte, error) {
	command := exec.Command("go", append([]string{"run", "./cmd/cluster"}, arguments...)...)
	command.Dir = filepath.Join(repository(), "cluster")
	command.Stderr = os.Stderr
	return command.Output()
}

// repository is found from where this file was compiled, because tests run in
// the folder of their package.
func repository() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..", "..")
}
