// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/gang"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

const (
	workspaceVolume = "trireme-workspace"
	pvcScheme       = "pvc://"
	// sourceDirectory is where the initializer mounts a PVC that it copies from.
	sourceDirectory = "/source"
)

// initializerObjects are the objects that the initializer's pod needs.
func initializerObjects(j *job.Job, env Environment) []gang.Object {
	var objects []gang.Object
	if j.NetworkPolicy != "" {
		objects = append(objects, NetworkPolicy(j, env.EgressPorts, env.Reports))
	}
	if j.Initializer != nil && j.Initializer.ClaimName == "" {
		objects = append(objects, workspace(j))
	}
	return append(objects, claims(j)...)
}

// claims are the PVCs that the job's pods share.
func claims(j *job.Job) []gang.Object {
	objects := []gang.Object{}
	for i := range j.Claims {
		claim := &j.Claims[i]
		object := &corev1.PersistentVolumeClaim{ObjectMeta: objectMeta(j, claim.Name), Spec: *claim.Spec.DeepCopy()}
		object.Labels, object.Annotations = merged(claim.Labels, object.Labels), merged(claim.Annotations, nil)
		objects = append(objects, object)
	}
	return objects
}

// outlives reports whether an object is kept when its job is deleted.
func outlives(j *job.Job, object gang.Object) bool {
	return slices.ContainsFunc(j.Claims, func(claim job.Claim) bool { return claim.Retained && claim.Name == object.GetName() }) && isClaim(object)
}

func isClaim(object gang.Object) bool {
	_, is := object.(*corev1.PersistentVolumeClaim)
	return is
}

// InitializerNames are the pods that must exist before launcher and workers do. A step
// that has succeeded is not repeated.
func InitializerNames(j *job.Job, state State) (names []string) {
	for index := range max(j.Initializers(), 1) {
		if !hasSucceeded(j, state, index) {
			names = append(names, PodName(j, training.RoleInitializer, int32(index), state.Restart))
		}
	}
	return names
}

func hasSucceeded(j *job.Job, state State, index int) bool {
	return slices.ContainsFunc(state.Initializers, func(pod *corev1.Pod) bool {
		return StepOf(pod) == index && pod.Status.Phase == corev1.PodSucceeded && index < len(j.Steps)
	})
}

// StepOf is the index of an initializer's pod among the steps of its job.
func StepOf(pod *corev1.Pod) int {
	number, err := strconv.Atoi(pod.Labels[training.LabelReplicaIndex])
	if err != nil || number < 0 {
		return 0
	}
	return number
}

// initializerPods are the pods of the steps that have not succeeded yet.
func initializerPods(j *job.Job, state State, env Environment) (pods []*corev1.Pod) {
	if j.Initializer != nil {
		return []*corev1.Pod{initializerPod(j, state.Restart, env)}
	}
	for index := range j.Steps {
		if !hasSucceeded(j, state, index) {
			pods = append(pods, start{job: j, state: state}.step(index))
		}
	}
	return pods
}

// step is the pod of a step, as its template describes it.
func (s start) step(index int) *corev1.Pod {
	template := s.job.Steps[index].Template.DeepCopy()
	template.Labels = merged(template.Labels, PodLabels(s.job, training.RoleInitializer))
	template.Labels[training.LabelReplicaIndex] = strconv.Itoa(index)
	template.Annotations = merged(template.Annotations, map[string]string{training.IstioInject: "false"})
	template.Spec.Hostname = fmt.Sprintf("%s-%s-0-0", s.job.Name, s.job.Steps[index].Name)
	pod := s.pod(template, training.RoleInitializer, int32(index))
	s.join(pod, training.RoleInitializer, int32(index))
	return pod
}

// workspace is the PVC that the initializer fetches to. It is deleted with the job.
func workspace(j *job.Job) *corev1.PersistentVolumeClaim {
	mode := corev1.ReadWriteOnce
	if j.Worker.Replicas > 1 {
		mode = corev1.ReadWriteMany
	}
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: objectMeta(j, NamesOf(j).Workspace),
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{mode},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: j.Initializer.Size.DeepCopy()}},
		},
	}
	if class := j.Initializer.StorageClassName; class != nil {
		claim.Spec.StorageClassName = new(*class)
	}
	return claim
}

// initializerPod fetches model and dataset at the same time, in two containers of one
// pod. The kubelet restarts a container that fails; package diagnosis limits how often.
func initializerPod(j *job.Job, restart int32, env Environment) *corev1.Pod {
	names := NamesOf(j)
	worker := j.Worker.Template.Spec.DeepCopy()
	pod := corev1.PodSpec{
		RestartPolicy:                corev1.RestartPolicyOnFailure,
		AutomountServiceAccountToken: new(false),
		ServiceAccountName:           worker.ServiceAccountName,
		ImagePullSecrets:             worker.ImagePullSecrets,
		Tolerations:                  worker.Tolerations,
		SecurityContext:              worker.SecurityContext,
		Volumes:                      []corev1.Volume{pvcVolume(workspaceVolume, names.Workspace, false)},
	}
	setFSGroup(&pod)
	addPullSecrets(&pod, env.Delivery.PullSecrets)
	for _, source := range []struct {
		kind string
		*job.Source
	}{{"dataset", j.Initializer.Dataset}, {"model", j.Initializer.Model}} {
		if source.Source != nil {
			addFetchContainer(&pod, env.InitializerImage, source.kind, source.Source)
		}
	}
	metadata := objectMeta(j, PodName(j, training.RoleInitializer, 0, restart))
	metadata.Labels = PodLabels(j, training.RoleInitializer)
	metadata.Labels[training.LabelRestart] = strconv.Itoa(int(restart))
	metadata.Annotations = map[string]string{training.IstioInject: "false"}
	metadata.OwnerReferences = []metav1.OwnerReference{OwnerOf(j)}
	return &corev1.Pod{ObjectMeta: metadata, Spec: pod}
}

// setFSGroup lets a pod that does not run as root write to its volumes.
func setFSGroup(pod *corev1.PodSpec) {
	if context := pod.SecurityContext; context != nil && context.FSGroup == nil && context.RunAsUser != nil && *context.RunAsUser != 0 {
		context.FSGroup = new(*context.RunAsUser)
	}
}

// addFetchContainer adds a container that fetches one source.
func addFetchContainer(pod *corev1.PodSpec, image, kind string, source *job.Source) {
	container := corev1.Container{
		Name: kind, Image: image, ImagePullPolicy: corev1.PullIfNotPresent,
		Command: []string{"/initializer", "fetch", "--kind", kind},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi")},
			Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("1Gi")},
		},
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
		VolumeMounts: []corev1.VolumeMount{{Name: workspaceVolume, MountPath: job.WorkspaceDirectory}},
	}
	if source.Secret != "" {
		container.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: source.Secret}}}}
	}
	if claim, isPVC := strings.CutPrefix(source.URI, pvcScheme); isPVC {
		claim, _, _ = strings.Cut(claim, "/")
		pod.Volumes = append(pod.Volumes, pvcVolume("trireme-from-"+kind, claim, false))
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: "trireme-from-" + kind, MountPath: sourceDirectory, ReadOnly: true})
		container.Command = append(container.Command, "--from", sourceDirectory)
	}
	container.Command = append(container.Command, source.URI, path.Join(job.WorkspaceDirectory, kind))
	pod.Containers = append(pod.Containers, container)
}
