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
	// isOurs reports whether an object is validated and audited; nil if all are. old is
	// the stored object, and is nil for a new one.
	isOurs func(old, object T) bool
	// references are the objects that the author of a new object needs permission for; nil
	// if there are none. An update cannot add any: the fields are immutable.
	references func(object T) []validation.Reference
}

// Handlers returns the webhooks by path. They read from the cache; live is for objects
// that are not in the cache yet, and for permissions of users. If the caller is not
// verified as the API server, messages have no quota figures, and audit lines say so.
// MPIJobs that are not in the share are accepted as they are.
func Handlers(rules *validation.Rules, share job.Share, cache client.Reader, live Live, scheme *runtime.Scheme, audit *Audit, isVerified bool) map[string]http.Handler {
	reader := &clusterfacts.Reader{Cache: cache, Live: live, HidesQuota: !isVerified}
	if !isVerified {
		audit = audit.unverified()
	}
	return map[string]http.Handler{
		CreatorPath:        creatorHandler(share),
		mpiJobPath:         handle(mpiJobs(rules, share, reader), live, scheme, audit, func() *v2beta1.MPIJob { return &v2beta1.MPIJob{} }),
		trainJobPath:       handle(trainJobs(rules, reader), live, scheme, audit, func() *v2alpha1.TrainJob { return &v2alpha1.TrainJob{} }),
		runtimePath:        handle(runtimes(rules), live, scheme, audit, func() *v2alpha1.TrainingRuntime { return &v2alpha1.TrainingRuntime{} }),
		clusterRuntimePath: handle(clusterRuntimes(rules), live, scheme, audit, func() *v2alpha1.ClusterTrainingRuntime { return &v2alpha1.ClusterTrainingRuntime{} }),
	}
}

func mpiJobs(rules *validation.Rules, share job.Share, reader *clusterfacts.Reader) validator[*v2beta1.MPIJob] {
	checks := validator[*v2beta1.MPIJob]{
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
	if share != job.ShareAll {
		checks.isOurs = func(old, mpiJob *v2beta1.MPIJob) bool { return isOurs(share, old, mpiJob) }
	}
	return checks
}

// isOurs reports whether a new MPIJob is ours, or a stored one is before or after the
// request: otherwise a job of mpi-operator could be made ours while it is running. Only
// the status of a stored job is what an operator wrote.
func isOurs(share job.Share, old, mpiJob *v2beta1.MPIJob) bool {
	if old != nil && share.Judges(old) {
		return true
	}
	if mpiJob == nil {
		return false
	}
	var sent v2beta1.MPIJob
	sent.Spec.RunPolicy.ManagedBy = mpiJob.Spec.RunPolicy.ManagedBy
	return share.Judges(&sent)
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
		response, isOurs := answer(ctx, validator, reviewer, decoder, &request, empty)
		if isOurs {
			audit.write(&request, &response)
		}
		return response
	})}
}

// answer also reports whether the object is ours.
func answer[T client.Object](ctx context.Context, validator validator[T], reviewer Reviewer, decoder admission.Decoder, request *admission.Request, empty func() T) (admission.Response, bool) {
	var object, old T
	if request.Operation == admissionv1.Delete && validator.isOurs == nil {
		return admission.Allowed(""), true
	}
	if err := decode(decoder, request, empty, &object, &old); err != nil {
		if request.Operation == admissionv1.Delete {
			return admission.Allowed(""), true
		}
		return admission.Errored(http.StatusBadRequest, err), true
	}
	if validator.isOurs != nil && !validator.isOurs(old, object) {
		return admission.Allowed(""), false
	}
	if request.Operation == admissionv1.Delete {
		return admission.Allowed(""), true
	}
	return judge(ctx, validator, reviewer, request, old, object), true
}

// decode reads the objects that a request of its operation has.
func decode[T client.Object](decoder admission.Decoder, request *admission.Request, empty func() T, object, old *T) error {
	for _, raw := range [][]byte{request.Object.Raw, request.OldObject.Raw} {
		if err := job.CheckQuantities(raw); err != nil {
			return err
		}
	}
	if request.Operation != admissionv1.Delete {
		*object = empty()
		if err := decoder.DecodeRaw(request.Object, *object); err != nil {
			return err
		}
	}
	if request.Operation == admissionv1.Create {
		return nil
	}
	*old = empty()
	return decoder.DecodeRaw(request.OldObject, *old)
}

// judge validates an object that is created or changed.
func judge[T client.Object](ctx context.Context, validator validator[T], reviewer Reviewer, request *admission.Request, old, object T) admission.Response {
	var findings *validation.Findings
	var err error
	if request.Operation == admissionv1.Update {
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
