// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// Reference is a Secret or a ServiceAccount that a job refers to. The kubelet gives it
// to the pods of the job, whatever the permissions of the job's author.
type Reference struct {
	Kind ReferenceKind
	Name string
	Path *field.Path
}

// ReferenceKind is a kind of object that pods use.
type ReferenceKind string

const (
	ReferenceSecret         ReferenceKind = "Secret"
	ReferenceServiceAccount ReferenceKind = "ServiceAccount"
)

// Permission returns the verb and the resource that a user needs to use such an object
// without a job.
func (rk ReferenceKind) Permission() (verb, resource string) {
	if rk == ReferenceServiceAccount {
		return "impersonate", "serviceaccounts"
	}
	return "get", "secrets"
}

// Forbidden returns the error that a user may not use the object.
func (r Reference) Forbidden(user, namespace string) *field.Error {
	verb, resource := r.Kind.Permission()
	return field.Forbidden(r.Path, fmt.Sprintf(
		"user %q may not use %s %q: they may neither create pods in namespace %q nor %s this %s; remove the reference, "+
			"or ask a namespace admin for the permission (verb %s, resource %s, name %s)",
		user, r.Kind, r.Name, namespace, verb, r.Kind, verb, resource, r.Name))
}

// MaxReferences is how many Secrets and ServiceAccounts are checked for one job.
const MaxReferences = 64

// TooManyReferences returns the error that a job has more references than are checked.
func TooManyReferences(user, namespace string, count int) *field.Error {
	return field.Forbidden(field.NewPath("spec"), fmt.Sprintf(
		"refers to %d Secrets and ServiceAccounts; user %q may refer to at most %d, because they may not create pods in namespace %q",
		count, user, MaxReferences, namespace))
}

// MPIJobReferences returns the Secrets and ServiceAccounts of an MPIJob, each once.
func MPIJobReferences(mpiJob *v2beta1.MPIJob) []Reference {
	var refs references
	for _, role := range slices.Sorted(maps.Keys(mpiJob.Spec.MPIReplicaSpecs)) {
		if replica := mpiJob.Spec.MPIReplicaSpecs[role]; replica != nil {
			refs.pod(field.NewPath("spec", "mpiReplicaSpecs").Child(string(role), "template", "spec"), &replica.Template.Spec)
		}
	}
	return refs
}

// TrainJobReferences returns the Secrets of a TrainJob, each once. Those of its runtime
// are not included: the author of the runtime chose them.
func TrainJobReferences(trainJob *v2alpha1.TrainJob) []Reference {
	var refs references
	spec, trainer := field.NewPath("spec"), &trainJob.Spec.Trainer
	refs.volumes(spec.Child("trainer", "volumes"), trainer.Volumes)
	refs.environment(spec.Child("trainer"), trainer.Env, nil)
	if initializer := trainJob.Spec.Initializer; initializer != nil {
		refs.source(spec.Child("initializer", "dataset"), initializer.Dataset)
		refs.source(spec.Child("initializer", "model"), initializer.Model)
	}
	return refs
}

// references are in the order of the object, so that messages are stable.
type references []Reference

// add skips empty names and the default ServiceAccount.
func (r *references) add(kind ReferenceKind, name string, at *field.Path) {
	if name == "" || kind == ReferenceServiceAccount && name == "default" {
		return
	}
	if !slices.ContainsFunc(*r, func(other Reference) bool { return other.Kind == kind && other.Name == name }) {
		*r = append(*r, Reference{Kind: kind, Name: name, Path: at})
	}
}

func (r *references) secret(name string, at *field.Path) { r.add(ReferenceSecret, name, at) }

// local adds the Secret of a reference that may be nil.
func (r *references) local(reference *corev1.LocalObjectReference, at *field.Path) {
	if reference != nil {
		r.secret(reference.Name, at.Child("name"))
	}
}

func (r *references) source(at *field.Path, source *v2alpha1.Source) {
	if source != nil && source.SecretRef != nil {
		r.secret(source.SecretRef.Name, at.Child("secretRef", "name"))
	}
}

func (r *references) pod(at *field.Path, pod *corev1.PodSpec) {
	r.add(ReferenceServiceAccount, pod.ServiceAccountName, at.Child("serviceAccountName"))
	r.add(ReferenceServiceAccount, pod.DeprecatedServiceAccount, at.Child("serviceAccount"))
	for i := range pod.ImagePullSecrets {
		r.local(&pod.ImagePullSecrets[i], at.Child("imagePullSecrets").Index(i))
	}
	r.volumes(at.Child("volumes"), pod.Volumes)
	for i := range pod.InitContainers {
		r.environment(at.Child("initContainers").Index(i), pod.InitContainers[i].Env, pod.InitContainers[i].EnvFrom)
	}
	for i := range pod.Containers {
		r.environment(at.Child("containers").Index(i), pod.Containers[i].Env, pod.Containers[i].EnvFrom)
	}
	for i := range pod.EphemeralContainers {
		r.environment(at.Child("ephemeralContainers").Index(i), pod.EphemeralContainers[i].Env, pod.EphemeralContainers[i].EnvFrom)
	}
}

func (r *references) environment(at *field.Path, env []corev1.EnvVar, from []corev1.EnvFromSource) {
	for i := range env {
		if source := env[i].ValueFrom; source != nil && source.SecretKeyRef != nil {
			r.local(&source.SecretKeyRef.LocalObjectReference, at.Child("env").Index(i).Child("valueFrom", "secretKeyRef"))
		}
	}
	for i := range from {
		if source := from[i].SecretRef; source != nil {
			r.local(&source.LocalObjectReference, at.Child("envFrom").Index(i).Child("secretRef"))
		}
	}
}

func (r *references) volumes(at *field.Path, volumes []corev1.Volume) {
	for i := range volumes {
		r.volume(at.Index(i), &volumes[i].VolumeSource)
	}
}

// volume adds the Secret of every source that can have one. A volume has one source:
// the API server refuses pods with more.
func (r *references) volume(at *field.Path, volume *corev1.VolumeSource) {
	switch {
	case volume.Secret != nil:
		r.secret(volume.Secret.SecretName, at.Child("secret", "secretName"))
	case volume.Projected != nil:
		r.projected(at.Child("projected", "sources"), volume.Projected.Sources)
	case volume.CSI != nil:
		r.local(volume.CSI.NodePublishSecretRef, at.Child("csi", "nodePublishSecretRef"))
	case volume.AzureFile != nil:
		r.secret(volume.AzureFile.SecretName, at.Child("azureFile", "secretName"))
	case volume.CephFS != nil:
		r.local(volume.CephFS.SecretRef, at.Child("cephfs", "secretRef"))
	case volume.Cinder != nil:
		r.local(volume.Cinder.SecretRef, at.Child("cinder", "secretRef"))
	case volume.FlexVolume != nil:
		r.local(volume.FlexVolume.SecretRef, at.Child("flexVolume", "secretRef"))
	case volume.ISCSI != nil:
		r.local(volume.ISCSI.SecretRef, at.Child("iscsi", "secretRef"))
	case volume.RBD != nil:
		r.local(volume.RBD.SecretRef, at.Child("rbd", "secretRef"))
	case volume.ScaleIO != nil:
		r.local(volume.ScaleIO.SecretRef, at.Child("scaleIO", "secretRef"))
	case volume.StorageOS != nil:
		r.local(volume.StorageOS.SecretRef, at.Child("storageos", "secretRef"))
	}
}

func (r *references) projected(at *field.Path, sources []corev1.VolumeProjection) {
	for i := range sources {
		if source := sources[i].Secret; source != nil {
			r.local(&source.LocalObjectReference, at.Index(i).Child("secret"))
		}
	}
}

// foreignKeys refuses the SSH key of another job for every user: with it, the pods of
// this job could log in to the workers of the other.
func foreignKeys(findings *Findings, in *ClusterFacts, kind job.Kind, name string, named []Reference) {
	for _, reference := range named {
		owner, ownerName := keyOwner(reference)
		if owner == "" || owner == kind && ownerName == name || in.HasJob == nil || !in.HasJob(owner, ownerName) {
			continue
		}
		findings.refuse(field.Forbidden(reference.Path, fmt.Sprintf(
			"Secret %q is the SSH key of %s %q, and only that job may use it; remove the reference", reference.Name, owner, ownerName)))
	}
}

// keyOwner returns the job that a key Secret belongs to by its name; the kind is empty
// for other Secrets.
func keyOwner(reference Reference) (job.Kind, string) {
	if reference.Kind != ReferenceSecret {
		return "", ""
	}
	for _, kind := range []job.Kind{job.KindMPIJob, job.KindTrainJob} {
		if name, found := strings.CutSuffix(reference.Name, kind.Traits().SecretSuffix); found {
			return kind, name
		}
	}
	return "", ""
}
