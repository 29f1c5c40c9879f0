package validation

import (
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
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
func (rules *Rules) Runtime(runtime *v2alpha1.TrainingRuntimeSpec, bytes int) *Findings {
	check := &runtimeCheck{Findings: &Findings{}, rules: rules, runtime: runtime, spec: field.NewPath("spec")}
	if rules.size(check.Findings, bytes); len(check.Errors) > 0 {
		return check.Findings
	}
	check.mlPolicy()
	check.podGroupPolicy()
	check.constraints()
	check.replicatedJobs()
	return check.Findings
}

func (check *runtimeCheck) mlPolicy() {
	policy, at := &check.runtime.MLPolicy, check.spec.Child("mlPolicy")
	between(check.Findings, at.Child("numNodes"), "numNodes", policy.NumNodes, 1, check.rules.Limits.MaxNodes)
	between(check.Findings, at.Child("slotsPerWorker"), "slotsPerWorker", policy.SlotsPerWorker, 1, check.rules.Limits.MaxSlots.TrainJob)
	if policy.MPIImplementation == "" {
		check.warn(at.Child("mpiImplementation"), "is not set, so no TrainJob can use this runtime")
	}
}

func (check *runtimeCheck) podGroupPolicy() {
	policy, at := check.runtime.PodGroupPolicy, check.spec.Child("podGroupPolicy")
	if policy == nil {
		return
	}
	chosen := map[string]*v2alpha1.GangPolicy{}
	if policy.Coscheduling != nil {
		chosen["coscheduling"] = policy.Coscheduling
	}
	if policy.Volcano != nil {
		chosen["volcano"] = &policy.Volcano.GangPolicy
		queueName(check.Findings, at.Child("volcano", "queue"), policy.Volcano.Queue)
	}
	if policy.Native != nil {
		chosen["native"] = policy.Native
	}
	names := slices.Sorted(maps.Keys(chosen))
	if len(chosen) > 1 {
		check.refuse(field.Invalid(at, names, "must have at most one of coscheduling, volcano and native"))
	}
	for _, name := range names {
		check.timeout(at.Child(name, "scheduleTimeoutSeconds"), chosen[name].ScheduleTimeoutSeconds)
	}
	if policy.PriorityClass != "" && policy.PriorityClassName != "" && policy.PriorityClass != policy.PriorityClassName {
		check.refuse(field.Invalid(at.Child("priorityClassName"), policy.PriorityClassName,
			fmt.Sprintf("differs from priorityClass, which is %s; set one of them", policy.PriorityClass)))
	}
}

func (check *runtimeCheck) timeout(at *field.Path, seconds *int32) {
	least, most := check.rules.Limits.MinScheduleTimeoutSeconds, check.rules.Limits.MaxScheduleTimeoutSeconds
	switch {
	case seconds == nil:
	case *seconds < least:
		check.refuse(field.Invalid(at, *seconds, fmt.Sprintf("scheduleTimeoutSeconds must be at least %d", least)))
	case *seconds > most:
		check.refuse(field.Invalid(at, *seconds, fmt.Sprintf("scheduleTimeoutSeconds must be at most %d", most)))
	}
}

func (check *runtimeCheck) constraints() {
	constraints, at := check.runtime.Constraints, check.spec.Child("constraints")
	if constraints == nil {
		return
	}
	atLeast(check.Findings, at.Child("maxNodes"), constraints.MaxNodes, 1)
	atLeast(check.Findings, at.Child("maxGPUsPerNode"), constraints.MaxGPUsPerNode, 0)
	check.refuse(labelsInOrder(constraints.RequiredNodeLabels, at.Child("requiredNodeLabels"))...)
	if nodes := check.runtime.MLPolicy.NumNodes; nodes != nil && constraints.MaxNodes != nil && *nodes > *constraints.MaxNodes {
		check.refuse(field.Invalid(check.spec.Child("mlPolicy", "numNodes"), *nodes, fmt.Sprintf("numNodes must be at most constraints.maxNodes, %d", *constraints.MaxNodes)))
	}
}

func (check *runtimeCheck) replicatedJobs() {
	jobs, at := check.runtime.Template.Spec.ReplicatedJobs, check.spec.Child("template", "spec", "replicatedJobs")
	var names []string
	for i := range jobs {
		names = append(names, jobs[i].Name)
		check.replicatedJob(at.Index(i), &jobs[i])
	}
	slices.Sort(names)
	if !slices.Equal(names, []string{v2alpha1.ReplicatedJobLauncher, v2alpha1.ReplicatedJobWorker}) {
		check.refuse(field.Invalid(at, names, "Runtime must define launcher and worker jobs"))
	}
}

func (check *runtimeCheck) replicatedJob(at *field.Path, replicated *v2alpha1.ReplicatedJob) {
	directories := []string{job.AgentDirectory, job.KeyDirectory}
	if replicated.Name == v2alpha1.ReplicatedJobLauncher {
		directories = append(directories, job.HostfileDirectory, job.ClockDirectory)
	}
	// The model of a job without any settings of its own.
	model := job.FromTrainJob(&v2alpha1.TrainJob{}, check.runtime, check.rules.Defaults)
	if !model.WorkersRunAgent() {
		directories = append(directories, model.SSHDirectory)
	}
	pods := podCheck{rules: check.rules, findings: check.Findings, imageGiven: true, taken: byOperator(directories...),
		agentListens: replicated.Name == v2alpha1.ReplicatedJobLauncher || model.WorkersRunAgent()}
	template := at.Child("template")
	pods.template(template, &replicated.Template)
	istio(check.Findings, template.Child("metadata"), &metav1.ObjectMeta{}, &replicated.Template.ObjectMeta)
	if _, found := replicated.Template.Annotations[training.IstioInject]; !found {
		check.warn(template.Child("metadata", "annotations"), "does not contain %s: \"false\"; the operator sets it, but add it so that readers of the runtime see it", training.IstioInject)
	}
	if replicated.Name == v2alpha1.ReplicatedJobLauncher {
		if replicated.Replicas != nil && *replicated.Replicas != 1 {
			check.refuse(field.Invalid(at.Child("replicas"), *replicated.Replicas, "must be 1"))
		}
		return
	}
	between(check.Findings, at.Child("replicas"), "replicas", replicated.Replicas, 1, check.rules.Limits.MaxNodes)
	check.rules.manyGPUs(check.Findings, template, job.GPUs(job.Requests(&replicated.Template.Spec)).Value())
	check.contradictions(template.Child("spec", "nodeSelector"), replicated)
}

// contradictions refuses a nodeSelector that differs from requiredNodeLabels.
func (check *runtimeCheck) contradictions(at *field.Path, worker *v2alpha1.ReplicatedJob) {
	if check.runtime.Constraints == nil {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(check.runtime.Constraints.RequiredNodeLabels)) {
		required := check.runtime.Constraints.RequiredNodeLabels[key]
		if value, found := worker.Template.Spec.NodeSelector[key]; found && value != required {
			check.refuse(field.Invalid(at.Key(key), value, fmt.Sprintf("differs from constraints.requiredNodeLabels, where it is %q", required)))
		}
	}
}
