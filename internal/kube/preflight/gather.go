// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"fmt"
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

// DefaultOperatorNamespace is the namespace that the operator is installed in by
// default.
const DefaultOperatorNamespace = "trireme-system"

// autoscalerStatus is the ConfigMap of the cluster autoscaler's status.
const autoscalerStatus = "cluster-autoscaler-status"

// Gatherer reads facts with the permissions of its reader. What cannot be read is
// unknown, not an error.
type Gatherer struct {
	Reader            client.Reader
	Now               time.Time
	OperatorNamespace string
}

// OfJob gathers the facts of a job in the cluster.
func (g *Gatherer) OfJob(ctx context.Context, object client.Object) *Facts {
	facts := g.factsOf(object)
	facts.Stored = true
	g.model(ctx, facts, object)
	// The objects that pods refer to are read after the pods.
	g.pods(ctx, facts)
	inParallel(
		func() { g.namespace(ctx, facts) }, func() { g.events(ctx, facts) }, func() { g.cluster(ctx, facts) }, func() { g.names(ctx, facts) },
		func() { g.needed(ctx, facts) }, func() { g.kueue(ctx, facts) }, func() { g.podGroups(ctx, facts) }, func() { g.operator(ctx, facts) },
	)
	return facts
}

// inParallel runs steps that do not depend on each other.
func inParallel(steps ...func()) {
	var running sync.WaitGroup
	for _, step := range steps {
		running.Go(step)
	}
	running.Wait()
}

// unknownReason says why something could not be read; empty if it could. action is a
// verb with its object: list pods.
func unknownReason(err error, action string) string {
	switch {
	case err == nil:
		return ""
	case apierrors.IsForbidden(err):
		return "may not " + action
	default:
		return fmt.Sprintf("cannot %s: %v", action, err)
	}
}

// list reads a list, or returns why it cannot.
func (g *Gatherer) list(ctx context.Context, list client.ObjectList, what string, options ...client.ListOption) string {
	return unknownReason(g.Reader.List(ctx, list, options...), "list "+what)
}

// get reads an object. found is false if it does not exist.
func (g *Gatherer) get(ctx context.Context, object client.Object, namespace, name, resource string) (found bool, unknown string) {
	return g.getDescribed(ctx, object, namespace, name, resource+" "+name)
}

func (g *Gatherer) getDescribed(ctx context.Context, object client.Object, namespace, name, description string) (found bool, unknown string) {
	err := g.Reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object)
	if isAbsent(err) {
		return false, ""
	}
	return err == nil, unknownReason(err, "get "+description)
}

// isAbsent reports whether an object does not exist, or its kind is not served.
func isAbsent(err error) bool { return apierrors.IsNotFound(err) || meta.IsNoMatchError(err) }

func (g *Gatherer) namespace(ctx context.Context, facts *Facts) {
	var quotas corev1.ResourceQuotaList
	var ranges corev1.LimitRangeList
	var policies networkingv1.NetworkPolicyList
	inNamespace := client.InNamespace(facts.Namespace)
	facts.Quotas.Unknown = g.list(ctx, &quotas, "resourcequotas", inNamespace)
	facts.LimitRanges.Unknown = g.list(ctx, &ranges, "limitranges", inNamespace)
	facts.Policies.Unknown = g.list(ctx, &policies, "networkpolicies", inNamespace)
	facts.Quotas.Value, facts.LimitRanges.Value, facts.Policies.Value = quotas.Items, ranges.Items, policies.Items
	namespace := &corev1.Namespace{}
	if found, unknown := g.get(ctx, namespace, "", facts.Namespace, "namespace"); found {
		facts.NamespaceObject.Value = namespace
	} else {
		facts.NamespaceObject.Unknown = unknown
	}
}

func (g *Gatherer) pods(ctx context.Context, facts *Facts) {
	var pods corev1.PodList
	facts.Pods.Unknown = g.list(ctx, &pods, "pods", client.InNamespace(facts.Namespace), client.MatchingLabels(plan.Selector(facts.bare())))
	for i := range pods.Items {
		// An earlier job of the same name had the same labels.
		if pod := &pods.Items[i]; pod.CreationTimestamp.IsZero() || !pod.CreationTimestamp.Before(&facts.Previous.Submitted) {
			facts.Pods.Value = append(facts.Pods.Value, *pod)
		}
	}
}

func (g *Gatherer) events(ctx context.Context, facts *Facts) {
	var events corev1.EventList
	warnings := &client.ListOptions{Raw: &metav1.ListOptions{FieldSelector: "type=" + corev1.EventTypeWarning}}
	facts.Events.Unknown = g.list(ctx, &events, "events", client.InNamespace(facts.Namespace), warnings)
	for i := range events.Items {
		if event := &events.Items[i]; event.Type == corev1.EventTypeWarning && facts.isAbout(event) {
			facts.Events.Value = append(facts.Events.Value, *event)
		}
	}
	// Pulls only matter until the pods are ready. Without them, the checks still run.
	if facts.reached(training.StepPodsReady) || facts.Events.Unknown != "" {
		return
	}
	for _, reason := range []string{reasonPulling, reasonPulled} {
		var pulls corev1.EventList
		_ = g.list(ctx, &pulls, "events", client.InNamespace(facts.Namespace), &client.ListOptions{Raw: &metav1.ListOptions{FieldSelector: "reason=" + reason}})
		for i := range pulls.Items {
			if event := &pulls.Items[i]; event.Reason == reason && facts.isAbout(event) {
				facts.Pulls = append(facts.Pulls, *event)
			}
		}
	}
}

// fromCache lets the API server answer from its watch cache. Slightly old data is good
// enough for lists that can be long.
var fromCache = &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}}

// cluster reads the nodes, and what is used of them.
func (g *Gatherer) cluster(ctx context.Context, facts *Facts) {
	var list corev1.NodeList
	if facts.Nodes.Unknown = g.list(ctx, &list, "nodes", fromCache); facts.Nodes.Unknown != "" {
		return
	}
	facts.Nodes.Value = list.Items
	facts.Used.Value = map[string]corev1.ResourceList{}
	// Used resources only matter until the job is scheduled.
	if facts.reached(training.StepScheduled) {
		return
	}
	facts.Autoscaled, _ = g.get(ctx, &corev1.ConfigMap{}, metav1.NamespaceSystem, autoscalerStatus, "configmap")
	var pods corev1.PodList
	facts.Used.Unknown = g.list(ctx, &pods, "pods of all namespaces", fromCache)
	for i := range pods.Items {
		nodes.Use(facts.Used.Value, &pods.Items[i])
	}
}

func (g *Gatherer) names(ctx context.Context, facts *Facts) {
	name := facts.serviceName()
	service := &corev1.Service{}
	if found, unknown := g.get(ctx, service, facts.Namespace, name, "service"); found {
		facts.Service.Value = service
	} else {
		facts.Service.Unknown = unknown
	}
	var slices discoveryv1.EndpointSliceList
	facts.Endpoints.Unknown = g.list(ctx, &slices, "endpointslices", client.InNamespace(facts.Namespace), client.MatchingLabels{discoveryv1.LabelServiceName: name})
	facts.Endpoints.Value = slices.Items
	g.nameservers(ctx, facts)
}

// nameservers reads the pods of CoreDNS. Most users may not list them, so it is not
// reported if they cannot.
func (g *Gatherer) nameservers(ctx context.Context, facts *Facts) {
	var pods corev1.PodList
	if g.list(ctx, &pods, "pods", client.InNamespace("kube-system"), client.MatchingLabels{"k8s-app": "kube-dns"}) == "" {
		facts.Nameservers.Value = pods.Items
	}
}

func (g *Gatherer) operator(ctx context.Context, facts *Facts) {
	deployment, lease := &appsv1.Deployment{}, &coordinationv1.Lease{}
	found, unknown := g.getDescribed(ctx, deployment, facts.OperatorNamespace, operatorName, fmt.Sprintf("deployment %s in namespace %s", operatorName, facts.OperatorNamespace))
	if facts.Deployment.Unknown = unknown; found {
		facts.Deployment.Value = deployment
	}
	found, unknown = g.get(ctx, lease, facts.OperatorNamespace, leaseName, "lease")
	if facts.Lease.Unknown = unknown; found {
		facts.Lease.Value = lease
	}
}
