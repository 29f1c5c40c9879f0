// SPDX-License-Identifier: Apache-2.0

// odh is the command line for training jobs. Under the names kubectl-trireme and
// oc-trireme it is a plugin of kubectl and of oc.
package main

import (
	"os"

	"github.com/trireme-mpi/trireme/internal/cli"
)

func main() {
	os.Exit(cli.Main(os.Args))
}
