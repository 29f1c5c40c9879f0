// SPDX-License-Identifier: Apache-2.0

package job

import (
	"path"
	"slices"
	"strconv"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
)

// mpiStarters are the commands that start MPI processes by themselves.
var mpiStarters = []string{"mpirun", "mpiexec", "mpiexec.hydra", "horovodrun"}

// worldSizeFlags are mpirun's flags for the number of processes.
var worldSizeFlags = []string{"-np", "-n", "--np", "--n"}

// applyCommand sets the launcher's command. It reports whether it has added mpirun
// around the user's command: then every host must be used.
func applyCommand(job *Job, trainer *v2alpha1.Trainer) bool {
	containers := job.Launcher.Template.Spec.Containers
	command := slices.Concat(trainer.Command, trainer.Args)
	if len(containers) == 0 || len(command) == 0 {
		return false
	}
	launcher := &containers[0]
	if startsMPI(command) {
		launcher.Command, launcher.Args = command, nil
		return false
	}
	launcher.Command = mpirun(slices.Concat(launcher.Command, launcher.Args), job.WorldSize(), command)
	launcher.Args = nil
	return true
}

// MPICommand is the command that runs the given one on every slot. A command that starts
// MPI by itself is not changed.
func MPICommand(worldSize int32, command []string) []string {
	if startsMPI(command) {
		return command
	}
	return mpirun(nil, worldSize, command)
}

func startsMPI(command []string) bool { return len(command) > 0 && isMPIStarter(command[0]) }

func isMPIStarter(word string) bool { return slices.Contains(mpiStarters, path.Base(word)) }

// mpirun is the command line that runs a command on every slot. prefix is the command of
// the runtime's launcher: empty, mpirun with options, or a wrapper.
func mpirun(prefix []string, worldSize int32, command []string) []string {
	line := slices.Clone(prefix)
	starter := slices.IndexFunc(prefix, isMPIStarter)
	if starter < 0 {
		starter, line = len(prefix), append(line, "mpirun")
	}
	// Flags before mpirun belong to a wrapper: nice, for example, has a flag -n too.
	if !slices.ContainsFunc(line[starter:], func(word string) bool { return slices.Contains(worldSizeFlags, word) }) {
		line = append(line, "-np", strconv.Itoa(int(worldSize)))
	}
	return append(line, command...)
}
