// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/engine/gang"
)

// statusSources are the contents of the directory for reports in a pod; nil without it.
func statusSources(pod *corev1.PodSpec) []corev1.VolumeProjection {
	for _, mounted := range pod.Containers[0].VolumeMounts {
		if mounted.MountPath != protocol.StatusDirectory {
			continue
		}
		for i := range pod.Volumes {
			if pod.Volumes[i].Name == mounted.Name && pod.Volumes[i].Projected != nil {
				return pod.Volumes[i].Projected.Sources
			}
		}
	}
	return nil
}

func variable(pod *corev1.PodSpec, name string) string {
	for _, variable := range pod.Containers[0].Env {
		if variable.Name == name {
			return variable.Value
		}
	}
	return ""
}

func TestPodsCanReport(t *testing.T) {
	tests := map[string]struct {
		whole
		wantAudience string
	}{
		"a TrainJob":               {whole{job: ofTrainJob()}, "trainer.kubeflow.org/v1alpha1/namespaces/team-a/trainjobs/bert/status"},
		"an MPIJob":                {whole{job: ofMPIJob()}, "kubeflow.org/v2beta1/namespaces/team-a/mpijobs/resnet/status"},
		"an MPIJob with an sshd":   {whole{job: ofMPIJob(imageSSH)}, "kubeflow.org/v2beta1/namespaces/team-a/mpijobs/resnet/status"},
		"an MPIJob, by entrypoint": {whole{job: ofMPIJob(launcherCommand())}, "kubeflow.org/v2beta1/namespaces/team-a/mpijobs/resnet/status"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			created := tc.plan(t)
			for _, pod := range created.Pods {
				sources := statusSources(&pod.Spec)
				if len(sources) != 2 {
					t.Fatalf("%s has %d sources for reports", pod.Name, len(sources))
				}
				if token := sources[0].ServiceAccountToken; token.Audience != tc.wantAudience || *token.ExpirationSeconds != 3600 {
					t.Errorf("%s gets a token for %s", pod.Name, token.Audience)
				}
				if got, want := variable(&pod.Spec, protocol.StatusURLVariable), "https://trireme-reports.trireme-system.svc:9444/apis/"+tc.wantAudience; got != want {
					t.Errorf("%s reports to %s, want %s", pod.Name, got, want)
				}
				ca := sources[1].Secret
				index := slices.IndexFunc(created.Ensure, func(object gang.Object) bool {
					secret, is := object.(*corev1.Secret)
					return is && secret.Name == ca.Name && string(secret.Data[ca.Items[0].Key]) == "the CA"
				})
				if index < 0 {
					t.Errorf("%s reads the CA from %s, which has none", pod.Name, ca.Name)
				}
			}
		})
	}
}

// A user who reports somewhere else keeps what they wrote, and gets no token.
func TestOwnReportSettingsWin(t *testing.T) {
	for name, change := range map[string]func(*corev1.Container){
		"a variable": func(container *corev1.Container) {
			container.Env = append(container.Env, corev1.EnvVar{Name: protocol.StatusURLVariable, Value: "https://own.example"})
		},
		"a mount": func(container *corev1.Container) {
			container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: "own", MountPath: protocol.StatusDirectory + "/"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := corev1.PodSpec{Containers: []corev1.Container{{}}}
			change(&pod.Containers[0])
			want := *pod.DeepCopy()
			addReports(&pod, mpiJob(), "keys", reports())
			if diff := cmp.Diff(want, pod); diff != "" {
				t.Errorf("pod (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNothingToReportTo(t *testing.T) {
	pod := corev1.PodSpec{Containers: []corev1.Container{{}}}
	addReports(&pod, mpiJob(), "keys", nil)
	if diff := cmp.Diff(corev1.PodSpec{Containers: []corev1.Container{{}}}, pod); diff != "" {
		t.Errorf("pod (-want +got):\n%s", diff)
	}
}
