// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trireme-mpi/trireme/internal/operator"
)

// A recording is what a controller made of one job, as text in which job and
// namespace can be given other names.
type recording struct {
	job types.UID
	// layers are what belongs to the job, and what belongs to that.
	layers [][]recordedObject
}

type recordedObject struct {
	kind schema.GroupVersionKind
	text string
	was  types.UID
}

// Names that a recording was made under.
const (
	recordedName      = "recorded-job"
	recordedNamespace = "recorded-namespace"
)

// record runs one job of each size, and keeps what the contestant made of it.
func record(ctx context.Context, place place, contestant contestant, sizes []int) (recordings map[int]recording, err error) {
	running, err := open(ctx, place, contestant)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, running.stop()) }()
	recordings = map[int]recording{}
	for _, workers := range sizes {
		if recordings[workers], err = running.record(ctx, contestant, workers); err != nil {
			return nil, err
		}
	}
	return recordings, nil
}

func (cluster *cluster) record(ctx context.Context, contestant contestant, workers int) (recording, error) {
	namespace := fmt.Sprintf("%s-%d", recordedNamespace, workers)
	if err := cluster.createNamespace(ctx, namespace); err != nil {
		return recording{}, err
	}
	pods, err := cluster.watchPods(ctx, namespace)
	if err != nil {
		return recording{}, err
	}
	defer pods.stop()
	job, err := contestant.kind.job(namespace, recordedName, workers)
	if err != nil {
		return recording{}, err
	}
	if err := cluster.client.Create(ctx, job); err != nil {
		return recording{}, err
	}
	if _, err := pods.until(ctx, workers+1); err != nil {
		return recording{}, err
	}
	return cluster.recordObjects(ctx, namespace, job.GetUID())
}

// recordObjects reads all that a job consists of.
func (cluster *cluster) recordObjects(ctx context.Context, namespace string, job types.UID) (recording, error) {
	made := recording{job: job, layers: make([][]recordedObject, 2)}
	for _, list := range partsOfJobs() {
		if err := cluster.client.List(ctx, list, client.InNamespace(namespace)); meta.IsNoMatchError(err) {
			continue
		} else if err != nil {
			return made, err
		}
		objects, err := meta.ExtractList(list)
		if err != nil {
			return made, err
		}
		for _, item := range objects {
			object := item.(client.Object)
			owner := metav1.GetControllerOf(object)
			if owner == nil {
				continue
			}
			recorded, err := recordObject(object, namespace)
			if err != nil {
				return made, err
			}
			layer := 1
			if owner.UID == job {
				layer = 0
			}
			made.layers[layer] = append(made.layers[layer], recorded)
		}
	}
	return made, nil
}

// partsOfJobs are lists of what jobs are made of, owners first.
func partsOfJobs() []client.ObjectList {
	return []client.ObjectList{
		&appsv1.ControllerRevisionList{}, &jobset.JobSetList{}, &corev1.ServiceList{}, &corev1.ConfigMapList{}, &corev1.SecretList{}, &networkingv1.NetworkPolicyList{}, &batchv1.JobList{}, &corev1.PodList{},
		&discoveryv1.EndpointSliceList{},
	}
}

// recordObject leaves out what the API server adds.
func recordObject(object client.Object, namespace string) (recordedObject, error) {
	was := object.GetUID()
	object.SetUID("")
	object.SetResourceVersion("")
	object.SetManagedFields(nil)
	object.SetCreationTimestamp(metav1.Time{})
	switch object := object.(type) {
	case *corev1.Pod:
		withoutToken(&object.Spec)
		object.Status = corev1.PodStatus{}
	case *batchv1.Job:
		object.Spec.Selector, object.Status = nil, batchv1.JobStatus{}
		for _, labels := range []map[string]string{object.Labels, object.Spec.Template.Labels} {
			maps.DeleteFunc(labels, func(name, _ string) bool { return strings.HasSuffix(name, "controller-uid") })
		}
	case *jobset.JobSet:
		object.Status = jobset.JobSetStatus{}
	}
	kind, err := apiutil.GVKForObject(object, operator.Scheme())
	if err != nil {
		return recordedObject{}, err
	}
	text, err := json.Marshal(object)
	return recordedObject{kind: kind, was: was, text: strings.ReplaceAll(string(text), namespace, recordedNamespace)}, err
}

// withoutToken takes the volume away that admission will add again.
func withoutToken(spec *corev1.PodSpec) {
	const token = "kube-api-access-"
	spec.Volumes = slices.DeleteFunc(spec.Volumes, func(volume corev1.Volume) bool { return strings.HasPrefix(volume.Name, token) })
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			containers[i].VolumeMounts = slices.DeleteFunc(containers[i].VolumeMounts, func(mount corev1.VolumeMount) bool { return strings.HasPrefix(mount.Name, token) })
		}
	}
}

// A copied job is what a bare client creates.
type copied struct {
	job    types.UID
	layers [][]copiedObject
}

type copiedObject struct {
	client.Object
	was types.UID
}

// copy gives the recorded objects to another job.
func (recording recording) copy(namespace, name string) (copied, error) {
	made := copied{job: recording.job}
	scheme := operator.Scheme()
	for _, layer := range recording.layers {
		var objects []copiedObject
		for _, recorded := range layer {
			object, err := scheme.New(recorded.kind)
			if err != nil {
				return made, err
			}
			text := strings.ReplaceAll(strings.ReplaceAll(recorded.text, recordedNamespace, namespace), recordedName, name)
			if err := json.Unmarshal([]byte(text), object); err != nil {
				return made, err
			}
			objects = append(objects, copiedObject{Object: object.(client.Object), was: recorded.was})
		}
		made.layers = append(made.layers, objects)
	}
	return made, nil
}

// bareParallelism is how many objects of a job a bare client creates at a time.
const bareParallelism = 64

// create makes all objects, with nothing that looks at them.
func (copied copied) create(ctx context.Context, bare client.Client, job types.UID) error {
	owners := map[types.UID]types.UID{copied.job: job}
	for _, layer := range copied.layers {
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(bareParallelism)
		for _, object := range layer {
			references := object.GetOwnerReferences()
			for i := range references {
				references[i].UID = owners[references[i].UID]
			}
			object.SetOwnerReferences(references)
			group.Go(func() error { return bare.Create(ctx, object.Object) })
		}
		if err := group.Wait(); err != nil {
			return fmt.Errorf("the bare client: %w", err)
		}
		for _, object := range layer {
			owners[object.was] = object.GetUID()
		}
	}
	return nil
}
