// SPDX-License-Identifier: Apache-2.0

package joblog

import (
	"testing"

	"github.com/trireme-mpi/trireme/internal/engine/mpi"
)

func TestRank(t *testing.T) {
	cases := map[string]struct {
		mpi  mpi.Implementation
		text string
		want int
	}{
		"Open MPI 4":                    {mpi.OpenMPI, "[1,3]<stdout>:loss 0.1", 3},
		"Open MPI 4, error output":      {mpi.OpenMPI, "[1,12]<stderr>:oops", 12},
		"Open MPI 4, nothing behind it": {mpi.OpenMPI, "[1,0]<stdout>:", 0},
		"Open MPI 5":                    {mpi.OpenMPI, "[1,2]<stdout>: loss 0.1", 2},
		"Open MPI 5 in detail":          {mpi.OpenMPI, "[prterun-train-launcher-14@1,2][train-worker-1:77]<stdout>: loss", 2},
		"Open MPI 5 by rank":            {mpi.OpenMPI, "[7]<stdout>: loss", 7},
		"Open MPI itself":               {mpi.OpenMPI, "[train-launcher:00014] WARNING: local probe returned unhandled shell", NoRank},
		"what a rank of Open MPI wrote": {mpi.OpenMPI, "[3] loss 0.1", NoRank},
		"Hydra":                         {mpi.MPICH, "[3] loss 0.1", 3},
		"Hydra, nothing behind it":      {mpi.MPICH, "[3] ", 3},
		"Hydra, a list":                 {mpi.MPICH, "[3, 4] is a list", NoRank},
		"Hydra itself":                  {mpi.MPICH, "[mpiexec@train-launcher] error", NoRank},
		"Intel":                         {mpi.IntelMPI, "[10] loss 0.1", 10},
		"a tag further on":              {mpi.IntelMPI, "so [10] loss", NoRank},
		"no tags are expected":          {"", "[1,3]<stdout>:loss", NoRank},
		"a number beyond numbers":       {mpi.MPICH, "[99999999999999999999] x", NoRank},
		"nothing":                       {mpi.OpenMPI, "", NoRank},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Rank(test.mpi, test.text); got != test.want {
				t.Errorf("%q is of rank %d, want %d", test.text, got, test.want)
			}
		})
	}
}
