// Package gang is about gang scheduling: all pods of a job are scheduled, or none.
// Each scheduler has a file of its own and an entry in schedulers.
//
// The package is pure. It returns objects and changes templates; the operator creates
// them. Discover alone looks at a cluster, through an interface that the caller passes
// in.
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

// None is the name of having no gang.
const None job.Scheduler = "none"

// Object is any object of Kubernetes. controller-runtime's client.Object is the
// same set of methods, so that values go both ways and this package needs no
// client.
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
	// MinMember is that of a group that exists, false if it has none.
	MinMember(group Object) (int32, bool)
}

// podGroup is what every scheduler calls its kind of group.
const podGroup = "PodGroup"

// customGroup is a group whose kind is a CRD. It is unstructured, so that no
// scheduler's module becomes a dependency of the product.
func customGroup(kind schema.GroupVersionKind, j *job.Job, labels map[string]string, spec map[string]any) Object {
	group := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	group.SetGroupVersionKind(kind)
	group.SetNamespace(j.Namespace)
	group.SetName(j.Name)
	group.SetLabels(labels)
	return group
}

// minResources is what must be free before any pod starts, in the form that an
// unstructured object has it: what the job says, else what the pods of the gang
// ask for. A job that may start with fewer pods than it has must not wait for
// room for all of them, so only so many workers count.
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

// schedule gives a pod to the scheduler of its gang. One that the templates name
// is that of the gang already: Choose saw to it.
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

// memberField is a whole number somewhere in an object, typed or not. Somebody
// else may have written the object, so that everything can be missing in it.
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
