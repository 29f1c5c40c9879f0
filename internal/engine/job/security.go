package job

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

const (
	// RootSSHDirectory is where sshd looks for root's keys.
	RootSSHDirectory = "/root/.ssh"
	// userSSHDirectory is where images prepared for mpi-operator have them.
	userSSHDirectory = "/home/mpiuser/.ssh"
)

// sshDirectory is where an image with an sshd of its own looks for the keys of the user
// that it runs as.
func sshDirectory(worker *corev1.PodSpec) string {
	if MainRunsAsRoot(worker) {
		return RootSSHDirectory
	}
	return userSSHDirectory
}

// restrictByDefault sets what PodSecurity's level "restricted" asks for,
// wherever the template leaves it open. What the template says stays.
func restrictByDefault(pod *corev1.PodSpec, runAsUser *int64) {
	if pod.SecurityContext == nil {
		pod.SecurityContext = &corev1.PodSecurityContext{}
	}
	context := pod.SecurityContext
	if context.SeccompProfile == nil {
		context.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	}
	// A pod that says it is root would not start if it also had to be another.
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

// mustEscalate tells whether Kubernetes refuses a container that may not
// escalate.
func mustEscalate(context *corev1.SecurityContext) bool {
	return orElse(context.Privileged, false) || context.Capabilities != nil && slices.Contains(context.Capabilities.Add, "CAP_SYS_ADMIN")
}

// MainRunsAsRoot tells whether the container that runs MPI says that it is
// root. Init containers and sidecars may be somebody else.
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

// runsAsRoot tells whether a pod, or a container of it, says that it is root.
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

// setPriorityClass passes the job's priority class on to pods that name none.
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
