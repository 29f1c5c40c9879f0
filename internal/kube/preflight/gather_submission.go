// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"encoding/json"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/config"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/validation"
	"github.com/trireme-mpi/trireme/internal/kube/clusterfacts"
)

// BeforeSubmission gathers the facts of a job that is about to be submitted. The
// writer is used to check the user's permissions, and to create the job in a dry run.
func (g *Gatherer) BeforeSubmission(ctx context.Context, writer client.Writer, object client.Object) *Facts {
	facts := g.factsOf(object)
	g.model(ctx, facts, object)
	inParallel(
		func() { g.namespace(ctx, facts) }, func() { g.cluster(ctx, facts) }, func() { g.needed(ctx, facts) },
		func() { g.kueue(ctx, facts) }, func() { g.operator(ctx, facts) }, func() { g.rules(ctx, facts, object) },
		func() { facts.Submission.Permissions = permissionsOf(ctx, writer, facts) },
		func() {
			facts.Submission.DryRun = true
			facts.Submission.Refusal = writer.Create(ctx, object.DeepCopyObject().(client.Object), client.DryRunAll)
		},
	)
	return facts
}

// OfNamespace gathers the facts of a namespace.
func (g *Gatherer) OfNamespace(ctx context.Context, writer client.Writer, namespace string) *Facts {
	facts := &Facts{Now: g.Now, Namespace: namespace, OperatorNamespace: g.OperatorNamespace}
	inParallel(
		func() { g.namespace(ctx, facts) }, func() { g.nameservers(ctx, facts) }, func() { g.operator(ctx, facts) },
		func() { facts.Submission.Permissions = permissionsOf(ctx, writer, facts) },
	)
	return facts
}

// rules applies the rules of admission. Quotas have a check of their own.
func (g *Gatherer) rules(ctx context.Context, facts *Facts, object client.Object) {
	rules := validation.NewRules(config.Default(), false)
	reader := clusterfacts.Reader{Cache: lenient{g.Reader}, Live: lenient{g.Reader}}
	in, err := reader.Of(ctx, facts.Kind, facts.Namespace, facts.Name)
	if err != nil {
		facts.Submission.Rules.Unknown = unknownReason(err, "read the objects that the rules need")
		return
	}
	in.Quotas = nil
	if content, err := json.Marshal(object); err == nil {
		in.Bytes = len(content)
	}
	switch object := object.(type) {
	case *v2beta1.MPIJob:
		facts.Submission.Rules.Value = rules.CreateMPIJob(object, in)
	case *v2alpha1.TrainJob:
		// The rules need the runtime; another check reports that it is missing.
		if in.Runtime, _ = reader.Runtime(ctx, facts.Namespace, &object.Spec.RuntimeRef); in.Runtime == nil {
			facts.Submission.Rules.Unknown = facts.NoModel
			return
		}
		facts.Submission.Rules.Value = rules.CreateTrainJob(object, in)
	}
}

// lenient is a reader that treats forbidden objects as absent, so that the rules do not
// report them.
type lenient struct{ client.Reader }

func (l lenient) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	err := l.Reader.Get(ctx, key, object, options...)
	switch object.(type) {
	case *schedulingv1.PriorityClass, *v2alpha1.TrainingRuntime, *v2alpha1.ClusterTrainingRuntime:
		// The rules refuse a job if these are absent.
		return err
	}
	if apierrors.IsForbidden(err) {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	return err
}

func (l lenient) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	err := l.Reader.List(ctx, list, options...)
	// An empty list of nodes would look like a cluster without GPUs.
	if _, isNodes := list.(*corev1.NodeList); apierrors.IsForbidden(err) && !isNodes {
		return nil
	}
	return err
}

// permissionsOf reviews the permissions of the user.
func permissionsOf(ctx context.Context, writer client.Writer, facts *Facts) (known Known[[]Permission]) {
	for _, reviewed := range permissionsToReview(facts.Kind) {
		reviewed.attributes.Namespace = facts.Namespace
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &reviewed.attributes}}
		if err := writer.Create(ctx, review); err != nil {
			known.Unknown = unknownReason(err, "review your permissions")
			return known
		}
		reviewed.Allowed = review.Status.Allowed
		known.Value = append(known.Value, reviewed.Permission)
	}
	return known
}

// mayCreate reports whether the user may create jobs of any kind.
func mayCreate(permissions []Permission) bool {
	return slices.ContainsFunc(permissions, func(permission Permission) bool { return permission.Allowed && permission.CreatesJobs })
}

type permissionToReview struct {
	Permission
	attributes authorizationv1.ResourceAttributes
}

// permissionsToReview are those for jobs of a kind. Without a kind they are those for
// both, and none of them is needed: a user may need only one kind.
func permissionsToReview(kind job.Kind) []permissionToReview {
	var reviewed []permissionToReview
	for _, each := range []job.Kind{job.KindTrainJob, job.KindMPIJob} {
		if kind == "" || kind == each {
			resource := resourceOf(each) + "s"
			reviewed = append(reviewed, permissionToReview{
				Permission{Action: "create " + resource, CreatesJobs: true, Needed: kind == each}, authorizationv1.ResourceAttributes{Verb: "create", Group: training.Group, Resource: resource},
			})
		}
	}
	return append(reviewed,
		permissionToReview{Permission{Action: "list pods"}, authorizationv1.ResourceAttributes{Verb: "list", Resource: "pods"}},
		permissionToReview{Permission{Action: "read logs"}, authorizationv1.ResourceAttributes{Verb: "get", Resource: "pods", Subresource: "log"}},
		permissionToReview{Permission{Action: "list events"}, authorizationv1.ResourceAttributes{Verb: "list", Resource: "events"}},
	)
}
