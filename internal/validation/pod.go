package validation

import (
	"fmt"
	"path"
	"strings"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/trireme-mpi/trireme/internal/job"
)

// podCheck is what is asked of a pod template beyond its schema: what would keep
// its pods from being created, found before anything is.
type podCheck struct {
	rules    *Rules
	findings *Findings
	// imageGiven: the first container gets its image from elsewhere.
	imageGiven bool
	// taken are directories where something is mounted already, and by whom.
	taken map[string]string
}

func (check *podCheck) template(at *field.Path, template *corev1.PodTemplateSpec) {
	pod, spec := &template.Spec, at.Child("spec")
	if len(pod.Containers) == 0 {
		check.findings.refuse(field.Required(spec.Child("containers"), "must have at least one container"))
	}
	volumes := volumeNames(pod.Volumes)
	for i := range pod.InitContainers {
		check.container(spec.Child("initContainers").Index(i), &pod.InitContainers[i], volumes, false)
	}
	for i := range pod.Containers {
		check.container(spec.Child("containers").Index(i), &pod.Containers[i], volumes, check.imageGiven && i == 0)
	}
}

func volumeNames(volumes []corev1.Volume) sets.Set[string] {
	names := sets.New[string]()
	for i := range volumes {
		names.Insert(volumes[i].Name)
	}
	return names
}

func (check *podCheck) container(at *field.Path, container *corev1.Container, volumes sets.Set[string], imageGiven bool) {
	for _, fault := range utilvalidation.IsDNS1123Label(container.Name) {
		check.findings.refuse(field.Invalid(at.Child("name"), container.Name, fault))
	}
	if container.Image != "" || !imageGiven {
		check.image(at.Child("image"), container.Image)
	}
	check.environment(at.Child("env"), container.Env)
	check.mounts(at.Child("volumeMounts"), container.VolumeMounts, volumes)
	check.resources(at.Child("resources"), &container.Resources)
	if context := container.SecurityContext; context != nil && context.Privileged != nil && *context.Privileged {
		check.findings.refuse(field.Forbidden(at.Child("securityContext", "privileged"), "a job cannot run as privileged"))
	}
}

func (check *podCheck) image(at *field.Path, image string) {
	if image == "" {
		check.findings.refuse(field.Required(at, "must name an image"))
		return
	}
	if _, err := reference.ParseNormalizedNamed(image); err != nil {
		check.findings.refuse(field.Invalid(at, image, fmt.Sprintf("is not the name of an image (%v); write registry/name:tag", err)))
	}
}

func (check *podCheck) environment(at *field.Path, variables []corev1.EnvVar) {
	if most := int(check.rules.Limits.MaxEnv); len(variables) > most {
		check.findings.refuse(field.TooMany(at, len(variables), most))
		return
	}
	for i := range variables {
		for _, fault := range utilvalidation.IsEnvVarName(variables[i].Name) {
			check.findings.refuse(field.Invalid(at.Index(i).Child("name"), variables[i].Name, fault))
		}
	}
}

func (check *podCheck) mounts(at *field.Path, mounts []corev1.VolumeMount, volumes sets.Set[string]) {
	seen := sets.New[string]()
	for i := range mounts {
		mount, at := &mounts[i], at.Index(i)
		if !volumes.Has(mount.Name) {
			check.findings.refuse(field.NotFound(at.Child("name"), mount.Name))
		}
		switch directory := path.Clean(mount.MountPath); {
		case mount.MountPath == "":
			check.findings.refuse(field.Required(at.Child("mountPath"), ""))
		case seen.Has(directory):
			check.findings.refuse(field.Duplicate(at.Child("mountPath"), mount.MountPath))
		case check.taken[directory] != "":
			check.findings.refuse(field.Forbidden(at.Child("mountPath"), fmt.Sprintf("%s is taken by %s; mount your volume elsewhere", directory, check.taken[directory])))
		default:
			seen.Insert(directory)
		}
	}
}

// takenByOperator are the directories that the operator mounts something at.
func takenByOperator(directories ...string) map[string]string {
	taken := map[string]string{job.HostfileDirectory: operatorsFiles}
	for _, directory := range directories {
		taken[path.Clean(directory)] = operatorsFiles
	}
	return taken
}

const operatorsFiles = "the operator, for what MPI needs"

// tooMuch is more than any machine has, and keeps sums away from the ends of
// what can be counted.
var tooMuch = resource.MustParse("1Ei")

func (check *podCheck) resources(at *field.Path, resources *corev1.ResourceRequirements) {
	for _, part := range []struct {
		name string
		list corev1.ResourceList
	}{{"requests", resources.Requests}, {"limits", resources.Limits}} {
		for _, name := range job.ResourceNames(part.list) {
			check.quantity(at.Child(part.name).Key(string(name)), name, part.list[name])
		}
	}
	for _, name := range job.ResourceNames(resources.Limits) {
		limit, request := resources.Limits[name], resources.Requests[name]
		if limit.Sign() >= 0 && request.Cmp(limit) > 0 {
			check.findings.refuse(field.Invalid(at.Child("limits").Key(string(name)), limit.String(),
				fmt.Sprintf("must be at least the request, %s", request.String())))
		}
	}
	for _, name := range job.ResourceNames(resources.Requests) {
		request := resources.Requests[name]
		limit, limited := resources.Limits[name]
		if job.IsGPU(name) && (!limited || limit.Cmp(request) != 0) {
			check.findings.refuse(field.Invalid(at.Child("requests").Key(string(name)), request.String(),
				"a GPU cannot be shared: the limit must be there and be the same; a limit alone is enough"))
		}
	}
}

func (check *podCheck) quantity(at *field.Path, name corev1.ResourceName, quantity resource.Quantity) {
	switch {
	case quantity.Sign() < 0:
		check.findings.refuse(field.Invalid(at, quantity.String(), "must not be negative"))
	case quantity.Cmp(tooMuch) > 0:
		check.findings.refuse(field.Invalid(at, quantity.String(), "is more than any node has"))
	case job.IsGPU(name) && quantity.MilliValue()%1000 != 0:
		check.findings.refuse(field.Invalid(at, quantity.String(), "must be a whole number of GPUs"))
	}
}

// pods are the pods of one role, and where in the object their parts stand.
type pods struct {
	role string
	job.Role
	at        *field.Path
	resources *field.Path
}

// workerResources applies the rules about what a worker must ask for.
func (rules *Rules) workerResources(findings *Findings, worker pods, in *Surroundings) {
	stored := stored(&worker.Template.Spec, in)
	asked := nonZero(job.Requests(stored))
	switch {
	case len(asked) == 0:
		findings.refuse(field.Required(worker.resources, "Worker pod missing resource requests"))
	case onlyGPUs(asked):
		findings.warn(worker.resources, "workers ask for GPUs only; without CPU and memory requests they can be placed on a node that has too little of either")
	}
	for _, least := range []struct {
		name     corev1.ResourceName
		quantity resource.Quantity
	}{{corev1.ResourceCPU, rules.Limits.MinCPU}, {corev1.ResourceMemory, rules.Limits.MinMemory}} {
		if request, found := asked[least.name]; found && request.Sign() > 0 && request.Cmp(least.quantity) < 0 {
			findings.refuse(field.Invalid(worker.resources.Child("requests").Key(string(least.name)), request.String(),
				fmt.Sprintf("a worker must ask for at least %s %s", least.quantity.String(), least.name)))
		}
	}
	if in.AnyNodeHas == nil {
		return
	}
	for _, name := range job.ResourceNames(asked) {
		if job.IsGPU(name) && !in.AnyNodeHas(name) {
			findings.warn(worker.resources, "no node of this cluster has %s now; the job will wait until one has", name)
		}
	}
}

func nonZero(list corev1.ResourceList) corev1.ResourceList {
	asked := corev1.ResourceList{}
	for name, quantity := range list {
		if !quantity.IsZero() {
			asked[name] = quantity
		}
	}
	return asked
}

func onlyGPUs(list corev1.ResourceList) bool {
	for name := range list {
		if !job.IsGPU(name) {
			return false
		}
	}
	return true
}

// slotsMatchGPUs warns where MPI processes and GPUs do not come in pairs.
func slotsMatchGPUs(findings *Findings, at *field.Path, slots int32, worker *corev1.PodSpec) {
	gpus := job.GPUs(job.Requests(worker))
	if !gpus.IsZero() && gpus.CmpInt64(int64(slots)) != 0 {
		findings.warn(at, "%d slots and %s GPUs a worker; usually one MPI process runs on each GPU", slots, gpus)
	}
}

// queueName accepts what Volcano accepts as the name of a queue.
func queueName(findings *Findings, at *field.Path, name string) {
	if name == "" {
		return
	}
	if faults := utilvalidation.IsDNS1123Label(name); len(faults) > 0 {
		findings.refuse(field.Invalid(at, name, "is not the name of a queue: "+strings.Join(faults, "; ")))
	}
}
