// SPDX-License-Identifier: Apache-2.0

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

// trainJobCheck validates a new TrainJob.
type trainJobCheck struct {
	*Findings
	rules    *Rules
	trainJob *v2alpha1.TrainJob
	in       *ClusterFacts
	spec     *field.Path
	pods     podCheck
}

// CreateTrainJob validates a new TrainJob.
func (r *Rules) CreateTrainJob(trainJob *v2alpha1.TrainJob, in *ClusterFacts) *Findings {
	findings := &Findings{}
	check := &trainJobCheck{
		Findings: findings,
		rules:    r,
		trainJob: trainJob,
		in:       in,
		spec:     field.NewPath("spec"),
		pods:     podCheck{rules: r, findings: findings},
	}
	if r.size(check.Findings, in.Bytes); len(check.Errors) > 0 {
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
		check.withRuntime(job.FromTrainJob(trainJob, in.Runtime, r.Defaults))
	}
	return check.Findings
}

func (tc *trainJobCheck) name() {
	nodes := int32(1)
	if tc.in.Runtime != nil {
		nodes = job.FromTrainJob(tc.trainJob, tc.in.Runtime, tc.rules.Defaults).Worker.Replicas
	}
	nameFits(tc.Findings, tc.trainJob.Name, job.KindTrainJob.LongestName(tc.trainJob.Name, nodes))
}

func (tc *trainJobCheck) runtimeRef() {
	ref, at := &tc.trainJob.Spec.RuntimeRef, tc.spec.Child("runtimeRef")
	if ref.APIGroup != nil && *ref.APIGroup != training.Group {
		tc.refuse(field.NotSupported(at.Child("apiGroup"), *ref.APIGroup, []string{training.Group}))
	}
	switch {
	case tc.in.Runtime == nil:
		tc.refuse(field.Invalid(at.Child("name"), ref.Name, fmt.Sprintf("Runtime %s not found in namespace", ref.Name)))
	case tc.in.Runtime.MLPolicy.MPIImplementation == "":
		tc.refuse(field.Invalid(at.Child("name"), ref.Name, fmt.Sprintf("Runtime %s does not support MPI", ref.Name)))
	}
}

func (tc *trainJobCheck) trainer() {
	trainer, at := &tc.trainJob.Spec.Trainer, tc.spec.Child("trainer")
	limits := &tc.rules.Limits
	between(tc.Findings, at.Child("numNodes"), "numNodes", trainer.NumNodes, 1, limits.MaxNodes)
	between(tc.Findings, at.Child("slotsPerWorker"), "slotsPerWorker", trainer.SlotsPerWorker, 1, limits.MaxSlots.TrainJob)
	tc.pods.image(at.Child("image"), trainer.Image)
	tc.pods.environment(at.Child("env"), trainer.Env)
	progressPattern(tc.Findings, at.Child("progressPattern"), trainer.ProgressPattern)
	if trainer.ResourcesPerNode != nil {
		tc.pods.resources(at.Child("resourcesPerNode"), trainer.ResourcesPerNode)
	}
	if launcher := tc.trainJob.Spec.Launcher; launcher != nil && launcher.Resources != nil {
		tc.pods.resources(tc.spec.Child("launcher", "resources"), launcher.Resources)
	}
}

func (tc *trainJobCheck) lifetime() {
	spec := &tc.trainJob.Spec
	deadline(tc.Findings, tc.spec.Child("activeDeadlineSeconds"), spec.ActiveDeadlineSeconds, 1)
	atLeast(tc.Findings, tc.spec.Child("ttlSecondsAfterFinished"), spec.TTLSecondsAfterFinished, 0)
	atLeast(tc.Findings, tc.spec.Child("backoffLimit"), spec.BackoffLimit, 0)
	hang(tc.Findings, tc.spec.Child("hang"), spec.Hang)
	// MultiKueue does not support TrainJobs of this group.
	managedBy(tc.Findings, tc.spec.Child("managedBy"), spec.ManagedBy, v2alpha1.ManagedByTrainJobController)
}

func (tc *trainJobCheck) initializer() {
	initializer, at := tc.trainJob.Spec.Initializer, tc.spec.Child("initializer")
	if initializer == nil {
		return
	}
	tc.source(at.Child("dataset"), initializer.Dataset)
	tc.source(at.Child("model"), initializer.Model)
	storage, at := initializer.Storage, at.Child("storage")
	if storage == nil {
		if initializer.Dataset != nil || initializer.Model != nil {
			tc.refuse(field.Required(at, "set claimName to an existing PVC for the data, or size to create one"))
		}
		return
	}
	if initializer.Dataset == nil && initializer.Model == nil {
		tc.refuse(field.Forbidden(at, "is only for a dataset or a model; set one of them, or mount a PVC with trainer.volumes"))
		return
	}
	if (storage.ClaimName == "") == (storage.Size == nil) {
		tc.refuse(field.Invalid(at, storage.ClaimName, "must have either claimName or size"))
	}
	if storage.Size != nil && (storage.Size.Sign() <= 0 || storage.Size.Cmp(tooMuch) > 0) {
		tc.refuse(field.Invalid(at.Child("size"), storage.Size.String(), "must be greater than 0 and at most "+tooMuch.String()))
	}
	if storage.ClaimName != "" {
		tc.subdomain(at.Child("claimName"), storage.ClaimName)
		if storage.StorageClassName != nil {
			tc.refuse(field.Forbidden(at.Child("storageClassName"), "is only for a new PVC; claimName is an existing one"))
		}
	}
}

// schemes of sources.
var schemes = []string{"s3", "hf", "pvc"}

func (tc *trainJobCheck) source(at *field.Path, source *v2alpha1.Source) {
	if source == nil {
		return
	}
	// Checked before parsing, and never shown: the URI may contain a password.
	if mayContainCredentials(source.StorageURI) {
		tc.refuse(field.Forbidden(at.Child("storageUri"), "must not contain credentials or parameters; put them into a Secret and set secretRef"))
	} else if uri, err := url.Parse(source.StorageURI); err != nil || !slices.Contains(schemes, uri.Scheme) || uri.Host == "" {
		tc.refuse(field.Invalid(at.Child("storageUri"), source.StorageURI, "must be s3://bucket/path, hf://owner/name, hf://owner/name@revision or pvc://claim/path"))
	} else if uri.Scheme == "pvc" && len(utilvalidation.IsDNS1123Subdomain(uri.Host)) > 0 {
		tc.refuse(field.Invalid(at.Child("storageUri"), source.StorageURI, fmt.Sprintf("%q is not a valid name of a PVC; write pvc://claim/path", uri.Host)))
	}
	if source.SecretRef != nil {
		tc.subdomain(at.Child("secretRef", "name"), source.SecretRef.Name)
	}
}

// mayContainCredentials reports whether a URI has a user part or parameters. An @ after
// the name of a repository is a revision.
func mayContainCredentials(uri string) bool {
	if repository, isHub := strings.CutPrefix(uri, "hf://"); isHub {
		owner, name, _ := strings.Cut(repository, "/")
		return strings.ContainsAny(owner, "@?") || strings.Contains(name, "?")
	}
	return strings.ContainsAny(uri, "@?")
}

func (tc *trainJobCheck) subdomain(at *field.Path, name string) {
	for _, fault := range utilvalidation.IsDNS1123Subdomain(name) {
		tc.refuse(field.Invalid(at, name, fault))
	}
}

// withRuntime validates the job together with its runtime.
func (tc *trainJobCheck) withRuntime(model *job.Job) {
	trainer := tc.spec.Child("trainer")
	tc.numNodes(model)
	tc.volumes(trainer, model)
	tc.gpus(model)
	if tc.trainJob.Spec.Trainer.SlotsPerWorker == nil {
		between(tc.Findings, trainer.Child("slotsPerWorker"), "slotsPerWorker", &model.Slots, 1, tc.rules.Limits.MaxSlots.TrainJob)
	}
	launcher := model.Launcher.Template.Spec.Containers
	if len(launcher) > 0 && len(launcher[0].Command) == 0 && len(launcher[0].Args) == 0 {
		tc.warn(trainer.Child("command"), "neither the job nor its runtime has a command, so the entrypoint of the image must start MPI")
	}
	runtime := tc.spec.Child("runtimeRef", "name")
	// An older runtime may still have the annotation.
	for _, role := range []*job.Role{&model.Launcher, &model.Worker} {
		if _, found := role.Template.Annotations[training.AnnotationExclusiveTopology]; found {
			tc.refuse(field.Invalid(runtime, tc.trainJob.Spec.RuntimeRef.Name,
				fmt.Sprintf("its template has the annotation %s, which %s", training.AnnotationExclusiveTopology, notExclusive)))
			break
		}
	}
	placement := &placeCheck{
		rules:         tc.rules,
		findings:      tc.Findings,
		job:           model,
		in:            tc.in,
		launcher:      pods{role: "launcher", Role: model.Launcher, at: runtime, resources: tc.spec.Child("launcher", "resources"), priorityClass: runtime},
		worker:        pods{role: "worker", Role: model.Worker, at: runtime, resources: trainer.Child("resourcesPerNode"), priorityClass: runtime},
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
	placement.check()
}

func (tc *trainJobCheck) numNodes(model *job.Job) {
	at, nodes := tc.spec.Child("trainer", "numNodes"), model.Worker.Replicas
	if tc.trainJob.Spec.Trainer.NumNodes == nil {
		between(tc.Findings, at, "numNodes", &nodes, 1, tc.rules.Limits.MaxNodes)
	}
	if constraints := tc.in.Runtime.Constraints; constraints != nil && constraints.MaxNodes != nil && nodes > *constraints.MaxNodes {
		tc.refuse(field.Invalid(at, nodes, fmt.Sprintf("numNodes must be at most %d with runtime %s", *constraints.MaxNodes, tc.trainJob.Spec.RuntimeRef.Name)))
	}
}

func (tc *trainJobCheck) gpus(model *job.Job) {
	at := tc.spec.Child("trainer", "resourcesPerNode")
	gpus := job.GPUs(job.Requests(&model.Worker.Template.Spec))
	if constraints := tc.in.Runtime.Constraints; constraints != nil && constraints.MaxGPUsPerNode != nil && gpus.CmpInt64(int64(*constraints.MaxGPUsPerNode)) > 0 {
		tc.refuse(field.Invalid(at, gpus.String(), fmt.Sprintf("a node must have at most %d GPUs with runtime %s", *constraints.MaxGPUsPerNode, tc.trainJob.Spec.RuntimeRef.Name)))
	}
	tc.rules.manyGPUs(tc.Findings, at, gpus.Value())
	dropped := job.DroppedGPUs(tc.trainJob, tc.in.Runtime)
	for _, name := range job.ResourceNames(dropped) {
		amount := dropped[name]
		tc.warn(at, "replaces all resources of runtime %s, so workers do not get its %s %s; add %s, or set it to 0",
			tc.trainJob.Spec.RuntimeRef.Name, amount.String(), name, name)
	}
}

// manyGPUs warns of more GPUs than most machines have.
func (r *Rules) manyGPUs(findings *Findings, at *field.Path, gpus int64) {
	if gpus > int64(r.Limits.ManyGPUs) {
		findings.warn(at, "%d GPUs per node; most machines have at most %d", gpus, r.Limits.ManyGPUs)
	}
}

// volumes validates the job's mounts together with the volumes of both roles.
func (tc *trainJobCheck) volumes(at *field.Path, model *job.Job) {
	trainer := &tc.trainJob.Spec.Trainer
	directories := []string{job.HostfileDirectory, job.AgentDirectory, job.KeyDirectory, job.ClockDirectory}
	if !model.WorkersRunAgent() {
		directories = append(directories, model.SSHDirectory)
	}
	taken := byOperator(directories...)
	if tc.trainJob.Spec.Initializer != nil {
		taken[job.WorkspaceDirectory] = mountedByInitializer
	}
	for i := range tc.in.Runtime.Template.Spec.ReplicatedJobs {
		role := &tc.in.Runtime.Template.Spec.ReplicatedJobs[i]
		tc.doubleVolumes(at, role)
		if len(role.Template.Spec.Containers) == 0 {
			continue
		}
		for _, mount := range role.Template.Spec.Containers[0].VolumeMounts {
			directory := path.Clean(mount.MountPath)
			if taken[directory] == mountedByInitializer {
				tc.refuse(field.Forbidden(tc.spec.Child("initializer"), fmt.Sprintf("the %s of runtime %s mounts a volume at %s, where the initializer writes its data",
					role.Name, tc.trainJob.Spec.RuntimeRef.Name, directory)))
			}
			taken[directory] = mountedByRuntime
		}
	}
	tc.pods.volumes(at.Child("volumes"), trainer.Volumes)
	tc.pods.mounts(at.Child("volumeMounts"), trainer.VolumeMounts, tc.commonVolumes(), taken)
}

func (tc *trainJobCheck) doubleVolumes(at *field.Path, role *v2alpha1.ReplicatedJob) {
	taken := volumeNames(role.Template.Spec.Volumes)
	for i, volume := range tc.trainJob.Spec.Trainer.Volumes {
		if taken.Has(volume.Name) {
			tc.refuse(field.Invalid(at.Child("volumes").Index(i).Child("name"), volume.Name,
				fmt.Sprintf("the %s of runtime %s already has a volume of this name", role.Name, tc.trainJob.Spec.RuntimeRef.Name)))
		}
	}
}

// commonVolumes returns the volumes that both launcher and workers have.
func (tc *trainJobCheck) commonVolumes() sets.Set[string] {
	names := sets.New[string]()
	for i, role := range tc.in.Runtime.Template.Spec.ReplicatedJobs {
		own := volumeNames(role.Template.Spec.Volumes)
		if i == 0 {
			names = own
		} else {
			names = names.Intersection(own)
		}
	}
	return names.Union(volumeNames(tc.trainJob.Spec.Trainer.Volumes))
}
