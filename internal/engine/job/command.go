package job

import (
	"path"
	"slices"
	"strconv"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
)

// mpiStarters are the commands that start MPI processes by themselves.
var mpiStarters = []string{"mpirun", "mpiexec", "mpiexec.hydra", "horovodrun"}

// worldSizeFlags are the ways to tell mpirun how many processes to start.
var worldSizeFlags = []string{"-np", "-n", "--np", "--n"}

// applyCommand writes the launcher's command, and tells whether the mpirun in it
// is ours: then every host must be used.
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

// OverMPI is a command that runs on every slot: one that starts MPI by itself is left
// as it is.
func OverMPI(worldSize int32, command []string) []string {
	if startsMPI(command) {
		return command
	}
	return mpirun(nil, worldSize, command)
}

func startsMPI(command []string) bool { return len(command) > 0 && isMPIStarter(command[0]) }

func isMPIStarter(word string) bool { return slices.Contains(mpiStarters, path.Base(word)) }

// mpirun is the line that runs a command on every slot. prefix is what the
// runtime's launcher runs: nothing, a mpirun with options, or a wrapper.
func mpirun(prefix []string, worldSize int32, command []string) []string {
	line := slices.Clone(prefix)
	starter := slices.IndexFunc(prefix, isMPIStarter)
	if starter < 0 {
		starter, line = len(prefix), append(line, "mpirun")
	}
	// Flags before mpirun are a wrapper's: the -n of nice is no number of processes.
	if !slices.ContainsFunc(line[starter:], func(word string) bool { return slices.Contains(worldSizeFlags, word) }) {
		line = append(line, "-np", strconv.Itoa(int(worldSize)))
	}
	return append(line, command...)
}
