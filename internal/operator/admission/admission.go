// Package admission answers the API server when a job or a runtime is created,
// changed or deleted: everything that is wrong with it, at once, or nothing; and
// one audit line. Before that, it notes on a job who created it, and labels it.
//
// The rules are in package validation. Here the cluster is asked, from the
// informers' cache, and the answer is put into Kubernetes' words.
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

// judge decides about the objects of one kind.
type judge[T client.Object] struct {
	create func(ctx context.Context, object T, bytes int) (*validation.Findings, error)
	update func(ctx context.Context, old, changed T, bytes int) (*validation.Findings, error)
	// references are what the author of a new object needs a permission for; nil if
	// nothing is. An update cannot add any: the fields are immutable.
	references func(object T) []validation.Reference
}

// Handlers are the webhooks by their paths. They read from the cache; live is for
// what the cache does not have yet, and for the permissions of users. If nobody
// verifies that the caller is the API server, answers have no quota figures, and
// audit lines say so.
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

func mpiJobs(rules *validation.Rules, reader *clusterfacts.Reader) judge[*v2beta1.MPIJob] {
	return judge[*v2beta1.MPIJob]{
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

func trainJobs(rules *validation.Rules, reader *clusterfacts.Reader) judge[*v2alpha1.TrainJob] {
	return judge[*v2alpha1.TrainJob]{
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

func runtimes(rules *validation.Rules) judge[*v2alpha1.TrainingRuntime] {
	return runtimeJudge(rules, func(runtime *v2alpha1.TrainingRuntime) *v2alpha1.TrainingRuntimeSpec { return &runtime.Spec })
}

func clusterRuntimes(rules *validation.Rules) judge[*v2alpha1.ClusterTrainingRuntime] {
	return runtimeJudge(rules, func(runtime *v2alpha1.ClusterTrainingRuntime) *v2alpha1.TrainingRuntimeSpec { return &runtime.Spec })
}

func runtimeJudge[T client.Object](rules *validation.Rules, spec func(T) *v2alpha1.TrainingRuntimeSpec) judge[T] {
	return judge[T]{
		create: func(_ context.Context, runtime T, bytes int) (*validation.Findings, error) {
			return rules.Runtime(spec(runtime), bytes), nil
		},
		update: func(_ context.Context, old, changed T, bytes int) (*validation.Findings, error) {
			// A label must be possible on a runtime that limits have overtaken.
			if changed.GetDeletionTimestamp() != nil || equality.Semantic.DeepEqual(spec(old), spec(changed)) {
				return &validation.Findings{}, nil
			}
			return rules.Runtime(spec(changed), bytes), nil
		},
	}
}

func handle[T client.Object](judge judge[T], reviewer Reviewer, scheme *runtime.Scheme, audit *Audit, empty func() T) http.Handler {
	decoder := admission.NewDecoder(scheme)
	return &admission.Webhook{Handler: admission.HandlerFunc(func(ctx context.Context, request admission.Request) admission.Response {
		response := answer(ctx, judge, reviewer, decoder, &request, empty)
		audit.write(&request, &response)
		return response
	})}
}

func answer[T client.Object](ctx context.Context, judge judge[T], reviewer Reviewer, decoder admission.Decoder, request *admission.Request, empty func() T) admission.Response {
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
		findings, err = judge.update(ctx, old, object, size(request, object))
	} else {
		findings, err = judge.create(ctx, object, size(request, object))
		if err == nil && judge.references != nil {
			err = checkReferences(ctx, reviewer, request, judge.references(object), findings)
		}
	}
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return respond(request, object.GetName(), findings)
}

// size is how large an object is without the notes of the API server about who
// set which field, which can be larger than the object.
func size(request *admission.Request, object client.Object) int {
	managed := 0
	for _, entry := range object.GetManagedFields() {
		if entry.FieldsV1 != nil {
			managed += len(entry.FieldsV1.GetRawBytes())
		}
	}
	return max(len(request.Object.Raw)-managed, 0)
}

// respond gives every fault with its path, in the form that kubectl knows how to show.
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
