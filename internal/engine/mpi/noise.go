package mpi

import (
	"bytes"
	"regexp"
	"sync"
)

// harmlessWarning is of Open MPI 4 and 5. mpirun and the child that it forks to run
// the agent both call setpgid for the child, and the kernel refuses mpirun's own
// call (EACCES, 13) if the child has already executed the agent. The child only does
// so after its own call has succeeded, so nothing is wrong, and no agent can prevent it.
var harmlessWarning = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?m)^\[[^\]\n]+\] plm:(?:rsh|ssh): Warning: setpgid\(\d+,\d+\) failed in parent with errno=[^\n]*\(13\)\n`)
})

// WithoutNoise is a piece of mpirun's output without lines that would only worry users.
func WithoutNoise(output []byte) []byte {
	// Cheap, because all that ranks print comes through here.
	if !bytes.Contains(output, []byte("Warning: setpgid(")) {
		return output
	}
	return harmlessWarning().ReplaceAll(output, nil)
}
