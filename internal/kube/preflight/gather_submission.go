package preflight

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

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
// writer is asked what the user may do, and to create the job without storing it.
func (gatherer *Gatherer) BeforeSubmission(ctx context.Context, writer client.Writer, object client.Object) *Facts {
	facts := gatherer.factsOf(object)
	gatherer.model(ctx, facts, object)
	together(
		func() { gatherer.place(ctx, facts) }, func() { gatherer.cluster(ctx, facts) }, func() { gatherer.needed(ctx, facts) },
		func() { gatherer.kueue(ctx, facts) }, func() { gatherer.operator(ctx, facts) }, func() { gatherer.rules(ctx, facts, object) },
		func() { facts.Submission.Rights = rightsOf(ctx, writer, facts) },
		func() {
			facts.Submission.DryRun = true
			facts.Submission.Refusal = writer.Create(ctx, object.DeepCopyObject().(client.Object), client.DryRunAll)
		},
	)
	return facts
}

// OfNamespace gathers what can be said of a place for jobs.
func (gatherer *Gatherer) OfNamespace(ctx context.Context, writer client.Writer, namespace string) *Facts {
	facts := &Facts{Now: gatherer.Now, Namespace: namespace, OperatorNamespace: gatherer.OperatorNamespace}
	together(
		func() { gatherer.place(ctx, facts) }, func() { gatherer.nameservers(ctx, facts) }, func() { gatherer.operator(ctx, facts) },
		func() { facts.Submission.Rights = rightsOf(ctx, writer, facts) },
	)
	return facts
}

// rules asks the rules of admission. Quotas have a check of their own.
func (gatherer *Gatherer) rules(ctx context.Context, facts *Facts, object client.Object) {
	rules := validation.NewRules(config.Default(), false)
	reader := clusterfacts.Reader{Cache: lenient{gatherer.Reader}, Live: lenient{gatherer.Reader}}
	in, err := reader.Of(ctx, facts.Kind, facts.Namespace, facts.Name)
	if err != nil {
		facts.Submission.Rules.Unknown = refusal(err, "read what the rules ask for")
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
		// Without a runtime the rules can say nothing, and another check says why.
		if in.Runtime, _ = reader.Runtime(ctx, facts.Namespace, &object.Spec.RuntimeRef); in.Runtime == nil {
			facts.Submission.Rules.Unknown = facts.NoModel
			return
		}
		facts.Submission.Rules.Value = rules.CreateTrainJob(object, in)
	}
}

// lenient is a reader for whom what may not be read is not there: the rules give the
// benefit of the doubt.
type lenient struct{ client.Reader }

func (reader lenient) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	err := reader.Reader.Get(ctx, key, object, options...)
	switch object.(type) {
	case *schedulingv1.PriorityClass, *v2alpha1.TrainingRuntime, *v2alpha1.ClusterTrainingRuntime:
		// These would be missed.
		return err
	}
	if apierrors.IsForbidden(err) {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	return err
}

func (reader lenient) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	err := reader.Reader.List(ctx, list, options...)
	// Nodes that cannot be listed may have everything.
	if _, isNodes := list.(*corev1.NodeList); apierrors.IsForbidden(err) && !isNodes {
		return nil
	}
	return err
}

// rightsOf asks what the user may do.
func rightsOf(ctx context.Context, writer client.Writer, facts *Facts) (known Known[[]Right]) {
	for _, asked := range rightsToAsk(facts.Kind) {
		asked.attributes.Namespace = facts.Namespace
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &asked.attributes}}
		if err := writer.Create(ctx, review); err != nil {
			known.Unknown = refusal(err, "ask what you may do")
			return known
		}
		asked.Allowed = review.Status.Allowed
		known.Value = append(known.Value, asked.Right)
	}
	return known
}

// mayCreate tells whether there is a kind of job that the user may create.
func mayCreate(rights []Right) bool {
	return slices.ContainsFunc(rights, func(right Right) bool { return right.Allowed && strings.HasPrefix(right.What, "create ") })
}

type rightToAsk struct {
	Right
	attributes authorizationv1.ResourceAttributes
}

// rightsToAsk for jobs of a kind, or of both. Without a job, none is needed: who may
// create jobs of one kind has a place for those.
func rightsToAsk(kind job.Kind) []rightToAsk {
	var asked []rightToAsk
	for _, each := range []job.Kind{job.KindTrainJob, job.KindMPIJob} {
		if kind == "" || kind == each {
			resource := resourceOf(each) + "s"
			asked = append(asked, rightToAsk{
				Right{What: "create " + resource, Needed: kind == each}, authorizationv1.ResourceAttributes{Verb: "create", Group: training.Group, Resource: resource},
			})
		}
	}
	return append(asked,
		rightToAsk{Right{What: "list pods"}, authorizationv1.ResourceAttributes{Verb: "list", Resource: "pods"}},
		rightToAsk{Right{What: "read logs"}, authorizationv1.ResourceAttributes{Verb: "get", Resource: "pods", Subresource: "log"}},
		rightToAsk{Right{What: "list events"}, authorizationv1.ResourceAttributes{Verb: "list", Resource: "events"}},
	)
}
