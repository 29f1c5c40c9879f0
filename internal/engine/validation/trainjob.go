package validation

import (
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// trainJobCheck judges a new TrainJob.
type trainJobCheck struct {
	*Findings
	rules    *Rules
	trainJob *v2alpha1.TrainJob
	in       *Surroundings
	spec     *field.Path
	pods     podCheck
}

// CreateTrainJob judges a TrainJob that is new.
func (rules *Rules) CreateTrainJob(trainJob *v2alpha1.TrainJob, in *Surroundings) *Findings {
	findings := &Findings{}
	check := &trainJobCheck{
		Findings: findings,
		rules:    rules,
		trainJob: trainJob,
		in:       in,
		spec:     field.NewPath("spec"),
		pods:     podCheck{rules: rules, findings: findings},
	}
	if rules.size(check.Findings, in.Bytes); len(check.Errors) > 0 {
		return check.Findings
	}
	check.name()
	labels(check.Findings, nil, &trainJob.ObjectMeta, job.KindTrainJob)
	exclusiveTopology(check.Findings, metadata, nil, trainJob.Annotations)
	check.runtimeRef()
	check.trainer()
	check.lifetime()
	check.initializer()
	foreignKeys(check.Findings, in, job.KindTrainJob, trainJob.Name, TrainJobReferences(trainJob))
	if in.Runtime != nil {
		check.withRuntime(job.FromTrainJob(trainJob, in.Runtime, rules.Defaults))
	}
	return check.Findings
}

func (check *trainJobCheck) name() {
	nodes := int32(1)
	if check.in.Runtime != nil {
		nodes = job.FromTrainJob(check.trainJob, check.in.Runtime, check.rules.Defaults).Worker.Replicas
	}
	nameFits(check.Findings, check.trainJob.Name, job.KindTrainJob.LongestName(check.trainJob.Name, nodes))
}

func (check *trainJobCheck) runtimeRef() {
	ref, at := &check.trainJob.Spec.RuntimeRef, check.spec.Child("runtimeRef")
	if ref.APIGroup != nil && *ref.APIGroup != training.Group {
		check.refuse(field.NotSupported(at.Child("apiGroup"), *ref.APIGroup, []string{training.Group}))
	}
	switch {
	case check.in.Runtime == nil:
		check.refuse(field.Invalid(at.Child("name"), ref.Name, fmt.Sprintf("Runtime %s not found in namespace", ref.Name)))
	case check.in.Runtime.MLPolicy.MPIImplementation == "":
		check.refuse(field.Invalid(at.Child("name"), ref.Name, fmt.Sprintf("Runtime %s does not support MPI", ref.Name)))
	}
}

func (check *trainJobCheck) trainer() {
	trainer, at := &check.trainJob.Spec.Trainer, check.spec.Child("trainer")
	limits := &check.rules.Limits
	between(check.Findings, at.Child("numNodes"), "numNodes", trainer.NumNodes, 1, limits.MaxNodes)
	between(check.Findings, at.Child("slotsPerWorker"), "slotsPerWorker", trainer.SlotsPerWorker, 1, limits.MaxSlots.TrainJob)
	check.pods.image(at.Child("image"), trainer.Image)
	check.pods.environment(at.Child("env"), trainer.Env)
	if trainer.ResourcesPerNode != nil {
		check.pods.resources(at.Child("resourcesPerNode"), trainer.ResourcesPerNode)
	}
	if launcher := check.trainJob.Spec.Launcher; launcher != nil && launcher.Resources != nil {
		check.pods.resources(check.spec.Child("launcher", "resources"), launcher.Resources)
	}
}

func (check *trainJobCheck) lifetime() {
	spec := &check.trainJob.Spec
	deadline(check.Findings, check.spec.Child("activeDeadlineSeconds"), spec.ActiveDeadlineSeconds, 1)
	atLeast(check.Findings, check.spec.Child("ttlSecondsAfterFinished"), spec.TTLSecondsAfterFinished, 0)
	atLeast(check.Findings, check.spec.Child("backoffLimit"), spec.BackoffLimit, 0)
	// MultiKueue does not know TrainJobs of this group, so no other cluster would run
	// them.
	managedBy(check.Findings, check.spec.Child("managedBy"), spec.ManagedBy, v2alpha1.ManagedByTrainJobController)
}

func (check *trainJobCheck) initializer() {
	initializer, at := check.trainJob.Spec.Initializer, check.spec.Child("initializer")
	if initializer == nil {
		return
	}
	check.source(at.Child("dataset"), initializer.Dataset)
	check.source(at.Child("model"), initializer.Model)
	storage, at := initializer.Storage, at.Child("storage")
	if storage == nil {
		if initializer.Dataset != nil || initializer.Model != nil {
			check.refuse(field.Required(at, "say where to put what is fetched: claimName of a PersistentVolumeClaim, or the size of a new one"))
		}
		return
	}
	if initializer.Dataset == nil && initializer.Model == nil {
		check.refuse(field.Forbidden(at, "is where a dataset or a model is put; name one of them, or mount a PersistentVolumeClaim with trainer.volumes"))
		return
	}
	if (storage.ClaimName == "") == (storage.Size == nil) {
		check.refuse(field.Invalid(at, storage.ClaimName, "must have either claimName or size"))
	}
	if storage.Size != nil && (storage.Size.Sign() <= 0 || storage.Size.Cmp(tooMuch) > 0) {
		check.refuse(field.Invalid(at.Child("size"), storage.Size.String(), "must be greater than 0 and at most "+tooMuch.String()))
	}
	if storage.ClaimName != "" {
		check.subdomain(at.Child("claimName"), storage.ClaimName)
		if storage.StorageClassName != nil {
			check.refuse(field.Forbidden(at.Child("storageClassName"), "belongs to a new claim; claimName names one that is there"))
		}
	}
}

// schemes that a source can be fetched by.
var schemes = []string{"s3", "hf", "pvc"}

func (check *trainJobCheck) source(at *field.Path, source *v2alpha1.Source) {
	if source == nil {
		return
	}
	// Looked for before anything is parsed, and never shown: it holds a password.
	if mayHoldCredentials(source.StorageURI) {
		check.refuse(field.Forbidden(at.Child("storageUri"), "must not hold credentials or parameters; put them into a Secret and name it in secretRef"))
	} else if uri, err := url.Parse(source.StorageURI); err != nil || !slices.Contains(schemes, uri.Scheme) || uri.Host == "" {
		check.refuse(field.Invalid(at.Child("storageUri"), source.StorageURI, "must be s3://bucket/path, hf://owner/name, hf://owner/name@revision or pvc://claim/path"))
	} else if uri.Scheme == "pvc" && len(utilvalidation.IsDNS1123Subdomain(uri.Host)) > 0 {
		check.refuse(field.Invalid(at.Child("storageUri"), source.StorageURI, fmt.Sprintf("%q cannot be the name of a PersistentVolumeClaim; write pvc://claim/path", uri.Host)))
	}
	if source.SecretRef != nil {
		check.subdomain(at.Child("secretRef", "name"), source.SecretRef.Name)
	}
}

// mayHoldCredentials: an @ is for passwords, except behind the name of a
// repository, where it is for a revision.
func mayHoldCredentials(uri string) bool {
	if repository, isHub := strings.CutPrefix(uri, "hf://"); isHub {
		owner, name, _ := strings.Cut(repository, "/")
		return strings.ContainsAny(owner, "@?") || strings.Contains(name, "?")
	}
	return strings.ContainsAny(uri, "@?")
}

func (check *trainJobCheck) subdomain(at *field.Path, name string) {
	for _, fault := range utilvalidation.IsDNS1123Subdomain(name) {
		check.refuse(field.Invalid(at, name, fault))
	}
}

// withRuntime judges what becomes of the job and its runtime together.
func (check *trainJobCheck) withRuntime(made *job.Job) {
	trainer := check.spec.Child("trainer")
	check.numNodes(made)
	check.volumes(trainer, made)
	check.gpus(made)
	if check.trainJob.Spec.Trainer.SlotsPerWorker == nil {
		between(check.Findings, trainer.Child("slotsPerWorker"), "slotsPerWorker", &made.Slots, 1, check.rules.Limits.MaxSlots.TrainJob)
	}
	launcher := made.Launcher.Template.Spec.Containers
	if len(launcher) > 0 && len(launcher[0].Command) == 0 && len(launcher[0].Args) == 0 {
		check.warn(trainer.Child("command"), "neither the job nor its runtime has a command, so the entrypoint of the image must start MPI")
	}
	runtime := check.spec.Child("runtimeRef", "name")
	// A runtime may have been stored before this was refused.
	for _, role := range []*job.Role{&made.Launcher, &made.Worker} {
		if _, found := role.Template.Annotations[training.AnnotationExclusiveTopology]; found {
			check.refuse(field.Invalid(runtime, check.trainJob.Spec.RuntimeRef.Name,
				fmt.Sprintf("its template has the annotation %s, which %s", training.AnnotationExclusiveTopology, notExclusive)))
			break
		}
	}
	place := &place{
		rules:         check.rules,
		findings:      check.Findings,
		job:           made,
		in:            check.in,
		launcher:      pods{role: "launcher", Role: made.Launcher, at: runtime, resources: check.spec.Child("launcher", "resources"), priorityClass: runtime},
		worker:        pods{role: "worker", Role: made.Worker, at: runtime, resources: trainer.Child("resourcesPerNode"), priorityClass: runtime},
		name:          metadata.Child("name"),
		workers:       trainer.Child("numNodes"),
		slots:         trainer.Child("slotsPerWorker"),
		priorityClass: runtime,
		minWorkers:    1,
		quotaHeadline: func(requested, available string) string {
			if available == "" {
				return fmt.Sprintf("Insufficient namespace quota: requested %s", requested)
			}
			return fmt.Sprintf("Insufficient namespace quota: requested %s, available %s", requested, available)
		},
	}
	place.check()
}

func (check *trainJobCheck) numNodes(made *job.Job) {
	at, nodes := check.spec.Child("trainer", "numNodes"), made.Worker.Replicas
	if check.trainJob.Spec.Trainer.NumNodes == nil {
		between(check.Findings, at, "numNodes", &nodes, 1, check.rules.Limits.MaxNodes)
	}
	if constraints := check.in.Runtime.Constraints; constraints != nil && constraints.MaxNodes != nil && nodes > *constraints.MaxNodes {
		check.refuse(field.Invalid(at, nodes, fmt.Sprintf("numNodes must be at most %d with runtime %s", *constraints.MaxNodes, check.trainJob.Spec.RuntimeRef.Name)))
	}
}

func (check *trainJobCheck) gpus(made *job.Job) {
	at := check.spec.Child("trainer", "resourcesPerNode")
	gpus := job.GPUs(job.Requests(&made.Worker.Template.Spec))
	if constraints := check.in.Runtime.Constraints; constraints != nil && constraints.MaxGPUsPerNode != nil && gpus.CmpInt64(int64(*constraints.MaxGPUsPerNode)) > 0 {
		check.refuse(field.Invalid(at, gpus.String(), fmt.Sprintf("a node must have at most %d GPUs with runtime %s", *constraints.MaxGPUsPerNode, check.trainJob.Spec.RuntimeRef.Name)))
	}
	check.rules.manyGPUs(check.Findings, at, gpus.Value())
	dropped := job.DroppedGPUs(check.trainJob, check.in.Runtime)
	for _, name := range job.ResourceNames(dropped) {
		amount := dropped[name]
		check.warn(at, "replaces all resources of runtime %s, so workers do not get its %s %s; name %s too, or set it to 0",
			check.trainJob.Spec.RuntimeRef.Name, amount.String(), name, name)
	}
}

// manyGPUs warns of nodes that hardly any machine can be.
func (rules *Rules) manyGPUs(findings *Findings, at *field.Path, gpus int64) {
	if gpus > int64(rules.Limits.ManyGPUs) {
		findings.warn(at, "%d GPUs a node; most machines have at most %d", gpus, rules.Limits.ManyGPUs)
	}
}

// volumes judges the job's mounts together with the volumes of both roles.
func (check *trainJobCheck) volumes(at *field.Path, made *job.Job) {
	trainer := &check.trainJob.Spec.Trainer
	directories := []string{job.HostfileDirectory, job.AgentDirectory, job.KeyDirectory, job.ClockDirectory}
	if !made.WorkersRunAgent() {
		directories = append(directories, made.SSHDirectory)
	}
	taken := byOperator(directories...)
	if check.trainJob.Spec.Initializer != nil {
		taken[job.WorkspaceDirectory] = "the initializer"
	}
	for i := range check.in.Runtime.Template.Spec.ReplicatedJobs {
		role := &check.in.Runtime.Template.Spec.ReplicatedJobs[i]
		check.doubleVolumes(at, role)
		if len(role.Template.Spec.Containers) == 0 {
			continue
		}
		for _, mount := range role.Template.Spec.Containers[0].VolumeMounts {
			directory := path.Clean(mount.MountPath)
			if taken[directory] == "the initializer" {
				check.refuse(field.Forbidden(check.spec.Child("initializer"), fmt.Sprintf("the %s of runtime %s has a volume at %s, where the initializer puts what it fetches",
					role.Name, check.trainJob.Spec.RuntimeRef.Name, directory)))
			}
			taken[directory] = "the runtime"
		}
	}
	check.pods.volumes(at.Child("volumes"), trainer.Volumes)
	check.pods.mounts(at.Child("volumeMounts"), trainer.VolumeMounts, check.commonVolumes(), taken)
}

func (check *trainJobCheck) doubleVolumes(at *field.Path, role *v2alpha1.ReplicatedJob) {
	taken := volumeNames(role.Template.Spec.Volumes)
	for i, volume := range check.trainJob.Spec.Trainer.Volumes {
		if taken.Has(volume.Name) {
			check.refuse(field.Invalid(at.Child("volumes").Index(i).Child("name"), volume.Name,
				fmt.Sprintf("the %s of runtime %s has a volume of this name", role.Name, check.trainJob.Spec.RuntimeRef.Name)))
		}
	}
}

// commonVolumes are those that launcher and workers both have.
func (check *trainJobCheck) commonVolumes() sets.Set[string] {
	names := sets.New[string]()
	for i, role := range check.in.Runtime.Template.Spec.ReplicatedJobs {
		own := volumeNames(role.Template.Spec.Volumes)
		if i == 0 {
			names = own
		} else {
			names = names.Intersection(own)
		}
	}
	return names.Union(volumeNames(check.trainJob.Spec.Trainer.Volumes))
}
