// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
)

// Images with an sshd of their own, prepared as mpi-operator's are. What such an
// image has built in comes from a ConfigMap here: the users, and how ssh and sshd
// are set up.
var preparedImages = map[string]struct {
	user      int64
	directory string
	sshd      []string
}{
	"root":      {0, "/root/.ssh", []string{"sh", "-c", "mkdir -p -m 0755 /run/sshd && exec /usr/sbin/sshd -De -f /etc/prepared/sshd_root"}},
	"user 1000": {1000, "/home/mpiuser/.ssh", []string{"/usr/sbin/sshd", "-De", "-f", "/etc/prepared/sshd_user"}},
}

var prepared = map[string]string{
	"passwd": "root:x:0:0:root:/root:/bin/bash\nsshd:x:100:65534::/run/sshd:/usr/sbin/nologin\nmpiuser:x:1000:1000::/home/mpiuser:/bin/bash\n",
	"ssh_config": `Host *
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  LogLevel ERROR
  Port 2222
`,
	// mpi-operator's images use the job's key as host key.
	"sshd_root": "Port 2222\nHostKey /root/.ssh/id_rsa\nStrictModes no\nPermitRootLogin yes\nPidFile none\nUsePAM no\n",
	"sshd_user": "Port 2222\nHostKey /home/mpiuser/.ssh/id_rsa\nAuthorizedKeysFile /home/mpiuser/.ssh/authorized_keys\nStrictModes no\nPidFile none\nUsePAM no\n",
}

// prepare makes a pod's image one with an sshd.
func prepare(pod *corev1.PodSpec, user int64) {
	pod.SecurityContext = &corev1.PodSecurityContext{RunAsUser: &user}
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: "prepared",
		VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "prepared"}}}})
	container := &pod.Containers[0]
	container.SecurityContext = nil
	// Such images have mpirun called with --allow-run-as-root; this is the same.
	container.Env = append(container.Env, corev1.EnvVar{Name: "OMPI_ALLOW_RUN_AS_ROOT", Value: "1"}, corev1.EnvVar{Name: "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", Value: "1"})
	container.VolumeMounts = append(container.VolumeMounts,
		corev1.VolumeMount{Name: "prepared", MountPath: "/etc/prepared"},
		corev1.VolumeMount{Name: "prepared", MountPath: "/etc/passwd", SubPath: "passwd"},
		corev1.VolumeMount{Name: "prepared", MountPath: "/etc/ssh/ssh_config", SubPath: "ssh_config"})
}

func TestImagesWithAnSSHDOfTheirOwn(t *testing.T) {
	t.Parallel()
	for name, image := range preparedImages {
		for i, implementation := range implementations {
			// Which user sshd runs as does not depend on the MPI.
			if image.user == 0 && i > 0 && !isThorough() {
				continue
			}
			t.Run(implementation.name+" as "+name, func(t *testing.T) {
				mpiJob := implementation.job(4, allreduce)
				mpiJob.Spec.SSHAuthMountPath = image.directory
				for role, replica := range mpiJob.Spec.MPIReplicaSpecs {
					prepare(&replica.Template.Spec, image.user)
					if role == v2beta1.MPIReplicaTypeWorker {
						replica.Template.Spec.Containers[0].Command = slices.Clone(image.sshd)
					}
				}
				count := repeat(mpiJob, 2)
				run := newRunAt(t, "privileged", mpiJob)
				run.createPrepared()
				run.startWorkers()
				run.startLauncher()
				wantRuns(t, run, count)
			})
		}
	}
}

// A runtime can have workers whose image starts an sshd, also as root.
func TestARuntimeWithAnSSHDAsRoot(t *testing.T) {
	t.Parallel()
	api, namespace := sshdNamespace(t)
	runtime := runtimeFor(namespace, v2alpha1.MPIImplementationOpenMPI)
	for i := range runtime.Spec.Template.Spec.ReplicatedJobs {
		replicated := &runtime.Spec.Template.Spec.ReplicatedJobs[i]
		prepare(&replicated.Template.Spec, 0)
		if replicated.Name == v2alpha1.ReplicatedJobWorker {
			replicated.Template.Spec.Containers[0].Command = slices.Clone(preparedImages["root"].sshd)
		}
	}
	if err := api.Create(t.Context(), runtime); err != nil {
		t.Fatal(err)
	}
	submitTo(t, api, namespace, implementations[0].trainJob(2, allreduce)).succeeds()
}

// createPrepared makes what the images have built in.
func (run *run) createPrepared() {
	run.t.Helper()
	if _, err := run.client.CoreV1().ConfigMaps(run.namespace).Create(run.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "prepared"}, Data: maps.Clone(prepared)}, metav1.CreateOptions{}); err != nil {
		run.t.Fatal(err)
	}
}
