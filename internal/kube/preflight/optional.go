// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"errors"
	"slices"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/internal/engine/gang"
	"github.com/trireme-mpi/trireme/internal/kube/connection"
)

// optional lists objects of a kind that may not be installed in the cluster.
func (g *Gatherer) optional(ctx context.Context, kind schema.GroupVersionKind, namespace string) (items []unstructured.Unstructured, served bool, unknown string) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	err := g.Reader.List(ctx, list, client.InNamespace(namespace))
	if isAbsent(err) {
		return nil, false, ""
	}
	return list.Items, true, unknownReason(err, "list "+kind.Kind+"s of "+kind.Group)
}

// kueue reads the job's LocalQueue and Workload.
func (g *Gatherer) kueue(ctx context.Context, facts *Facts) {
	if facts.Job == nil || facts.Job.Queue == "" {
		return
	}
	for _, version := range connection.KueueVersions {
		queues, served, unknown := g.optional(ctx, version.WithKind("LocalQueue"), facts.Namespace)
		if !served {
			continue
		}
		facts.KueueServed, facts.Queue.Unknown = true, unknown
		facts.Queue.Value = firstOf(queues, func(queue *unstructured.Unstructured) bool { return queue.GetName() == facts.Job.Queue })
		workloads, _, unknown := g.optional(ctx, version.WithKind("Workload"), facts.Namespace)
		facts.Workload.Unknown = unknown
		own := firstOf(workloads, func(workload *unstructured.Unstructured) bool {
			return slices.ContainsFunc(workload.GetOwnerReferences(), func(owner metav1.OwnerReference) bool {
				return owner.Name == facts.Name && (owner.Kind == string(facts.Kind) || owner.Kind == "JobSet")
			})
		})
		if own != nil {
			facts.Workload.Value = own.DeepCopy()
		}
		facts.Workloads = slices.DeleteFunc(workloads, func(workload unstructured.Unstructured) bool {
			queue, _, _ := unstructured.NestedString(workload.Object, "spec", "queueName")
			return queue != facts.Job.Queue
		})
		return
	}
}

func firstOf(items []unstructured.Unstructured, matches func(*unstructured.Unstructured) bool) *unstructured.Unstructured {
	for i := range items {
		if matches(&items[i]) {
			return &items[i]
		}
	}
	return nil
}

func (g *Gatherer) podGroups(ctx context.Context, facts *Facts) {
	for _, kind := range gang.GroupKinds() {
		groups, _, unknown := g.optional(ctx, kind, facts.Namespace)
		if unknown != "" {
			facts.PodGroups.Unknown = unknown
		}
		if found := firstOf(groups, func(group *unstructured.Unstructured) bool { return group.GetName() == facts.Name }); found != nil {
			facts.PodGroups.Value = append(facts.PodGroups.Value, *found)
		}
	}
}

func (g *Gatherer) storageClass(ctx context.Context, name string) (bool, string) {
	return g.get(ctx, &storagev1.StorageClass{}, "", name, "storageclass")
}

// bindingMode reads when a StorageClass provisions volumes.
func (g *Gatherer) bindingMode(ctx context.Context, facts *Facts, name string) {
	if name == "" {
		return
	}
	class := &storagev1.StorageClass{}
	if found, _ := g.get(ctx, class, "", name, "storageclass"); !found {
		return
	}
	facts.BindingModes[name] = storagev1.VolumeBindingImmediate
	if class.VolumeBindingMode != nil {
		facts.BindingModes[name] = *class.VolumeBindingMode
	}
}

// unwrapped returns the API server's error inside an error of ours.
func unwrapped(err error) error {
	if inner := errors.Unwrap(err); inner != nil {
		return inner
	}
	return err
}
