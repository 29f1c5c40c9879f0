// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// jobFlags are the flags that describe a job.
type jobFlags struct {
	runtime     string
	workers     int32
	slots       int32
	gpus        int32
	gpuResource string
	cpu         string
	memory      string
	image       string
	env         []string
	command     []string
	labels      []string
	queue       string
	mpi         string
	priority    string
	suspend     bool
	tagOutput   bool
	// retries is -1 for the default of the kind.
	retries int32
	// set is the flag set that was parsed.
	set *pflag.FlagSet
}

// flagAliases are older names of flags.
var flagAliases = map[string]string{
	"gpu": "gpus", "gpu-per-worker": "gpus", "cpu-per-worker": "cpu", "memory-per-worker": "memory", "from-file": "filename", "slots-per-worker": "slots",
}

func (f *jobFlags) add(set *pflag.FlagSet, kind *kind) {
	f.set = set
	cpu, memory, slots, retries := "from the runtime", "from the runtime", "from the runtime, else one per GPU", "0"
	if kind == trainJobs {
		set.StringVar(&f.runtime, "runtime", "", "Runtime of the job: NAME (of the namespace, else of the cluster), trainingruntime/NAME or clustertrainingruntime/NAME")
		set.Int32Var(&f.workers, "nodes", 0, "Number of workers (default from the runtime)")
	} else {
		cpu, memory, slots, retries = "1", "1Gi", "one per GPU, else 1", "6"
		set.Int32Var(&f.workers, "workers", 2, "Number of workers")
		set.StringVar(&f.mpi, "mpi", "", "MPI implementation in the image: OpenMPI, IntelMPI or MPICH (default OpenMPI)")
		set.StringVar(&f.priority, "priority", "", "PriorityClass of the pods")
	}
	set.Int32Var(&f.slots, "slots", 0, "MPI processes per worker (default "+slots+")")
	set.Int32Var(&f.gpus, "gpus", 0, "GPUs per worker")
	set.StringVar(&f.gpuResource, "gpu-resource", "nvidia.com/gpu", "Resource name of the GPUs")
	set.StringVar(&f.cpu, "cpu", "", "CPUs per worker (default "+cpu+")")
	set.StringVar(&f.memory, "memory", "", "Memory per worker (default "+memory+")")
	set.StringVar(&f.image, "image", "", "Image of the launcher and the workers")
	set.StringArrayVarP(&f.env, "env", "e", nil, "Environment variable of the launcher and the workers, as NAME=VALUE; may be repeated")
	set.StringArrayVar(&f.command, "command", nil, "Command of the job, same as -- COMMAND: all of it in quotes, or repeated for each argument")
	set.StringArrayVar(&f.labels, "label", nil, "Label of the job, as NAME=VALUE; may be repeated")
	set.StringVar(&f.queue, "queue", "", "Kueue queue of the job")
	set.BoolVar(&f.suspend, "suspend", false, "Create the job without starting it")
	set.Int32Var(&f.retries, "backoff-limit", -1, "Maximum number of restarts after a failure (default "+retries+")")
	set.Lookup("backoff-limit").DefValue = "0" // The help names the default of the kind, not -1.
	set.BoolVar(&f.tagOutput, "tag-output", false, "Prefix each line of output with its rank, which logs --rank needs")
}

// nameFlag resolves the aliases of flags. TrainJobs have nodes where MPIJobs have
// workers.
func nameFlag(kind *kind) func(*pflag.FlagSet, string) pflag.NormalizedName {
	return func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		other, known := flagAliases[name]
		switch {
		case known:
			name = other
		case kind == trainJobs && name == "workers":
			name = "nodes"
		case kind == mpiJobs && name == "nodes":
			name = "workers"
		}
		return pflag.NormalizedName(name)
	}
}

// commandLine returns the command, from after -- or from --command. A single --command is
// split as a shell would.
func (f *jobFlags) commandLine(afterDashes []string) ([]string, error) {
	switch {
	case len(afterDashes) > 0 && len(f.command) > 0:
		return nil, inputFailure("specify the command either after -- or with --command, not both")
	case len(afterDashes) > 0:
		return afterDashes, nil
	case len(f.command) == 1:
		words, err := shellWords(f.command[0])
		if err != nil {
			return nil, inputFailure(fmt.Sprintf("--command cannot be parsed: %v", err))
		}
		return words, nil
	default:
		return f.command, nil
	}
}

// build returns the job that the flags describe.
func (f *jobFlags) build(kind *kind, name string, command []string) (client.Object, error) {
	if f.image == "" {
		return nil, inputFailure("--image is required: the image of the launcher and the workers")
	}
	resources, err := f.resources(kind)
	if err != nil {
		return nil, err
	}
	variables, err := f.variables()
	if err != nil {
		return nil, err
	}
	meta, err := f.metadata(kind, name)
	if err != nil {
		return nil, err
	}
	if kind == trainJobs {
		return f.trainJob(meta, resources, variables, command)
	}
	return f.mpiJob(meta, resources, variables, command)
}

func (f *jobFlags) trainJob(meta metav1.ObjectMeta, resources corev1.ResourceRequirements, variables []corev1.EnvVar, command []string) (client.Object, error) {
	reference, err := f.runtimeRef()
	if err != nil {
		return nil, err
	}
	trainJob := &v2alpha1.TrainJob{ObjectMeta: meta, Spec: v2alpha1.TrainJobSpec{
		RuntimeRef: reference,
		Trainer:    v2alpha1.Trainer{Image: f.image, Command: command, Env: variables, NumNodes: orNil(f.workers), SlotsPerWorker: orNil(f.slots)},
		Suspend:    trueOrNil(f.suspend), BackoffLimit: f.backoffLimit(),
	}}
	if len(resources.Requests) > 0 {
		trainJob.Spec.Trainer.ResourcesPerNode = &resources
	}
	return trainJob, nil
}

func (f *jobFlags) mpiJob(meta metav1.ObjectMeta, resources corev1.ResourceRequirements, variables []corev1.EnvVar, command []string) (client.Object, error) {
	if len(command) == 0 {
		return nil, inputFailure("no command: put it after --, such as -- python train.py")
	}
	if f.slots < 0 {
		return nil, inputFailure(fmt.Sprintf("--slots must be 1 or greater, not %d", f.slots))
	}
	slots := max(f.slots, 1)
	if f.slots == 0 && f.gpus > 0 {
		slots = f.gpus
	}
	if f.workers < 1 {
		return nil, inputFailure(fmt.Sprintf("--workers must be 1 or greater, not %d", f.workers))
	}
	container := corev1.Container{Name: training.RoleWorker, Image: f.image, Env: variables, Resources: resources}
	launcher := corev1.Container{
		Name: training.RoleLauncher, Image: f.image, Env: variables, Command: job.MPICommand(f.workers*slots, command),
		// The launcher only starts the ranks and forwards their output.
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi")}},
	}
	mpiJob := &v2beta1.MPIJob{ObjectMeta: meta, Spec: v2beta1.MPIJobSpec{
		SlotsPerWorker: &slots, MPIImplementation: v2beta1.MPIImplementation(f.mpi),
		RunPolicy: v2beta1.RunPolicy{Suspend: trueOrNil(f.suspend), BackoffLimit: f.backoffLimit()},
		MPIReplicaSpecs: map[v2beta1.MPIReplicaType]*v2beta1.ReplicaSpec{
			v2beta1.MPIReplicaTypeLauncher: {Replicas: orNil(int32(1)), Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{launcher}}}},
			v2beta1.MPIReplicaTypeWorker:   {Replicas: &f.workers, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{container}}}},
		},
	}}
	if f.priority != "" {
		mpiJob.Spec.RunPolicy.SchedulingPolicy = &v2beta1.SchedulingPolicy{PriorityClass: f.priority}
	}
	return mpiJob, nil
}

func (f *jobFlags) metadata(kind *kind, name string) (metav1.ObjectMeta, error) {
	meta := metav1.ObjectMeta{Name: name}
	if name == "" {
		meta.GenerateName = kind.Command + "-"
	}
	for _, label := range f.labels {
		key, value, found := strings.Cut(label, "=")
		if faults := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...); !found || len(faults) > 0 {
			return meta, inputFailure(fmt.Sprintf("--label %q must have the form NAME=VALUE with a valid label name and value", label), faults...)
		}
		metav1.SetMetaDataLabel(&meta, key, value)
	}
	if f.queue != "" {
		metav1.SetMetaDataLabel(&meta, training.LabelQueue, f.queue)
	}
	if f.tagOutput {
		metav1.SetMetaDataAnnotation(&meta, training.AnnotationTagOutput, "true")
	}
	return meta, nil
}

// resources returns the resources of a worker. GPUs need equal requests and limits.
func (f *jobFlags) resources(kind *kind) (corev1.ResourceRequirements, error) {
	resources := corev1.ResourceRequirements{Requests: corev1.ResourceList{}}
	cpu, memory := f.cpu, f.memory
	if kind == mpiJobs {
		cpu, memory = orElse(cpu, "1"), orElse(memory, "1Gi")
	}
	for flag, of := range map[string]struct {
		name  corev1.ResourceName
		value string
	}{"--cpu": {corev1.ResourceCPU, cpu}, "--memory": {corev1.ResourceMemory, memory}} {
		if of.value == "" {
			continue
		}
		quantity, err := job.ParseQuantity(of.value)
		if err != nil || quantity.Sign() <= 0 {
			return resources, inputFailure(fmt.Sprintf("%s %q is not a valid quantity; use a value such as 500m, 2 or 4Gi", flag, of.value))
		}
		resources.Requests[of.name] = quantity
	}
	if f.gpus < 0 {
		return resources, inputFailure(fmt.Sprintf("--gpus must be 0 or greater, not %d", f.gpus))
	}
	// An explicit 0 replaces the GPUs of the runtime.
	if f.gpus > 0 || kind == trainJobs && f.set.Changed("gpus") {
		gpus := *resource.NewQuantity(int64(f.gpus), resource.DecimalSI)
		resources.Requests[corev1.ResourceName(f.gpuResource)] = gpus
		resources.Limits = corev1.ResourceList{corev1.ResourceName(f.gpuResource): gpus}
	}
	return resources, nil
}

func (f *jobFlags) variables() (variables []corev1.EnvVar, err error) {
	for _, variable := range f.env {
		name, value, found := strings.Cut(variable, "=")
		if !found || len(validation.IsEnvVarName(name)) > 0 {
			return nil, inputFailure(fmt.Sprintf("--env %q must have the form NAME=VALUE with a valid variable name", name))
		}
		variables = append(variables, corev1.EnvVar{Name: name, Value: value})
	}
	return variables, nil
}

// runtimeRef returns the runtime as given. resolveRuntime finds the kind of a name
// without one.
func (f *jobFlags) runtimeRef() (v2alpha1.RuntimeRef, error) {
	reference := v2alpha1.RuntimeRef{Kind: v2alpha1.RuntimeKindCluster, Name: f.runtime}
	if kindName, name, found := strings.Cut(f.runtime, "/"); found {
		reference.Name = name
		switch strings.ToLower(kindName) {
		case "trainingruntime":
			reference.Kind = v2alpha1.RuntimeKindNamespaced
		case "clustertrainingruntime":
		default:
			return reference, inputFailure(fmt.Sprintf("--runtime %q must have the form NAME, trainingruntime/NAME or clustertrainingruntime/NAME", f.runtime))
		}
	}
	if reference.Name == "" {
		missing := inputFailure("--runtime is required: the runtime to create the job from")
		missing.suggestions = []string{"List the runtimes: odh runtime list"}
		return reference, missing
	}
	return reference, nil
}

func (f *jobFlags) backoffLimit() *int32 {
	if f.retries < 0 {
		return nil
	}
	return &f.retries
}

func orNil[number ~int32](value number) *number {
	if value == 0 {
		return nil
	}
	return &value
}

func trueOrNil(value bool) *bool {
	if !value {
		return nil
	}
	return &value
}

func orElse(text, other string) string {
	if text == "" {
		return other
	}
	return text
}
