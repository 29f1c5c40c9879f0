// SPDX-License-Identifier: Apache-2.0

// Package partial keeps large objects out of memory. Caches hold every job of a
// cluster, and one of 1 MiB is mostly pod templates that are only needed when its pods
// are created. A cache keeps such an object without its spec; code that needs the spec
// reads the object from the API server (Complete).
package partial

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"reflect"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
)

const (
	// Threshold is how many bytes of JSON an object may have, without its status, to be
	// kept whole. Jobs that people write have a tenth of it.
	Threshold = 32 << 10
	// smallLabels is how many bytes of labels a partial object keeps. Real objects have
	// some hundred bytes.
	smallLabels = 4 << 10
	// annotation is set on partial objects only.
	annotation = "training.kubeflow.org/partial"
)

// mark is the beginning of the annotation's value. Nobody outside of this process knows
// it, so no user can make an object look partial, or a partial one look whole.
var mark = rand.Text()

// Is reports whether an object is partial.
func Is(object client.Object) bool {
	return strings.HasPrefix(object.GetAnnotations()[annotation], mark)
}

// Keep returns an object as a cache keeps it: itself or, if it is large, its partial copy.
// The size is that of the whole object as JSON.
func Keep(object client.Object) (kept client.Object, size int) {
	size = sizeOf(object)
	if size <= Threshold || Is(object) {
		return object, size
	}
	small := Of(object)
	if small == nil || size-sizeOf(small) <= Threshold {
		return object, size
	}
	return small, size
}

// sizeOf returns the size of a value as JSON.
func sizeOf(value any) int {
	encoded, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("%T cannot be encoded as JSON: %v", value, err))
	}
	return len(encoded)
}

// Of returns the partial copy of an object: its identity, whether it is suspended, and its
// status. It is nil for kinds that are always kept whole.
func Of(object client.Object) client.Object {
	switch object := object.(type) {
	case *v2beta1.MPIJob:
		small := &v2beta1.MPIJob{TypeMeta: object.TypeMeta, ObjectMeta: metadataOf(object), Status: object.Status}
		small.Spec.RunPolicy.Suspend = object.Spec.RunPolicy.Suspend
		return small
	case *v2alpha1.TrainJob:
		small := &v2alpha1.TrainJob{TypeMeta: object.TypeMeta, ObjectMeta: metadataOf(object), Status: object.Status}
		small.Spec.Suspend = object.Spec.Suspend
		return small
	case *jobset.JobSet:
		small := &jobset.JobSet{TypeMeta: object.TypeMeta, ObjectMeta: metadataOf(object), Status: object.Status}
		// They say who runs it, and whether it is suspended.
		small.OwnerReferences, small.Spec.ManagedBy, small.Spec.Suspend = object.OwnerReferences, object.Spec.ManagedBy, object.Spec.Suspend
		if record, found := object.Annotations[training.AnnotationRecord]; found {
			small.Annotations[training.AnnotationRecord] = record
		}
		return small
	case *batchv1.Job:
		return &batchv1.Job{TypeMeta: object.TypeMeta, ObjectMeta: metadataOf(object), Status: object.Status}
	case *v2alpha1.TrainingRuntime:
		return &v2alpha1.TrainingRuntime{TypeMeta: object.TypeMeta, ObjectMeta: metadataOf(object)}
	default:
		// Also runtimes of the cluster: administrators write them, and every TrainJob is
		// validated against one.
		return nil
	}
}

// metadataOf returns the metadata that identifies an object. The mark is followed by a
// hash of labels and annotations, so that a change of dropped ones is still a change.
func metadataOf(object client.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID(),
		ResourceVersion: object.GetResourceVersion(), Generation: object.GetGeneration(),
		CreationTimestamp: object.GetCreationTimestamp(), DeletionTimestamp: object.GetDeletionTimestamp(),
		Labels:      labelsOf(object),
		Annotations: map[string]string{annotation: mark + hashOf(object.GetLabels(), object.GetAnnotations())},
	}
}

// labelsOf returns the labels of an object or, if they are large too, those that
// controllers select objects by.
func labelsOf(object client.Object) map[string]string {
	labels := object.GetLabels()
	if len(labels) == 0 || sizeOf(labels) <= smallLabels {
		return labels
	}
	kept := maps.Clone(labels)
	maps.DeleteFunc(kept, func(key, _ string) bool {
		return key != training.LabelJobType && key != training.LabelJobName && key != training.LabelJobUID && key != training.LabelQueue
	})
	return kept
}

func hashOf(values ...map[string]string) string {
	hash := fnv.New64a()
	// JSON sorts the keys of a map.
	if err := json.NewEncoder(hash).Encode(values); err != nil {
		panic(fmt.Sprintf("strings cannot be encoded as JSON: %v", err))
	}
	return fmt.Sprintf("%016x", hash.Sum64())
}

// Transform is the transform function of informers. It drops managed fields from every
// object, and kubectl's last-applied annotation from objects of users: each is as large
// as the rest. It may be called again with its result.
func Transform(object any) (any, error) {
	typed, is := object.(client.Object)
	if !is {
		return object, nil
	}
	typed.SetManagedFields(nil)
	switch typed.(type) {
	case *v2beta1.MPIJob, *v2alpha1.TrainJob, *v2alpha1.TrainingRuntime, *v2alpha1.ClusterTrainingRuntime:
		delete(typed.GetAnnotations(), corev1.LastAppliedConfigAnnotation)
	case *jobset.JobSet, *batchv1.Job:
	default:
		return object, nil
	}
	kept, _ := Keep(typed)
	return kept, nil
}

// Complete reads a partial object from the API server, into the object itself. It does
// nothing for a whole object.
func Complete(ctx context.Context, live client.Reader, object client.Object) error {
	if !Is(object) {
		return nil
	}
	key := client.ObjectKeyFromObject(object)
	// A decoder would keep the maps of the partial object, and with them its mark.
	reflect.ValueOf(object).Elem().SetZero()
	if err := live.Get(ctx, key, object); err != nil {
		return err
	}
	object.SetManagedFields(nil)
	return nil
}

// TrimPod drops the large fields of a pod that are only needed to run it: a thousand pods
// of a large job would be a gigabyte.
func TrimPod(pod *corev1.Pod) {
	pod.ManagedFields, pod.Annotations, pod.Spec.Volumes, pod.Spec.Affinity = nil, nil, nil, nil
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			kept := &containers[i]
			*kept = corev1.Container{Name: kept.Name, Image: kept.Image, Resources: kept.Resources, RestartPolicy: kept.RestartPolicy}
		}
	}
}
