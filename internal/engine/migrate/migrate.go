// Package migrate turns an MPIJob into a TrainJob, with a runtime where the
// TrainJob alone cannot say it, and reports what became of every field. It is
// pure.
//
// Nothing is lost silently: what no rule has dealt with is in the report as
// something that a person must look at, and what admission would refuse is too.
package migrate

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/config"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/validation"
)

// Options are what a file does not say about the cluster that it is for.
type Options struct {
	// Runtimes that every namespace has. One of them is named instead of making a
	// new one, if the job becomes the same with it.
	Runtimes []v2alpha1.ClusterTrainingRuntime
	// Existing are the runtimes of single namespaces; nil if there are none.
	Existing *Existing
	// Scheduler places pods together in the cluster. Where it is not known, a time
	// limit for that has no place in a runtime.
	Scheduler job.Scheduler
	// Accepted: the cluster has the MPIJobs, so that what the rules have against both
	// kinds alike is a limit that is another one there.
	Accepted bool
	// Config is the operator's; its defaults if nil.
	Config *config.Config
}

// Result is what an MPIJob became.
type Result struct {
	TrainJob *v2alpha1.TrainJob
	// Runtime that the TrainJob names; nil if it names one that is there already.
	Runtime *v2alpha1.TrainingRuntime
	Report  *Report
}

// migration is one MPIJob on its way.
type migration struct {
	options  Options
	rules    *validation.Rules
	raw      map[string]any
	old      *v2beta1.MPIJob
	before   *job.Job
	trainJob *v2alpha1.TrainJob
	runtime  *v2alpha1.TrainingRuntime
	report   *Report
	// ownSSHD: the workers' command went, because it only started an sshd.
	ownSSHD bool
}

// Convert turns an MPIJob, as it was written or stored, into a TrainJob.
func Convert(object map[string]any, options Options) (*Result, error) {
	var old v2beta1.MPIJob
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, &old); err != nil {
		return nil, fmt.Errorf("MPIJob %s cannot be read: %w", nameOf(object), err)
	}
	if options.Config == nil {
		options.Config = config.Default()
	}
	if old.Name == "" && old.GenerateName == "" {
		return nil, errors.New("an MPIJob has no name: write one in metadata.name")
	}
	launcher := old.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeLauncher]
	if launcher == nil || len(launcher.Template.Spec.Containers) == 0 {
		return nil, fmt.Errorf("MPIJob %s has no launcher: describe one with a container in spec.mpiReplicaSpecs.Launcher", nameOf(object))
	}
	worker := old.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeWorker]
	if worker != nil && len(worker.Template.Spec.Containers) == 0 {
		return nil, fmt.Errorf("MPIJob %s has workers without a container: describe one in spec.mpiReplicaSpecs.Worker", nameOf(object))
	}
	rules := validation.NewRules(options.Config, false)
	migration := &migration{
		options: options, rules: rules, raw: object, old: &old, before: job.FromMPIJob(&old, rules.Defaults),
		trainJob: &v2alpha1.TrainJob{TypeMeta: metav1.TypeMeta{APIVersion: v2alpha1.GroupVersion.String(), Kind: string(job.KindTrainJob)}},
		runtime:  &v2alpha1.TrainingRuntime{TypeMeta: metav1.TypeMeta{APIVersion: v2alpha1.GroupVersion.String(), Kind: string(v2alpha1.RuntimeKindNamespaced)}},
		report:   &Report{Namespace: old.Namespace, Name: nameOf(object)},
	}
	if err := migration.unknown(); err != nil {
		return nil, err
	}
	migration.metadata()
	migration.policy()
	migration.gang()
	migration.pods()
	migration.hosts()
	migration.rest()
	return migration.result(), nil
}

// result chooses the runtime, and asks admission's rules.
func (migration *migration) result() *Result {
	result := &Result{TrainJob: migration.trainJob, Runtime: migration.runtime, Report: migration.report}
	ref := &migration.trainJob.Spec.RuntimeRef
	if same := migration.sameRuntime(); same != nil {
		ref.Kind, ref.Name = v2alpha1.RuntimeKindCluster, same.Name
		result.Runtime = nil
		migration.inRuntime(ref)
	} else if same := migration.options.Existing.same(migration.runtime); same != "" {
		ref.Kind, ref.Name = v2alpha1.RuntimeKindNamespaced, same
		result.Runtime = nil
		migration.inRuntime(ref)
	} else {
		migration.runtime.Name = migration.options.Existing.freeName(migration.runtime)
		ref.Kind, ref.Name = v2alpha1.RuntimeKindNamespaced, migration.runtime.Name
	}
	migration.report.Runtime = string(ref.Kind) + " " + ref.Name
	migration.refusals()
	migration.report.sort()
	return result
}

func nameOf(object map[string]any) string {
	for _, path := range []string{"metadata.name", "metadata.generateName"} {
		if name, _ := lookup(object, path); name != nil && name != "" {
			return fmt.Sprint(name)
		}
	}
	return "without a name"
}

// note records what became of a field, if the job has it.
func (migration *migration) note(path string, outcome Outcome, to, why string) {
	if _, found := lookup(migration.raw, path); found {
		migration.add(Entry{Path: path, Outcome: outcome, To: to, Why: why})
	}
}

// rewrite is note for a field whose value is another at its new place.
func (migration *migration) rewrite(path string, outcome Outcome, to, why string) {
	if _, found := lookup(migration.raw, path); found {
		migration.add(Entry{Path: path, Outcome: outcome, To: to, Why: why, rewritten: true})
	}
}

func (migration *migration) add(entry Entry) {
	migration.report.Entries = append(migration.report.Entries, entry)
}

// move records that whatever is below a path and has no entry yet went elsewhere
// with it.
func (migration *migration) move(path, to string) {
	noted, below := migration.entriesAt(path)
	switch {
	case noted:
	case !below:
		migration.note(path, Moved, to, "")
	default:
		for _, next := range children(migration.raw, path) {
			migration.move(next, to+next[len(path):])
		}
	}
}

// entriesAt tells whether a path has an entry, and whether something below it has.
func (migration *migration) entriesAt(path string) (noted, below bool) {
	for i := range migration.report.Entries {
		entry := &migration.report.Entries[i]
		noted = noted || entry.covers(path)
		below = below || isBelow(entry.Path, path)
	}
	return noted, below
}

// In the TrainJob, and in the runtime.
func inTrainJob(path string) string { return "TrainJob " + path }
func inRuntime(path string) string  { return "TrainingRuntime " + path }

// unknown finds what is no field of an MPIJob.
func (migration *migration) unknown() error {
	known, err := runtime.DefaultUnstructuredConverter.ToUnstructured(migration.old)
	if err != nil {
		return fmt.Errorf("MPIJob %s: %w", migration.report.Name, err)
	}
	for _, path := range leaves(migration.raw, "") {
		if isBelow(path, "status") {
			continue
		}
		value, _ := lookup(migration.raw, path)
		if _, found := lookup(known, path); !found && !saysNothing(value) {
			migration.note(path, Look, "", "is no field of an MPIJob v2beta1, so nothing was made of it; check how it is written")
		}
	}
	for role := range migration.old.Spec.MPIReplicaSpecs {
		if role != v2beta1.MPIReplicaTypeLauncher && role != v2beta1.MPIReplicaTypeWorker {
			migration.note(child("spec.mpiReplicaSpecs", string(role)), Look, "", "is no role of an MPIJob: there are Launcher and Worker")
		}
	}
	return nil
}

// rest sees to it that nothing is left without a word.
func (migration *migration) rest() {
	for _, path := range leaves(migration.raw, "") {
		if noted, _ := migration.entriesAt(path); noted {
			continue
		}
		if value, _ := lookup(migration.raw, path); saysNothing(value) {
			migration.note(path, Dropped, "", "is empty, which is the same as leaving it out")
		} else {
			migration.note(path, Look, "", "has no place in a TrainJob that this command knows of")
		}
	}
}
