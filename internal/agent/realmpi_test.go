// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/engine/activity"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

// realProgram hangs in the ways that users meet. The name of the way is its argument.
const realProgram = `
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile double sink;

static void compute(long rounds) {
	for (long i = 0; i < rounds; i++) sink += i * 0.5;
}

int main(int argc, char **argv) {
	int rank, value = 0;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	const char *way = argv[1];
	if (!strcmp(way, "receive")) MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	if (!strcmp(way, "loop") && rank == 1) for (;;) compute(1000);
	if (!strcmp(way, "sleep") && rank == 2) for (;;) sleep(600);
	for (;;) {
		if (!strcmp(way, "work")) compute(20000000);
		MPI_Barrier(MPI_COMM_WORLD);
	}
}
`

// realMPI are packages of Debian: openmpi-bin and libopenmpi-dev, mpich and libmpich-dev.
var realMPI = map[string]string{"openmpi": "--allow-run-as-root --oversubscribe", "mpich": ""}

// The agent and the judgement on real programs. The table of results is in the log.
func TestJudgementOfRealPrograms(t *testing.T) {
	if os.Getenv("THOROUGH") == "" {
		t.Skip("takes minutes, and MPI that spins keeps both cores of a small machine busy: make test-all runs it")
	}
	for name, flags := range realMPI {
		t.Run(name, func(t *testing.T) {
			compiler, err := exec.LookPath("mpicc." + name)
			if err != nil {
				t.Skipf("mpicc.%s is not installed", name)
			}
			directory := t.TempDir()
			source, program := mustWrite(t, filepath.Join(directory, "program.c"), realProgram), filepath.Join(directory, "program")
			if output, err := boundedCommand(t, compiler, "-O1", "-o", program, source).CombinedOutput(); err != nil {
				t.Fatalf("compile: %v\n%s", err, output)
			}
			run := fmt.Sprintf("mpirun.%s %s -np 3 %s", name, flags, program)
			for _, way := range []string{"receive", "loop", "sleep", "stop", "work"} {
				t.Run(way, func(t *testing.T) { judgeReal(t, run+" "+way, way) })
			}
		})
	}
}

func judgeReal(t *testing.T, command, way string) {
	worker := startWorker(t, newKeys(t))
	client := worker.login(t, launchUser+"A")
	_ = startedProcess(t, client, "echo $$; exec "+command)
	var ranks []protocol.Rank
	eventually.HoldsWithin(t, patience, "all ranks are found", func() bool {
		ranks = askRanks(t, client, ranksQuestion{}).Ranks
		return len(ranks) == 3
	})
	for i, rank := range ranks {
		if rank.Rank != i {
			t.Errorf("rank %d at position %d", rank.Rank, i)
		}
	}
	if way == "stop" {
		if err := syscall.Kill(ranks[1].PID, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	settings, h, began := activity.Settings{After: 6 * time.Second}, &activity.History{}, time.Now()
	var verdict activity.Verdict
	report := func() {
		now := time.Now()
		host := askRanks(t, client, ranksQuestion{Examine: verdict.NeedsExamination})
		host.Name = "host"
		h.Add(now, &protocol.Activity{Time: now, Hosts: []protocol.Host{host}, Examined: verdict.NeedsExamination})
		verdict = activity.Judge(h, now, settings)
		ranks = host.Ranks
	}
	if way == "work" {
		// It is judged as often as the others would need until they are found, several times.
		for range 100 {
			if report(); verdict.Stalled || time.Since(began) > 4*settings.After {
				break
			}
			time.Sleep(300 * time.Millisecond)
		}
	} else {
		eventually.SucceedsWithin(t, patience, "the hang is found", func() error {
			if report(); !verdict.Stalled {
				return fmt.Errorf("not stalled; last seen:\n%s", seen(ranks))
			}
			return nil
		})
	}
	var odd []int
	for _, one := range verdict.Odd {
		odd = append(odd, one.Rank)
	}
	t.Logf("| %s | stalled %t, serial %t, odd ranks %v after %.1f s | %s |", way, verdict.Stalled, verdict.Serial, odd, time.Since(began).Seconds(), verdict.Message)
	want := map[string][]int{"loop": {1}, "sleep": {2}, "stop": {1}}[way]
	if verdict.Stalled != (way != "work") || verdict.Serial != (way == "loop") || !slices.Equal(odd, want) {
		t.Errorf("verdict %+v, want the odd ranks %v; last seen:\n%s", verdict, want, seen(ranks))
	}
	if way == "stop" {
		_ = syscall.Kill(ranks[1].PID, syscall.SIGCONT)
	}
}

func seen(ranks []protocol.Rank) string {
	var lines []string
	for _, rank := range ranks {
		lines = append(lines, fmt.Sprintf("rank %d in %s: %s %s, %d bytes read", rank.Rank, rank.State, rank.Doing, rank.WaitsFor, rank.BytesRead))
	}
	return strings.Join(lines, "\n")
}
