// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/internal/testing/controlplane"
)

// kinds are those of jobs and of what they are made of.
var kinds = []schema.GroupVersionKind{
	{Group: "kubeflow.org", Version: "v2beta1", Kind: "MPIJob"}, {Group: "kubeflow.org", Version: "v2alpha1", Kind: "TrainJob"},
	{Version: "v1", Kind: "Pod"}, {Version: "v1", Kind: "Service"}, {Version: "v1", Kind: "ConfigMap"}, {Version: "v1", Kind: "Secret"},
	{Group: "batch", Version: "v1", Kind: "Job"}, {Group: "discovery.k8s.io", Version: "v1", Kind: "EndpointSlice"}, {Group: "apps", Version: "v1", Kind: "ControllerRevision"},
	{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"}, {Group: "jobset.x-k8s.io", Version: "v1alpha2", Kind: "JobSet"},
	{Group: "scheduling.x-k8s.io", Version: "v1alpha1", Kind: "PodGroup"},
}

// servedKinds are those that this release of Kubernetes serves.
func servedKinds(t testing.TB) []schema.GroupVersionKind {
	t.Helper()
	if api := controlplane.KubernetesOf(t).GangAPI; api != "" {
		return append(slices.Clone(kinds), schema.FromAPIVersionAndKind(api, "PodGroup"))
	}
	return kinds
}

// objects are all that is in the namespace, as one cache for all lives shows it.
func (life *life) objects() (found []*unstructured.Unstructured) {
	life.Helper()
	for _, kind := range servedKinds(life) {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		if err := life.cluster.cache.List(context.Background(), list, client.InNamespace(life.Namespace), client.UnsafeDisableDeepCopy); err != nil {
			life.Fatalf("list %s: %v", kind.Kind, err)
		}
		for i := range list.Items {
			found = append(found, &list.Items[i])
		}
	}
	return found
}

// state is what is in the namespace, without what differs from life to life:
// names that were made up, times, keys. The name of a snapshot is that of its content,
// which differs from story to story.
type state map[string]string

func (life *life) state() state {
	life.Helper()
	objects := life.objects()
	found := state{}
	for _, object := range objects {
		found[object.GetKind()+"/"+life.normal(object.GetName())] = life.normal(textOf(object))
	}
	return found
}

func textOf(object *unstructured.Unstructured) string {
	object = object.DeepCopy()
	object.SetManagedFields(nil)
	object.SetResourceVersion("")
	// A scheduler that was reminded of a gang leaves no other trace.
	unstructured.RemoveNestedField(object.Object, "metadata", "annotations", "training.kubeflow.org/asked-again-at")
	unstructured.RemoveNestedField(object.Object, "status", "duration")
	if data, found, _ := unstructured.NestedMap(object.Object, "data"); found && object.GetKind() == "Secret" {
		for key := range data {
			data[key] = "KEY"
		}
		_ = unstructured.SetNestedMap(object.Object, data, "data")
	}
	text, err := json.MarshalIndent(object.Object, "", " ")
	if err != nil {
		panic(err)
	}
	return string(text)
}

var chance = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`), "UID"},
	{regexp.MustCompile(`trireme-runtime-[0-9a-f]{32}`), "trireme-runtime"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "TIME"},
}

func (life *life) normal(text string) string {
	text = strings.ReplaceAll(text, life.Namespace, "NAMESPACE")
	for _, chance := range chance {
		text = chance.pattern.ReplaceAllString(text, chance.instead)
	}
	return text
}

// collectGarbage plays whoever takes away what nobody needs: the kubelets of pods
// that are being deleted, and the garbage collector.
func (life *life) collectGarbage() {
	life.Helper()
	objects := life.objects()
	there := map[types.UID]bool{}
	for _, object := range objects {
		there[object.GetUID()] = true
	}
	for _, object := range objects {
		owner := metav1.GetControllerOf(object)
		if object.GetKind() == "Pod" && object.GetDeletionTimestamp() != nil || owner != nil && !there[owner.UID] {
			life.take(object)
		}
	}
}

// take deletes an object, and not another of its name that has come since.
func (life *life) take(object client.Object) {
	life.Helper()
	uid := object.GetUID()
	err := life.Client.Delete(context.Background(), object, client.GracePeriodSeconds(0),
		client.PropagationPolicy(metav1.DeletePropagationBackground), client.Preconditions{UID: &uid})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		life.Fatalf("delete %s %s: %v", object.GetObjectKind().GroupVersionKind().Kind, object.GetName(), err)
	}
}

// events counts what was told of the job, by reason.
func (life *life) events() map[string]int {
	life.Helper()
	var list eventsv1.EventList
	if err := life.Client.List(context.Background(), &list, client.InNamespace(life.Namespace)); err != nil {
		life.Fatal(err)
	}
	found := map[string]int{}
	for i := range list.Items {
		event := &list.Items[i]
		found[event.Reason]++
		if event.Series != nil {
			found[event.Reason] += int(event.Series.Count)
		}
		if event.Regarding.UID != life.job.GetUID() {
			life.Errorf("the event %s is about %s %s", event.Reason, event.Regarding.Kind, event.Regarding.Name)
		}
	}
	return found
}

func wantEvents(got, most map[string]int) error {
	for reason, number := range got {
		if number > most[reason] {
			return fmt.Errorf("there are %d events %s, want %d at most", number, reason, most[reason])
		}
	}
	return nil
}
