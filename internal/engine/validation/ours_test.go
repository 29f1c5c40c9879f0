// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
)

// What the operator adds to a pod must not meet what is there: Kubernetes would
// refuse the pod, long after the job was accepted.

func faultsOf(findings *Findings) (lines []string) {
	for _, fault := range findings.Errors {
		// What Kubernetes' own library says of a name is long and not ours.
		text, _, _ := strings.Cut(fault.Error(), " must consist of")
		lines = append(lines, text)
	}
	return lines
}

func ownVolume(name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}
}

func TestNamesOfTheOperators(t *testing.T) {
	const spec = workerTemplate + ".spec"
	isOurs := func(name string) string {
		return ": Forbidden: " + name + ": the prefix trireme- is reserved for the operator; choose another name"
	}
	port := func(name string, number int32) corev1.ContainerPort {
		return corev1.ContainerPort{Name: name, ContainerPort: number}
	}
	tests := map[string]struct {
		change func(*corev1.PodSpec)
		want   []string
	}{
		"a volume": {
			change: func(pod *corev1.PodSpec) {
				pod.Volumes = []corev1.Volume{ownVolume("trireme-keys"), ownVolume("trireme")}
			},
			want: []string{spec + ".volumes[0].name" + isOurs("trireme-keys")},
		},
		"a container": {
			change: func(pod *corev1.PodSpec) {
				pod.Containers = append(pod.Containers, container("trireme-gate", corev1.ResourceRequirements{}))
			},
			want: []string{spec + ".containers[1].name" + isOurs("trireme-gate")},
		},
		"an init container": {
			change: func(pod *corev1.PodSpec) {
				pod.InitContainers = []corev1.Container{container("trireme-install", corev1.ResourceRequirements{})}
			},
			want: []string{spec + ".initContainers[0].name" + isOurs("trireme-install")},
		},
		"a port": {
			change: func(pod *corev1.PodSpec) {
				pod.Containers[0].Ports = []corev1.ContainerPort{port("trireme-ssh", 1)}
			},
			want: []string{spec + ".containers[0].ports[0].name" + isOurs("trireme-ssh")},
		},
		"a name of two ports": {
			change: func(pod *corev1.PodSpec) {
				pod.Containers[0].Ports = []corev1.ContainerPort{port("http", 1), port("", 2), port("", 3), port("http", 4)}
			},
			want: []string{spec + `.containers[0].ports[3].name: Duplicate value: "http"`},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			job := mpiJob(func(mpiJob *v2beta1.MPIJob) { tc.change(workerPod(mpiJob)) })
			wantLines(t, tc.want, faultsOf(rules().CreateMPIJob(job, anywhere())))
		})
	}
	t.Run("a volume of a TrainJob", func(t *testing.T) {
		job := trainJob(func(trainJob *v2alpha1.TrainJob) {
			trainJob.Spec.Trainer.Volumes = []corev1.Volume{ownVolume("trireme-shm")}
		})
		wantLines(t, []string{"spec.trainer.volumes[0].name" + isOurs("trireme-shm")}, faultsOf(rules().CreateTrainJob(job, anywhere(withRuntime()))))
	})
}

// A pod has each port once, whichever of its containers listens.
func TestPortOfTheAgent(t *testing.T) {
	beside := func(protocol corev1.Protocol) func(*corev1.PodSpec) {
		return func(pod *corev1.PodSpec) {
			other := container("beside", corev1.ResourceRequirements{})
			other.Ports = []corev1.ContainerPort{{ContainerPort: 22}, {ContainerPort: 2222, Protocol: protocol}}
			pod.Containers = append(pod.Containers, other)
		}
	}
	taken := func(template string) []string {
		return []string{template + ".spec.containers[1].ports[1].containerPort: Forbidden: the operator's agent in the first container uses port 2222, and containers of a pod share their ports; use another port"}
	}
	ofWorker := func(change func(*corev1.PodSpec)) func(*v2beta1.MPIJob) {
		return func(mpiJob *v2beta1.MPIJob) { change(workerPod(mpiJob)) }
	}
	ofLauncher := func(change func(*corev1.PodSpec)) func(*v2beta1.MPIJob) {
		return func(mpiJob *v2beta1.MPIJob) { change(launcherPod(mpiJob)) }
	}
	noCommand := func(mpiJob *v2beta1.MPIJob) { launcherOf(mpiJob).Command = nil }
	tests := map[string]struct {
		changes []func(*v2beta1.MPIJob)
		want    []string
	}{
		"beside a worker":                                    {changes: []func(*v2beta1.MPIJob){ofWorker(beside(""))}, want: taken(workerTemplate)},
		"beside a launcher":                                  {changes: []func(*v2beta1.MPIJob){ofLauncher(beside(corev1.ProtocolTCP))}, want: taken(launcherTemplate)},
		"of another family":                                  {changes: []func(*v2beta1.MPIJob){ofWorker(beside(corev1.ProtocolUDP))}},
		"beside an sshd of the image's":                      {changes: []func(*v2beta1.MPIJob){runsSSHD, ofWorker(beside(""))}},
		"beside a launcher that runs its image's entrypoint": {changes: []func(*v2beta1.MPIJob){noCommand, ofLauncher(beside(""))}},
		"of the container that the agent is in": {changes: []func(*v2beta1.MPIJob){ofWorker(func(pod *corev1.PodSpec) {
			pod.Containers[0].Ports = []corev1.ContainerPort{{Name: "ssh", ContainerPort: 2222}}
		})}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			wantLines(t, tc.want, faultsOf(rules().CreateMPIJob(mpiJob(tc.changes...), anywhere())))
		})
	}
	for name, tc := range map[string]struct {
		change func(*v2alpha1.TrainingRuntimeSpec)
		want   []string
	}{
		// The job may bring the command.
		"of a runtime's launcher": {func(runtime *v2alpha1.TrainingRuntimeSpec) { beside("")(&runtimeLauncher(runtime).Spec) }, taken(replicatedJobs + "[0].template")},
		"of a runtime's worker":   {func(runtime *v2alpha1.TrainingRuntimeSpec) { beside("")(&runtimeWorker(runtime).Spec) }, taken(replicatedJobs + "[1].template")},
		"of a runtime's worker with an sshd": {func(runtime *v2alpha1.TrainingRuntimeSpec) {
			runtimeWorker(runtime).Spec.Containers[0].Command = []string{"sshd"}
			beside("")(&runtimeWorker(runtime).Spec)
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			wantLines(t, tc.want, faultsOf(rules().Runtime(runtimeOf(tc.change), 0)))
		})
	}
}

func TestMetadataOfTemplates(t *testing.T) {
	job := mpiJob(func(mpiJob *v2beta1.MPIJob) {
		template := &mpiJob.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeWorker].Template
		template.Labels = map[string]string{"app": "res net", "b c": "", "team": "a"}
		template.Annotations = map[string]string{"note": "any text at all", "d e": "", "B/f": ""}
	})
	want := []string{
		workerTemplate + `.metadata.labels: Invalid value: "res net": a valid label`,
		workerTemplate + `.metadata.labels: Invalid value: "b c": name part`,
		workerTemplate + `.metadata.annotations: Invalid value: "d e": name part`,
	}
	for range 10 {
		got := faultsOf(rules().CreateMPIJob(job, anywhere()))
		for i, line := range got {
			got[i], _, _ = strings.Cut(line, " must be")
		}
		wantLines(t, want, got)
	}
}

func TestRoomForASearchDomain(t *testing.T) {
	for count, want := range map[int][]string{
		31: nil, 32: {launcherTemplate + ".spec.dnsConfig.searches: Too many: 32: must have at most 31 items"},
	} {
		t.Run(fmt.Sprint(count), func(t *testing.T) {
			job := mpiJob(func(mpiJob *v2beta1.MPIJob) {
				launcherPod(mpiJob).DNSConfig = &corev1.PodDNSConfig{Searches: make([]string, count)}
			})
			wantLines(t, want, faultsOf(rules().CreateMPIJob(job, anywhere())))
		})
	}
}

// Keys of an image with an sshd of its own are mounted where nothing else is.
func TestKeyDirectoryIsExclusive(t *testing.T) {
	for _, directory := range []string{"/opt/trireme", "/etc/trireme/ssh/", "/etc/trireme/pod", "/dev/shm", "/tmp/"} {
		t.Run(directory, func(t *testing.T) {
			job := mpiJob(runsSSHD, func(mpiJob *v2beta1.MPIJob) { mpiJob.Spec.SSHAuthMountPath = directory })
			want := []string{fmt.Sprintf("spec.sshAuthMountPath: Invalid value: %q: must be a directory that is used for nothing else", directory)}
			wantLines(t, want, faultsOf(rules().CreateMPIJob(job, anywhere())))
		})
	}
}

// A runtime whose workers run an sshd has the keys where its image looks for them.
func TestKeysOfARuntimeWithAnSSHD(t *testing.T) {
	const keys = "/home/mpiuser/.ssh"
	taken := func(at string) []string {
		return []string{at + ".volumeMounts[0].mountPath: Forbidden: " + keys + " is used by the operator, for files that MPI needs; use another mountPath"}
	}
	runsSSHD := func(runtime *v2alpha1.TrainingRuntimeSpec) {
		runtimeWorker(runtime).Spec.Containers[0].Command = []string{"/usr/sbin/sshd", "-De"}
	}
	mountsOver := func(runtime *v2alpha1.TrainingRuntimeSpec) {
		pod := &runtimeLauncher(runtime).Spec
		pod.Volumes, pod.Containers[0].VolumeMounts = []corev1.Volume{ownVolume("own")}, []corev1.VolumeMount{{Name: "own", MountPath: keys + "/"}}
	}
	wantLines(t, taken(replicatedJobs+"[0].template.spec.containers[0]"), faultsOf(rules().Runtime(runtimeOf(runsSSHD, mountsOver), 0)))
	wantLines(t, nil, faultsOf(rules().Runtime(runtimeOf(mountsOver), 0)))
	job := trainJob(func(trainJob *v2alpha1.TrainJob) {
		trainJob.Spec.Trainer.Volumes = []corev1.Volume{ownVolume("own")}
		trainJob.Spec.Trainer.VolumeMounts = []corev1.VolumeMount{{Name: "own", MountPath: keys}}
	})
	wantLines(t, taken("spec.trainer"), faultsOf(rules().CreateTrainJob(job, anywhere(withRuntime(runsSSHD)))))
	wantLines(t, nil, faultsOf(rules().CreateTrainJob(job, anywhere(withRuntime()))))
}

func TestClaimsThatCannotBe(t *testing.T) {
	for uri, claim := range map[string]string{"pvc://No_Claim/sets": "No_Claim", "pvc://archive:80/sets": "archive:80", "pvc://archive.old/sets": "", "pvc://archive": ""} {
		t.Run(uri, func(t *testing.T) {
			job := trainJob(func(trainJob *v2alpha1.TrainJob) {
				trainJob.Spec.Initializer = &v2alpha1.Initializer{Dataset: &v2alpha1.Source{StorageURI: uri}, Storage: &v2alpha1.InitializerStorage{ClaimName: "data"}}
			})
			var want []string
			if claim != "" {
				want = []string{fmt.Sprintf("spec.initializer.dataset.storageUri: Invalid value: %q: %q is not a valid name of a PVC; write pvc://claim/path", uri, claim)}
			}
			wantLines(t, want, faultsOf(rules().CreateTrainJob(job, anywhere(withRuntime()))))
		})
	}
}
