// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"flag"
	"os"
	"testing"

	"github.com/trireme-mpi/trireme/internal/testing/deployed"
	"github.com/trireme-mpi/trireme/internal/testing/shared"
)

// One API server and one operator serve all tests of this package that do not
// need their own: each test has its own namespace.
var sharedCluster = shared.Thing[*cluster]{Make: func(t testing.TB) *cluster { return startCluster(t, withJobSet) }}

// waitingTests is how many tests run at a time: they spend their time waiting for
// the operator, and not for a processor.
const waitingTests = "12"

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", waitingTests); err != nil {
		panic(err)
	}
	code := sharedCluster.End(m.Run())
	deployed.RemoveProgram()
	os.Exit(code)
}
