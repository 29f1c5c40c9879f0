// SPDX-License-Identifier: Apache-2.0

package job

import (
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trireme-mpi/trireme/api/training"
)

// alphaOfJobSet is the prefix of annotations that change where JobSet's controller
// places pods.
const alphaOfJobSet = "alpha.jobset.sigs.k8s.io/"

// unsupported are the settings of a JobSet that Trireme cannot honor, with their paths.
// Nothing that a JobSet says is ignored: what is not listed here is honored.
func unsupported(set *jobset.JobSet, defaults Defaults) []string {
	found := &refusals{set: set, maxNodes: defaults.MaxNodes}
	if name, _ := HostfileConfigMap(set); name == "" {
		found.add("spec.managedBy", "Trireme only runs JobSets of runtimes with mlPolicy.mpi and a replicated job launcher. Remove managedBy from the runtime, so that JobSet's own controller runs it")
		return found.texts
	}
	found.policies()
	found.annotations("metadata.annotations", set.Annotations)
	for i := range set.Spec.ReplicatedJobs {
		found.replicatedJob(fmt.Sprintf("spec.replicatedJobs[%d]", i), &set.Spec.ReplicatedJobs[i])
	}
	return found.texts
}

// refusals collects the settings that cannot be honored.
type refusals struct {
	set *jobset.JobSet
	// maxNodes is the operator's limit; 0 is none.
	maxNodes int32
	texts    []string
}

func (r *refusals) add(path, why string, arguments ...any) {
	r.texts = append(r.texts, path+": "+fmt.Sprintf(why, arguments...))
}

// addIf adds a setting that is set.
func (r *refusals) addIf(isSet bool, path, why string) {
	if isSet {
		r.add(path, "%s", why)
	}
}

func (r *refusals) annotations(path string, annotations map[string]string) {
	keys := make([]string, 0, len(annotations))
	for key := range annotations {
		if strings.HasPrefix(key, alphaOfJobSet) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		r.add(path, "%s is not supported; use Kueue's topology-aware scheduling instead", key)
	}
}

// policies checks the settings of the whole JobSet.
func (r *refusals) policies() {
	spec := &r.set.Spec
	if network := spec.Network; network != nil {
		r.addIf(!orElse(network.EnableDNSHostnames, true), "spec.network.enableDNSHostnames", "must not be false: the launcher reaches nodes by their host names")
		r.addIf(!orElse(network.PublishNotReadyAddresses, true), "spec.network.publishNotReadyAddresses", "must not be false: the launcher connects to nodes until they are ready")
	}
	if !r.succeedsWithLauncher() {
		r.add("spec.successPolicy", "must name the launcher, because nodes run until it has finished: {operator: All, targetReplicatedJobs: [launcher]}")
	}
	if policy := spec.FailurePolicy; policy != nil {
		r.addIf(len(policy.Rules) > 0, "spec.failurePolicy.rules", "is not supported: every failure that may be temporary restarts the whole job, at most maxRestarts times")
		r.addIf(policy.RestartStrategy == jobset.InPlaceRestart, "spec.failurePolicy.restartStrategy", "InPlaceRestart is not supported; use Recreate or BlockingRecreate")
	}
	if policy := spec.StartupPolicy; policy != nil && policy.StartupPolicyOrder == jobset.InOrder && !r.startsNodesFirst() {
		r.add("spec.startupPolicy", "InOrder is only supported for the order node, launcher; use dependsOn")
	}
}

// succeedsWithLauncher reports whether the JobSet succeeds when its launcher does.
// Initializers have succeeded before.
func (r *refusals) succeedsWithLauncher() bool {
	policy := r.set.Spec.SuccessPolicy
	if policy == nil {
		return replicatedJob(r.set, trainerNode) == nil
	}
	targets := policy.TargetReplicatedJobs
	if len(targets) == 0 {
		return replicatedJob(r.set, trainerNode) == nil && (policy.Operator == jobset.OperatorAll || len(r.set.Spec.ReplicatedJobs) == 1)
	}
	if policy.Operator == jobset.OperatorAny {
		return slices.Equal(targets, []string{training.RoleLauncher})
	}
	return slices.Contains(targets, training.RoleLauncher) && !slices.Contains(targets, trainerNode)
}

func (r *refusals) startsNodesFirst() bool {
	jobs := r.set.Spec.ReplicatedJobs
	return len(jobs) == 2 && jobs[0].Name == trainerNode && jobs[1].Name == training.RoleLauncher
}

func (r *refusals) replicatedJob(path string, replicated *jobset.ReplicatedJob) {
	name := replicated.Name
	if !slices.Contains([]string{training.RoleLauncher, trainerNode, trainerDataset, trainerModel}, name) {
		r.add(path+".name", "%q is not supported; the replicated jobs of an MPI runtime are launcher, node, dataset-initializer and model-initializer", name)
		return
	}
	r.addIf(replicated.Replicas != 1, path+".replicas", "must be 1; the number of nodes is parallelism")
	r.annotations(path+".template.metadata.annotations", replicated.Template.Annotations)
	r.dependencies(path+".dependsOn", replicated)
	r.pods(path+".template.spec", name, &replicated.Template.Spec)
	r.jobPolicies(path+".template.spec", &replicated.Template.Spec)
	isStep := name == trainerDataset || name == trainerModel
	r.addIf(isStep && replicated.Template.Spec.BackoffLimit != nil, path+".template.spec.backoffLimit", "is not supported for initializers: the kubelet restarts their container twice")
}

// dependencies checks that the order of starts is the one that Trireme has: initializers,
// nodes, the launcher's command.
func (r *refusals) dependencies(path string, replicated *jobset.ReplicatedJob) {
	isStep := func(name string) bool { return name == trainerDataset || name == trainerModel }
	for _, dependency := range replicated.DependsOn {
		switch {
		case isStep(replicated.Name):
			r.add(path, "is not supported for initializers, which run at the same time")
		case isStep(dependency.Name) && dependency.Status != jobset.DependencyComplete:
			r.add(path, "%s must be Complete before %s starts, not %s", dependency.Name, replicated.Name, dependency.Status)
		case isStep(dependency.Name):
		case replicated.Name != training.RoleLauncher || dependency.Name != trainerNode || dependency.Status != jobset.DependencyReady:
			r.add(path, "%s cannot wait until %s is %s; only the launcher can wait, until nodes are Ready", replicated.Name, dependency.Name, dependency.Status)
		}
	}
}

// pods checks the numbers of pods of a Job.
func (r *refusals) pods(path, name string, spec *batchv1.JobSpec) {
	parallelism := orElse(spec.Parallelism, 1)
	if name != trainerNode && parallelism != 1 {
		r.add(path+".parallelism", "must be 1 for %s", name)
	}
	if r.maxNodes > 0 && parallelism > r.maxNodes {
		r.add(path+".parallelism", "must be at most %d, the limit of this cluster (limits.maxNodes)", r.maxNodes)
	}
	if completions := orElse(spec.Completions, parallelism); completions != parallelism {
		r.add(path+".completions", "must be equal to parallelism, %d: all nodes run at the same time", parallelism)
	}
	r.addIf(!isIndexed(spec), path+".completionMode", "must be Indexed")
}

// jobPolicies checks the settings of a Job that only Kubernetes' own controller honors.
func (r *refusals) jobPolicies(path string, spec *batchv1.JobSpec) {
	const why = "is not supported"
	r.addIf(spec.PodFailurePolicy != nil, path+".podFailurePolicy", why)
	r.addIf(spec.SuccessPolicy != nil, path+".successPolicy", why)
	r.addIf(spec.BackoffLimitPerIndex != nil, path+".backoffLimitPerIndex", why)
	r.addIf(spec.MaxFailedIndexes != nil, path+".maxFailedIndexes", why)
	r.addIf(spec.Selector != nil, path+".selector", why)
	r.addIf(orElse(spec.ManualSelector, false), path+".manualSelector", why)
	r.addIf(spec.TTLSecondsAfterFinished != nil, path+".ttlSecondsAfterFinished", "is not supported; set ttlSecondsAfterFinished of the JobSet")
	r.addIf(orElse(spec.Suspend, false), path+".suspend", "is not supported; suspend the TrainJob")
	r.addIf(orElse(spec.PodReplacementPolicy, batchv1.Failed) != batchv1.Failed, path+".podReplacementPolicy", "must be Failed: pods are only replaced once they are deleted")
	r.addIf(spec.ManagedBy != nil, path+".managedBy", "is not supported; set managedBy of the JobSet")
}
