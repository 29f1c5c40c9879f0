// SPDX-License-Identifier: Apache-2.0

package schedules

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// server is the API server: what is stored, and what became of it, in order. What
// is stored is never changed, only replaced.
type server struct {
	collections map[string]*collection
	version     int
	names       int
	// wrote is called with every change and what it is as JSON.
	wrote func(kind string, made change, content []byte)
}

// collection is all that is stored of one kind.
type collection struct {
	objects map[client.ObjectKey]client.Object
	changes []change
}

// change is one event of a watch: before is nil for what is new, after for what is
// gone.
type change struct{ before, after client.Object }

// kindOf is the word for a kind of objects, or of lists of them.
func kindOf(object runtime.Object) string {
	if loose, isLoose := object.(*unstructured.Unstructured); isLoose {
		return loose.GetKind()
	}
	return strings.TrimSuffix(reflect.TypeOf(object).Elem().Name(), "List")
}

func resource(kind string) schema.GroupResource {
	return schema.GroupResource{Resource: strings.ToLower(kind) + "s"}
}

func (server *server) of(kind string) *collection {
	found := server.collections[kind]
	if found == nil {
		found = &collection{objects: map[client.ObjectKey]client.Object{}}
		server.collections[kind] = found
	}
	return found
}

// all are the objects of a kind, by name.
func (server *server) all(kind string) []client.Object {
	return inOrder(server.of(kind).objects)
}

// everything is all objects there are.
func (server *server) everything() (objects []client.Object) {
	for _, kind := range slices.Sorted(maps.Keys(server.collections)) {
		objects = append(objects, server.all(kind)...)
	}
	return objects
}

func inOrder(objects map[client.ObjectKey]client.Object) []client.Object {
	return slices.SortedFunc(maps.Values(objects), func(a, b client.Object) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
}

func (server *server) get(kind string, key client.ObjectKey) (client.Object, error) {
	if found := server.of(kind).objects[key]; found != nil {
		return found, nil
	}
	return nil, apierrors.NewNotFound(resource(kind), key.Name)
}

// owned are the objects of a kind that an owner controls.
func (server *server) owned(kind string, owner types.UID) (objects []client.Object) {
	for _, object := range server.all(kind) {
		if controller := metav1.GetControllerOf(object); controller != nil && controller.UID == owner {
			objects = append(objects, object)
		}
	}
	return objects
}

func (server *server) create(object client.Object) (client.Object, error) {
	made, kind := object.DeepCopyObject().(client.Object), kindOf(object)
	if made.GetName() == "" {
		server.names++
		made.SetName(fmt.Sprintf("%s%05d", made.GetGenerateName(), server.names))
	}
	if _, err := server.get(kind, client.ObjectKeyFromObject(made)); err == nil {
		return nil, apierrors.NewAlreadyExists(resource(kind), made.GetName())
	}
	server.names++
	made.SetUID(types.UID(fmt.Sprintf("uid-%04d", server.names)))
	made.SetCreationTimestamp(seconds(time.Now()))
	made.SetGeneration(1)
	return server.store(kind, nil, made), nil
}

// replace stores a newer state of an object, as whoever may write all of it does.
func (server *server) replace(object client.Object) client.Object {
	kind := kindOf(object)
	before := server.of(kind).objects[client.ObjectKeyFromObject(object)]
	if object.GetDeletionTimestamp() != nil && len(object.GetFinalizers()) == 0 && !isInGrace(object) {
		server.remove(object)
		return nil
	}
	return server.store(kind, before, object)
}

// isInGrace tells whether a pod is the kubelet's to end.
func isInGrace(object client.Object) bool {
	grace := object.GetDeletionGracePeriodSeconds()
	return grace != nil && *grace > 0
}

// store gives an object its version. It goes through JSON, as it does on the wire:
// times lose all but their seconds.
func (server *server) store(kind string, before, object client.Object) client.Object {
	server.version++
	object.SetResourceVersion(strconv.Itoa(server.version))
	content, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	stored := reflect.New(reflect.TypeOf(object).Elem()).Interface().(client.Object)
	if err := json.Unmarshal(content, stored); err != nil {
		panic(err)
	}
	found := server.of(kind)
	found.objects[client.ObjectKeyFromObject(stored)] = stored
	made := change{before, stored}
	found.changes = append(found.changes, made)
	server.wrote(kind, made, content)
	return stored
}

func (server *server) remove(object client.Object) {
	kind := kindOf(object)
	server.version++
	last := object.DeepCopyObject().(client.Object)
	last.SetResourceVersion(strconv.Itoa(server.version))
	found := server.of(kind)
	delete(found.objects, client.ObjectKeyFromObject(object))
	made := change{before: last}
	found.changes = append(found.changes, made)
	server.wrote(kind, made, nil)
}

// updateStatus takes the status of an object and nothing else of it.
func (server *server) updateStatus(object client.Object) (client.Object, error) {
	there, err := server.unchanged(object)
	if err != nil {
		return nil, err
	}
	next := there.DeepCopyObject().(client.Object)
	status := reflect.ValueOf(object.DeepCopyObject()).Elem().FieldByName("Status")
	reflect.ValueOf(next).Elem().FieldByName("Status").Set(status)
	return server.store(kindOf(object), there, next), nil
}

func (server *server) update(object client.Object) (client.Object, error) {
	there, err := server.unchanged(object)
	if err != nil {
		return nil, err
	}
	return server.store(kindOf(object), there, object.DeepCopyObject().(client.Object)), nil
}

// unchanged is an object as it is stored, if it is the version that a writer knows.
func (server *server) unchanged(object client.Object) (client.Object, error) {
	kind := kindOf(object)
	there, err := server.get(kind, client.ObjectKeyFromObject(object))
	if err == nil && (there.GetUID() != object.GetUID() || there.GetResourceVersion() != object.GetResourceVersion()) {
		err = apierrors.NewConflict(resource(kind), object.GetName(), fmt.Errorf("the object has been modified"))
	}
	return there, err
}

// patch merges; what changes nothing makes no new version. One that names a UID is
// refused where the object is another.
func (server *server) patch(object client.Object, kindOfPatch types.PatchType, patch []byte) (client.Object, error) {
	kind := kindOf(object)
	there, err := server.get(kind, client.ObjectKeyFromObject(object))
	if err != nil {
		return nil, err
	}
	before, err := json.Marshal(there)
	if err != nil {
		return nil, err
	}
	var after []byte
	if kindOfPatch == types.StrategicMergePatchType {
		after, err = strategicpatch.StrategicMergePatch(before, patch, object)
	} else {
		after, err = mergePatch(before, patch)
	}
	if err != nil {
		return nil, err
	}
	next := reflect.New(reflect.TypeOf(object).Elem()).Interface().(client.Object)
	if err := json.Unmarshal(after, next); err != nil {
		return nil, err
	}
	if next.GetUID() != there.GetUID() {
		return nil, apierrors.NewInvalid(schema.GroupKind{Kind: kind}, object.GetName(), nil)
	}
	if apiequality.Semantic.DeepEqual(there, next) {
		return there, nil
	}
	return server.replace(next), nil
}

// mergePatch puts changes into a document. No merge patch of the operator's takes
// anything away.
func mergePatch(document, patch []byte) ([]byte, error) {
	var content, changes map[string]any
	if err := errors.Join(json.Unmarshal(document, &content), json.Unmarshal(patch, &changes)); err != nil {
		return nil, err
	}
	merge(content, changes)
	return json.Marshal(content)
}

func merge(document, changes map[string]any) {
	for key, value := range changes {
		part, isPart := value.(map[string]any)
		inner, has := document[key].(map[string]any)
		if isPart && has {
			merge(inner, part)
			continue
		}
		document[key] = value
	}
}

// foreground is the finalizer of what waits for its dependents.
const foreground = metav1.FinalizerDeleteDependents

// delete lets go of an object: a pod that runs is the kubelet's to end, and what has
// finalizers waits for them.
func (server *server) delete(kind string, key client.ObjectKey, options client.DeleteOptions) error {
	there, err := server.get(kind, key)
	if err != nil {
		return err
	}
	if wanted := options.Preconditions; wanted != nil && wanted.UID != nil && *wanted.UID != there.GetUID() {
		return apierrors.NewConflict(resource(kind), key.Name, fmt.Errorf("the UID in the precondition is another"))
	}
	if wanted := options.Preconditions; wanted != nil && wanted.ResourceVersion != nil && *wanted.ResourceVersion != there.GetResourceVersion() {
		return apierrors.NewConflict(resource(kind), key.Name, fmt.Errorf("the version in the precondition is another"))
	}
	next := there.DeepCopyObject().(client.Object)
	waits := options.PropagationPolicy != nil && *options.PropagationPolicy == metav1.DeletePropagationForeground
	if waits && !slices.Contains(next.GetFinalizers(), foreground) {
		next.SetFinalizers(append(next.GetFinalizers(), foreground))
	}
	grace := int64(0)
	if pod, isPod := there.(*corev1.Pod); isPod && pod.Spec.NodeName != "" && !hasEnded(pod) && options.GracePeriodSeconds == nil {
		grace = 30
	}
	if there.GetDeletionTimestamp() != nil && (grace > 0 || !isInGrace(there)) {
		return nil
	}
	gone := seconds(time.Now().Add(time.Duration(grace) * time.Second))
	next.SetDeletionTimestamp(&gone)
	next.SetDeletionGracePeriodSeconds(&grace)
	server.replace(next)
	return nil
}

func hasEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func seconds(at time.Time) metav1.Time { return metav1.Time{Time: at.Truncate(time.Second)} }
