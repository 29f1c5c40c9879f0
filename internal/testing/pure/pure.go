// Package pure holds packages to being functions of what they are handed.
package pure

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// ReachesNoCluster fails if the package under test needs a client of Kubernetes,
// or a package of another module that is named.
func ReachesNoCluster(t *testing.T, others ...string) {
	t.Helper()
	output, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	packages := strings.Fields(string(output))
	if !slices.Contains(packages, "k8s.io/api/core/v1") {
		t.Fatalf("%d packages, and none of them Kubernetes' own: the list cannot be right", len(packages))
	}
	for _, module := range append(others, "k8s.io/client-go", "sigs.k8s.io/controller-runtime") {
		if at := slices.IndexFunc(packages, func(imported string) bool { return strings.HasPrefix(imported+"/", module+"/") }); at >= 0 {
			t.Errorf("the package needs %s", packages[at])
		}
	}
}
