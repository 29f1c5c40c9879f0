package joblog

import (
	"regexp"
	"strconv"

	"github.com/trireme-mpi/trireme/internal/engine/mpi"
)

// How each MPI says which rank wrote a line, as internal/engine/mpi has it do so.
var tags = map[mpi.Implementation]*regexp.Regexp{
	// [1,3]<stdout>:text is Open MPI 4, and [1,3]<stdout>: text is 5: the number of
	// the job, then the rank. With "--output tag-detailed" 5 also writes the host.
	mpi.OpenMPI: regexp.MustCompile(`^\[(?:[^\]\s]*[,:])?(\d+)\](?:\[[^\]]*\])?<std(?:out|err|diag)>:`),
	// [3] text is what Hydra makes of -prepend-rank.
	mpi.MPICH:    hydraTag,
	mpi.IntelMPI: hydraTag,
}

var hydraTag = regexp.MustCompile(`^\[(\d+)\] `)

// Rank is the rank that a line says it is from, or NoRank.
func Rank(implementation mpi.Implementation, text string) int {
	form, known := tags[implementation]
	if !known || len(text) < 3 || text[0] != '[' {
		return NoRank
	}
	// A tag is short; the line may not be.
	found := form.FindStringSubmatch(text[:min(len(text), 512)])
	if found == nil {
		return NoRank
	}
	rank, err := strconv.Atoi(found[1])
	if err != nil {
		return NoRank
	}
	return rank
}
