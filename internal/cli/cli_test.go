// SPDX-License-Identifier: Apache-2.0

package cli

import "testing"

func TestProgramName(t *testing.T) {
	for program, want := range map[string]string{
		"odh":                            "odh",
		"/usr/local/bin/kubectl-trireme": "kubectl trireme",
		"/usr/local/bin/oc-trireme":      "oc trireme",
		"kubectl-odh":                    "kubectl odh",
		"kubectl-trireme.exe":            "kubectl trireme",
		"odh_linux_arm64":                "odh",
	} {
		if got := programName(program); got != want {
			t.Errorf("%s is called %q, want %q", program, got, want)
		}
	}
}
