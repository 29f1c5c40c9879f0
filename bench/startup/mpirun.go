// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/engine/mpi"
)

// program tells when all ranks are past MPI_Init, and when the last of them had
// started. All hosts have one clock.
const program = `import time
start = time.time_ns()
from mpi4py import MPI
MPI.COMM_WORLD.Barrier()
now = time.time_ns()
starts = MPI.COMM_WORLD.gather(start)
if starts: print("past init", len(starts), now, max(starts), flush=True)`

var pastInit = regexp.MustCompile(`past init (\d+) (\d+) (\d+)\n`)

// hostSettings are for hosts that share a machine: without them every host binds
// its ranks to the same first core, and waits by spinning.
var hostSettings = []string{
	"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "OMPI_MCA_hwloc_base_binding_policy=none", "OMPI_MCA_mpi_yield_when_idle=1",
	"OMPI_MCA_pml=ob1", "OMPI_MCA_btl=self,tcp", "OMPI_MCA_btl_tcp_if_include=eth0", "OMPI_MCA_oob_tcp_if_include=eth0",
}

// measureWhole: from before the launcher's first process to the moment when all
// ranks are past MPI_Init, one rank a host.
func (bench *bench) measureWhole() (row, error) {
	mpirun := []string{"mpirun", "--oversubscribe", "-np", strconv.Itoa(len(bench.workers)), "python3", "-c", program}
	launch := append([]string{protocol.Path, "launch", "--"}, mpirun...)
	flat := bench.mpiEnvironment("ssh")
	tree := slices.DeleteFunc(slices.Clone(flat), func(variable string) bool { return strings.Contains(variable, "_no_tree_spawn=") })
	return bench.alternate("mpirun", []measurement{
		{way: ours, server: servers[ours], took: bench.initTime, task: bench.task([][][]string{{launch}}, slices.Concat(bench.agentEnvironment(), bench.mpiEnvironment(protocol.Path)))},
		{way: openSSH, server: servers[openSSH], took: bench.initTime, task: bench.task([][][]string{{mpirun}}, flat)},
		{way: openSSHTree, server: servers[openSSH], took: bench.initTime, task: bench.task([][][]string{{mpirun}}, tree)},
	})
}

// mpiEnvironment is what launchers of jobs get, with one agent or another.
func (bench *bench) mpiEnvironment(agentPath string) []string {
	environment := slices.Clone(hostSettings)
	for _, variable := range mpi.Environment(mpi.Launch{Hostfile: hostfilePath, Slots: 1, Agent: agentPath}) {
		environment = append(environment, variable.Name+"="+variable.Value)
	}
	return environment
}

// initTime is when all ranks were past MPI_Init, and when the last had started.
func (bench *bench) initTime(answer answer) (took, started time.Duration, err error) {
	found := pastInit.FindStringSubmatch(answer.Output)
	if found == nil {
		return 0, 0, fmt.Errorf("no rank said that it is past MPI_Init:\n%s", tail(answer.Output, 2000))
	}
	if found[1] != strconv.Itoa(len(bench.workers)) {
		return 0, 0, fmt.Errorf("%s ranks of %d", found[1], len(bench.workers))
	}
	past, pastErr := strconv.ParseInt(found[2], 10, 64)
	last, lastErr := strconv.ParseInt(found[3], 10, 64)
	return time.Unix(0, past).Sub(answer.Began), time.Unix(0, last).Sub(answer.Began), errors.Join(pastErr, lastErr)
}
