// SPDX-License-Identifier: Apache-2.0

// Package admission serves the webhooks for jobs and runtimes that are created, changed
// or deleted. They return all errors at once, and write one audit line. A mutating
// webhook adds the creator and labels to a job first.
//
// The rules are in package validation. This package reads the cluster from the cache of
// the informers, and converts findings to responses.
package admission

import (
	"context"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/validation"
	"github.com/trireme-mpi/trireme/internal/kube/clusterfacts"
)

// validator validates the objects of one kind.
type validator[T client.Object] struct {
	create func(ctx context.Context, object T, bytes int) (*validation.Findings, error)
	update func(ctx context.Context, old, changed T, bytes int) (*validation.Findings, error)
	// references are the objects that the author of a new object needs permission for; nil
	// if there are none. An update cannot add any: the fields are immutable.
	references func(object T) []validation.Reference
}

// Handlers returns the webhooks by path. They read from the cache; live is for objects
// that are not in the cache yet, and for permissions of users. If the caller is not
// verified as the API server, messages have no quota figures, and audit lines say so.
func Handlers(rules *validation.Rules, cache client.Reader, live Live, scheme *runtime.Scheme, audit *Audit, isVerified bool) map[string]http.Handler {
	reader := &clusterfacts.Reader{Cache: cache, Live: live, HidesQuota: !isVerified}
	if !isVerified {
		audit = audit.unverified()
	}
	return map[string]http.Handler{
		CreatorPath:        creatorHandler(),
		mpiJobPath:         handle(mpiJobs(rules, reader), live, scheme, audit, func() *v2beta1.MPIJob { return &v2beta1.MPIJob{} }),
		trainJobPath:       handle(trainJobs(rules, reader), live, scheme, audit, func() *v2alpha1.TrainJob { return &v2alpha1.TrainJob{} }),
		runtimePath:        handle(runtimes(rules), live, scheme, audit, func() *v2alpha1.TrainingRuntime { return &v2alpha1.TrainingRuntime{} }),
		clusterRuntimePath: handle(clusterRuntimes(rules), live, scheme, audit, func() *v2alpha1.ClusterTrainingRuntime { return &v2alpha1.ClusterTrainingRuntime{} }),
	}
}

func mpiJobs(rules *validation.Rules, reader *clusterfacts.Reader) validator[*v2beta1.MPIJob] {
	return validator[*v2beta1.MPIJob]{
		create: func(ctx context.Context, mpiJob *v2beta1.MPIJob, bytes int) (*validation.Findings, error) {
			in, err := reader.Of(ctx, job.KindMPIJob, mpiJob.Namespace, mpiJob.Name)
			if err != nil {
				return nil, err
			}
			in.Bytes = bytes
			return rules.CreateMPIJob(mpiJob, in), nil
		},
		update: func(_ context.Context, old, changed *v2beta1.MPIJob, _ int) (*validation.Findings, error) {
			return rules.UpdateMPIJob(old, changed), nil
		},
		references: validation.MPIJobReferences,
	}
}

func trainJobs(rules *validation.Rules, reader *clusterfacts.Reader) validator[*v2alpha1.TrainJob] {
	return validator[*v2alpha1.TrainJob]{
		create: func(ctx context.Context, trainJob *v2alpha1.TrainJob, bytes int) (*validation.Findings, error) {
			in, err := reader.Of(ctx, job.KindTrainJob, trainJob.Namespace, trainJob.Name)
			if err != nil {
				return nil, err
			}
			in.Bytes = bytes
			in.Runtime, err = reader.Runtime(ctx, trainJob.Namespace, &trainJob.Spec.RuntimeRef)
			if err != nil {
				return nil, err
			}
			return rules.CreateTrainJob(trainJob, in), nil
		},
		update: func(_ context.Context, old, changed *v2alpha1.TrainJob, _ int) (*validation.Findings, error) {
			return rules.UpdateTrainJob(old, changed), nil
		},
		references: validation.TrainJobReferences,
	}
}

func runtimes(rules *validation.Rules) validator[*v2alpha1.TrainingRuntime] {
	return runtimeValidator(rules, func(runtime *v2alpha1.TrainingRuntime) *v2alpha1.TrainingRuntimeSpec { return &runtime.Spec })
}

func clusterRuntimes(rules *validation.Rules) validator[*v2alpha1.ClusterTrainingRuntime] {
	return runtimeValidator(rules, func(runtime *v2alpha1.ClusterTrainingRuntime) *v2alpha1.TrainingRuntimeSpec { return &runtime.Spec })
}

func runtimeValidator[T client.Object](rules *validation.Rules, spec func(T) *v2alpha1.TrainingRuntimeSpec) validator[T] {
	return validator[T]{
		create: func(_ context.Context, runtime T, bytes int) (*validation.Findings, error) {
			return rules.Runtime(spec(runtime), bytes), nil
		},
		update: func(_ context.Context, old, changed T, bytes int) (*validation.Findings, error) {
			// Labels can still change on a runtime that exceeds new limits.
			if changed.GetDeletionTimestamp() != nil || equality.Semantic.DeepEqual(spec(old), spec(changed)) {
				return &validation.Findings{}, nil
			}
			return rules.Runtime(spec(changed), bytes), nil
		},
	}
}

func handle[T client.Object](validator validator[T], reviewer Reviewer, scheme *runtime.Scheme, audit *Audit, empty func() T) http.Handler {
	decoder := admission.NewDecoder(scheme)
	return &admission.Webhook{Handler: admission.HandlerFunc(func(ctx context.Context, request admission.Request) admission.Response {
		response := answer(ctx, validator, reviewer, decoder, &request, empty)
		audit.write(&request, &response)
		return response
	})}
}

func answer[T client.Object](ctx context.Context, validator validator[T], reviewer Reviewer, decoder admission.Decoder, request *admission.Request, empty func() T) admission.Response {
	object := empty()
	if request.Operation == admissionv1.Delete {
		return admission.Allowed("")
	}
	for _, raw := range [][]byte{request.Object.Raw, request.OldObject.Raw} {
		if err := job.CheckQuantities(raw); err != nil {
			return admission.Errored(http.StatusBadRequest, err)
		}
	}
	if err := decoder.Decode(*request, object); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	var findings *validation.Findings
	var err error
	if request.Operation == admissionv1.Update {
		old := empty()
		if err := decoder.DecodeRaw(request.OldObject, old); err != nil {
			return admission.Errored(http.StatusBadRequest, err)
		}
		findings, err = validator.update(ctx, old, object, size(request, object))
	} else {
		findings, err = validator.create(ctx, object, size(request, object))
		if err == nil && validator.references != nil {
			err = checkReferences(ctx, reviewer, request, validator.references(object), findings)
		}
	}
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return respond(request, object.GetName(), findings)
}

// size returns the size of an object without its managedFields, which can be larger than
// the rest.
func size(request *admission.Request, object client.Object) int {
	managed := 0
	for _, entry := range object.GetManagedFields() {
		if entry.FieldsV1 != nil {
			managed += len(entry.FieldsV1.GetRawBytes())
		}
	}
	return max(len(request.Object.Raw)-managed, 0)
}

// respond returns all errors with their paths, in the format that kubectl shows.
func respond(request *admission.Request, name string, findings *validation.Findings) admission.Response {
	if len(findings.Errors) == 0 {
		return admission.Allowed("").WithWarnings(findings.WarningTexts()...)
	}
	kind := schema.GroupKind{Group: request.Kind.Group, Kind: request.Kind.Kind}
	status := findings.Invalid(kind, name).Status()
	return admission.Response{
		AdmissionResponse: admissionv1.AdmissionResponse{Allowed: false, Result: &status, Warnings: findings.WarningTexts()},
	}
}
