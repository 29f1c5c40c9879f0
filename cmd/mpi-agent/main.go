// SPDX-License-Identifier: Apache-2.0

// Command mpi-agent is in every pod of a job. The first argument is the mode. Any other
// first argument is a host: then it works like ssh, for mpirun.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/trireme-mpi/trireme/internal/agent"
)

const usage = `mpi-agent starts MPI in the pods of a job.

  mpi-agent worker                   serve a worker
  mpi-agent launch [--] COMMAND...   run a command once every worker can be reached
  mpi-agent gate [COMMAND...]        only wait until every worker can be reached
  mpi-agent hosts                    print the workers that can be reached now
  mpi-agent install DIRECTORY        copy the agent
  mpi-agent [rsh] [OPTION...] HOST COMMAND...
                                     run a command on a host, as ssh does
`

func main() {
	os.Exit(run(filepath.Base(os.Args[0]), os.Args[1:]))
}

func run(name string, arguments []string) int {
	if name == "ssh" || len(arguments) == 0 {
		if len(arguments) == 0 {
			fmt.Fprint(os.Stderr, usage)
			return 2
		}
		return agent.RSH(arguments)
	}
	switch mode, rest := arguments[0], arguments[1:]; mode {
	case "worker":
		return report(agent.RunWorker())
	case "launch":
		if len(rest) > 0 && rest[0] == "--" {
			rest = rest[1:]
		}
		if len(rest) == 0 {
			fmt.Fprint(os.Stderr, usage)
			return 2
		}
		return agent.Launch(context.Background(), rest, false)
	case "gate":
		return agent.Launch(context.Background(), rest, true)
	case "hosts":
		return report(agent.PrintHosts(os.Stdout))
	case "install":
		if len(rest) != 1 {
			fmt.Fprint(os.Stderr, usage)
			return 2
		}
		return report(agent.Install(rest[0]))
	case "rsh":
		return agent.RSH(rest)
	default:
		if slices.Contains([]string{"help", "-h", "--help"}, mode) {
			fmt.Print(usage)
			return 0
		}
		return agent.RSH(arguments)
	}
}

func report(err error) int {
	if err != nil {
		fmt.Fprintf(os.Stderr, "trireme: %v\n", err)
		return 1
	}
	return 0
}
