// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/config"
	"github.com/trireme-mpi/trireme/internal/engine/diagnosis"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
	"github.com/trireme-mpi/trireme/internal/kube/clusterfacts"
)

// factsOf returns the facts that the object itself contains.
func (g *Gatherer) factsOf(object client.Object) *Facts {
	facts := &Facts{Now: g.Now, Namespace: object.GetNamespace(), Name: object.GetName(), OperatorNamespace: g.OperatorNamespace}
	switch object := object.(type) {
	case *v2alpha1.TrainJob:
		facts.Kind, facts.Previous, facts.Conditions = job.KindTrainJob, diagnosis.FromTrainJob(object), object.Status.Conditions
		facts.RuntimeRef = fmt.Sprintf("%s %s", object.Spec.RuntimeRef.Kind, object.Spec.RuntimeRef.Name)
	case *v2beta1.MPIJob:
		facts.Kind, facts.Previous = job.KindMPIJob, diagnosis.FromMPIJob(object)
		facts.OfMPIOperator = job.IsOfMPIOperator(object)
		for _, condition := range object.Status.Conditions {
			facts.Conditions = append(facts.Conditions, metav1.Condition{
				Type: string(condition.Type), Status: metav1.ConditionStatus(condition.Status), Reason: condition.Reason, Message: condition.Message,
				LastTransitionTime: condition.LastTransitionTime,
			})
		}
	default:
		panic(fmt.Sprintf("%T is not a job", object))
	}
	return facts
}

// model sets facts.Job. The operator's configuration is not known here, so fields
// that the job does not set get the operator's default configuration.
func (g *Gatherer) model(ctx context.Context, facts *Facts, object client.Object) {
	defaults := config.Default().JobDefaults()
	switch object := object.(type) {
	case *v2beta1.MPIJob:
		facts.Job = job.FromMPIJob(object, defaults)
	case *v2alpha1.TrainJob:
		if runtime := g.runtime(ctx, facts, object); runtime != nil {
			facts.Job = job.FromTrainJob(object, runtime, defaults)
		}
	}
}

// runtime returns the snapshot that the job was created with, or else the runtime that
// it names.
func (g *Gatherer) runtime(ctx context.Context, facts *Facts, trainJob *v2alpha1.TrainJob) *v2alpha1.TrainingRuntimeSpec {
	if snapshot := g.runtimeSnapshot(ctx, facts, trainJob); snapshot != nil {
		return snapshot
	}
	reader := clusterfacts.Reader{Cache: g.Reader, Live: g.Reader}
	found, err := reader.Runtime(ctx, trainJob.Namespace, &trainJob.Spec.RuntimeRef)
	facts.NoModel = unknownReason(unwrapped(err), "get "+facts.RuntimeRef)
	facts.RuntimeMissing = found == nil && err == nil
	if facts.RuntimeMissing {
		facts.NoModel = facts.RuntimeRef + " does not exist"
	}
	return found
}

func (g *Gatherer) runtimeSnapshot(ctx context.Context, facts *Facts, trainJob *v2alpha1.TrainJob) *v2alpha1.TrainingRuntimeSpec {
	digest := trainJob.Status.RuntimeDigest
	if !facts.Stored || digest == "" {
		return nil
	}
	revision := &appsv1.ControllerRevision{}
	if found, _ := g.get(ctx, revision, facts.Namespace, plan.SnapshotName(digest), "controllerrevision"); !found {
		return nil
	}
	snapshot, err := job.RuntimeFrom(revision.Data.Raw, digest)
	if err != nil {
		return nil
	}
	return snapshot
}

// needed reads the objects that the pods refer to: pull secrets, PVCs, StorageClasses.
func (g *Gatherer) needed(ctx context.Context, facts *Facts) {
	facts.PullSecrets = map[string]Known[bool]{}
	for _, name := range facts.pullSecretNames() {
		found, unknown := g.get(ctx, &corev1.Secret{}, facts.Namespace, name, "secret")
		facts.PullSecrets[name] = Known[bool]{found, unknown}
	}
	facts.BindingModes = map[string]storagev1.VolumeBindingMode{}
	facts.Claims = map[string]Known[*corev1.PersistentVolumeClaim]{}
	for _, name := range facts.claimNames() {
		claim := &corev1.PersistentVolumeClaim{}
		found, unknown := g.get(ctx, claim, facts.Namespace, name, "persistentvolumeclaim")
		if !found {
			claim = nil
		}
		facts.Claims[name] = Known[*corev1.PersistentVolumeClaim]{claim, unknown}
		if claim != nil && claim.Status.Phase == corev1.ClaimPending {
			g.bindingMode(ctx, facts, classOf(claim))
		}
	}
	facts.StorageClasses = map[string]Known[bool]{}
	if facts.Job != nil && facts.Job.Initializer != nil && facts.Job.Initializer.StorageClassName != nil && *facts.Job.Initializer.StorageClassName != "" {
		name := *facts.Job.Initializer.StorageClassName
		found, unknown := g.storageClass(ctx, name)
		facts.StorageClasses[name] = Known[bool]{found, unknown}
	}
}
