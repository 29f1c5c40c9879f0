// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"path"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// Errors that the API server would refuse, and that no other unit test would find.
func TestPodsAreConsistent(t *testing.T) {
	everyJob(t, func(t *testing.T, tc planned) {
		for _, pod := range pods(tc.job(), tc.method) {
			for _, fault := range inconsistencies(&pod.got.Spec) {
				t.Errorf("%s: %s", pod.role, fault)
			}
		}
	})
	everyPlan(t, func(t *testing.T, _ whole, plan Plan) {
		for name, pod := range podsOf(plan) {
			for _, fault := range inconsistencies(&pod.Spec) {
				t.Errorf("%s: %s", name, fault)
			}
		}
	})
}

// inconsistencies are duplicates and references to missing objects.
func inconsistencies(pod *corev1.PodSpec) (faults []string) {
	seen := map[string]bool{}
	once := func(form string, arguments ...any) {
		thing := fmt.Sprintf(form, arguments...)
		if seen[thing] {
			faults = append(faults, "two of "+thing)
		}
		seen[thing] = true
	}
	for _, volume := range pod.Volumes {
		once("volume %s", volume.Name)
	}
	for _, container := range slices.Concat(pod.InitContainers, pod.Containers) {
		name := container.Name
		once("container %s", name)
		for _, mount := range container.VolumeMounts {
			once("mount in %s at %s", name, path.Clean(mount.MountPath))
			if !seen["volume "+mount.Name] {
				faults = append(faults, fmt.Sprintf("%s mounts %s, which is no volume", name, mount.Name))
			}
		}
		for _, variable := range container.Env {
			once("variable in %s of name %s", name, variable.Name)
		}
		for _, port := range container.Ports {
			if port.Protocol == "" {
				port.Protocol = corev1.ProtocolTCP
			}
			once("port in %s at %d/%s", name, port.ContainerPort, port.Protocol)
			if port.Name != "" {
				once("port in %s of name %s", name, port.Name)
			}
		}
	}
	return faults
}

// The test above would prove nothing if it could not find faults.
func TestInconsistenciesAreFound(t *testing.T) {
	tests := map[string]func(*corev1.PodSpec){
		"a volume": func(pod *corev1.PodSpec) { pod.Volumes = append(pod.Volumes, pod.Volumes[0]) },
		"a container": func(pod *corev1.PodSpec) {
			pod.InitContainers = append(pod.InitContainers, corev1.Container{Name: pod.Containers[0].Name})
		},
		"a mount": func(pod *corev1.PodSpec) {
			container := &pod.Containers[0]
			container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: pod.Volumes[0].Name, MountPath: "/opt/trireme/"})
		},
		"a mount without a volume": func(pod *corev1.PodSpec) { pod.Containers[0].VolumeMounts[0].Name = "nothing" },
		"a variable": func(pod *corev1.PodSpec) {
			pod.Containers[0].Env = append(pod.Containers[0].Env, pod.Containers[0].Env[0])
		},
		"a port": func(pod *corev1.PodSpec) {
			pod.Containers[0].Ports = append(pod.Containers[0].Ports, corev1.ContainerPort{ContainerPort: 2222})
		},
		"the name of a port": func(pod *corev1.PodSpec) {
			pod.Containers[0].Ports = append(pod.Containers[0].Ports, corev1.ContainerPort{Name: "trireme-ssh", ContainerPort: 1})
		},
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			pod := WorkerPod(mpiJob(), parts(ImageVolume)).Spec
			if faults := inconsistencies(&pod); len(faults) > 0 {
				t.Fatalf("faults before the change: %v", faults)
			}
			change(&pod)
			if faults := inconsistencies(&pod); len(faults) != 1 {
				t.Errorf("%d faults found: %v", len(faults), faults)
			}
		})
	}
}
