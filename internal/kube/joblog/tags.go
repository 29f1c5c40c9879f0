// SPDX-License-Identifier: Apache-2.0

package joblog

import (
	"regexp"
	"strconv"

	"github.com/trireme-mpi/trireme/internal/engine/mpi"
)

// tags match the rank tags of each MPI implementation, with the options of
// internal/engine/mpi.
var tags = map[mpi.Implementation]*regexp.Regexp{
	// [1,3]<stdout>:text is Open MPI 4, and [1,3]<stdout>: text is 5: the number of
	// the job, then the rank. With "--output tag-detailed" 5 also writes the host.
	mpi.OpenMPI: regexp.MustCompile(`^\[(?:[^\]\s]*[,:])?(\d+)\](?:\[[^\]]*\])?<std(?:out|err|diag)>:`),
	// [3] text is the format of Hydra's -prepend-rank.
	mpi.MPICH:    hydraTag,
	mpi.IntelMPI: hydraTag,
}

var hydraTag = regexp.MustCompile(`^\[(\d+)\] `)

// Rank returns the rank in the tag of a line, or NoRank.
func Rank(implementation mpi.Implementation, text string) int {
	pattern, known := tags[implementation]
	if !known || len(text) < 3 || text[0] != '[' {
		return NoRank
	}
	// A tag is short; the line may not be.
	match := pattern.FindStringSubmatch(text[:min(len(text), 512)])
	if match == nil {
		return NoRank
	}
	rank, err := strconv.Atoi(match[1])
	if err != nil {
		return NoRank
	}
	return rank
}
