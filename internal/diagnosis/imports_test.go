package diagnosis

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/trireme-mpi/trireme/internal/testing/pure"
)

// A verdict is given on what is handed over: nothing may ask a cluster for more.
func TestDiagnosisReachesNoCluster(t *testing.T) {
	pure.ReachesNoCluster(t)
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
