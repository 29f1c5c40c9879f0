// SPDX-License-Identifier: Apache-2.0

package job

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
)

func TestTrainJobCommand(t *testing.T) {
	tests := map[string]struct {
		// Commands of the runtime's launcher and of the job.
		runtimeCommand, runtimeArgs, command, args string
		wantCommand, wantArgs                      string
		// wantOurs: mpirun was added, so every host must be used.
		wantOurs bool
	}{
		"no command": {},
		"only the runtime has a command": {
			runtimeCommand: "mpirun --bind-to none", runtimeArgs: "python train.py",
			wantCommand: "mpirun --bind-to none", wantArgs: "python train.py",
		},
		"mpirun is not changed": {
			runtimeCommand: "mpirun --bind-to none", command: "mpirun -np 2 python", args: "train.py",
			wantCommand: "mpirun -np 2 python train.py",
		},
		"mpirun without -np": {
			command: "mpirun python train.py", wantCommand: "mpirun python train.py",
		},
		"mpirun by its path": {
			command: "/opt/intel/bin/mpiexec.hydra -n 4 ./a.out", wantCommand: "/opt/intel/bin/mpiexec.hydra -n 4 ./a.out",
		},
		"mpiexec":    {command: "mpiexec ./a.out", wantCommand: "mpiexec ./a.out"},
		"horovodrun": {command: "horovodrun -np 8 python train.py", wantCommand: "horovodrun -np 8 python train.py"},
		"mpirun in args alone": {
			runtimeCommand: "/entrypoint.sh", args: "mpirun -np 2 python train.py", wantCommand: "mpirun -np 2 python train.py",
		},
		"another command after mpirun": {
			command: "python train.py", args: "--epochs 3",
			wantCommand: "mpirun -np 8 python train.py --epochs 3", wantOurs: true,
		},
		"a name similar to mpirun": {
			command: "mpirun.sh train", wantCommand: "mpirun -np 8 mpirun.sh train", wantOurs: true,
		},
		"mpirun as an argument": {
			command: "sh -c mpirun", wantCommand: "mpirun -np 8 sh -c mpirun", wantOurs: true,
		},
		"after the runtime's mpirun": {
			runtimeCommand: "mpirun --allow-run-as-root", runtimeArgs: "--bind-to none", command: "python train.py",
			wantCommand: "mpirun --allow-run-as-root --bind-to none -np 8 python train.py", wantOurs: true,
		},
		"after the runtime's mpirun with a path": {
			runtimeCommand: "/usr/lib64/openmpi/bin/mpirun", command: "python train.py",
			wantCommand: "/usr/lib64/openmpi/bin/mpirun -np 8 python train.py", wantOurs: true,
		},
		"after the runtime's mpirun with -np": {
			runtimeCommand: "mpirun -np 4", command: "python train.py",
			wantCommand: "mpirun -np 4 python train.py", wantOurs: true,
		},
		"after the runtime's mpiexec with -np": {
			runtimeCommand: "mpiexec -n 4", command: "python -n 7",
			wantCommand: "mpiexec -n 4 python -n 7", wantOurs: true,
		},
		"-n of the command": {
			command: "python train.py -n 7 --np 3", wantCommand: "mpirun -np 8 python train.py -n 7 --np 3", wantOurs: true,
		},
		"after a wrapper": {
			runtimeCommand: "/entrypoint.sh", command: "python train.py",
			wantCommand: "/entrypoint.sh mpirun -np 8 python train.py", wantOurs: true,
		},
		"after a wrapper of mpirun": {
			runtimeCommand: "/entrypoint.sh mpirun", runtimeArgs: "--bind-to none", command: "python train.py",
			wantCommand: "/entrypoint.sh mpirun --bind-to none -np 8 python train.py", wantOurs: true,
		},
		"-n of the wrapper": {
			runtimeCommand: "nice -n 10 mpirun", command: "python train.py",
			wantCommand: "nice -n 10 mpirun -np 8 python train.py", wantOurs: true,
		},
		"a wrapper with -n and no mpirun": {
			runtimeCommand: "nice -n 10", command: "python train.py",
			wantCommand: "nice -n 10 mpirun -np 8 python train.py", wantOurs: true,
		},
		"args alone": {
			runtimeCommand: "mpirun", args: "python train.py",
			wantCommand: "mpirun -np 8 python train.py", wantOurs: true,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := FromTrainJob(
				trainJob(func(trainJob *v2alpha1.TrainJob) {
					trainJob.Spec.Trainer.NumNodes, trainJob.Spec.Trainer.SlotsPerWorker = new(int32(4)), new(int32(2))
					trainJob.Spec.Trainer.Command, trainJob.Spec.Trainer.Args = strings.Fields(tc.command), strings.Fields(tc.args)
				}),
				runtimeOf(func(runtime *v2alpha1.TrainingRuntimeSpec) {
					runtimeLauncher(runtime).Command, runtimeLauncher(runtime).Args = strings.Fields(tc.runtimeCommand), strings.Fields(tc.runtimeArgs)
				}), defaults())
			launcher := got.Launcher.Template.Spec.Containers[0]
			want := []string{tc.wantCommand, tc.wantArgs}
			if diff := cmp.Diff(want, []string{strings.Join(launcher.Command, " "), strings.Join(launcher.Args, " ")}); diff != "" {
				t.Errorf("command and args (-want +got):\n%s", diff)
			}
			if got.RequireAllHosts != tc.wantOurs {
				t.Errorf("every host must be used: %t, want %t", got.RequireAllHosts, tc.wantOurs)
			}
			if !got.WorkersRunAgent() {
				t.Error("the workers have the command of the launcher")
			}
		})
	}
}

func TestTrainJobRequireAllHosts(t *testing.T) {
	tests := map[string]struct {
		asked   *bool
		command string
		want    bool
	}{
		"mpirun was added":                 {command: "python", want: true},
		"the job has mpirun":               {command: "mpirun", want: false},
		"added, but the job sets false":    {asked: new(false), command: "python", want: false},
		"the job has mpirun and sets true": {asked: new(true), command: "mpirun", want: true},
		"the command of the runtime":       {want: false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := FromTrainJob(trainJob(func(trainJob *v2alpha1.TrainJob) {
				trainJob.Spec.RequireAllHosts, trainJob.Spec.Trainer.Command = tc.asked, strings.Fields(tc.command)
			}), runtimeOf(), defaults())
			if got.RequireAllHosts != tc.want {
				t.Errorf("every host must be used: %t, want %t", got.RequireAllHosts, tc.want)
			}
		})
	}
}
