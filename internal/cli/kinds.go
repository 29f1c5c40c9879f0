// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/trireme-mpi/trireme/internal/kube/jobview"
)

// view is a job of either kind; kind describes one of the two kinds.
type (
	view = jobview.View
	kind = jobview.Kind
)

var (
	trainJobs = jobview.TrainJobs
	mpiJobs   = jobview.MPIJobs
	kinds     = jobview.Kinds
)

// verb is a command for the jobs of a kind. The caller of make sets the command's
// name: `odh mpijob logs NAME` and `odh training logs mpijob NAME` are the same.
type verb struct {
	name    string
	aliases []string
	short   string
	// arguments as the usage line shows them.
	arguments string
	make      func(*environment, *kind) *cobra.Command
}

func verbs() []verb {
	return []verb{
		{name: "create", short: "Create a job from a file or from flags", arguments: "[NAME] [-f FILE | --image IMAGE ... -- COMMAND]", make: newCreateCommand},
		{name: "get", aliases: []string{"list"}, short: "List jobs, or show one", arguments: "[NAME...]", make: newListCommand},
		{name: "describe", short: "Show the status of a job: timeline, pods, resources, events", arguments: "NAME", make: newDescribeCommand},
		{name: "logs", short: "Print the logs of a job", arguments: "NAME", make: newLogsCommand},
		{name: "delete", short: "Delete jobs and their pods", arguments: "NAME...", make: newDeleteCommand},
		{name: "wait", short: "Wait until a job has finished", arguments: "NAME", make: newWaitCommand},
		{name: "diagnose", short: "Explain why a job is not running or has failed", arguments: "NAME", make: newDiagnoseCommand},
		{name: "suspend", short: "Suspend a job: delete its pods and keep the job", arguments: "NAME", make: newSuspendCommand},
		{name: "resume", short: "Resume a suspended job", arguments: "NAME", make: newResumeCommand},
	}
}

// newKindCommand is `odh mpijob` or `odh trainjob`, with all verbs.
func newKindCommand(env *environment, kind *kind) *cobra.Command {
	command := group(&cobra.Command{Use: kind.Command, Aliases: kind.Aliases, Short: fmt.Sprintf("Manage %ss", kind.Kind)})
	for _, verb := range verbs() {
		child := verb.make(env, kind)
		child.Use, child.Aliases, child.Short = usage(verb.name, verb.arguments), verb.aliases, verb.short
		command.AddCommand(child)
	}
	return command
}

// newTrainingCommand is `odh training`, where the verb comes before the kind.
func newTrainingCommand(env *environment) *cobra.Command {
	command := group(&cobra.Command{Use: "training", Short: "Manage the jobs of both kinds"})
	for _, verb := range verbs() {
		parent := group(&cobra.Command{Use: verb.name, Aliases: verb.aliases, Short: verb.short})
		if verb.name == "get" {
			parent = newListCommand(env, nil)
			parent.Use, parent.Aliases, parent.Short, parent.Args = "list", []string{"get"}, "List the jobs of both kinds", cobra.NoArgs
		}
		for _, kind := range kinds {
			child := verb.make(env, kind)
			child.Use, child.Aliases, child.Short = usage(kind.Command, verb.arguments), kind.Aliases, verb.short
			parent.AddCommand(child)
		}
		command.AddCommand(parent)
	}
	return command
}

func usage(name, arguments string) string {
	if arguments == "" {
		return name
	}
	return name + " " + arguments
}
