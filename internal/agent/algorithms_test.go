// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"crypto/fips140"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// fipsOnly is the setting of a process that panics when it uses an algorithm that is not
// approved.
const fipsOnly = "fips140=only"

// TestFIPSMode runs the tests of SSH again, in a process in FIPS mode: the mode is fixed
// when a process starts, and the agents that the tests start inherit it.
func TestFIPSMode(t *testing.T) {
	if fips140.Enabled() {
		t.Skip("the tests themselves run in FIPS mode")
	}
	tests := []string{
		"TestConnectionsAreInFIPSMode", "TestWorkerRunsCommands", "TestWorkerRefuses", "TestRSHRunsCommands",
		"TestReachRetries", "TestGateWaitsForAWorkerThatIsLate", "TestOpenSSHLogsIn",
	}
	again := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^("+strings.Join(tests, "|")+")$", "-test.v")
	again.Env = append(os.Environ(), "GODEBUG="+fipsOnly)
	output, err := again.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	for _, name := range tests {
		if !bytes.Contains(output, []byte("--- PASS: "+name)) && !bytes.Contains(output, []byte("--- SKIP: "+name)) {
			t.Errorf("%s did not run", name)
		}
	}
}

// TestConnectionsAreInFIPSMode is run by TestFIPSMode.
func TestConnectionsAreInFIPSMode(t *testing.T) {
	if !fips140.Enabled() {
		t.Skip("only in FIPS mode: TestFIPSMode runs it")
	}
	if !fips140.Enforced() {
		t.Fatal("algorithms that are not approved would not be noticed")
	}
	if config := algorithms(); len(config.KeyExchanges) != 1 || len(config.Ciphers) != 1 || len(config.MACs) != 1 {
		t.Errorf("algorithms are not named: %+v", config)
	}
}
