// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/internal/engine/gang"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// runtimeCheck validates a runtime of either scope.
type runtimeCheck struct {
	*Findings
	rules   *Rules
	runtime *v2alpha1.TrainingRuntimeSpec
	spec    *field.Path
}

// Runtime validates a new or changed runtime of either scope. A change only affects
// later jobs.
func (r *Rules) Runtime(runtime *v2alpha1.TrainingRuntimeSpec, bytes int) *Findings {
	check := &runtimeCheck{Findings: &Findings{}, rules: r, runtime: runtime, spec: field.NewPath("spec")}
	if r.size(check.Findings, bytes); len(check.Errors) > 0 {
		return check.Findings
	}
	check.mlPolicy()
	check.podGroupPolicy()
	check.constraints()
	hang(check.Findings, check.spec.Child("hang"), runtime.Hang)
	progressPattern(check.Findings, check.spec.Child("progressPattern"), runtime.ProgressPattern)
	check.replicatedJobs()
	return check.Findings
}

func (rc *runtimeCheck) mlPolicy() {
	policy, at := &rc.runtime.MLPolicy, rc.spec.Child("mlPolicy")
	between(rc.Findings, at.Child("numNodes"), "numNodes", policy.NumNodes, 1, rc.rules.Limits.MaxNodes)
	between(rc.Findings, at.Child("slotsPerWorker"), "slotsPerWorker", policy.SlotsPerWorker, 1, rc.rules.Limits.MaxSlots.TrainJob)
	if policy.MPIImplementation == "" {
		rc.warn(at.Child("mpiImplementation"), "is not set, so no TrainJob can use this runtime")
	}
}

func (rc *runtimeCheck) podGroupPolicy() {
	policy, at := rc.runtime.PodGroupPolicy, rc.spec.Child("podGroupPolicy")
	if policy == nil {
		return
	}
	chosen := map[string]*v2alpha1.GangPolicy{}
	if policy.Coscheduling != nil {
		chosen["coscheduling"] = policy.Coscheduling
	}
	if policy.Volcano != nil {
		chosen["volcano"] = &policy.Volcano.GangPolicy
		queueName(rc.Findings, at.Child("volcano", "queue"), policy.Volcano.Queue)
	}
	if policy.KAI != nil {
		chosen["kai"] = &policy.KAI.GangPolicy
		queueName(rc.Findings, at.Child("kai", "queue"), policy.KAI.Queue)
	}
	if policy.Native != nil {
		chosen["native"] = policy.Native
	}
	names := slices.Sorted(maps.Keys(chosen))
	if len(chosen) > 1 {
		rc.refuse(field.Invalid(at, names, "must have at most one of "+gang.ListNames()))
	}
	for _, name := range names {
		rc.timeout(at.Child(name, "scheduleTimeoutSeconds"), chosen[name].ScheduleTimeoutSeconds)
	}
	if policy.PriorityClass != "" && policy.PriorityClassName != "" && policy.PriorityClass != policy.PriorityClassName {
		rc.refuse(field.Invalid(at.Child("priorityClassName"), policy.PriorityClassName,
			fmt.Sprintf("differs from priorityClass, which is %s; set one of them", policy.PriorityClass)))
	}
}

func (rc *runtimeCheck) timeout(at *field.Path, seconds *int32) {
	least, most := rc.rules.Limits.MinScheduleTimeoutSeconds, rc.rules.Limits.MaxScheduleTimeoutSeconds
	switch {
	case seconds == nil:
	case *seconds < least:
		rc.refuse(field.Invalid(at, *seconds, fmt.Sprintf("scheduleTimeoutSeconds must be at least %d", least)))
	case *seconds > most:
		rc.refuse(field.Invalid(at, *seconds, fmt.Sprintf("scheduleTimeoutSeconds must be at most %d", most)))
	}
}

func (rc *runtimeCheck) constraints() {
	constraints, at := rc.runtime.Constraints, rc.spec.Child("constraints")
	if constraints == nil {
		return
	}
	atLeast(rc.Findings, at.Child("maxNodes"), constraints.MaxNodes, 1)
	atLeast(rc.Findings, at.Child("maxGPUsPerNode"), constraints.MaxGPUsPerNode, 0)
	rc.refuse(labelsInOrder(constraints.RequiredNodeLabels, at.Child("requiredNodeLabels"))...)
	if nodes := rc.runtime.MLPolicy.NumNodes; nodes != nil && constraints.MaxNodes != nil && *nodes > *constraints.MaxNodes {
		rc.refuse(field.Invalid(rc.spec.Child("mlPolicy", "numNodes"), *nodes, fmt.Sprintf("numNodes must be at most constraints.maxNodes, %d", *constraints.MaxNodes)))
	}
}

func (rc *runtimeCheck) replicatedJobs() {
	jobs, at := rc.runtime.Template.Spec.ReplicatedJobs, rc.spec.Child("template", "spec", "replicatedJobs")
	var names []string
	for i := range jobs {
		names = append(names, jobs[i].Name)
		rc.replicatedJob(at.Index(i), &jobs[i])
	}
	slices.Sort(names)
	if !slices.Equal(names, []string{v2alpha1.ReplicatedJobLauncher, v2alpha1.ReplicatedJobWorker}) {
		rc.refuse(field.Invalid(at, names, "Runtime must define launcher and worker jobs"))
	}
}

func (rc *runtimeCheck) replicatedJob(at *field.Path, replicated *v2alpha1.ReplicatedJob) {
	directories := []string{job.AgentDirectory, job.KeyDirectory}
	if replicated.Name == v2alpha1.ReplicatedJobLauncher {
		directories = append(directories, job.HostfileDirectory, job.ClockDirectory)
	}
	// The model of a job without any settings of its own.
	model := job.FromTrainJob(&v2alpha1.TrainJob{}, rc.runtime, rc.rules.Defaults)
	if !model.WorkersRunAgent() {
		directories = append(directories, model.SSHDirectory)
	}
	pods := podCheck{rules: rc.rules, findings: rc.Findings, imageGiven: true, taken: byOperator(directories...),
		agentListens: replicated.Name == v2alpha1.ReplicatedJobLauncher || model.WorkersRunAgent()}
	template := at.Child("template")
	pods.template(template, &replicated.Template)
	istio(rc.Findings, template.Child("metadata"), &metav1.ObjectMeta{}, &replicated.Template.ObjectMeta)
	if _, found := replicated.Template.Annotations[training.IstioInject]; !found {
		rc.warn(template.Child("metadata", "annotations"), "does not contain %s: \"false\"; the operator sets it, but add it so that readers of the runtime see it", training.IstioInject)
	}
	if replicated.Name == v2alpha1.ReplicatedJobLauncher {
		if replicated.Replicas != nil && *replicated.Replicas != 1 {
			rc.refuse(field.Invalid(at.Child("replicas"), *replicated.Replicas, "must be 1"))
		}
		return
	}
	between(rc.Findings, at.Child("replicas"), "replicas", replicated.Replicas, 1, rc.rules.Limits.MaxNodes)
	rc.rules.manyGPUs(rc.Findings, template, job.GPUs(job.Requests(&replicated.Template.Spec)).Value())
	rc.contradictions(template.Child("spec", "nodeSelector"), replicated)
}

// contradictions refuses a nodeSelector that differs from requiredNodeLabels.
func (rc *runtimeCheck) contradictions(at *field.Path, worker *v2alpha1.ReplicatedJob) {
	if rc.runtime.Constraints == nil {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(rc.runtime.Constraints.RequiredNodeLabels)) {
		required := rc.runtime.Constraints.RequiredNodeLabels[key]
		if value, found := worker.Template.Spec.NodeSelector[key]; found && value != required {
			rc.refuse(field.Invalid(at.Key(key), value, fmt.Sprintf("differs from constraints.requiredNodeLabels, where it is %q", required)))
		}
	}
}
