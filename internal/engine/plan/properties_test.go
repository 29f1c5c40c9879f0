// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// rolePod is the template of a role in the model, and in the plan.
type rolePod struct {
	role      string
	model     corev1.PodTemplateSpec
	got       corev1.PodTemplateSpec
	runsAgent bool
}

func pods(j *job.Job, method Method) []rolePod {
	return []rolePod{
		{role: "launcher", model: *j.Launcher.Template.DeepCopy(), got: LauncherPod(j, parts(method)), runsAgent: len(j.Launcher.Template.Spec.Containers[0].Command) > 0},
		{role: "worker", model: *j.Worker.Template.DeepCopy(), got: WorkerPod(j, parts(method)), runsAgent: j.WorkersRunAgent()},
	}
}

func noGrace(template *corev1.PodTemplateSpec) {
	template.Spec.TerminationGracePeriodSeconds = new(int64(0))
}

// traits are features of jobs that can be combined freely. The order counts: the last
// one changes the containers of those before it.
var traits = []struct {
	name string
	of   option
}{
	{"image's sshd", imageSSH},
	{"root", asRoot},
	{"no command", launcherCommand()},
	{"read-only root", both(readOnlyRoot)},
	{"own scratch", both(ownScratch)},
	{"own variables", both(ownVariables)},
	{"own probe", both(ownProbe)},
	{"own containers", both(ownContainers)},
	{"everything", both(ownEverything)},
	{"Hydra", implementation(v2beta1.MPIImplementationMPICH)},
	{"restricted containers", both(restrictedContainers)},
}

// everyJob calls check with every golden and every combination of traits. There are
// thousands, so checks compare first and compute a diff only if that fails.
func everyJob(t *testing.T, check func(t *testing.T, tc planned)) {
	t.Helper()
	for name, tc := range goldens {
		t.Run(name, func(t *testing.T) { check(t, tc) })
	}
	t.Run("combinations", func(t *testing.T) {
		for chosen := range 1 << len(traits) {
			for _, method := range []Method{ImageVolume, InitContainer} {
				names, options := traitsOf(chosen)
				check(t, planned{job: ofMPIJob(options...), method: method})
				// Thousands of subtests would be slow.
				if t.Failed() {
					t.Fatalf("a job with [%s], by %s", strings.Join(names, ", "), method)
				}
			}
		}
	})
}

func traitsOf(chosen int) (names []string, options []option) {
	for i, trait := range traits {
		if chosen&(1<<i) != 0 {
			names, options = append(names, trait.name), append(options, trait.of)
		}
	}
	return names, options
}

func TestTemplatesKeepOtherFields(t *testing.T) {
	everyJob(t, func(t *testing.T, tc planned) {
		for _, pod := range pods(tc.job(), tc.method) {
			want := pod.model
			if pod.runsAgent {
				// The agent's command is followed by the original command line.
				container := &want.Spec.Containers[0]
				container.Command, container.Args = slices.Concat(container.Command, container.Args), nil
			}
			if got := withoutOurs(pod); !equality.Semantic.DeepEqual(want, got) {
				t.Errorf("%s without what the plan adds (-want +got):\n%s", pod.role, cmp.Diff(want, got, cmpopts.EquateEmpty()))
			}
		}
	})
}

// withoutOurs removes exactly what the plan may add, so that other additions and changes
// are found.
func withoutOurs(pod rolePod) corev1.PodTemplateSpec {
	template := *pod.got.DeepCopy()
	spec := &template.Spec
	ours := func(name string) bool { return strings.HasPrefix(name, "trireme-") }
	spec.Volumes = slices.DeleteFunc(spec.Volumes, func(volume corev1.Volume) bool { return ours(volume.Name) })
	spec.InitContainers = slices.DeleteFunc(spec.InitContainers, func(container corev1.Container) bool { return ours(container.Name) })
	container := &spec.Containers[0]
	container.VolumeMounts = slices.DeleteFunc(container.VolumeMounts, func(mount corev1.VolumeMount) bool { return ours(mount.Name) })
	container.Ports = slices.DeleteFunc(container.Ports, func(port corev1.ContainerPort) bool { return ours(port.Name) })
	if probe := container.ReadinessProbe; probe != nil && probe.TCPSocket != nil && ours(probe.TCPSocket.Port.StrVal) {
		container.ReadinessProbe = nil
	}
	container.Env = slices.DeleteFunc(container.Env, func(variable corev1.EnvVar) bool {
		theirs := slices.ContainsFunc(pod.model.Spec.Containers[0].Env, func(own corev1.EnvVar) bool { return own.Name == variable.Name })
		known := slices.ContainsFunc([]string{"TRIREME_", "OMPI_MCA_", "PRTE_MCA_", "I_MPI_", "HYDRA_"}, func(prefix string) bool {
			return strings.HasPrefix(variable.Name, prefix)
		})
		return known && !theirs
	})
	if pod.runsAgent {
		for _, words := range [][]string{{protocol.Path, "launch", "--"}, {protocol.Path, "worker"}} {
			if len(container.Command) >= len(words) && slices.Equal(container.Command[:len(words)], words) {
				container.Command = container.Command[len(words):]
				break
			}
		}
	}
	return template
}

// The test above would prove nothing if withoutOurs removed too much.
func TestChangedFieldsAreFound(t *testing.T) {
	tests := map[string]func(*corev1.PodSpec){
		"a variable": func(pod *corev1.PodSpec) {
			pod.Containers[0].Env = append(pod.Containers[0].Env, corev1.EnvVar{Name: "HOME"})
		},
		"a changed variable": func(pod *corev1.PodSpec) { pod.Containers[0].Env[0].Value = "TRACE" },
		"a volume":           func(pod *corev1.PodSpec) { pod.Volumes = append(pod.Volumes, corev1.Volume{Name: "more"}) },
		"a changed probe":    func(pod *corev1.PodSpec) { pod.Containers[0].ReadinessProbe.FailureThreshold = 1 },
		"another container":  func(pod *corev1.PodSpec) { pod.Containers[1].Env = []corev1.EnvVar{{Name: "TRIREME_GRACE"}} },
		"an init container":  func(pod *corev1.PodSpec) { slices.Reverse(pod.InitContainers) },
		"the pod's own":      func(pod *corev1.PodSpec) { pod.SecurityContext = nil },
		"an argument of a command": func(pod *corev1.PodSpec) {
			pod.Containers[0].Command = append(pod.Containers[0].Command, "--tag-output")
		},
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			for _, pod := range pods(mpiJob(both(ownVariables), both(ownProbe), both(ownContainers)), InitContainer) {
				before := withoutOurs(pod)
				change(&pod.got.Spec)
				if cmp.Equal(before, withoutOurs(pod)) {
					t.Errorf("a changed %s looks unchanged", pod.role)
				}
			}
		})
	}
}

func TestJobIsNotChanged(t *testing.T) {
	everyJob(t, func(t *testing.T, tc planned) {
		j := tc.job()
		for _, pod := range pods(j, tc.method) {
			scribble(&pod.got)
		}
		if want := tc.job(); !equality.Semantic.DeepEqual(want, j) {
			t.Errorf("the job after changes to its pods (-want +got):\n%s", cmp.Diff(want, j))
		}
	})
}

// scribble changes everything that a template may share with the job.
func scribble(template *corev1.PodTemplateSpec) {
	for name := range template.Labels {
		template.Labels[name] = "scribbled"
	}
	pod := &template.Spec
	for _, containers := range [][]corev1.Container{pod.InitContainers, pod.Containers} {
		for i := range containers {
			container := &containers[i]
			for _, words := range [][]string{container.Command, container.Args} {
				for j := range words {
					words[j] = "scribbled"
				}
			}
			for j := range container.Env {
				container.Env[j].Value = "scribbled"
			}
			for j := range container.VolumeMounts {
				container.VolumeMounts[j].MountPath = "scribbled"
			}
			for name := range container.Resources.Limits {
				delete(container.Resources.Limits, name)
			}
			if probe := container.ReadinessProbe; probe != nil {
				probe.FailureThreshold = 99
			}
			if context := container.SecurityContext; context != nil && context.Capabilities != nil {
				context.Capabilities.Drop = nil
			}
			container.Name = "scribbled"
		}
	}
	for i := range pod.Volumes {
		if pod.Volumes[i].EmptyDir != nil {
			pod.Volumes[i].EmptyDir.Medium = "scribbled"
		}
		pod.Volumes[i].Name = "scribbled"
	}
	if pod.SecurityContext != nil {
		*pod.SecurityContext = corev1.PodSecurityContext{}
	}
}

func TestTemplatesAreDeterministic(t *testing.T) {
	for name, tc := range goldens {
		t.Run(name, func(t *testing.T) {
			want := render(t, tc)
			for range 20 {
				if got := render(t, tc); !bytes.Equal(want, got) {
					t.Fatalf("templates differ (-first +another):\n%s", cmp.Diff(string(want), string(got)))
				}
			}
		})
	}
}

func TestAddedContainers(t *testing.T) {
	wantSecurity := corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
	everyJob(t, func(t *testing.T, tc planned) {
		for _, pod := range pods(tc.job(), tc.method) {
			for _, container := range added(pod) {
				for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
					if container.Resources.Requests.Name(name, "").IsZero() || container.Resources.Limits.Name(name, "").IsZero() {
						t.Errorf("%s has no request or no limit of %s", container.Name, name)
					}
				}
				if container.Image != agentImage {
					t.Errorf("%s is of the image %s", container.Name, container.Image)
				}
				got := *container.SecurityContext
				// Another test checks the user.
				got.RunAsUser, got.RunAsGroup, got.RunAsNonRoot, got.SeccompProfile = nil, nil, nil, nil
				if !equality.Semantic.DeepEqual(wantSecurity, got) {
					t.Errorf("security context of %s (-want +got):\n%s", container.Name, cmp.Diff(wantSecurity, got))
				}
			}
		}
	})
}

// added are the containers that the model does not have.
func added(pod rolePod) []corev1.Container {
	return slices.DeleteFunc(slices.Concat(pod.got.Spec.InitContainers, pod.got.Spec.Containers), func(container corev1.Container) bool {
		return slices.ContainsFunc(slices.Concat(pod.model.Spec.InitContainers, pod.model.Spec.Containers), func(own corev1.Container) bool {
			return own.Name == container.Name
		})
	})
}

func TestAddedContainersByJob(t *testing.T) {
	tests := map[string]struct {
		job                      func() *job.Job
		method                   Method
		wantLauncher, wantWorker []string
	}{
		"by image volume, nothing":                    {job: ofMPIJob(), method: ImageVolume},
		"by init container":                           {job: ofMPIJob(), method: InitContainer, wantLauncher: []string{"trireme-install"}, wantWorker: []string{"trireme-install"}},
		"no command":                                  {job: ofMPIJob(launcherCommand()), method: ImageVolume, wantLauncher: []string{"trireme-gate"}},
		"args only":                                   {job: ofMPIJob(launcherArgs("--epochs", "3")), method: ImageVolume, wantLauncher: []string{"trireme-gate"}},
		"no command, by init container":               {job: ofMPIJob(launcherCommand()), method: InitContainer, wantLauncher: []string{"trireme-install", "trireme-gate"}, wantWorker: []string{"trireme-install"}},
		"image's sshd, the worker is unchanged":       {job: ofMPIJob(imageSSH), method: InitContainer, wantLauncher: []string{"trireme-install"}},
		"image's sshd, no command, no agent anywhere": {job: ofMPIJob(imageSSH, launcherCommand()), method: InitContainer, wantLauncher: []string{"trireme-gate"}},
		"image's sshd, no command, no agent volume":   {job: ofMPIJob(imageSSH, launcherCommand()), method: ImageVolume, wantLauncher: []string{"trireme-gate"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := map[string][]string{}
			for _, pod := range pods(tc.job(), tc.method) {
				for _, container := range added(pod) {
					got[pod.role] = append(got[pod.role], container.Name)
				}
			}
			if diff := cmp.Diff(map[string][]string{"launcher": tc.wantLauncher, "worker": tc.wantWorker}, got, cmpopts.IgnoreMapEntries(func(_ string, names []string) bool { return len(names) == 0 })); diff != "" {
				t.Errorf("added containers (-want +got):\n%s", diff)
			}
		})
	}
}

// The gate checks the ports that MPI will use, wherever the user sets them.
func TestGatePorts(t *testing.T) {
	setsPorts := both(func(template *corev1.PodTemplateSpec) {
		template.Spec.Containers[0].Env = append(template.Spec.Containers[0].Env, corev1.EnvVar{Name: "I_MPI_PORT_RANGE", Value: "50000:50500"}, corev1.EnvVar{Name: "NCCL_DEBUG", Value: "INFO"})
	})
	arguments := []string{"--mca", "btl_tcp_port_min_v4", "10000"}
	var gates []corev1.Container
	for _, pod := range pods(mpiJob(launcherArgs(arguments...), setsPorts), ImageVolume) {
		gates = append(gates, added(pod)...)
	}
	if len(gates) != 1 {
		t.Fatalf("%d containers were added, want the gate alone", len(gates))
	}
	if want := append([]string{"/mpi-agent", "gate"}, arguments...); !slices.Equal(gates[0].Command, want) {
		t.Errorf("command %v, want %v", gates[0].Command, want)
	}
	var names []string
	for _, variable := range gates[0].Env {
		names = append(names, variable.Name)
	}
	if !slices.Contains(names, "I_MPI_PORT_RANGE") || slices.Contains(names, "NCCL_DEBUG") {
		t.Errorf("variables %v", names)
	}
}

// Each role has only its own private keys.
func TestEachRoleHasItsKeys(t *testing.T) {
	tests := map[string]struct {
		job                      func() *job.Job
		wantLauncher, wantWorker []string
	}{
		"the agent": {
			job: ofMPIJob(), wantLauncher: []string{protocol.ClientKey, protocol.HostPublicKey}, wantWorker: []string{protocol.HostKey, protocol.AuthorizedKeys},
		},
		// Such images have the job's key as the key of their sshd.
		"the image's sshd": {
			job:          ofMPIJob(imageSSH),
			wantLauncher: []string{protocol.ClientKey, protocol.ClientPublicKey, protocol.AuthorizedKeys},
			wantWorker:   []string{protocol.ClientKey, protocol.ClientPublicKey, protocol.AuthorizedKeys},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := map[string][]string{}
			for _, pod := range pods(tc.job(), ImageVolume) {
				for _, volume := range pod.got.Spec.Volumes {
					if volume.Secret == nil {
						continue
					}
					if volume.Secret.SecretName != "resnet-ssh" {
						t.Errorf("%s mounts the Secret %s", pod.role, volume.Secret.SecretName)
					}
					for _, item := range volume.Secret.Items {
						got[pod.role] = append(got[pod.role], item.Key)
					}
				}
			}
			if diff := cmp.Diff(map[string][]string{"launcher": tc.wantLauncher, "worker": tc.wantWorker}, got); diff != "" {
				t.Errorf("keys (-want +got):\n%s", diff)
			}
		})
	}
}
