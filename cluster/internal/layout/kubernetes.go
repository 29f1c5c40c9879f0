// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// KubernetesVariable is the environment variable that chooses a release of Kubernetes.
const KubernetesVariable = "TRIREME_KUBERNETES_VERSION"

// Kubernetes is a release of Kubernetes that the cluster can run, and how to turn on its
// gang scheduling. CoreDNS, kwok and JobSet are the same for all.
type Kubernetes struct {
	// Release is the name that users choose, such as 1.36.
	Release string
	Version string
	// GangGates are the feature gates of native gang scheduling, GangAPI is the group and
	// version of its PodGroup. Both are empty in releases without it.
	GangGates []string
	GangAPI   string
}

// releases are those that the cluster can run. The first one is the default.
var releases = []Kubernetes{
	{Release: "1.36", Version: KubernetesVersion, GangGates: []string{"GenericWorkload=true", "GangScheduling=true"}, GangAPI: "scheduling.k8s.io/v1alpha2"},
	{Release: "1.33", Version: "v1.33.5"},
	// The gate GangScheduling no longer exists.
	{Release: "1.37", Version: "v1.37.0", GangGates: []string{"GenericWorkload=true"}, GangAPI: "scheduling.k8s.io/v1beta1"},
}

// Releases lists all releases, the default one first.
func Releases() []Kubernetes { return slices.Clone(releases) }

// FindKubernetes finds a release by its name; the empty name is the default.
func FindKubernetes(name string) (Kubernetes, error) {
	var names []string
	for _, release := range releases {
		if release.Release == name || name == "" {
			return release, nil
		}
		names = append(names, release.Release)
	}
	return Kubernetes{}, fmt.Errorf("the cluster cannot run Kubernetes %q; set %s to one of %s (default: %s)",
		name, KubernetesVariable, strings.Join(slices.Sorted(slices.Values(names)), ", "), releases[0].Release)
}

// IsDefault is true for the release that also brings CoreDNS, kwok and JobSet. A layout
// that chooses none has it.
func (k Kubernetes) IsDefault() bool { return k.Release == "" || k.Release == releases[0].Release }

// Minor is the second number of the version.
func (k Kubernetes) Minor() string { return strings.TrimPrefix(k.Release, "1.") }

// APIServerFlags are the flags of kube-apiserver that turn on native gang scheduling.
func (k Kubernetes) APIServerFlags() []string {
	if k.GangAPI == "" {
		return nil
	}
	return append(k.GangFlags(), "--runtime-config="+k.GangAPI+"=true")
}

// GangFlags are the flags that turn on native gang scheduling in every component.
func (k Kubernetes) GangFlags() []string {
	if len(k.GangGates) == 0 {
		return nil
	}
	return []string{"--feature-gates=" + strings.Join(k.GangGates, ",")}
}

// ReleaseRecord names the release that has written the cluster's data: etcd and the API
// server cannot read what a newer one has written.
func (l Layout) ReleaseRecord() string { return filepath.Join(l.Data, "kubernetes-release") }

// CheckRelease fails if another release has written the cluster's data.
func (l Layout) CheckRelease() error {
	if _, err := os.Stat(l.EtcdData()); os.IsNotExist(err) {
		return nil
	}
	// Data without the record is older than the choice of a release.
	written := releases[0].Release
	if content, err := os.ReadFile(l.ReleaseRecord()); err == nil {
		written = strings.TrimSpace(string(content))
	} else if !os.IsNotExist(err) {
		return err
	}
	if written != l.Kubernetes.Release {
		return fmt.Errorf("the data in %s belongs to Kubernetes %s, not %s; delete it with `reset`, or set %s=%s",
			l.Data, written, l.Kubernetes.Release, KubernetesVariable, written)
	}
	return nil
}
