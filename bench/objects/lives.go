// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/internal/operator"
)

// nodeName is where pods are said to run.
const nodeName = "node"

// A life is a job with all that belongs to it, statuses included, at one point of its
// life.
type life struct {
	name string
	// objects are in an order in which owners come first.
	objects []livingObject
}

type livingObject struct {
	was  types.UID
	text string
}

// recordLives runs two jobs of a contestant, with the benchmark in the kubelet's place.
func recordLives(ctx context.Context, place place, contestant contestant) (ended, runs life, err error) {
	running, err := open(ctx, place, contestant)
	if err != nil {
		return ended, runs, err
	}
	defer func() { err = errors.Join(err, running.stop()) }()
	if ended, err = running.live(ctx, contestant, endedLife, restWorkers); err != nil {
		return ended, runs, err
	}
	runs, err = running.live(ctx, contestant, runningLife, restWorkers)
	return ended, runs, err
}

// live brings one job to where it shall be recorded.
func (cluster *cluster) live(ctx context.Context, contestant contestant, name string, workers int) (life, error) {
	namespace := recordedNamespace + "-" + name
	if err := cluster.createNamespace(ctx, namespace); err != nil {
		return life{}, err
	}
	pods, err := cluster.watchPods(ctx, namespace)
	if err != nil {
		return life{}, err
	}
	defer pods.stop()
	job, err := contestant.kind.job(namespace, recordedName, workers)
	if err != nil {
		return life{}, err
	}
	if err := cluster.client.Create(ctx, job); err != nil {
		return life{}, err
	}
	if _, err := pods.until(ctx, workers+1); err != nil {
		return life{}, err
	}
	if err := cluster.runPods(ctx, namespace); err != nil {
		return life{}, err
	}
	if _, err := cluster.untilQuiet(ctx); err != nil {
		return life{}, err
	}
	if name == endedLife {
		if err := cluster.finish(ctx, namespace); err != nil {
			return life{}, err
		}
	}
	return cluster.recordLife(ctx, namespace, name, job)
}

// makeNode: a Service that leaves pods out which are not ready leaves those out too whose
// node nobody knows, and its endpoints would cost nothing.
func (cluster *cluster) makeNode(ctx context.Context) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}, Status: corev1.NodeStatus{
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now()}},
	}}
	_, err := cluster.clientset.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// runPods gives every pod a node, and has it run.
func (cluster *cluster) runPods(ctx context.Context, namespace string) error {
	if err := cluster.makeNode(ctx); err != nil {
		return err
	}
	pods, err := cluster.clientset.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: nodeName}}
		if err := cluster.clientset.CoreV1().Pods(namespace).Bind(ctx, binding, metav1.CreateOptions{}); err != nil {
			return err
		}
		if err := cluster.setPodStatus(ctx, pod, corev1.PodRunning, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}); err != nil {
			return err
		}
	}
	return nil
}

// setPodStatus writes what a kubelet would.
func (cluster *cluster) setPodStatus(ctx context.Context, pod *corev1.Pod, phase corev1.PodPhase, state corev1.ContainerState) error {
	ready := corev1.ConditionFalse
	if phase == corev1.PodRunning {
		ready = corev1.ConditionTrue
	}
	status := corev1.PodStatus{Phase: phase, StartTime: new(metav1.Now()), PodIP: "10.1.2.3", PodIPs: []corev1.PodIP{{IP: "10.1.2.3"}}}
	for name, holds := range map[corev1.PodConditionType]corev1.ConditionStatus{
		corev1.PodScheduled: corev1.ConditionTrue, corev1.PodInitialized: corev1.ConditionTrue, corev1.ContainersReady: ready, corev1.PodReady: ready,
	} {
		status.Conditions = append(status.Conditions, corev1.PodCondition{Type: name, Status: holds, LastTransitionTime: metav1.Now()})
	}
	status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: pod.Spec.Containers[0].Name, Image: image, State: state, Ready: phase == corev1.PodRunning, Started: new(phase == corev1.PodRunning),
	}}
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	_, err = cluster.clientset.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// isLauncher: all contestants call it so.
func isLauncher(pod *corev1.Pod) bool { return strings.Contains(pod.Name, "-launcher") }

// finish ends the launcher, and then what is deleted of the job's pods.
func (cluster *cluster) finish(ctx context.Context, namespace string) error {
	pods, err := cluster.clientset.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range pods.Items {
		if !isLauncher(&pods.Items[i]) {
			continue
		}
		if err := cluster.setPodStatus(ctx, &pods.Items[i], corev1.PodSucceeded, exited()); err != nil {
			return err
		}
	}
	if _, err := cluster.untilQuiet(ctx); err != nil {
		return err
	}
	if pods, err = cluster.clientset.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{}); err != nil {
		return err
	}
	for i := range pods.Items {
		if pods.Items[i].DeletionTimestamp == nil {
			continue
		}
		if err := cluster.clientset.CoreV1().Pods(namespace).Delete(ctx, pods.Items[i].Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
			return err
		}
	}
	_, err = cluster.untilQuiet(ctx)
	return err
}

func exited() corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{StartedAt: metav1.Now(), FinishedAt: metav1.Now(), Reason: "Completed"}}
}

// recordLife reads a job and all that belongs to it.
func (cluster *cluster) recordLife(ctx context.Context, namespace, name string, job *unstructured.Unstructured) (life, error) {
	if err := cluster.client.Get(ctx, client.ObjectKeyFromObject(job), job); err != nil {
		return life{}, err
	}
	made := life{name: name}
	objects := []runtime.Object{job}
	for _, list := range partsOfJobs() {
		if err := cluster.client.List(ctx, list, client.InNamespace(namespace)); meta.IsNoMatchError(err) {
			continue
		} else if err != nil {
			return life{}, err
		}
		found, err := meta.ExtractList(list)
		if err != nil {
			return life{}, err
		}
		for _, object := range found {
			if metav1.GetControllerOf(object.(client.Object)) != nil {
				objects = append(objects, object)
			}
		}
	}
	for _, object := range objects {
		living, err := recordLiving(object.(client.Object), namespace)
		if err != nil {
			return life{}, err
		}
		made.objects = append(made.objects, living)
	}
	return made, nil
}

func recordLiving(object client.Object, namespace string) (livingObject, error) {
	was := object.GetUID()
	object.SetUID("")
	object.SetResourceVersion("")
	object.SetManagedFields(nil)
	object.SetCreationTimestamp(metav1.Time{})
	object.SetFinalizers(nil)
	kinds, _, err := operator.Scheme().ObjectKinds(object)
	if err == nil {
		object.GetObjectKind().SetGroupVersionKind(kinds[0])
	}
	switch object := object.(type) {
	case *corev1.Pod:
		withoutToken(&object.Spec)
	case *batchv1.Job:
		object.Spec.Selector = nil
		delete(object.Spec.Template.Labels, "controller-uid")
		delete(object.Spec.Template.Labels, "batch.kubernetes.io/controller-uid")
	}
	text, err := json.Marshal(object)
	return livingObject{was: was, text: strings.ReplaceAll(string(text), namespace, seeded)}, err
}

// create makes a job under another name.
func (life life) create(ctx context.Context, bare client.Client, name string) error {
	names := []string{recordedName, name}
	for _, living := range life.objects {
		object := &unstructured.Unstructured{}
		if err := json.Unmarshal([]byte(strings.NewReplacer(names...).Replace(living.text)), object); err != nil {
			return err
		}
		status, has := object.Object["status"]
		if err := bare.Create(ctx, object); err != nil {
			return fmt.Errorf("make %s %s anew: %w", object.GetKind(), object.GetName(), err)
		}
		names = append(names, string(living.was), string(object.GetUID()))
		if state, isMap := status.(map[string]any); !has || !isMap || len(state) == 0 || object.GetKind() == "Service" {
			continue
		}
		object.Object["status"] = status
		if err := bare.Status().Update(ctx, object); err != nil {
			return fmt.Errorf("give %s %s its status: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

// endJob ends the launcher of a job, as kubelet and kube-controller-manager do, and
// waits until the job's status tells.
func (cluster *cluster) endJob(ctx context.Context, contestant contestant, name string, launcher *corev1.Pod) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	job, err := contestant.kind.job(seeded, name, restWorkers)
	if err != nil {
		return 0, err
	}
	watched, err := cluster.watchJob(ctx, job)
	if err != nil {
		return 0, err
	}
	defer watched.Stop()
	began := time.Now()
	if err := cluster.setPodStatus(ctx, launcher, corev1.PodSucceeded, exited()); err != nil {
		return 0, err
	}
	if owner := metav1.GetControllerOf(launcher); owner.Kind == "Job" {
		if err := cluster.completeJob(ctx, owner.Name); err != nil {
			return 0, err
		}
	}
	for event := range watched.ResultChan() {
		if object, is := event.Object.(*unstructured.Unstructured); is && hasSucceeded(object) {
			return time.Since(began), nil
		}
	}
	return 0, fmt.Errorf("the status of job %s did not tell of its end: %w", name, context.Cause(ctx))
}

// watchJob watches one job.
func (cluster *cluster) watchJob(ctx context.Context, job *unstructured.Unstructured) (watch.Interface, error) {
	mapping, err := cluster.client.RESTMapper().RESTMapping(job.GroupVersionKind().GroupKind(), job.GroupVersionKind().Version)
	if err != nil {
		return nil, err
	}
	watching, err := dynamic.NewForConfig(cluster.connection)
	if err != nil {
		return nil, err
	}
	return watching.Resource(mapping.Resource).Namespace(job.GetNamespace()).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + job.GetName()})
}

// completeJob writes what kube-controller-manager would of a Job whose pod has
// succeeded, unless the Job is somebody else's to manage.
func (cluster *cluster) completeJob(ctx context.Context, name string) error {
	batch, err := cluster.clientset.BatchV1().Jobs(seeded).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if batch.Spec.ManagedBy != nil {
		return nil
	}
	batch.Status.Active, batch.Status.Ready, batch.Status.Succeeded, batch.Status.CompletionTime = 0, new(int32(0)), 1, new(metav1.Now())
	for _, condition := range []batchv1.JobConditionType{batchv1.JobSuccessCriteriaMet, batchv1.JobComplete} {
		batch.Status.Conditions = append(batch.Status.Conditions, batchv1.JobCondition{
			Type: condition, Status: corev1.ConditionTrue, Reason: batchv1.JobReasonCompletionsReached, LastTransitionTime: metav1.Now(), LastProbeTime: metav1.Now(),
		})
	}
	_, err = cluster.clientset.BatchV1().Jobs(seeded).UpdateStatus(ctx, batch, metav1.UpdateOptions{})
	return err
}

// succeeded are the conditions by which MPIJobs, our TrainJobs and Trainer's tell it.
var succeeded = []any{"Succeeded", "TrainingComplete", "Complete"}

func hasSucceeded(job *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(job.Object, "status", "conditions")
	for _, entry := range conditions {
		condition, _ := entry.(map[string]any)
		if slices.Contains(succeeded, condition["type"]) && condition["status"] == "True" {
			return true
		}
	}
	return false
}
