// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"os"
	"testing"

	"github.com/trireme-mpi/trireme/internal/testing/deployed"
	"github.com/trireme-mpi/trireme/internal/testing/shared"
)

// One API server and one operator serve all tests of this package that do not
// need their own: each test has its own namespace.
var sharedCluster = shared.Thing[*cluster]{Make: func(t testing.TB) *cluster { return startCluster(t) }}

func TestMain(m *testing.M) {
	code := sharedCluster.End(m.Run())
	deployed.RemoveProgram()
	os.Exit(code)
}
