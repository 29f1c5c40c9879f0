// SPDX-License-Identifier: Apache-2.0

// Package integration tests against a real API server and nothing else.
package integration

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/trireme-mpi/trireme/internal/engine/gang"
	"github.com/trireme-mpi/trireme/internal/testing/controlplane"
)

func TestControlPlaneIsTheClustersOwnBuild(t *testing.T) {
	environment := controlplane.Start(t, nil)
	client, err := kubernetes.NewForConfig(environment.Config)
	if err != nil {
		t.Fatal(err)
	}
	version, err := client.Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	release := controlplane.KubernetesOf(t)
	if version.GitVersion != release.Version {
		t.Errorf("the API server says that it is %s, want %s", version.GitVersion, release.Version)
	}
	created, err := client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Namespaces().Get(t.Context(), created.Name, metav1.GetOptions{}); err != nil {
		t.Errorf("what was stored is not there: %v", err)
	}
	available, err := gang.Discover(client.Discovery())
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, kind := range available.Served {
		found = append(found, kind.GroupVersion().String())
	}
	if want := strings.Fields(release.GangAPI); !slices.Equal(found, want) {
		t.Errorf("gang schedulers %q are discovered, want %q", found, want)
	}
	if release.GangAPI == "" {
		return
	}
	resources, err := client.Discovery().ServerResourcesForGroupVersion(release.GangAPI)
	if err != nil {
		t.Fatalf("native gang scheduling is not served: %v", err)
	}
	if len(resources.APIResources) == 0 {
		t.Error("native gang scheduling has no resources")
	}
}
