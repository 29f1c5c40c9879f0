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

// jobFlags are a job in flags.
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
	// retries is -1 where the kind's own number holds.
	retries int32
	// given is where the flags were parsed.
	given *pflag.FlagSet
}

// Other names of flags, by which the first users knew them.
var flagAliases = map[string]string{
	"gpu": "gpus", "gpu-per-worker": "gpus", "cpu-per-worker": "cpu", "memory-per-worker": "memory", "from-file": "filename", "slots-per-worker": "slots",
}

func (flags *jobFlags) add(set *pflag.FlagSet, kind *kind) {
	flags.given = set
	cpu, memory, retries := "what the runtime says", "what the runtime says", "0"
	if kind == trainJobs {
		set.StringVar(&flags.runtime, "runtime", "", "runtime that the job is made from: one of the namespace, or else of the cluster; also trainingruntime/NAME or clustertrainingruntime/NAME")
		set.Int32Var(&flags.workers, "nodes", 0, "number of workers (default what the runtime says)")
	} else {
		cpu, memory, retries = "1", "1Gi", "6"
		set.Int32Var(&flags.workers, "workers", 2, "number of workers")
		set.StringVar(&flags.mpi, "mpi", "", "MPI in the image: OpenMPI, IntelMPI or MPICH (default OpenMPI)")
		set.StringVar(&flags.priority, "priority", "", "PriorityClass of the pods")
	}
	set.Int32Var(&flags.slots, "slots", 0, "MPI processes that each worker takes (default what the runtime says, else one for each GPU)")
	set.Int32Var(&flags.gpus, "gpus", 0, "GPUs of each worker")
	set.StringVar(&flags.gpuResource, "gpu-resource", "nvidia.com/gpu", "what kind of GPU")
	set.StringVar(&flags.cpu, "cpu", "", "CPUs of each worker (default "+cpu+")")
	set.StringVar(&flags.memory, "memory", "", "memory of each worker (default "+memory+")")
	set.StringVar(&flags.image, "image", "", "image of launcher and workers")
	set.StringArrayVarP(&flags.env, "env", "e", nil, "variable of launcher and workers, NAME=VALUE; may be repeated")
	set.StringArrayVar(&flags.command, "command", nil, "a word of the command, or all of it; may be repeated. The same as -- COMMAND")
	set.StringArrayVar(&flags.labels, "label", nil, "label of the job, NAME=VALUE; may be repeated")
	set.StringVar(&flags.queue, "queue", "", "queue of Kueue that the job waits in")
	set.BoolVar(&flags.suspend, "suspend", false, "create the job without starting it")
	set.Int32Var(&flags.retries, "backoff-limit", -1, "how often the job is tried again after a failure (default "+retries+")")
	set.BoolVar(&flags.tagOutput, "tag-output", false, "put the rank in front of each line of output, so that logs --rank works")
}

// nameFlag lets users write flags by their other names. What one kind calls nodes,
// the other calls workers.
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

// words is the command: what stands behind -- or in --command. A single --command
// is taken apart as a shell would.
func (flags *jobFlags) words(behindDashes []string) ([]string, error) {
	switch {
	case len(behindDashes) > 0 && len(flags.command) > 0:
		return nil, inputFailure("two commands: one behind --, and another in --command")
	case len(behindDashes) > 0:
		return behindDashes, nil
	case len(flags.command) == 1:
		words, err := shellWords(flags.command[0])
		if err != nil {
			return nil, inputFailure(fmt.Sprintf("--command cannot be taken apart: %v", err))
		}
		return words, nil
	default:
		return flags.command, nil
	}
}

// build makes the job that the flags describe.
func (flags *jobFlags) build(kind *kind, name string, command []string) (client.Object, error) {
	if flags.image == "" {
		return nil, inputFailure("no image: --image says what launcher and workers run")
	}
	resources, err := flags.resources(kind)
	if err != nil {
		return nil, err
	}
	variables, err := flags.variables()
	if err != nil {
		return nil, err
	}
	meta, err := flags.metadata(kind, name)
	if err != nil {
		return nil, err
	}
	if kind == trainJobs {
		return flags.trainJob(meta, resources, variables, command)
	}
	return flags.mpiJob(meta, resources, variables, command)
}

func (flags *jobFlags) trainJob(meta metav1.ObjectMeta, resources corev1.ResourceRequirements, variables []corev1.EnvVar, command []string) (client.Object, error) {
	reference, err := flags.runtimeRef()
	if err != nil {
		return nil, err
	}
	made := &v2alpha1.TrainJob{ObjectMeta: meta, Spec: v2alpha1.TrainJobSpec{
		RuntimeRef: reference,
		Trainer:    v2alpha1.Trainer{Image: flags.image, Command: command, Env: variables, NumNodes: orNil(flags.workers), SlotsPerWorker: orNil(flags.slots)},
		Suspend:    trueOrNil(flags.suspend), BackoffLimit: flags.backoffLimit(),
	}}
	if len(resources.Requests) > 0 {
		made.Spec.Trainer.ResourcesPerNode = &resources
	}
	return made, nil
}

func (flags *jobFlags) mpiJob(meta metav1.ObjectMeta, resources corev1.ResourceRequirements, variables []corev1.EnvVar, command []string) (client.Object, error) {
	if len(command) == 0 {
		return nil, inputFailure("no command: write it behind --, such as -- python train.py")
	}
	if flags.slots < 0 {
		return nil, inputFailure(fmt.Sprintf("--slots %d: a worker takes one process at least", flags.slots))
	}
	slots := max(flags.slots, 1)
	if flags.slots == 0 && flags.gpus > 0 {
		slots = flags.gpus
	}
	if flags.workers < 1 {
		return nil, inputFailure(fmt.Sprintf("--workers %d: a job needs workers", flags.workers))
	}
	container := corev1.Container{Name: training.RoleWorker, Image: flags.image, Env: variables, Resources: resources}
	launcher := corev1.Container{
		Name: training.RoleLauncher, Image: flags.image, Env: variables, Command: job.OverMPI(flags.workers*slots, command),
		// It starts MPI on the others and carries their output.
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi")}},
	}
	made := &v2beta1.MPIJob{ObjectMeta: meta, Spec: v2beta1.MPIJobSpec{
		SlotsPerWorker: &slots, MPIImplementation: v2beta1.MPIImplementation(flags.mpi),
		RunPolicy: v2beta1.RunPolicy{Suspend: trueOrNil(flags.suspend), BackoffLimit: flags.backoffLimit()},
		MPIReplicaSpecs: map[v2beta1.MPIReplicaType]*v2beta1.ReplicaSpec{
			v2beta1.MPIReplicaTypeLauncher: {Replicas: orNil(int32(1)), Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{launcher}}}},
			v2beta1.MPIReplicaTypeWorker:   {Replicas: &flags.workers, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{container}}}},
		},
	}}
	if flags.priority != "" {
		made.Spec.RunPolicy.SchedulingPolicy = &v2beta1.SchedulingPolicy{PriorityClass: flags.priority}
	}
	return made, nil
}

func (flags *jobFlags) metadata(kind *kind, name string) (metav1.ObjectMeta, error) {
	meta := metav1.ObjectMeta{Name: name}
	if name == "" {
		meta.GenerateName = kind.Command + "-"
	}
	for _, label := range flags.labels {
		key, value, found := strings.Cut(label, "=")
		if faults := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...); !found || len(faults) > 0 {
			return meta, inputFailure(fmt.Sprintf("--label %q is not NAME=VALUE", label), faults...)
		}
		metav1.SetMetaDataLabel(&meta, key, value)
	}
	if flags.queue != "" {
		metav1.SetMetaDataLabel(&meta, training.LabelQueue, flags.queue)
	}
	if flags.tagOutput {
		metav1.SetMetaDataAnnotation(&meta, training.AnnotationTagOutput, "true")
	}
	return meta, nil
}

// resources of a worker. GPUs are limits, which are requests too.
func (flags *jobFlags) resources(kind *kind) (corev1.ResourceRequirements, error) {
	asked := corev1.ResourceRequirements{Requests: corev1.ResourceList{}}
	cpu, memory := flags.cpu, flags.memory
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
			return asked, inputFailure(fmt.Sprintf("%s %q is no amount; write 500m, 2 or 4Gi", flag, of.value))
		}
		asked.Requests[of.name] = quantity
	}
	if flags.gpus < 0 {
		return asked, inputFailure(fmt.Sprintf("--gpus %d: there is no less than none", flags.gpus))
	}
	// An explicit 0 replaces the GPUs of the runtime.
	if flags.gpus > 0 || kind == trainJobs && flags.given.Changed("gpus") {
		gpus := *resource.NewQuantity(int64(flags.gpus), resource.DecimalSI)
		asked.Requests[corev1.ResourceName(flags.gpuResource)] = gpus
		asked.Limits = corev1.ResourceList{corev1.ResourceName(flags.gpuResource): gpus}
	}
	return asked, nil
}

func (flags *jobFlags) variables() (variables []corev1.EnvVar, err error) {
	for _, variable := range flags.env {
		name, value, found := strings.Cut(variable, "=")
		if !found || len(validation.IsEnvVarName(name)) > 0 {
			return nil, inputFailure(fmt.Sprintf("--env %q is not NAME=VALUE", name))
		}
		variables = append(variables, corev1.EnvVar{Name: name, Value: value})
	}
	return variables, nil
}

// runtimeRef is the runtime as it was written. Which kind is meant by a bare name is
// for the cluster to say; see resolveRuntime.
func (flags *jobFlags) runtimeRef() (v2alpha1.RuntimeRef, error) {
	reference := v2alpha1.RuntimeRef{Kind: v2alpha1.RuntimeKindCluster, Name: flags.runtime}
	if word, name, found := strings.Cut(flags.runtime, "/"); found {
		reference.Name = name
		switch strings.ToLower(word) {
		case "trainingruntime":
			reference.Kind = v2alpha1.RuntimeKindNamespaced
		case "clustertrainingruntime":
		default:
			return reference, inputFailure(fmt.Sprintf("--runtime %q: write trainingruntime/NAME or clustertrainingruntime/NAME", flags.runtime))
		}
	}
	if reference.Name == "" {
		failure := inputFailure("no runtime: --runtime names what the job is made from")
		failure.suggestions = []string{"See which there are: odh runtime list"}
		return reference, failure
	}
	return reference, nil
}

func (flags *jobFlags) backoffLimit() *int32 {
	if flags.retries < 0 {
		return nil
	}
	return &flags.retries
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
