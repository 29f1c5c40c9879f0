// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"
)

// fipsBuild builds programs that panic when they use an algorithm that is not approved.
const fipsBuild = "FIPS=1 GOFIPS140=v1.0.0 GOFLAGS='-buildvcs=false -tags=fips' "

// With programs in strict FIPS mode, whole jobs run: keys, SSH, TLS, certificates.
func TestJobsRunInFIPSMode(t *testing.T) {
	needsLocalCluster(t, "Trireme is installed again")
	if !isThorough() {
		t.Skip("compiles all programs again: make test-all runs it")
	}
	install := func(line string) {
		if output, err := shell(line); err != nil {
			t.Fatalf("%s: %v\n%s", line, err, output)
		}
	}
	t.Cleanup(func() { install("make install odh") })
	// The certificates of the other build were not issued in FIPS mode: new ones are.
	install("bin/cluster kubectl delete secret --namespace trireme-system --ignore-not-found trireme-webhook trireme-server-tls")
	install(fipsBuild + "make install odh")
	waitForOperator(t)
	if version, err := shell("bin/odh version -o json"); err != nil || !strings.Contains(strings.ReplaceAll(version, " ", ""), `"fips140":true`) {
		t.Errorf("odh version: %v\n%s", err, version)
	}
	for kind, object := range both(2, allreduce) {
		t.Run(kind, func(t *testing.T) { wantSum(t, submit(t, object), "4 ranks on 2 hosts, sum 10") })
	}
	for _, program := range []string{"operator", "server"} {
		log := kubectl(t, "logs --namespace trireme-system --all-pods --tail=-1 deployment/trireme-"+program)
		if strings.Contains(log, "FIPS 140-only mode") {
			t.Errorf("%s uses an algorithm that is not approved:\n%s", program, log)
		}
	}
}
