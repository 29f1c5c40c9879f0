// SPDX-License-Identifier: Apache-2.0

// Package plan computes the objects that must exist for a job. It is a pure function of
// the model: the same job gives the same objects, byte for byte.
package plan

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/mpi"
)

// RunningAnnotation is set on a launcher's pod to the time since when all workers have
// been running. The timeout of the agent's gate starts then.
const RunningAnnotation = "training.kubeflow.org/workers-running-at"

// GateContainer is the init container that waits for the workers in a launcher that runs
// its image's entrypoint.
const GateContainer = "trireme-gate"

const (
	hostfileFile       = "hostfile"
	discoverHostsFile  = "discover_hosts.sh"
	keysVolume         = "trireme-keys"
	hostfileVolume     = "trireme-hostfile"
	clockVolume        = "trireme-clock"
	sharedMemoryVolume = "trireme-shm"
	tmpVolume          = "trireme-tmp"
	sshPort            = "trireme-ssh"
)

// Parts are the objects that pods refer to by name.
type Parts struct {
	Secret   string
	Hostfile string
	Delivery Delivery
}

// WorkerPod is the template of a job's workers.
func WorkerPod(j *job.Job, parts Parts) corev1.PodTemplateSpec {
	template := *j.Worker.Template.DeepCopy()
	pod := &template.Spec
	container := &pod.Containers[0]
	addScratch(pod)
	if !j.WorkersRunAgent() {
		addImageKeys(pod, j, parts.Secret)
		return template
	}
	container.Command = []string{protocol.Path, "worker"}
	addKeys(pod, parts.Secret, protocol.HostKey, protocol.AuthorizedKeys)
	setVariable(container, protocol.GraceVariable, workerGrace(pod).String())
	addReadiness(container)
	AddAgent(pod, parts.Delivery)
	return template
}

// workerGrace is how long the agent lets its processes shut down. It is shorter than the
// pod's grace period, so that the agent can still kill them.
func workerGrace(pod *corev1.PodSpec) time.Duration {
	seconds := int64(30)
	if pod.TerminationGracePeriodSeconds != nil {
		seconds = *pod.TerminationGracePeriodSeconds
	}
	return time.Duration(max(seconds*2/3, 1)) * time.Second
}

// LauncherPod is the template of a job's launcher.
func LauncherPod(j *job.Job, parts Parts) corev1.PodTemplateSpec {
	template := *j.Launcher.Template.DeepCopy()
	pod := &template.Spec
	container := &pod.Containers[0]
	addScratch(pod)
	addLauncherFiles(pod, j, parts)
	for _, variable := range launcherVariables(j) {
		setVariable(container, variable.Name, variable.Value)
	}
	if path := container.TerminationMessagePath; path != "" {
		setVariable(container, protocol.ReportVariable, path)
	}
	if len(container.Command) == 0 {
		// Without a command the container runs the image's entrypoint, which the agent
		// cannot wrap. The gate is then an init container.
		addGate(pod, j, parts)
		if j.WorkersRunAgent() {
			AddAgent(pod, parts.Delivery)
		}
		return template
	}
	container.Command = slices.Concat([]string{protocol.Path, "launch", "--"}, container.Command, container.Args)
	container.Args = nil
	addReadiness(container)
	AddAgent(pod, parts.Delivery)
	return template
}

// addLauncherFiles mounts the hostfile, the keys and the file with RunningAnnotation.
func addLauncherFiles(pod *corev1.PodSpec, j *job.Job, parts Parts) {
	container := &pod.Containers[0]
	pod.Volumes = append(pod.Volumes,
		corev1.Volume{Name: hostfileVolume, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: parts.Hostfile}, DefaultMode: new(int32(0o555)),
		}}},
		corev1.Volume{Name: clockVolume, VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
			Items: []corev1.DownwardAPIVolumeFile{{
				Path:     path.Base(protocol.ClockFile),
				FieldRef: &corev1.ObjectFieldSelector{FieldPath: fmt.Sprintf("metadata.annotations['%s']", RunningAnnotation)},
			}},
		}}})
	mount(container, hostfileVolume, job.HostfileDirectory)
	mount(container, clockVolume, job.ClockDirectory)
	if j.WorkersRunAgent() {
		addKeys(pod, parts.Secret, protocol.ClientKey, protocol.HostPublicKey)
	} else {
		addImageKeys(pod, j, parts.Secret)
	}
}

// addGate adds the gate as an init container.
func addGate(pod *corev1.PodSpec, j *job.Job, parts Parts) {
	// The arguments of mpirun may set the ports that it uses.
	gate := agentContainer(GateContainer, pod, parts.Delivery.Image, append([]string{"gate"}, pod.Containers[0].Args...)...)
	for _, mounted := range pod.Containers[0].VolumeMounts {
		// If workers run their image's sshd, the gate does not log in and needs no key.
		needsKeys := mounted.Name == keysVolume && j.WorkersRunAgent()
		if mounted.Name == hostfileVolume || mounted.Name == clockVolume || needsKeys {
			gate.VolumeMounts = append(gate.VolumeMounts, mounted)
		}
	}
	// The user may configure the gate with variables of the main container.
	for _, variable := range pod.Containers[0].Env {
		if strings.HasPrefix(variable.Name, protocol.VariablePrefix) || mpi.SetsPorts(variable.Name) {
			gate.Env = append(gate.Env, variable)
		}
	}
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: "trireme-gate", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	gate.VolumeMounts = append(gate.VolumeMounts, corev1.VolumeMount{Name: "trireme-gate", MountPath: "/tmp"})
	pod.InitContainers = append(pod.InitContainers, gate)
	addPullSecrets(pod, parts.Delivery.PullSecrets)
}

// launcherVariables configure mpirun and the agent.
func launcherVariables(j *job.Job) []corev1.EnvVar {
	launch := mpi.Launch{Hostfile: path.Join(job.HostfileDirectory, hostfileFile), Slots: int(j.Slots), Agent: protocol.Path}
	if !j.WorkersRunAgent() {
		// The same option as mpi-operator's. The gate has reached all hosts already, so ssh
		// retries only if a worker becomes unreachable after that.
		launch.Agent, launch.SSHOptions = "", "-o ConnectionAttempts=10"
	}
	variables := agentVariables(j)
	if j.ProgressPattern != "" {
		variables = append(variables, corev1.EnvVar{Name: protocol.ProgressPatternVariable, Value: j.ProgressPattern})
	}
	if j.TagOutput {
		variables = append(variables, corev1.EnvVar{Name: protocol.TagOutputVariable, Value: string(j.MPI)})
	}
	for _, variable := range mpi.Environment(launch) {
		variables = append(variables, corev1.EnvVar{Name: variable.Name, Value: variable.Value})
	}
	return variables
}

func agentVariables(j *job.Job) []corev1.EnvVar {
	return []corev1.EnvVar{
		{Name: protocol.ClockVariable, Value: protocol.ClockFile},
		{Name: protocol.HostfileVariable, Value: path.Join(job.HostfileDirectory, hostfileFile)},
		{Name: protocol.ImageSSHVariable, Value: strconv.FormatBool(!j.WorkersRunAgent())},
		{Name: protocol.RequireAllHostsVariable, Value: strconv.FormatBool(j.RequireAllHosts)},
	}
}

// setVariable sets a variable unless the user has set it.
func setVariable(container *corev1.Container, name, value string) {
	addVariable(container, corev1.EnvVar{Name: name, Value: value})
}

func addVariable(container *corev1.Container, variable corev1.EnvVar) {
	if !slices.ContainsFunc(container.Env, func(existing corev1.EnvVar) bool { return existing.Name == variable.Name }) {
		container.Env = append(container.Env, variable)
	}
}

// addKeys mounts those of the job's key files that a role needs. Any user can read them,
// because the user of the container is not known, and the container has no other users.
func addKeys(pod *corev1.PodSpec, secret string, files ...string) {
	source := &corev1.SecretVolumeSource{SecretName: secret, DefaultMode: new(int32(0o444))}
	for _, file := range files {
		source.Items = append(source.Items, corev1.KeyToPath{Key: file, Path: file})
	}
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: keysVolume, VolumeSource: corev1.VolumeSource{Secret: source}})
	mount(&pod.Containers[0], keysVolume, job.KeyDirectory)
}

// addImageKeys mounts the client's key pair where an image with its own sshd expects it.
// Root owns the files of a Secret, and OpenSSH refuses a private key of the user that
// others can read: root needs 0600, and other users need read permission.
func addImageKeys(pod *corev1.PodSpec, j *job.Job, secret string) {
	mode := int32(0o644)
	if path.Clean(j.SSHDirectory) == job.RootSSHDirectory || job.MainRunsAsRoot(pod) {
		mode = 0o600
	}
	source := &corev1.SecretVolumeSource{SecretName: secret, DefaultMode: &mode}
	for _, file := range []string{protocol.ClientKey, protocol.ClientPublicKey, protocol.AuthorizedKeys} {
		source.Items = append(source.Items, corev1.KeyToPath{Key: file, Path: file})
	}
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: keysVolume, VolumeSource: corev1.VolumeSource{Secret: source}})
	mount(&pod.Containers[0], keysVolume, j.SSHDirectory)
}

// addReadiness makes a container ready once the agent's port is open.
func addReadiness(container *corev1.Container) {
	port := intstr.FromString(sshPort)
	if slices.ContainsFunc(container.Ports, isAgentPort) {
		// The user may have listed the port under another name.
		port = intstr.FromInt32(protocol.Port)
	} else {
		container.Ports = append(container.Ports, corev1.ContainerPort{Name: sshPort, ContainerPort: protocol.Port, Protocol: corev1.ProtocolTCP})
	}
	if container.ReadinessProbe == nil {
		container.ReadinessProbe = &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: port}},
			PeriodSeconds: 2,
		}
	}
}

func isAgentPort(port corev1.ContainerPort) bool {
	return port.ContainerPort == protocol.Port && (port.Protocol == "" || port.Protocol == corev1.ProtocolTCP)
}

// addScratch adds /dev/shm and /tmp for MPI: the 64 MiB of /dev/shm that containers have
// by default are too little for several ranks, and /tmp is not writable with a read-only
// root filesystem.
func addScratch(pod *corev1.PodSpec) {
	container := &pod.Containers[0]
	if !isMounted(container, "/dev/shm") {
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: sharedMemoryVolume,
			VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}})
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: sharedMemoryVolume, MountPath: "/dev/shm"})
	}
	if context := container.SecurityContext; context != nil && context.ReadOnlyRootFilesystem != nil && *context.ReadOnlyRootFilesystem && !isMounted(container, "/tmp") {
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: tmpVolume, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: tmpVolume, MountPath: "/tmp"})
	}
}

func isMounted(container *corev1.Container, directory string) bool {
	return slices.ContainsFunc(container.VolumeMounts, func(mount corev1.VolumeMount) bool { return path.Clean(mount.MountPath) == directory })
}

// Hostfile lists hosts in the format of the job's MPI.
func Hostfile(j *job.Job, hosts []string) string {
	lines := make([]mpi.Host, len(hosts))
	for i, host := range hosts {
		lines[i] = mpi.Host{Name: host, Slots: int(j.Slots)}
	}
	return mpi.Hostfile(mpi.Implementation(j.MPI), lines)
}
