package preflight

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/nodes"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
)

// DefaultOperatorNamespace is where the operator is installed if nobody chose
// another place.
const DefaultOperatorNamespace = "trireme-system"

// autoscalerStatus is where the cluster autoscaler says how it does.
const autoscalerStatus = "cluster-autoscaler-status"

// Gatherer reads facts with the rights of its reader. Nothing that cannot be read
// is an error: it is not known.
type Gatherer struct {
	Reader            client.Reader
	Now               time.Time
	OperatorNamespace string
}

// OfJob gathers the facts of a job that is in the cluster.
func (gatherer *Gatherer) OfJob(ctx context.Context, object client.Object) *Facts {
	facts := gatherer.factsOf(object)
	facts.Stored = true
	gatherer.model(ctx, facts, object)
	// What the pods name is read after them.
	gatherer.pods(ctx, facts)
	together(
		func() { gatherer.place(ctx, facts) }, func() { gatherer.events(ctx, facts) }, func() { gatherer.cluster(ctx, facts) }, func() { gatherer.names(ctx, facts) },
		func() { gatherer.needed(ctx, facts) }, func() { gatherer.kueue(ctx, facts) }, func() { gatherer.podGroups(ctx, facts) }, func() { gatherer.operator(ctx, facts) },
	)
	return facts
}

// together runs what does not depend on each other.
func together(steps ...func()) {
	var running sync.WaitGroup
	for _, step := range steps {
		running.Go(step)
	}
	running.Wait()
}

// refusal says why something could not be read; empty if it could.
func refusal(err error, doing string) string {
	switch {
	case err == nil:
		return ""
	case apierrors.IsForbidden(err):
		return "may not " + doing
	default:
		return fmt.Sprintf("cannot %s: %v", doing, err)
	}
}

// list reads a list, and says why not if it cannot.
func (gatherer *Gatherer) list(ctx context.Context, list client.ObjectList, what string, options ...client.ListOption) string {
	return refusal(gatherer.Reader.List(ctx, list, options...), "list "+what)
}

// get reads an object. found is false if it is not there.
func (gatherer *Gatherer) get(ctx context.Context, object client.Object, namespace, name, what string) (found bool, unknown string) {
	err := gatherer.Reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object)
	if isAbsent(err) {
		return false, ""
	}
	return err == nil, refusal(err, fmt.Sprintf("get %s %s", what, name))
}

// isAbsent tells whether something is not there, or cannot be: its kind is not
// served.
func isAbsent(err error) bool { return apierrors.IsNotFound(err) || meta.IsNoMatchError(err) }

func (gatherer *Gatherer) place(ctx context.Context, facts *Facts) {
	var quotas corev1.ResourceQuotaList
	var ranges corev1.LimitRangeList
	var policies networkingv1.NetworkPolicyList
	here := client.InNamespace(facts.Namespace)
	facts.Quotas.Unknown = gatherer.list(ctx, &quotas, "resourcequotas", here)
	facts.LimitRanges.Unknown = gatherer.list(ctx, &ranges, "limitranges", here)
	facts.Policies.Unknown = gatherer.list(ctx, &policies, "networkpolicies", here)
	facts.Quotas.Value, facts.LimitRanges.Value, facts.Policies.Value = quotas.Items, ranges.Items, policies.Items
	place := &corev1.Namespace{}
	if found, unknown := gatherer.get(ctx, place, "", facts.Namespace, "namespace"); found {
		facts.Place.Value = place
	} else {
		facts.Place.Unknown = unknown
	}
}

func (gatherer *Gatherer) pods(ctx context.Context, facts *Facts) {
	var pods corev1.PodList
	facts.Pods.Unknown = gatherer.list(ctx, &pods, "pods", client.InNamespace(facts.Namespace), client.MatchingLabels(plan.Selector(facts.bare())))
	for i := range pods.Items {
		// An earlier job of the same name had the same labels.
		if pod := &pods.Items[i]; pod.CreationTimestamp.IsZero() || !pod.CreationTimestamp.Before(&facts.Previous.Submitted) {
			facts.Pods.Value = append(facts.Pods.Value, *pod)
		}
	}
}

func (gatherer *Gatherer) events(ctx context.Context, facts *Facts) {
	var events corev1.EventList
	warnings := &client.ListOptions{Raw: &metav1.ListOptions{FieldSelector: "type=" + corev1.EventTypeWarning}}
	facts.Events.Unknown = gatherer.list(ctx, &events, "events", client.InNamespace(facts.Namespace), warnings)
	for i := range events.Items {
		if event := &events.Items[i]; event.Type == corev1.EventTypeWarning && facts.isAbout(event) {
			facts.Events.Value = append(facts.Events.Value, *event)
		}
	}
}

// fromCache lets the API server answer from its memory: what is a moment old is good
// enough for lists that can be long.
var fromCache = &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}}

// cluster is what there is of nodes, and how full they are.
func (gatherer *Gatherer) cluster(ctx context.Context, facts *Facts) {
	var list corev1.NodeList
	if facts.Nodes.Unknown = gatherer.list(ctx, &list, "nodes", fromCache); facts.Nodes.Unknown != "" {
		return
	}
	facts.Nodes.Value = list.Items
	facts.Used.Value = map[string]corev1.ResourceList{}
	// Who has a place does not ask how full others are.
	if facts.reached(training.StepScheduled) {
		return
	}
	facts.Autoscaled, _ = gatherer.get(ctx, &corev1.ConfigMap{}, metav1.NamespaceSystem, autoscalerStatus, "configmap")
	var pods corev1.PodList
	facts.Used.Unknown = gatherer.list(ctx, &pods, "pods of all namespaces", fromCache)
	for i := range pods.Items {
		nodes.Use(facts.Used.Value, &pods.Items[i])
	}
}

func (gatherer *Gatherer) names(ctx context.Context, facts *Facts) {
	name := facts.serviceName()
	service := &corev1.Service{}
	if found, unknown := gatherer.get(ctx, service, facts.Namespace, name, "service"); found {
		facts.Service.Value = service
	} else {
		facts.Service.Unknown = unknown
	}
	var slices discoveryv1.EndpointSliceList
	facts.Endpoints.Unknown = gatherer.list(ctx, &slices, "endpointslices", client.InNamespace(facts.Namespace), client.MatchingLabels{discoveryv1.LabelServiceName: name})
	facts.Endpoints.Value = slices.Items
	gatherer.nameservers(ctx, facts)
}

// nameservers are the pods of CoreDNS. Who may not look for them is not told of it:
// hardly anybody may.
func (gatherer *Gatherer) nameservers(ctx context.Context, facts *Facts) {
	var pods corev1.PodList
	if gatherer.list(ctx, &pods, "pods", client.InNamespace("kube-system"), client.MatchingLabels{"k8s-app": "kube-dns"}) == "" {
		facts.Nameservers.Value = pods.Items
	}
}

func (gatherer *Gatherer) operator(ctx context.Context, facts *Facts) {
	deployment, lease := &appsv1.Deployment{}, &coordinationv1.Lease{}
	found, unknown := gatherer.get(ctx, deployment, facts.OperatorNamespace, operatorName, "deployment")
	if facts.Deployment.Unknown = unknown; found {
		facts.Deployment.Value = deployment
	}
	found, unknown = gatherer.get(ctx, lease, facts.OperatorNamespace, leaseName, "lease")
	if facts.Lease.Unknown = unknown; found {
		facts.Lease.Value = lease
	}
	// The name of the namespace is what people look for.
	facts.Deployment.Unknown = strings.Replace(facts.Deployment.Unknown, operatorName, operatorName+" in namespace "+facts.OperatorNamespace, 1)
}
