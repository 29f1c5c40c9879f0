// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

func node(kubelet, runtime string) corev1.Node {
	return corev1.Node{Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{KubeletVersion: kubelet, ContainerRuntimeVersion: runtime}}}
}

func TestBestMethod(t *testing.T) {
	// Nodes that support image volumes, except for the case's own change.
	runtimes := func(runtimes ...string) []corev1.Node {
		var nodes []corev1.Node
		for _, runtime := range runtimes {
			nodes = append(nodes, node("v1.36.3", runtime))
		}
		return nodes
	}
	good := runtimes("containerd://2.4.2")
	tests := map[string]struct {
		server string
		nodes  []corev1.Node
		want   Method
	}{
		"an older server":                     {server: "v1.34.9", nodes: good, want: InitContainer},
		"the first server with image volumes": {server: "v1.35.0", nodes: good, want: ImageVolume},
		"a newer server":                      {server: "v1.36.3", nodes: good, want: ImageVolume},
		"a patched server":                    {server: "v1.35.2-eks-abc", nodes: good, want: ImageVolume},
		"a server of GKE":                     {server: "v1.35.1-gke.1234000", nodes: good, want: ImageVolume},
		"a server of k3s":                     {server: "v1.36.0+k3s1", nodes: good, want: ImageVolume},
		"an older patched server":             {server: "v1.34.9-eks-abc", nodes: good, want: InitContainer},
		"the next major version":              {server: "v2.0.0", nodes: good, want: ImageVolume},
		// 1.4 must not be read as 1.40.
		"a very old server":  {server: "v1.4.0", nodes: good, want: InitContainer},
		"an invalid version": {server: "latest, I think", nodes: good, want: InitContainer},
		"no version":         {nodes: good, want: InitContainer},

		"a containerd from before":           {server: "v1.36.3", nodes: runtimes("containerd://2.0.5"), want: InitContainer},
		"the first containerd that has them": {server: "v1.36.3", nodes: runtimes("containerd://2.1.0"), want: ImageVolume},
		"a newer containerd":                 {server: "v1.36.3", nodes: runtimes("containerd://2.4.2"), want: ImageVolume},
		"a containerd of the first":          {server: "v1.36.3", nodes: runtimes("containerd://1.7.27"), want: InitContainer},
		"a containerd of k3s":                {server: "v1.36.3", nodes: runtimes("containerd://2.1.4-k3s1"), want: ImageVolume},
		"a containerd that says garbage":     {server: "v1.36.3", nodes: runtimes("containerd://Unknown"), want: InitContainer},
		"an untested runtime":                {server: "v1.36.3", nodes: runtimes("cri-o://1.35.0"), want: InitContainer},
		"another runtime":                    {server: "v1.36.3", nodes: runtimes("docker://28.0.1"), want: InitContainer},
		"a runtime without a version":        {server: "v1.36.3", nodes: runtimes(""), want: InitContainer},

		"no nodes":                            {server: "v1.36.3", want: InitContainer},
		"several nodes that have them":        {server: "v1.36.3", nodes: runtimes("containerd://2.4.2", "containerd://2.1.0"), want: ImageVolume},
		"one old containerd among new, last":  {server: "v1.36.3", nodes: runtimes("containerd://2.4.2", "containerd://2.1.0", "containerd://1.7.27"), want: InitContainer},
		"one old containerd among new, first": {server: "v1.36.3", nodes: runtimes("containerd://2.0.5", "containerd://2.4.2"), want: InitContainer},
		"one other runtime among containerds": {server: "v1.36.3", nodes: runtimes("containerd://2.4.2", "cri-o://1.35.0"), want: InitContainer},
		"a kubelet that lags behind":          {server: "v1.36.3", nodes: []corev1.Node{node("v1.36.3", "containerd://2.4.2"), node("v1.34.9", "containerd://2.4.2")}, want: InitContainer},
		"a kubelet that just suffices":        {server: "v1.36.3", nodes: []corev1.Node{node("v1.35.0", "containerd://2.4.2")}, want: ImageVolume},
		"a kubelet that says nothing":         {server: "v1.36.3", nodes: []corev1.Node{node("", "containerd://2.4.2")}, want: InitContainer},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := BestMethod(tc.server, tc.nodes); got != tc.want {
				t.Errorf("method is %s, want %s", got, tc.want)
			}
		})
	}
}

func TestHostfile(t *testing.T) {
	ofTrainJob := func(implementation v2alpha1.MPIImplementation) *job.Job {
		return trainJob(func(_ *v2alpha1.TrainJob, runtime *v2alpha1.TrainingRuntimeSpec) {
			runtime.MLPolicy.MPIImplementation = implementation
		})
	}
	hosts := []string{"resnet-worker-0", "resnet-worker-1.resnet.team-a.svc"}
	tests := map[string]struct {
		job   *job.Job
		hosts []string
		want  string
	}{
		"an MPIJob by default":    {job: mpiJob(), hosts: hosts, want: "resnet-worker-0 slots=4\nresnet-worker-1.resnet.team-a.svc slots=4\n"},
		"Open MPI":                {job: mpiJob(implementation(v2beta1.MPIImplementationOpenMPI)), hosts: hosts[:1], want: "resnet-worker-0 slots=4\n"},
		"Intel MPI":               {job: mpiJob(implementation(v2beta1.MPIImplementationIntelMPI)), hosts: hosts[:1], want: "resnet-worker-0:4\n"},
		"Intel MPI's older name":  {job: mpiJob(implementation(v2beta1.MPIImplementationIntel)), hosts: hosts[:1], want: "resnet-worker-0:4\n"},
		"MPICH":                   {job: mpiJob(implementation(v2beta1.MPIImplementationMPICH)), hosts: hosts[:1], want: "resnet-worker-0:4\n"},
		"one slot":                {job: mpiJob(func(mpiJob *v2beta1.MPIJob) { mpiJob.Spec.SlotsPerWorker = nil }), hosts: hosts[:1], want: "resnet-worker-0 slots=1\n"},
		"a TrainJob of Open MPI":  {job: ofTrainJob(v2alpha1.MPIImplementationOpenMPI), hosts: hosts[:1], want: "resnet-worker-0 slots=8\n"},
		"a TrainJob of Intel MPI": {job: ofTrainJob(v2alpha1.MPIImplementationIntelMPI), hosts: hosts[:1], want: "resnet-worker-0:8\n"},
		"a TrainJob of MPICH":     {job: ofTrainJob(v2alpha1.MPIImplementationMPICH), hosts: hosts[:1], want: "resnet-worker-0:8\n"},
		"no hosts":                {job: mpiJob()},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Hostfile(tc.job, tc.hosts)); diff != "" {
				t.Errorf("hostfile (-want +got):\n%s", diff)
			}
		})
	}
}

// A container may not request more than its pod, and a launcher's pod may request less
// than the agent would.
func TestAddedContainersWithPodLevelResources(t *testing.T) {
	small := func(template *corev1.PodTemplateSpec) {
		template.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
		template.Spec.Resources = new(resources("50m", "32Mi"))
	}
	silent := func(template *corev1.PodTemplateSpec) { template.Spec.Resources = &corev1.ResourceRequirements{} }
	for name, tc := range map[string]struct {
		change func(*corev1.PodTemplateSpec)
		want   bool
	}{"a pod that says what it needs": {small, false}, "a pod that says nothing": {silent, true}} {
		t.Run(name, func(t *testing.T) {
			for _, pod := range pods(mpiJob(both(tc.change), launcherCommand()), InitContainer) {
				containers := added(pod)
				if len(containers) == 0 {
					t.Errorf("nothing was added to the %s", pod.role)
				}
				for _, container := range containers {
					if asks := len(container.Resources.Requests)+len(container.Resources.Limits) > 0; asks != tc.want {
						t.Errorf("%s of the %s requests %v", container.Name, pod.role, container.Resources)
					}
				}
			}
		})
	}
}

// Pods have the image pull secrets of their own images and of the agent's.
func TestPullSecrets(t *testing.T) {
	pod := &corev1.PodSpec{
		Containers:       []corev1.Container{{Name: "main"}},
		ImagePullSecrets: []corev1.LocalObjectReference{{Name: "own"}, {Name: "both"}},
	}
	const byDigest = "registry.example/agent@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	AddAgent(pod, Delivery{Method: ImageVolume, Image: byDigest, PullSecrets: []string{"both", "agents"}})
	if diff := cmp.Diff([]corev1.LocalObjectReference{{Name: "own"}, {Name: "both"}, {Name: "agents"}}, pod.ImagePullSecrets); diff != "" {
		t.Error(diff)
	}
	if got := pod.Volumes[0].Image.Reference; got != byDigest {
		t.Errorf("the image is %s", got)
	}
}
