// SPDX-License-Identifier: Apache-2.0

// Package migrate converts an MPIJob to a TrainJob, with a runtime for the fields that
// a TrainJob does not have, and reports the mapping of every field. It is pure.
//
// Nothing is lost silently: fields without a rule, and fields that admission would
// refuse, are in the report for the user to review.
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

// Options describe the cluster of the jobs.
type Options struct {
	// Runtimes of the cluster. One of them is used instead of a new one if the job is the
	// same with it.
	Runtimes []v2alpha1.ClusterTrainingRuntime
	// Existing are the runtimes of namespaces; nil if there are none.
	Existing *Existing
	// Scheduler is the gang scheduler of the cluster. If it is not known, a runtime cannot
	// have a scheduling timeout.
	Scheduler job.Scheduler
	// Accepted: the MPIJobs come from the cluster, so an error about both kinds only means
	// that the cluster has other limits.
	Accepted bool
	// Config is the operator's configuration; the default if nil.
	Config *config.Config
}

// Result is the conversion of one MPIJob.
type Result struct {
	TrainJob *v2alpha1.TrainJob
	// Runtime is the new runtime of the TrainJob; nil if it uses an existing one.
	Runtime *v2alpha1.TrainingRuntime
	Report  *Report
}

// migration is the conversion of one MPIJob in progress.
type migration struct {
	options  Options
	rules    *validation.Rules
	raw      map[string]any
	old      *v2beta1.MPIJob
	before   *job.Job
	trainJob *v2alpha1.TrainJob
	runtime  *v2alpha1.TrainingRuntime
	report   *Report
	// ownSSHD: the workers' command was dropped, because it only started an sshd.
	ownSSHD bool
}

// Convert converts an MPIJob from a file or a cluster to a TrainJob.
func Convert(object map[string]any, options Options) (*Result, error) {
	var old v2beta1.MPIJob
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, &old); err != nil {
		return nil, fmt.Errorf("MPIJob %s cannot be read: %w", nameOf(object), err)
	}
	if options.Config == nil {
		options.Config = config.Default()
	}
	if old.Name == "" && old.GenerateName == "" {
		return nil, errors.New("an MPIJob has no name: set metadata.name")
	}
	launcher := old.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeLauncher]
	if launcher == nil || len(launcher.Template.Spec.Containers) == 0 {
		return nil, fmt.Errorf("MPIJob %s has no launcher: add one with a container in spec.mpiReplicaSpecs.Launcher", nameOf(object))
	}
	worker := old.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeWorker]
	if worker != nil && len(worker.Template.Spec.Containers) == 0 {
		return nil, fmt.Errorf("MPIJob %s has workers without a container: add one in spec.mpiReplicaSpecs.Worker", nameOf(object))
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

// result chooses the runtime, and applies the admission rules.
func (m *migration) result() *Result {
	result := &Result{TrainJob: m.trainJob, Runtime: m.runtime, Report: m.report}
	ref := &m.trainJob.Spec.RuntimeRef
	if same := m.sameRuntime(); same != nil {
		ref.Kind, ref.Name = v2alpha1.RuntimeKindCluster, same.Name
		result.Runtime = nil
		m.inRuntime(ref)
	} else if same := m.options.Existing.same(m.runtime); same != "" {
		ref.Kind, ref.Name = v2alpha1.RuntimeKindNamespaced, same
		result.Runtime = nil
		m.inRuntime(ref)
	} else {
		m.runtime.Name = m.options.Existing.freeName(m.runtime)
		ref.Kind, ref.Name = v2alpha1.RuntimeKindNamespaced, m.runtime.Name
	}
	m.report.Runtime = string(ref.Kind) + " " + ref.Name
	m.refusals()
	m.report.sort()
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

// Reasons of fields that could not be converted.
const (
	notAField     = "is not a field of an MPIJob v2beta1, so it was ignored; check its spelling"
	noRule        = "has no equivalent in a TrainJob that this command knows"
	refusedPrefix = "is refused: "
)

// note reports the mapping of a field, if the job has it.
func (m *migration) note(path string, outcome Outcome, to, why string) {
	if _, found := lookup(m.raw, path); found {
		m.add(Entry{Path: path, Outcome: outcome, To: to, Why: why})
	}
}

// rewrite is note for a field whose value changes.
func (m *migration) rewrite(path string, outcome Outcome, to, why string) {
	if _, found := lookup(m.raw, path); found {
		m.add(Entry{Path: path, Outcome: outcome, To: to, Why: why, rewritten: true})
	}
}

func (m *migration) add(entry Entry) {
	m.report.Entries = append(m.report.Entries, entry)
}

// move reports that everything below a path that has no entry yet moved with it.
func (m *migration) move(path, to string) {
	noted, below := m.entriesAt(path)
	switch {
	case noted:
	case !below:
		m.note(path, Moved, to, "")
	default:
		for _, next := range children(m.raw, path) {
			m.move(next, to+next[len(path):])
		}
	}
}

// entriesAt reports whether a path has an entry, and whether a path below it has.
func (m *migration) entriesAt(path string) (noted, below bool) {
	for i := range m.report.Entries {
		entry := &m.report.Entries[i]
		noted = noted || entry.covers(path)
		below = below || isBelow(entry.Path, path)
	}
	return noted, below
}

func inTrainJob(path string) string { return "TrainJob " + path }
func inRuntime(path string) string  { return "TrainingRuntime " + path }

// unknown reports paths that are not fields of an MPIJob.
func (m *migration) unknown() error {
	known, err := runtime.DefaultUnstructuredConverter.ToUnstructured(m.old)
	if err != nil {
		return fmt.Errorf("MPIJob %s: %w", m.report.Name, err)
	}
	for _, path := range leaves(m.raw, "") {
		if isBelow(path, "status") {
			continue
		}
		value, _ := lookup(m.raw, path)
		if _, found := lookup(known, path); !found && !isZero(value) {
			m.note(path, Review, "", notAField)
		}
	}
	for role := range m.old.Spec.MPIReplicaSpecs {
		if role != v2beta1.MPIReplicaTypeLauncher && role != v2beta1.MPIReplicaTypeWorker {
			m.note(child("spec.mpiReplicaSpecs", string(role)), Review, "", "is not a role of an MPIJob: the roles are Launcher and Worker")
		}
	}
	return nil
}

// rest reports the fields that have no entry yet.
func (m *migration) rest() {
	for _, path := range leaves(m.raw, "") {
		if noted, _ := m.entriesAt(path); noted {
			continue
		}
		if value, _ := lookup(m.raw, path); isZero(value) {
			m.note(path, Dropped, "", "is empty, which is the same as not set")
		} else {
			m.note(path, Review, "", noRule)
		}
	}
}
