// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

// connect is a client of the tests' cluster.
var connect = sync.OnceValues(func() (client.Client, error) {
	path, err := shell(`eval "$(bin/cluster env)" && printf %s "$KUBECONFIG"`)
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = 200, 200
	config.WarningHandler = rest.NoWarnings{}
	return client.New(config, client.Options{})
})

// place is a namespace for one test, and what the test does there.
type place struct {
	*testing.T
	client    client.Client
	namespace string
}

func newPlace(t *testing.T) *place {
	t.Helper()
	connection, err := connect()
	if err != nil {
		t.Fatal(err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "peers-"}}
	if err := connection.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	place := &place{T: t, client: connection, namespace: namespace.Name}
	t.Cleanup(place.clear)
	return place
}

// clear waits until the pods are gone, and with them what they took of the nodes;
// the rest of the namespace may take its time. Kueue counts the nodes of a Workload
// as taken until that is deleted, and does not try the jobs of another queue again
// when it is. What a failed test leaves is shown first.
func (place *place) clear() {
	if place.Failed() {
		state, err := shell(fmt.Sprintf(`bin/cluster kubectl get -n %[1]s -o wide pods,jobs,jobsets,mpijobs,trainjobs,podgroups.scheduling.x-k8s.io,podgroups.scheduling.volcano.sh,podgroups.scheduling.run.ai,workloads.kueue.x-k8s.io
			bin/cluster kubectl get events -n %[1]s --sort-by .lastTimestamp | tail -40`, place.namespace))
		place.Log(state, err)
	}
	// The test's own context has ended.
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	err := place.deleteJobs(ctx)
	if err == nil {
		err = place.client.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: place.namespace}})
	}
	workloads := &unstructured.UnstructuredList{}
	workloads.SetGroupVersionKind(workloadKind)
	for pods := (corev1.PodList{}); err == nil; time.Sleep(100 * time.Millisecond) {
		if err = place.client.List(ctx, &pods, client.InNamespace(place.namespace)); err == nil {
			err = place.client.List(ctx, workloads, client.InNamespace(place.namespace))
		}
		if err == nil && len(pods.Items) == 0 && len(workloads.Items) == 0 {
			return
		}
	}
	place.Errorf("clear namespace %s: %v", place.namespace, err)
}

// deleteJobs goes before the namespace, whose end takes pods first: a job would
// see them die and fail. A simulated pod dies without a word about how, for which
// a Job that is still there would wait for ever.
func (place *place) deleteJobs(ctx context.Context) error {
	for _, kind := range []schema.GroupVersionKind{mpiJobKind, trainJobKind} {
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(kind)
		if err := place.client.DeleteAllOf(ctx, object, client.InNamespace(place.namespace), client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
			return fmt.Errorf("delete every %s: %w", kind.Kind, err)
		}
	}
	return nil
}

// create makes the objects of a manifest, in the place if they can be in one. What is
// to be changed of them is changed before.
func (place *place) create(manifest string, change ...func(*unstructured.Unstructured)) {
	place.Helper()
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(manifest), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return
		}
		if err == nil {
			for _, change := range change {
				change(object)
			}
			err = place.createObject(object)
		}
		if err != nil {
			place.Fatalf("create %s %s: %v\n%s", object.GetKind(), object.GetName(), err, manifest)
		}
	}
}

func (place *place) createObject(object *unstructured.Unstructured) error {
	namespaced, err := place.client.IsObjectNamespaced(object)
	if err != nil {
		return err
	}
	if namespaced {
		object.SetNamespace(place.namespace)
	}
	return place.client.Create(place.Context(), object)
}

func (place *place) find(kind schema.GroupVersionKind, name string) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	err := place.client.Get(place.Context(), types.NamespacedName{Namespace: place.namespace, Name: name}, object)
	return object, err
}

func (place *place) delete(kind schema.GroupVersionKind, name string) {
	place.Helper()
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	object.SetNamespace(place.namespace)
	object.SetName(name)
	// As kubectl does; of itself the API server leaves the pods of a Job alone.
	if err := place.client.Delete(place.Context(), object, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		place.Fatalf("delete %s %s: %v", kind.Kind, name, err)
	}
}

// patch changes an object by a JSON merge patch; a subresource may be named.
func (place *place) patch(kind schema.GroupVersionKind, name, patch string, subresource ...string) {
	place.Helper()
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	object.SetName(name)
	var err error
	if namespaced, lookup := place.client.IsObjectNamespaced(object); lookup != nil {
		err = lookup
	} else if namespaced {
		object.SetNamespace(place.namespace)
	}
	change := client.RawPatch(types.MergePatchType, []byte(patch))
	switch {
	case err != nil:
	case len(subresource) > 0:
		err = place.client.SubResource(subresource[0]).Patch(place.Context(), object, change)
	default:
		err = place.client.Patch(place.Context(), object, change)
	}
	if err != nil {
		place.Fatalf("patch %s %s with %s: %v", kind.Kind, name, patch, err)
	}
}

// eventually tries until something holds.
func (place *place) eventually(what string, holds func() error) {
	place.Helper()
	eventually.Succeeds(place, what, holds)
}

// stays checks for a while that something goes on to hold.
func (place *place) stays(what string, while time.Duration, holds func() error) {
	place.Helper()
	for end := time.Now().Add(while); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if err := holds(); err != nil {
			place.Fatalf("%s: %v", what, err)
		}
	}
}

// condition finds one of an object's conditions; all its fields are empty if it
// is not there.
func condition(object *unstructured.Unstructured, kind string) metav1.Condition {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, entry := range conditions {
		fields, _ := entry.(map[string]any)
		if fields["type"] == kind {
			text := func(key string) string { value, _ := fields[key].(string); return value }
			return metav1.Condition{Type: kind, Status: metav1.ConditionStatus(text("status")), Reason: text("reason"), Message: text("message")}
		}
	}
	return metav1.Condition{}
}

// text is a field of an object; empty if it is not there.
func text(object *unstructured.Unstructured, path ...string) string {
	value, _, _ := unstructured.NestedString(object.Object, path...)
	return value
}
