// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// Delivery is how pods get the agent.
type Delivery struct {
	Method Method
	// Image of the agent.
	Image string
	// PullSecrets are the image pull secrets for this image and the initializer's.
	PullSecrets []string
}

// Method is a way to deliver the agent to a pod.
type Method string

const (
	// ImageVolume mounts the agent's image. It is the cheaper method.
	ImageVolume Method = "ImageVolume"
	// InitContainer copies the agent before the pod's containers start.
	InitContainer Method = "InitContainer"
)

var (
	// imageVolumes is the first Kubernetes that enables image volumes by default.
	imageVolumes = version.MustParseSemantic("1.35.0")
	// containerdImageVolumes is the first containerd that supports image volumes.
	containerdImageVolumes = version.MustParseSemantic("2.1.0")
)

// BestMethod is an image volume if the API server and every node are known to support
// them.
func BestMethod(server string, nodes []corev1.Node) Method {
	if !atLeast(server, imageVolumes) || len(nodes) == 0 {
		return InitContainer
	}
	for i := range nodes {
		info := &nodes[i].Status.NodeInfo
		containerd, isContainerd := strings.CutPrefix(info.ContainerRuntimeVersion, "containerd://")
		if !isContainerd || !atLeast(containerd, containerdImageVolumes) || !atLeast(info.KubeletVersion, imageVolumes) {
			return InitContainer
		}
	}
	return ImageVolume
}

func atLeast(text string, minimum *version.Version) bool {
	parsed, err := version.ParseGeneric(text)
	return err == nil && parsed.AtLeast(minimum)
}

// agentVolume is the volume with the agent.
const agentVolume = "trireme-agent"

// AddAgent makes the agent available in the first container of a pod and changes
// nothing else.
func AddAgent(pod *corev1.PodSpec, delivery Delivery) {
	directory := job.AgentDirectory
	volume := corev1.Volume{Name: agentVolume}
	if delivery.Method == ImageVolume {
		volume.Image = &corev1.ImageVolumeSource{Reference: delivery.Image, PullPolicy: corev1.PullIfNotPresent}
	} else {
		volume.EmptyDir = &corev1.EmptyDirVolumeSource{}
		install := agentContainer("trireme-install", pod, delivery.Image, "install", directory)
		install.VolumeMounts = []corev1.VolumeMount{{Name: agentVolume, MountPath: directory}}
		pod.InitContainers = append([]corev1.Container{install}, pod.InitContainers...)
	}
	pod.Volumes = append(pod.Volumes, volume)
	mount(&pod.Containers[0], agentVolume, directory)
	addPullSecrets(pod, delivery.PullSecrets)
}

// addPullSecrets adds the image pull secrets that the pod does not have yet.
func addPullSecrets(pod *corev1.PodSpec, names []string) {
	for _, name := range names {
		reference := corev1.LocalObjectReference{Name: name}
		if !slices.Contains(pod.ImagePullSecrets, reference) {
			pod.ImagePullSecrets = append(pod.ImagePullSecrets, reference)
		}
	}
}

// agentContainer is a container of the agent's own image, under the same user as
// the pod's first container.
func agentContainer(name string, pod *corev1.PodSpec, image string, arguments ...string) corev1.Container {
	limits := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi")}
	resources := corev1.ResourceRequirements{Requests: limits, Limits: limits.DeepCopy()}
	if podResources := pod.Resources; podResources != nil && len(podResources.Requests)+len(podResources.Limits) > 0 {
		// A container may not request more than its pod does, and the pod may request less
		// than the agent would.
		resources = corev1.ResourceRequirements{}
	}
	context := &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false),
		ReadOnlyRootFilesystem:   new(true),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
	if first := pod.Containers[0].SecurityContext; first != nil {
		context.RunAsUser, context.RunAsGroup, context.RunAsNonRoot = first.RunAsUser, first.RunAsGroup, first.RunAsNonRoot
		context.SeccompProfile = first.SeccompProfile
	}
	return corev1.Container{
		Name:            name,
		Image:           image,
		ImagePullPolicy: corev1.PullIfNotPresent,
		Command:         append([]string{"/" + path.Base(protocol.Path)}, arguments...),
		Resources:       resources,
		SecurityContext: context,
	}
}

func mount(container *corev1.Container, volume, directory string) {
	container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: volume, MountPath: directory, ReadOnly: true})
}
