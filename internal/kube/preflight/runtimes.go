// SPDX-License-Identifier: Apache-2.0

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

// implementations are the values of mpiImplementation that the schema accepts, besides
// the empty one.
var implementations = []v2alpha1.MPIImplementation{v2alpha1.MPIImplementationOpenMPI, v2alpha1.MPIImplementationIntelMPI, v2alpha1.MPIImplementationMPICH}

// Runtime validates a runtime of either scope as admission does, with the operator's
// default limits, and warns of settings that work but are rarely intended.
func Runtime(runtime *v2alpha1.TrainingRuntimeSpec, bytes int) *validation.Findings {
	findings := validation.NewRules(config.Default(), false).Runtime(runtime, bytes)
	spec := field.NewPath("spec")
	// An enum of the schema, which only an API server checks.
	if mpi := runtime.MLPolicy.MPIImplementation; mpi != "" && !slices.Contains(implementations, mpi) {
		findings.Errors = append(findings.Errors, field.NotSupported(spec.Child("mlPolicy", "mpiImplementation"), mpi, implementations))
	}
	for i := range runtime.Template.Spec.ReplicatedJobs {
		replicated := &runtime.Template.Spec.ReplicatedJobs[i]
		pod := spec.Child("template", "spec", "replicatedJobs").Index(i).Child("template", "spec")
		warn := func(path *field.Path, format string, arguments ...any) {
			findings.Warnings = append(findings.Warnings, validation.Warning{Field: path.String(), Message: fmt.Sprintf(format, arguments...)})
		}
		switch replicated.Name {
		case v2alpha1.ReplicatedJobLauncher:
			oddLauncher(&replicated.Template.Spec, pod, warn)
		case v2alpha1.ReplicatedJobWorker:
			oddWorker(runtime, &replicated.Template.Spec, pod, warn)
		}
	}
	return findings
}

type warnFunc func(path *field.Path, format string, arguments ...any)

// muchForLauncher is more CPU than mpirun ever needs.
const muchForLauncher = 16

// oddLauncher warns of resources that a launcher without ranks does not need.
func oddLauncher(pod *corev1.PodSpec, at *field.Path, warn warnFunc) {
	requests := job.Requests(pod)
	if gpus := job.GPUs(requests); !gpus.IsZero() {
		warn(at.Child("containers"), "the launcher requests %s, which workers then cannot use; it only runs mpirun", count(int(gpus.Value()), "GPU"))
	} else if key, found := gpuLabel(pod); found {
		warn(at.Child("nodeSelector"), "the launcher requests no GPU, but %s schedules it on a node with GPUs", key)
	}
	if cpu := requests[corev1.ResourceCPU]; cpu.CmpInt64(muchForLauncher) > 0 {
		warn(at.Child("containers"), "the launcher requests %s CPUs; it only runs mpirun", cpu.String())
	}
}

func oddWorker(runtime *v2alpha1.TrainingRuntimeSpec, pod *corev1.PodSpec, at *field.Path, warn warnFunc) {
	if len(pod.Containers) > 0 && len(pod.Containers[0].Command)+len(pod.Containers[0].Args) > 0 {
		warn(at.Child("containers").Index(0).Child("command"),
			"the worker has its own command, which must start an sshd on port 2222 or 22; without a command the operator's agent accepts connections and the image needs no sshd")
	}
	slots := int32(1)
	if runtime.MLPolicy.SlotsPerWorker != nil {
		slots = *runtime.MLPolicy.SlotsPerWorker
	}
	gpus, order := validation.CompareSlots(slots, pod)
	if order > 0 {
		warn(at.Child("containers"), "%d slots share %s; usually each MPI process has its own GPU", slots, count(int(gpus.Value()), "GPU"))
	}
	if key, found := gpuLabel(pod); found && gpus.IsZero() {
		warn(at.Child("nodeSelector"), "workers request no GPU, but %s schedules them on nodes with GPUs", key)
	}
	if host, found := pod.NodeSelector[corev1.LabelHostname]; found {
		warn(at.Child("nodeSelector"), "%s schedules every worker on node %s", corev1.LabelHostname, host)
	}
}

// gpuLabel returns a label of the node selector that only nodes with GPUs have.
func gpuLabel(pod *corev1.PodSpec) (string, bool) {
	var keys []string
	for key := range pod.NodeSelector {
		if strings.HasPrefix(key, "nvidia.com/") || strings.HasPrefix(key, "amd.com/gpu") || strings.HasPrefix(key, "gpu.intel.com/") {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	if len(keys) == 0 {
		return "", false
	}
	return keys[0], true
}
