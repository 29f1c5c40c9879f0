// SPDX-License-Identifier: Apache-2.0

package job

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

const (
	// RootSSHDirectory is where sshd looks for root's keys.
	RootSSHDirectory = "/root/.ssh"
	// userSSHDirectory is where images for mpi-operator have the keys.
	userSSHDirectory = "/home/mpiuser/.ssh"
)

// sshDirectory is where an image with its own sshd looks for the keys of its user.
func sshDirectory(worker *corev1.PodSpec) string {
	if MainRunsAsRoot(worker) {
		return RootSSHDirectory
	}
	return userSSHDirectory
}

// restrictByDefault sets what the Pod Security Standard "restricted" requires, unless the
// template sets it.
func restrictByDefault(pod *corev1.PodSpec, runAsUser *int64) {
	if pod.SecurityContext == nil {
		pod.SecurityContext = &corev1.PodSecurityContext{}
	}
	context := pod.SecurityContext
	if context.SeccompProfile == nil {
		context.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	}
	// A pod that runs as root could not start with RunAsNonRoot.
	if !runsAsRoot(pod) {
		setIfNil(&context.RunAsNonRoot, true)
		if *context.RunAsNonRoot && context.RunAsUser == nil && runAsUser != nil {
			context.RunAsUser = new(*runAsUser)
		}
	}
	for i := range pod.InitContainers {
		restrictContainer(&pod.InitContainers[i])
	}
	for i := range pod.Containers {
		restrictContainer(&pod.Containers[i])
	}
}

func restrictContainer(container *corev1.Container) {
	if container.SecurityContext == nil {
		container.SecurityContext = &corev1.SecurityContext{}
	}
	context := container.SecurityContext
	if !mustEscalate(context) {
		setIfNil(&context.AllowPrivilegeEscalation, false)
	}
	if context.Capabilities == nil {
		context.Capabilities = &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}
	}
}

// mustEscalate reports whether Kubernetes refuses AllowPrivilegeEscalation=false for
// this container.
func mustEscalate(context *corev1.SecurityContext) bool {
	return orElse(context.Privileged, false) || context.Capabilities != nil && slices.Contains(context.Capabilities.Add, "CAP_SYS_ADMIN")
}

// MainRunsAsRoot reports whether the main container, which runs MPI, is set to run as
// root. Init containers and sidecars may have other users.
func MainRunsAsRoot(pod *corev1.PodSpec) bool {
	user := int64(1)
	if pod.SecurityContext != nil {
		user = orElse(pod.SecurityContext.RunAsUser, user)
	}
	if len(pod.Containers) > 0 && pod.Containers[0].SecurityContext != nil {
		user = orElse(pod.Containers[0].SecurityContext.RunAsUser, user)
	}
	return user == 0
}

// runsAsRoot reports whether a pod, or any of its containers, is set to run as root.
func runsAsRoot(pod *corev1.PodSpec) bool {
	if context := pod.SecurityContext; context != nil && orElse(context.RunAsUser, 1) == 0 {
		return true
	}
	for _, containers := range [][]corev1.Container{pod.InitContainers, pod.Containers} {
		for i := range containers {
			if context := containers[i].SecurityContext; context != nil && orElse(context.RunAsUser, 1) == 0 {
				return true
			}
		}
	}
	return false
}

// setPriorityClass sets the job's priority class on pods that have none.
func setPriorityClass(job *Job) {
	for _, pod := range []*corev1.PodSpec{&job.Launcher.Template.Spec, &job.Worker.Template.Spec} {
		if pod.PriorityClassName == "" {
			pod.PriorityClassName = job.Gang.PriorityClass
		}
	}
}

func setIfNil[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}
