// SPDX-License-Identifier: Apache-2.0

package mpi

import (
	"bytes"
	"regexp"
	"sync"
)

// harmlessWarning matches a warning of Open MPI 4 and 5. mpirun and the child that it
// forks to run the agent both call setpgid for the child. The kernel refuses mpirun's
// call (EACCES, 13) if the child has already executed the agent, which it does only after
// its own call has succeeded. The agent cannot prevent the warning.
var harmlessWarning = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?m)^\[[^\]\n]+\] plm:(?:rsh|ssh): Warning: setpgid\(\d+,\d+\) failed in parent with errno=[^\n]*\(13\)\n`)
})

// WithoutNoise removes misleading lines from a piece of mpirun's output.
func WithoutNoise(output []byte) []byte {
	// This check is cheap: all output of the ranks passes here.
	if !bytes.Contains(output, []byte("Warning: setpgid(")) {
		return output
	}
	return harmlessWarning().ReplaceAll(output, nil)
}
