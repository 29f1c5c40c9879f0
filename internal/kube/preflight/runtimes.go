package preflight

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/internal/engine/config"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/validation"
)

// implementations are what the schema accepts of mpiImplementation, besides nothing.
var implementations = []v2alpha1.MPIImplementation{v2alpha1.MPIImplementationOpenMPI, v2alpha1.MPIImplementationIntelMPI, v2alpha1.MPIImplementationMPICH}

// Runtime judges a runtime of either scope as admission does, with the limits that
// the operator has by default, and warns of what works but is seldom meant.
func Runtime(runtime *v2alpha1.TrainingRuntimeSpec, bytes int) *validation.Findings {
	findings := validation.NewRules(config.Default(), false).Runtime(runtime, bytes)
	spec := field.NewPath("spec")
	// An enum of the schema, which only an API server looks at.
	if mpi := runtime.MLPolicy.MPIImplementation; mpi != "" && !slices.Contains(implementations, mpi) {
		findings.Errors = append(findings.Errors, field.NotSupported(spec.Child("mlPolicy", "mpiImplementation"), mpi, implementations))
	}
	for i := range runtime.Template.Spec.ReplicatedJobs {
		replicated := &runtime.Template.Spec.ReplicatedJobs[i]
		at := spec.Child("template", "spec", "replicatedJobs").Index(i).Child("template", "spec")
		var warnings []string
		switch replicated.Name {
		case v2alpha1.ReplicatedJobLauncher:
			warnings = oddLauncher(&replicated.Template.Spec)
		case v2alpha1.ReplicatedJobWorker:
			warnings = oddWorker(runtime, &replicated.Template.Spec)
		}
		for _, warning := range warnings {
			findings.Warnings = append(findings.Warnings, fmt.Sprintf("%s.%s", at, warning))
		}
	}
	return findings
}

// muchForLauncher is more CPU than mpirun ever needs.
const muchForLauncher = 16

// oddLauncher is what a launcher that runs no ranks does not need. Each begins with
// the field within the pod.
func oddLauncher(pod *corev1.PodSpec) (warnings []string) {
	requests := job.Requests(pod)
	if gpus := job.GPUs(requests); !gpus.IsZero() {
		warnings = append(warnings, fmt.Sprintf("containers: the launcher asks for %s; it runs mpirun and no ranks, and takes them from the workers", count(int(gpus.Value()), "GPU")))
	} else if key, found := gpuLabel(pod); found {
		warnings = append(warnings, fmt.Sprintf("nodeSelector: the launcher asks for no GPU, and %s puts it on a node with GPUs", key))
	}
	if cpu := requests[corev1.ResourceCPU]; cpu.CmpInt64(muchForLauncher) > 0 {
		warnings = append(warnings, fmt.Sprintf("containers: the launcher asks for %s CPUs; it runs mpirun and no ranks", cpu.String()))
	}
	return warnings
}

func oddWorker(runtime *v2alpha1.TrainingRuntimeSpec, pod *corev1.PodSpec) (warnings []string) {
	if len(pod.Containers) > 0 && len(pod.Containers[0].Command)+len(pod.Containers[0].Args) > 0 {
		warnings = append(warnings, "containers[0].command: the worker has a command of its own, and must start an sshd on port 2222 or 22; without one the agent answers, and the image needs no sshd")
	}
	slots := int32(1)
	if runtime.MLPolicy.SlotsPerWorker != nil {
		slots = *runtime.MLPolicy.SlotsPerWorker
	}
	gpus := job.GPUs(job.Requests(pod))
	if !gpus.IsZero() && gpus.CmpInt64(int64(slots)) < 0 {
		warnings = append(warnings, fmt.Sprintf("containers: %d slots share %s; usually each MPI process has its own", slots, count(int(gpus.Value()), "GPU")))
	}
	if key, found := gpuLabel(pod); found && gpus.IsZero() {
		warnings = append(warnings, fmt.Sprintf("nodeSelector: workers ask for no GPU, and %s puts them on nodes with GPUs", key))
	}
	if host, found := pod.NodeSelector[corev1.LabelHostname]; found {
		warnings = append(warnings, fmt.Sprintf("nodeSelector: %s puts every worker on node %s", corev1.LabelHostname, host))
	}
	return warnings
}

// gpuLabel is a label in a node selector that only nodes with GPUs have.
func gpuLabel(pod *corev1.PodSpec) (string, bool) {
	var found []string
	for key := range pod.NodeSelector {
		if strings.HasPrefix(key, "nvidia.com/") || strings.HasPrefix(key, "amd.com/gpu") || strings.HasPrefix(key, "gpu.intel.com/") {
			found = append(found, key)
		}
	}
	slices.Sort(found)
	if len(found) == 0 {
		return "", false
	}
	return found[0], true
}
