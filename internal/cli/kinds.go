package cli

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/job"
)

// kind is one of the two job APIs.
type kind struct {
	job.Kind
	gvk schema.GroupVersionKind
	// command and aliases are how users write it, plural is the resource.
	command string
	plural  string
	aliases []string

	newObject func() client.Object
	newList   func() client.ObjectList
}

var (
	trainJobs = &kind{
		Kind: job.KindTrainJob, gvk: v2alpha1.GroupVersion.WithKind(string(job.KindTrainJob)),
		command: "trainjob", plural: "trainjobs", aliases: []string{"trainjobs", "tj"},
		newObject: func() client.Object { return &v2alpha1.TrainJob{} }, newList: func() client.ObjectList { return &v2alpha1.TrainJobList{} },
	}
	mpiJobs = &kind{
		Kind: job.KindMPIJob, gvk: v2beta1.GroupVersion.WithKind(string(job.KindMPIJob)),
		command: "mpijob", plural: "mpijobs", aliases: []string{"mpijobs", "mj", "mpij"},
		newObject: func() client.Object { return &v2beta1.MPIJob{} }, newList: func() client.ObjectList { return &v2beta1.MPIJobList{} },
	}
	kinds = []*kind{trainJobs, mpiJobs}
)

// resource is the kind as kubectl names it.
func (kind *kind) resource() string { return kind.plural + "." + kind.gvk.Group }

// verb is something that can be done with the jobs of a kind. make builds its
// command; what it is called is the caller's to say: `odh mpijob logs NAME` and
// `odh training logs mpijob NAME` are the same command.
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
		{name: "describe", short: "Show how a job stands: timeline, pods, resources, events", arguments: "NAME", make: newDescribeCommand},
		{name: "logs", short: "Show what a job prints", arguments: "NAME", make: newLogsCommand},
		{name: "delete", short: "Delete jobs and all that belongs to them", arguments: "NAME...", make: newDeleteCommand},
		{name: "wait", short: "Wait until a job has ended", arguments: "NAME", make: newWaitCommand},
		{name: "diagnose", short: "Find out what keeps a job from running, or why it failed", arguments: "NAME", make: newDiagnoseCommand},
		{name: "suspend", short: "Take a job from its nodes", arguments: "NAME", make: newSuspendCommand},
		{name: "resume", short: "Start a suspended job", arguments: "NAME", make: newResumeCommand},
	}
}

// newKindCommand is `odh mpijob` or `odh trainjob`, with all verbs.
func newKindCommand(environment *environment, kind *kind) *cobra.Command {
	command := group(&cobra.Command{Use: kind.command, Aliases: kind.aliases, Short: fmt.Sprintf("Work with %ss", kind.Kind)})
	for _, verb := range verbs() {
		child := verb.make(environment, kind)
		child.Use, child.Aliases, child.Short = usage(verb.name, verb.arguments), verb.aliases, verb.short
		command.AddCommand(child)
	}
	return command
}

// newTrainingCommand is `odh training`, where the verb comes before the kind.
func newTrainingCommand(environment *environment) *cobra.Command {
	command := group(&cobra.Command{Use: "training", Short: "Work with the jobs of both kinds"})
	for _, verb := range verbs() {
		parent := group(&cobra.Command{Use: verb.name, Aliases: verb.aliases, Short: verb.short})
		if verb.name == "get" {
			parent = newListCommand(environment, nil)
			parent.Use, parent.Aliases, parent.Short, parent.Args = "list", []string{"get"}, "List the jobs of both kinds", cobra.NoArgs
		}
		for _, kind := range kinds {
			child := verb.make(environment, kind)
			child.Use, child.Aliases, child.Short = usage(kind.command, verb.arguments), kind.aliases, verb.short
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
