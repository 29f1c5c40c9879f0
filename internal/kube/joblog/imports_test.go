// SPDX-License-Identifier: Apache-2.0

package joblog

import (
	"os/exec"
	"strings"
	"testing"
)

// A server reads logs by this package too: nothing in it may know of a command
// line or of a terminal.
func TestJoblogKnowsNoReader(t *testing.T) {
	output, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	packages := string(output)
	if !strings.Contains(packages, "k8s.io/client-go/kubernetes/typed/core/v1\n") {
		t.Fatalf("the list cannot be right:\n%s", packages)
	}
	for _, reader := range []string{"github.com/spf13/cobra", "k8s.io/cli-runtime", "trireme/internal/cli"} {
		if strings.Contains(packages, reader) {
			t.Errorf("the package needs %s", strings.TrimSpace(reader))
		}
	}
}
