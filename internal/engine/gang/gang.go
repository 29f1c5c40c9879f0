// SPDX-License-Identifier: Apache-2.0

// Package gang is about gang scheduling: all pods of a job are scheduled, or none.
// Each scheduler has its own file and an entry in schedulers.
//
// The package is pure: it returns objects and changes templates, and the operator
// creates them. Only Discover reads from a cluster, through an interface that the caller
// passes in.
package gang

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// None is the name for no gang scheduling.
const None job.Scheduler = "none"

// Object is any object of Kubernetes. It has the same methods as controller-runtime's
// client.Object, so that values convert both ways without a dependency on the client.
type Object interface {
	metav1.Object
	runtime.Object
}

// Backend creates the groups of one gang scheduler.
type Backend interface {
	// Name that users set: coscheduling, volcano, kai, native, none.
	Name() job.Scheduler
	// GroupKind is the kind of the group's object, zero for none.
	GroupKind() schema.GroupVersionKind
	// Group is the object that must exist before the pods do; nil for none. It has
	// the job's name, the labels passed in and no owner.
	Group(j *job.Job, labels map[string]string) Object
	// Join makes a pod's template a member of the group.
	Join(j *job.Job, template *corev1.PodTemplateSpec)
	// MinMember reads the minimum number of pods from a group; false if it has none.
	MinMember(group Object) (int32, bool)
}

// podGroup is the kind of the group's object, the same for every scheduler.
const podGroup = "PodGroup"

// customGroup is a group whose kind is a CRD. It is unstructured to avoid a dependency
// on the modules of the schedulers.
func customGroup(kind schema.GroupVersionKind, j *job.Job, labels map[string]string, spec map[string]any) Object {
	group := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	group.SetGroupVersionKind(kind)
	group.SetNamespace(j.Namespace)
	group.SetName(j.Name)
	group.SetLabels(labels)
	return group
}

// minResources are the resources that must be free before any pod starts, in the form of
// an unstructured object. They are what the job sets, or else the sum of the pods'
// requests. A job with a MinMember below its number of pods must not wait for resources
// for all of them, so only that many pods count.
func minResources(j *job.Job) map[string]any {
	resources := j.Gang.MinResources
	if resources == nil {
		launchers := min(j.Launcher.Replicas, j.Gang.MinMember)
		resources = corev1.ResourceList{}
		addRequests(resources, &j.Launcher, launchers)
		addRequests(resources, &j.Worker, min(j.Worker.Replicas, j.Gang.MinMember-launchers))
	}
	result := map[string]any{}
	for name, quantity := range resources {
		result[string(name)] = quantity.String()
	}
	return result
}

func addRequests(sum corev1.ResourceList, role *job.Role, pods int32) {
	if pods <= 0 {
		return
	}
	for name, quantity := range job.Requests(&role.Template.Spec) {
		quantity.Mul(int64(pods))
		total, exists := sum[name]
		if !exists {
			total = resource.Quantity{Format: quantity.Format}
		}
		total.Add(quantity)
		sum[name] = total
	}
}

// setScheduler sets the schedulerName of a pod. A name that the templates set is the
// same, because Choose has derived the backend from it.
func setScheduler(template *corev1.PodTemplateSpec, scheduler string) {
	if scheduler != "" {
		template.Spec.SchedulerName = scheduler
	}
}

func label(template *corev1.PodTemplateSpec, key, value string) {
	if template.Labels == nil {
		template.Labels = map[string]string{}
	}
	template.Labels[key] = value
}

func annotate(template *corev1.PodTemplateSpec, key, value string) {
	if template.Annotations == nil {
		template.Annotations = map[string]string{}
	}
	template.Annotations[key] = value
}

// intField reads an integer field of a typed or unstructured object. Any field may be
// missing, because the object may not be ours.
func intField(group Object, path ...string) (int32, bool) {
	if group == nil {
		return 0, false
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(group)
	if err != nil {
		return 0, false
	}
	value, found, err := unstructured.NestedInt64(content, path...)
	if err != nil || !found || value < 0 || value > math.MaxInt32 {
		return 0, false
	}
	return int32(value), true
}
