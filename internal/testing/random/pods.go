// SPDX-License-Identifier: Apache-2.0

package random

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/trireme-mpi/trireme/api/training"
)

// pool is what to choose from: the usual, and what is the operator's own.
type pool struct{ usual, traps []string }

var (
	images      = []string{"training:1", "registry.example.com/team-a/resnet@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"}
	volumes     = pool{[]string{"data", "scratch", "shm", "cache"}, []string{"trireme-keys", "trireme-agent", "trireme-shm", "trireme-tmp", "trireme-hostfile", "trireme-clock", "trireme-gate", "trireme-workspace"}}
	sidecars    = pool{[]string{"logs", "metrics", "proxy"}, []string{"trireme-install", "trireme-gate"}}
	directories = pool{
		[]string{"/data", "/scratch/", "/dev/shm", "/tmp", "/home/mpiuser/.ssh"},
		[]string{"/etc/mpi", "/etc/mpi/", "/opt/trireme", "/etc/trireme/ssh", "/etc/trireme/pod", "/workspace", "/workspace/", "/root/.ssh", "/dev/shm", "/tmp/"},
	}
	// Variables of ours are no trap: whoever sets them has the last word.
	variables = []string{
		"NCCL_DEBUG", "HOME", "PATH", "MPIJOB_NAME", "MPIJOB_ROLE", "MPIJOB_WORLD_SIZE", "MPIJOB_WORKER_INDEX", "K_MPI_JOB_ROLE",
		"TRIREME_GRACE", "TRIREME_HOSTFILE", "TRIREME_CLOCK_FILE", "OMPI_MCA_plm_rsh_agent", "I_MPI_PERHOST", "NVIDIA_VISIBLE_DEVICES",
	}
)

// template is that of a role. Half of them are full of everything that a pod can
// have, sense or not, except where that would be refused.
func (dice dice) template(role string) corev1.PodTemplateSpec {
	var template corev1.PodTemplateSpec
	if dice.chance(50) {
		Fill(dice.Int63(), &template)
	}
	template.Labels = map[string]string{"app": "resnet"}
	template.Annotations = map[string]string{"note": "anything at all"}
	dice.takeOurs(&template)
	pod := &template.Spec
	pod.Resources, pod.Overhead, pod.NodeSelector, pod.EphemeralContainers = nil, nil, map[string]string{"disk": "ssd"}, nil
	pod.HostNetwork, pod.DNSPolicy = dice.chance(20), pick(dice, "", corev1.DNSClusterFirst, corev1.DNSDefault)
	pod.SchedulerName = pick(dice, "", "", corev1.DefaultSchedulerName)
	pod.DNSConfig = dice.dnsConfig()
	pod.SecurityContext = pick(dice, nil, nil, pod.SecurityContext,
		&corev1.PodSecurityContext{RunAsUser: new(int64(0))}, &corev1.PodSecurityContext{RunAsUser: new(int64(1000)), FSGroup: new(int64(7))})
	pod.Volumes = nil
	for _, name := range someAnd(dice, 3, volumes.usual, volumes.traps) {
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: name, VolumeSource: dice.volumeSource()})
	}
	main := dice.container(role, pod.Volumes)
	main.Resources = requirements("2", "4Gi")
	if role == "worker" {
		main.Command, main.Args = nil, nil
		if dice.chance(30) {
			main.Command = []string{"/usr/sbin/sshd", "-De"}
		}
	}
	// What a launcher needs is next to nothing, and can be said of the pod as a whole.
	if dice.chance(10) {
		main.Resources, pod.Resources = corev1.ResourceRequirements{}, new(requirements("2", "4Gi"))
		if role == "launcher" {
			pod.Resources = new(requirements("50m", "32Mi"))
		}
		pod.Resources.Requests = pod.Resources.Limits
	}
	pod.Containers, pod.InitContainers = []corev1.Container{main}, nil
	for _, name := range someAnd(dice, 2, sidecars.usual, sidecars.traps) {
		if other := dice.container(name, pod.Volumes); dice.chance(50) {
			pod.Containers = append(pod.Containers, other)
		} else {
			other.RestartPolicy = maybe(dice, corev1.ContainerRestartPolicyAlways)
			pod.InitContainers = append(pod.InitContainers, other)
		}
	}
	return template
}

// takeOurs are labels and annotations in our places, and some that nobody can have.
func (dice dice) takeOurs(template *corev1.PodTemplateSpec) {
	if dice.chance(20) {
		template.Labels[pick(dice, training.LabelJobName, training.LabelReplicaIndex, training.LabelReplicaType, training.LabelJobRole)] = "theirs"
	}
	if dice.chance(20) {
		template.Labels[training.IstioInject], template.Annotations[training.IstioInject] = "true", "true"
	}
	if dice.chance(trap) {
		template.Labels[pick(dice, "two words", "a/b/c", "app")] = "two words"
	}
	if dice.chance(trap) {
		template.Annotations["two words"] = ""
	}
}

func (dice dice) dnsConfig() *corev1.PodDNSConfig {
	config := corev1.PodDNSConfig{Searches: some(dice, 2, "example.com", "example.org", "cluster.local")}
	if dice.chance(trap) {
		for len(config.Searches) < 32 {
			config.Searches = append(config.Searches, pick(dice, "example.net", "example.edu"))
		}
	}
	return maybe(dice, config)
}

func (dice dice) volumeSource() corev1.VolumeSource {
	return pick(dice,
		corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
		corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}},
		corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "imagenet"}})
}

// container is one of a pod with these volumes.
func (dice dice) container(name string, volumes []corev1.Volume) corev1.Container {
	var container corev1.Container
	if dice.chance(30) {
		Fill(dice.Int63(), &container)
		if container.SecurityContext != nil {
			container.SecurityContext.Privileged = nil
		}
	}
	if dice.chance(20) {
		container.SecurityContext = &corev1.SecurityContext{ReadOnlyRootFilesystem: new(true), RunAsUser: maybe(dice, int64(1000))}
	}
	container.Name, container.Image = name, pick(dice, images...)
	container.Command, container.Args = some(dice, 2, "mpirun", "python", "train.py"), some(dice, 2, "-np", "4")
	container.Env, container.Ports = dice.environment(), dice.ports()
	container.Resources, container.VolumeDevices, container.VolumeMounts = corev1.ResourceRequirements{}, nil, nil
	for _, directory := range someAnd(dice, 2, directories.usual, directories.traps) {
		if len(volumes) > 0 {
			container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: pick(dice, volumes...).Name, MountPath: directory})
		}
	}
	return container
}

func (dice dice) environment() []corev1.EnvVar {
	var environment []corev1.EnvVar
	for _, name := range some(dice, 4, variables...) {
		variable := corev1.EnvVar{Name: name, Value: pick(dice, "", "1", "$(HOME)")}
		if dice.chance(20) {
			variable = corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}
		}
		environment = append(environment, variable)
	}
	return environment
}

func (dice dice) ports() []corev1.ContainerPort {
	numbers := someAnd(dice, 2, []int32{22, 8080, 9090}, []int32{2222})
	names := some(dice, 3, "ssh", "http", "metrics")
	if dice.chance(trap) {
		names = []string{pick(dice, "trireme-ssh", "ssh"), "ssh", ""}
	}
	var ports []corev1.ContainerPort
	for i, number := range numbers {
		port := corev1.ContainerPort{ContainerPort: number, Protocol: pick(dice, "", corev1.ProtocolTCP, corev1.ProtocolUDP)}
		if i < len(names) {
			port.Name = names[i]
		}
		ports = append(ports, port)
	}
	return ports
}

func requirements(cpu, memory string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}}
}
