// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"os"
	"testing"

	"github.com/trireme-mpi/trireme/internal/testing/deployed"
)

func TestMain(m *testing.M) {
	code := m.Run()
	deployed.RemoveProgram()
	os.Exit(code)
}
