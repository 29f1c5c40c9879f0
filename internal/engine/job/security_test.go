// SPDX-License-Identifier: Apache-2.0

package job

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
)

func TestRestrictedByDefault(t *testing.T) {
	runtimeDefault := &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	unconfined := &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}
	dropAll := &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}
	closed := corev1.SecurityContext{AllowPrivilegeEscalation: new(false), Capabilities: dropAll}
	tests := map[string]struct {
		pod           podOption
		wantPod       corev1.PodSecurityContext
		wantContainer corev1.SecurityContext
		wantInit      *corev1.SecurityContext
	}{
		"no settings": {
			pod:     func(*corev1.PodSpec) {},
			wantPod: corev1.PodSecurityContext{RunAsNonRoot: new(true), RunAsUser: new(int64(1000)), SeccompProfile: runtimeDefault}, wantContainer: closed,
		},
		"another user": {
			pod:     runAs(4711),
			wantPod: corev1.PodSecurityContext{RunAsNonRoot: new(true), RunAsUser: new(int64(4711)), SeccompProfile: runtimeDefault}, wantContainer: closed,
		},
		"the pod is root": {
			pod:     runAs(0),
			wantPod: corev1.PodSecurityContext{RunAsUser: new(int64(0)), SeccompProfile: runtimeDefault}, wantContainer: closed,
		},
		"the container is root": {
			pod:           containerSecurity(corev1.SecurityContext{RunAsUser: new(int64(0))}),
			wantPod:       corev1.PodSecurityContext{SeccompProfile: runtimeDefault},
			wantContainer: corev1.SecurityContext{RunAsUser: new(int64(0)), AllowPrivilegeEscalation: new(false), Capabilities: dropAll},
		},
		"an init container is root": {
			pod:           initSecurity(corev1.SecurityContext{RunAsUser: new(int64(0))}),
			wantPod:       corev1.PodSecurityContext{SeccompProfile: runtimeDefault},
			wantContainer: closed,
			wantInit:      &corev1.SecurityContext{RunAsUser: new(int64(0)), AllowPrivilegeEscalation: new(false), Capabilities: dropAll},
		},
		"the image sets the user": {
			pod:     func(pod *corev1.PodSpec) { pod.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: new(false)} },
			wantPod: corev1.PodSecurityContext{RunAsNonRoot: new(false), SeccompProfile: runtimeDefault}, wantContainer: closed,
		},
		"another profile of seccomp, and a group": {
			pod: func(pod *corev1.PodSpec) {
				pod.SecurityContext = &corev1.PodSecurityContext{SeccompProfile: unconfined, FSGroup: new(int64(7))}
			},
			wantPod:       corev1.PodSecurityContext{RunAsNonRoot: new(true), RunAsUser: new(int64(1000)), SeccompProfile: unconfined, FSGroup: new(int64(7))},
			wantContainer: closed,
		},
		"a privileged container": {
			pod:           containerSecurity(corev1.SecurityContext{Privileged: new(true)}),
			wantPod:       corev1.PodSecurityContext{RunAsNonRoot: new(true), RunAsUser: new(int64(1000)), SeccompProfile: runtimeDefault},
			wantContainer: corev1.SecurityContext{Privileged: new(true), Capabilities: dropAll},
		},
		"a container with CAP_SYS_ADMIN": {
			pod:           containerSecurity(corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"CAP_SYS_ADMIN"}}}),
			wantPod:       corev1.PodSecurityContext{RunAsNonRoot: new(true), RunAsUser: new(int64(1000)), SeccompProfile: runtimeDefault},
			wantContainer: corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"CAP_SYS_ADMIN"}}},
		},
		"capabilities and escalation stay": {
			pod: containerSecurity(corev1.SecurityContext{
				AllowPrivilegeEscalation: new(true), Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"IPC_LOCK"}}, ReadOnlyRootFilesystem: new(true),
			}),
			wantPod: corev1.PodSecurityContext{RunAsNonRoot: new(true), RunAsUser: new(int64(1000)), SeccompProfile: runtimeDefault},
			wantContainer: corev1.SecurityContext{
				AllowPrivilegeEscalation: new(true), Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"IPC_LOCK"}}, ReadOnlyRootFilesystem: new(true),
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			want := corev1.PodSpec{SecurityContext: &tc.wantPod, Containers: []corev1.Container{{SecurityContext: &tc.wantContainer}}}
			if tc.wantInit != nil {
				want.InitContainers = []corev1.Container{{SecurityContext: tc.wantInit}}
			}
			for kind, pod := range bothKinds(tc.pod) {
				if diff := cmp.Diff(want, securityOf(pod)); diff != "" {
					t.Errorf("%s (-want +got):\n%s", kind, diff)
				}
			}
		})
	}
}

// bothKinds are workers and launchers of either kind with the same pod template.
func bothKinds(option podOption) map[string]corev1.PodSpec {
	fromMPIJob := FromMPIJob(mpiJob(workerPod(option), func(mpiJob *v2beta1.MPIJob) { option(&launcherOf(mpiJob).Template.Spec) }), defaults())
	fromTrainJob := FromTrainJob(trainJob(), runtimeOf(func(runtime *v2alpha1.TrainingRuntimeSpec) {
		for i := range runtime.Template.Spec.ReplicatedJobs {
			option(&runtime.Template.Spec.ReplicatedJobs[i].Template.Spec)
		}
	}), defaults())
	return map[string]corev1.PodSpec{
		"MPIJob's launcher": fromMPIJob.Launcher.Template.Spec, "MPIJob's worker": fromMPIJob.Worker.Template.Spec,
		"TrainJob's launcher": fromTrainJob.Launcher.Template.Spec, "TrainJob's worker": fromTrainJob.Worker.Template.Spec,
	}
}

// securityOf are the security settings of a pod.
func securityOf(pod corev1.PodSpec) corev1.PodSpec {
	only := func(containers []corev1.Container) (bare []corev1.Container) {
		for i := range containers {
			bare = append(bare, corev1.Container{SecurityContext: containers[i].SecurityContext})
		}
		return bare
	}
	return corev1.PodSpec{SecurityContext: pod.SecurityContext, InitContainers: only(pod.InitContainers), Containers: only(pod.Containers)}
}

// An image with its own sshd was built for a certain user.
func TestSecurityOfSSHDIsUnchanged(t *testing.T) {
	for name, asked := range map[string]func(*v2beta1.MPIJob){
		"command": workerRunsSSHD,
		"args":    func(mpiJob *v2beta1.MPIJob) { workerOf(mpiJob).Template.Spec.Containers[0].Args = []string{"sshd"} },
	} {
		t.Run(name, func(t *testing.T) {
			got := FromMPIJob(mpiJob(asked), defaults())
			want := corev1.PodSpec{Containers: []corev1.Container{{}}}
			for _, role := range []Role{got.Launcher, got.Worker} {
				if diff := cmp.Diff(want, securityOf(role.Template.Spec)); diff != "" {
					t.Errorf("security (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// A runtime may have workers with an sshd that runs as root. Other runtimes are
// restricted.
func TestSecurityOfRuntimeWithSSHD(t *testing.T) {
	for name, test := range map[string]struct {
		user           *int64
		sshd           []string
		wantRestricted bool
		wantDirectory  string
	}{
		"an sshd as root":    {user: new(int64(0)), sshd: []string{"/usr/sbin/sshd", "-De"}, wantDirectory: "/root/.ssh"},
		"an sshd of a user":  {user: new(int64(1000)), sshd: []string{"/usr/sbin/sshd", "-De"}, wantRestricted: true, wantDirectory: "/home/mpiuser/.ssh"},
		"an sshd, no user":   {sshd: []string{"/usr/sbin/sshd", "-De"}, wantRestricted: true, wantDirectory: "/home/mpiuser/.ssh"},
		"the agent, as root": {user: new(int64(0)), wantRestricted: true, wantDirectory: "/root/.ssh"},
		"the agent, no user": {wantRestricted: true, wantDirectory: "/home/mpiuser/.ssh"},
	} {
		t.Run(name, func(t *testing.T) {
			runtime := runtimeOf(func(runtime *v2alpha1.TrainingRuntimeSpec) {
				for i := range runtime.Template.Spec.ReplicatedJobs {
					replicated := &runtime.Template.Spec.ReplicatedJobs[i]
					replicated.Template.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: test.user}
					if replicated.Name == v2alpha1.ReplicatedJobWorker {
						replicated.Template.Spec.Containers[0].Command = test.sshd
					}
				}
			})
			got := FromTrainJob(trainJob(), runtime, defaults())
			if got.SSHDirectory != test.wantDirectory {
				t.Errorf("keys are in %s, want %s", got.SSHDirectory, test.wantDirectory)
			}
			for _, role := range []Role{got.Launcher, got.Worker} {
				context := role.Template.Spec.Containers[0].SecurityContext
				if restricted := context != nil && context.Capabilities != nil; restricted != test.wantRestricted {
					t.Errorf("restricted: %t, want %t", restricted, test.wantRestricted)
				}
			}
		})
	}
}

// OpenShift chooses the UID itself and refuses any other.
func TestNoDefaultUser(t *testing.T) {
	none := defaults()
	none.RunAsUser = nil
	for kind, got := range map[string]*Job{"MPIJob": FromMPIJob(mpiJob(), none), "TrainJob": FromTrainJob(trainJob(), runtimeOf(), none)} {
		for _, role := range []Role{got.Launcher, got.Worker} {
			if context := role.Template.Spec.SecurityContext; context.RunAsUser != nil || !orElse(context.RunAsNonRoot, false) {
				t.Errorf("%s: the user is %v, runAsNonRoot %v; want none and true", kind, context.RunAsUser, context.RunAsNonRoot)
			}
		}
	}
}
