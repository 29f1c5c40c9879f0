package diagnosis

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// A verdict is given on what is handed over: nothing may ask a cluster for more.
func TestDiagnosisReachesNoCluster(t *testing.T) {
	output, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	packages := strings.Fields(string(output))
	if !slices.Contains(packages, "k8s.io/api/core/v1") {
		t.Fatalf("%d packages, and none of them Kubernetes' own: the list cannot be right", len(packages))
	}
	for _, module := range []string{"k8s.io/client-go", "sigs.k8s.io/controller-runtime"} {
		if at := slices.IndexFunc(packages, func(imported string) bool { return strings.HasPrefix(imported+"/", module+"/") }); at >= 0 {
			t.Errorf("internal/diagnosis needs %s", packages[at])
		}
	}
}

// The same input gives the same verdict, so the code must not look at a clock.
func TestDiagnosisHasNoClock(t *testing.T) {
	output, err := exec.Command("go", "list", "-f", `{{join .GoFiles " "}}`, ".").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	files := strings.Fields(string(output))
	if len(files) < 5 {
		t.Fatalf("only %v are looked at", files)
	}
	found, err := exec.Command("grep", append([]string{"-nE", `time\.(Now|Since|Until)\(|math/rand|crypto/rand`}, files...)...).Output()
	if len(found) > 0 || err == nil {
		t.Errorf("a clock, or chance:\n%s", found)
	}
}
