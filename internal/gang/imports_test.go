package gang

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// The plan may use this package, so it must not be able to ask a cluster. No
// scheduler's own module may become a dependency either.
func TestGangReachesNoCluster(t *testing.T) {
	output, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	packages := strings.Fields(string(output))
	if !slices.Contains(packages, "k8s.io/api/core/v1") {
		t.Fatalf("%d packages, and none of them Kubernetes' own: the list cannot be right", len(packages))
	}
	for _, module := range []string{"k8s.io/client-go", "sigs.k8s.io/controller-runtime", "sigs.k8s.io/scheduler-plugins", "volcano.sh"} {
		if at := slices.IndexFunc(packages, func(imported string) bool { return strings.HasPrefix(imported+"/", module+"/") }); at >= 0 {
			t.Errorf("internal/gang needs %s", packages[at])
		}
	}
}
