// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"path"
	"strings"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// podCheck validates a pod template beyond its schema: it finds what would keep pods
// from being created.
type podCheck struct {
	rules    *Rules
	findings *Findings
	// imageGiven: the first container gets its image from the TrainJob.
	imageGiven bool
	// taken are directories of the first container that already have a mount.
	taken map[string]mountOwner
	// agentListens: the agent in the first container listens on its port.
	agentListens bool
}

const (
	// ownPrefix is the prefix of all volumes, containers and ports that the operator adds
	// to pods.
	ownPrefix = "trireme-"
	// maxSearches is Kubernetes' limit of search domains, minus the one that the operator
	// adds.
	maxSearches = 32 - 1
)

func (pc *podCheck) template(at *field.Path, template *corev1.PodTemplateSpec) {
	pod, spec := &template.Spec, at.Child("spec")
	if len(pod.Containers) == 0 {
		pc.findings.refuse(field.Required(spec.Child("containers"), "must have at least one container"))
	}
	volumes := pc.volumes(spec.Child("volumes"), pod.Volumes)
	names := sets.New[string]()
	for _, list := range []struct {
		name       string
		containers []corev1.Container
	}{{"containers", pod.Containers}, {"initContainers", pod.InitContainers}} {
		for i := range list.containers {
			at, container, first := spec.Child(list.name).Index(i), &list.containers[i], list.name == "containers" && i == 0
			pc.containerName(at.Child("name"), container.Name, names)
			pc.container(at, container, pc.imageGiven && first)
			pc.ports(at.Child("ports"), container.Ports, first)
			taken := pc.taken
			if !first {
				taken = nil
			}
			pc.mounts(at.Child("volumeMounts"), container.VolumeMounts, volumes, taken)
		}
	}
	pc.findings.refuse(labelsInOrder(template.Labels, at.Child("metadata", "labels"))...)
	pc.findings.refuse(annotationsInOrder(template.Annotations, at.Child("metadata", "annotations"))...)
	exclusiveTopology(pc.findings, at.Child("metadata"), nil, template.Annotations)
	pc.findings.refuse(labelsInOrder(pod.NodeSelector, spec.Child("nodeSelector"))...)
	if dns := pod.DNSConfig; dns != nil && len(dns.Searches) > maxSearches {
		pc.findings.refuse(field.TooMany(spec.Child("dnsConfig", "searches"), len(dns.Searches), maxSearches))
	}
	if pod.Resources != nil {
		pc.resources(spec.Child("resources"), pod.Resources)
	}
	for _, name := range job.ResourceNames(pod.Overhead) {
		pc.quantity(spec.Child("overhead").Key(string(name)), name, pod.Overhead[name])
	}
}

// volumes validates the names of volumes, and returns them.
func (pc *podCheck) volumes(at *field.Path, volumes []corev1.Volume) sets.Set[string] {
	for i := range volumes {
		for _, fault := range utilvalidation.IsDNS1123Label(volumes[i].Name) {
			pc.findings.refuse(field.Invalid(at.Index(i).Child("name"), volumes[i].Name, fault))
		}
		pc.notOurs(at.Index(i).Child("name"), volumes[i].Name)
	}
	return volumeNames(volumes)
}

func volumeNames(volumes []corev1.Volume) sets.Set[string] {
	names := sets.New[string]()
	for i := range volumes {
		names.Insert(volumes[i].Name)
	}
	return names
}

func (pc *podCheck) containerName(at *field.Path, name string, names sets.Set[string]) {
	for _, fault := range utilvalidation.IsDNS1123Label(name) {
		pc.findings.refuse(field.Invalid(at, name, fault))
	}
	pc.notOurs(at, name)
	if names.Has(name) {
		pc.findings.refuse(field.Duplicate(at, name))
	}
	names.Insert(name)
}

// notOurs refuses a name with the operator's prefix.
func (pc *podCheck) notOurs(at *field.Path, name string) {
	if strings.HasPrefix(name, ownPrefix) {
		pc.findings.refuse(field.Forbidden(at, fmt.Sprintf("%s: the prefix %s is reserved for the operator; choose another name", name, ownPrefix)))
	}
}

func (pc *podCheck) ports(at *field.Path, ports []corev1.ContainerPort, first bool) {
	names := sets.New[string]()
	for i := range ports {
		port, at := &ports[i], at.Index(i)
		pc.notOurs(at.Child("name"), port.Name)
		if port.Name != "" && names.Has(port.Name) {
			pc.findings.refuse(field.Duplicate(at.Child("name"), port.Name))
		}
		names.Insert(port.Name)
		isTCP := port.Protocol == "" || port.Protocol == corev1.ProtocolTCP
		if pc.agentListens && !first && isTCP && port.ContainerPort == job.AgentPort {
			pc.findings.refuse(field.Forbidden(at.Child("containerPort"), fmt.Sprintf(
				"the operator's agent in the first container uses port %d, and containers of a pod share their ports; use another port", job.AgentPort)))
		}
	}
}

func (pc *podCheck) container(at *field.Path, container *corev1.Container, imageGiven bool) {
	if container.Image != "" || !imageGiven {
		pc.image(at.Child("image"), container.Image)
	}
	pc.environment(at.Child("env"), container.Env)
	pc.resources(at.Child("resources"), &container.Resources)
	if context := container.SecurityContext; context != nil && context.Privileged != nil && *context.Privileged {
		pc.findings.refuse(field.Forbidden(at.Child("securityContext", "privileged"), "privileged containers are not allowed"))
	}
}

func (pc *podCheck) image(at *field.Path, image string) {
	if image == "" {
		pc.findings.refuse(field.Required(at, "must be set to an image"))
		return
	}
	if _, err := ParseImage(image); err != nil {
		pc.findings.refuse(field.Invalid(at, image, err.Error()))
	}
}

// ParseImage parses an image name. Its error says what is wrong and how to write it.
func ParseImage(image string) (reference.Named, error) {
	name, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return nil, fmt.Errorf("is not a valid image name (%w); write registry/name:tag", err)
	}
	return name, nil
}

func (pc *podCheck) environment(at *field.Path, variables []corev1.EnvVar) {
	if most := int(pc.rules.Limits.MaxEnv); len(variables) > most {
		pc.findings.refuse(field.TooMany(at, len(variables), most))
		return
	}
	for i := range variables {
		// The rule for pods since Kubernetes 1.30.
		for _, fault := range utilvalidation.IsRelaxedEnvVarName(variables[i].Name) {
			pc.findings.refuse(field.Invalid(at.Index(i).Child("name"), variables[i].Name, fault))
		}
	}
}

func (pc *podCheck) mounts(at *field.Path, mounts []corev1.VolumeMount, volumes sets.Set[string], taken map[string]mountOwner) {
	mounted := sets.New[string]()
	for i := range mounts {
		mount, at := &mounts[i], at.Index(i)
		if !volumes.Has(mount.Name) {
			pc.findings.refuse(field.NotFound(at.Child("name"), mount.Name))
		}
		switch directory := path.Clean(mount.MountPath); {
		case mount.MountPath == "":
			pc.findings.refuse(field.Required(at.Child("mountPath"), "must be a directory of the container"))
		case mounted.Has(directory):
			pc.findings.refuse(field.Duplicate(at.Child("mountPath"), mount.MountPath))
		case taken[directory] != "":
			pc.findings.refuse(field.Forbidden(at.Child("mountPath"), fmt.Sprintf("%s is used by %s; use another mountPath", directory, taken[directory])))
		default:
			mounted.Insert(directory)
		}
	}
}

// mountOwner is who mounts a volume.
type mountOwner string

const (
	mountedByOperator    mountOwner = "the operator, for files that MPI needs"
	mountedByInitializer mountOwner = "the initializer"
	mountedByRuntime     mountOwner = "the runtime"
)

// byOperator returns directories where the operator mounts a volume.
func byOperator(directories ...string) map[string]mountOwner {
	taken := map[string]mountOwner{}
	for _, directory := range directories {
		taken[path.Clean(directory)] = mountedByOperator
	}
	return taken
}

// queueName validates the name of a Volcano queue.
func queueName(findings *Findings, at *field.Path, name string) {
	if name == "" {
		return
	}
	if faults := utilvalidation.IsDNS1123Label(name); len(faults) > 0 {
		findings.refuse(field.Invalid(at, name, "is not a valid queue name: "+strings.Join(faults, "; ")))
	}
}
