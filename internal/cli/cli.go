// SPDX-License-Identifier: Apache-2.0

// Package cli implements the command line odh, one file per command. It reads jobs,
// their pods and their events, and writes only jobs: the operator writes the rest.
// The exception is namespace prepare, for cluster administrators.
package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// Main runs odh as a process and returns the exit code. arguments[0] is the name of
// the program.
func Main(arguments []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	env := newEnvironment(genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr})
	env.terminal = detectTerminal(os.Stdout, os.Stderr)
	env.calledAs = programName(arguments[0])
	return run(ctx, env, append(impliedArguments(arguments[0]), arguments[1:]...))
}

// impliedArguments returns the arguments that follow from the name of the program: kubectl
// runs kubectl_complete-trireme for completions, and oc runs oc_complete-trireme.
func impliedArguments(program string) []string {
	if name := filepath.Base(program); strings.HasPrefix(name, "kubectl_complete-") || strings.HasPrefix(name, "oc_complete-") {
		return []string{cobra.ShellCompRequestCmd}
	}
	return nil
}

// programName returns what the user typed: kubectl runs kubectl-trireme as kubectl trireme.
func programName(program string) string {
	name := strings.TrimSuffix(filepath.Base(program), ".exe")
	for _, host := range []string{"kubectl", "oc"} {
		if plugin, found := strings.CutPrefix(name, host+"-"); found {
			return host + " " + plugin
		}
	}
	return "odh"
}

// run runs one command line.
func run(ctx context.Context, env *environment, arguments []string) int {
	root := newRootCommand(env)
	root.SetArgs(append([]string{}, arguments...)) // With nil, cobra would use those of the process.
	err := root.ExecuteContext(ctx)
	if failed := env.output.failure(); failed != nil {
		err = failed
	}
	if err == nil {
		return exitOK
	}
	var code exit
	if errors.As(err, &code) {
		return int(code)
	}
	f := explain(err, env.calledAs)
	f.print(env.ErrOut)
	return f.code
}

func newRootCommand(env *environment) *cobra.Command {
	root := &cobra.Command{
		Use:   "odh",
		Short: "Run MPI training jobs on Kubernetes and OpenShift AI",
		Long: `odh creates, watches and diagnoses MPI training jobs: TrainJobs, which are created
from a runtime, and MPIJobs.

odh uses your kubectl configuration (kubeconfig, context, namespace).`,
		Example: `  odh trainjob create hello --runtime mpi-openmpi-cpu --image IMAGE --follow -- python train.py
  odh training list
  odh diagnose hello`,
		SilenceUsage:               true,
		SilenceErrors:              true,
		SuggestionsMinimumDistance: 2,
		// Without this, an unknown command would print the help and succeed.
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: env.calledAs}
	root.SetIn(env.In)
	root.SetOut(env.Out)
	root.SetErr(env.ErrOut)
	root.SetFlagErrorFunc(func(command *cobra.Command, err error) error { return usageFailure(command, err.Error()) })
	env.addFlags(root)
	root.AddCommand(newTrainingCommand(env))
	for _, kind := range kinds {
		root.AddCommand(newKindCommand(env, kind))
	}
	root.AddCommand(newDiagnoseCommand(env, nil))
	root.AddCommand(newPreflightCommand(env))
	root.AddCommand(newRuntimeCommand(env))
	root.AddCommand(newNamespaceCommand(env))
	root.AddCommand(newMigrateCommand(env))
	root.AddCommand(newTopCommand(env))
	root.AddCommand(newReportCommand(env))
	root.AddCommand(newHistoryCommand(env))
	root.AddCommand(newServerCommand(env))
	root.AddCommand(newDashboardCommand(env))
	root.AddCommand(newVersionCommand(env))
	checkArguments(root)
	return root
}

// checkArguments reports wrong numbers of arguments and unknown commands in the same
// format as every other error.
func checkArguments(command *cobra.Command) {
	if check := command.Args; check != nil {
		command.Args = func(command *cobra.Command, arguments []string) error {
			err := check(command, arguments)
			if err == nil {
				return nil
			}
			f := usageFailure(command, err.Error())
			if command.HasSubCommands() && len(arguments) > 0 {
				for _, suggestion := range command.SuggestionsFor(arguments[0]) {
					f.suggestions = append(f.suggestions, "Did you mean this? "+command.CommandPath()+" "+suggestion)
				}
			}
			return f
		}
	}
	for _, child := range command.Commands() {
		checkArguments(child)
	}
}

// group turns a command into one that only has subcommands.
func group(command *cobra.Command) *cobra.Command {
	command.Args, command.SuggestionsMinimumDistance = cobra.NoArgs, 2
	command.RunE = func(command *cobra.Command, _ []string) error { return command.Help() }
	return command
}
