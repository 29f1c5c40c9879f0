// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/v2beta1"
)

func container(name string, resources corev1.ResourceRequirements) corev1.Container {
	return corev1.Container{Name: name, Image: "training:1", Resources: resources}
}

func requestsAndLimits(requests, limits corev1.ResourceList) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: requests, Limits: limits}
}

func sidecar(name string, resources corev1.ResourceRequirements) corev1.Container {
	sidecar := container(name, resources)
	sidecar.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	return sidecar
}

// A worker asks for at least 1 CPU and 1Gi: its pod does, and not each of its
// containers.
func TestWorkerAsksForEnough(t *testing.T) {
	tooFewCPUs := func(asked string) string {
		return workerContainer + `.resources.requests[cpu]: Invalid value: "` + asked + `": a worker must request at least 1 cpu`
	}
	tooLittleMemory := func(asked string) string {
		return workerContainer + `.resources.requests[memory]: Invalid value: "` + asked + `": a worker must request at least 1Gi memory`
	}
	const missing = workerContainer + ".resources: Required value: Worker pod missing resource requests"
	const onlyGPUs = workerContainer + ".resources: workers request only GPUs; without CPU and memory requests they can be scheduled on a node that has too little of either"
	half := limitsOf("cpu", "500m", "memory", "512Mi")
	tests := map[string]struct {
		containers, initContainers []corev1.Container
		whole                      *corev1.ResourceRequirements
		in                         func(*ClusterFacts)
		want, wantWarnings         []string
	}{
		"exactly enough":                {containers: []corev1.Container{container("main", limitsOf("cpu", "1", "memory", "1Gi"))}},
		"a little less":                 {containers: []corev1.Container{container("main", limitsOf("cpu", "999m", "memory", "1073741823"))}, want: []string{tooFewCPUs("999m"), tooLittleMemory("1073741823")}},
		"requests count, not limits":    {containers: []corev1.Container{container("main", requestsAndLimits(list("cpu", "500m", "memory", "1Gi"), list("cpu", "4", "memory", "4Gi")))}, want: []string{tooFewCPUs("500m")}},
		"CPU alone":                     {containers: []corev1.Container{container("main", limitsOf("cpu", "1"))}},
		"memory alone":                  {containers: []corev1.Container{container("main", limitsOf("memory", "1Gi"))}},
		"no CPU, in so many words":      {containers: []corev1.Container{container("main", limitsOf("cpu", "0", "memory", "1Gi"))}},
		"nothing":                       {containers: []corev1.Container{container("main", corev1.ResourceRequirements{})}, want: []string{missing}},
		"nothing, in so many words":     {containers: []corev1.Container{container("main", limitsOf("cpu", "0", "nvidia.com/gpu", "0"))}, want: []string{missing}},
		"storage alone":                 {containers: []corev1.Container{container("main", limitsOf("ephemeral-storage", "1Gi"))}},
		"two containers that add up":    {containers: []corev1.Container{container("main", half), container("beside", half)}},
		"two containers that do not":    {containers: []corev1.Container{container("main", half), container("beside", limitsOf("cpu", "400m", "memory", "500Mi"))}, want: []string{tooFewCPUs("900m"), tooLittleMemory("1012Mi")}},
		"the second says it all":        {containers: []corev1.Container{container("main", corev1.ResourceRequirements{}), container("beside", limitsOf("cpu", "1", "memory", "1Gi"))}},
		"an init container that is big": {containers: []corev1.Container{container("main", half)}, initContainers: []corev1.Container{container("fetch", limitsOf("cpu", "1", "memory", "1Gi"))}},
		"an init container is not added": {
			containers: []corev1.Container{container("main", half)}, initContainers: []corev1.Container{container("fetch", half)},
			want: []string{tooFewCPUs("500m"), tooLittleMemory("512Mi")},
		},
		"a sidecar is added":                 {containers: []corev1.Container{container("main", half)}, initContainers: []corev1.Container{sidecar("proxy", half)}},
		"the pod as a whole says it":         {containers: []corev1.Container{container("main", half)}, whole: &corev1.ResourceRequirements{Requests: list("cpu", "1", "memory", "1Gi")}},
		"the pod as a whole says too little": {containers: []corev1.Container{container("main", corev1.ResourceRequirements{})}, whole: new(half), want: []string{tooFewCPUs("500m"), tooLittleMemory("512Mi")}},
		"the namespace says it": {
			containers: []corev1.Container{container("main", corev1.ResourceRequirements{})},
			in:         defaultRequest("cpu", "1", "memory", "1Gi"),
		},
		"the namespace says little, which is not the worker's fault": {
			containers: []corev1.Container{container("main", limitsOf("memory", "1Gi"))},
			in:         defaultRequest("cpu", "100m"),
		},
		"GPUs alone, of two vendors": {
			containers:   []corev1.Container{container("main", limitsOf("amd.com/gpu", "1")), container("beside", limitsOf("habana.ai/gaudi", "1"))},
			wantWarnings: []string{onlyGPUs, "spec.slotsPerWorker: a worker has 1 slots and 2 GPUs; usually one MPI process runs on each GPU"},
		},
		"GPUs that no node has": {
			containers: []corev1.Container{container("main", limitsOf("cpu", "1", "amd.com/gpu", "1"))},
			in: func(in *ClusterFacts) {
				in.AnyNodeHas = func(name corev1.ResourceName) bool { return name == "nvidia.com/gpu" }
			},
			wantWarnings: []string{
				workerContainer + ".resources: no node of this cluster has amd.com/gpu now; the job waits until a node has it",
			},
		},
		"GPUs that a node has": {
			containers: []corev1.Container{container("main", limitsOf("cpu", "1", "nvidia.com/gpu", "1"))},
			in: func(in *ClusterFacts) {
				in.AnyNodeHas = func(name corev1.ResourceName) bool { return name == "nvidia.com/gpu" }
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			job := mpiJob(func(mpiJob *v2beta1.MPIJob) {
				pod := workerPod(mpiJob)
				pod.Containers, pod.InitContainers, pod.Resources = tc.containers, tc.initContainers, tc.whole
			})
			in := anywhere()
			if tc.in != nil {
				tc.in(in)
			}
			wantFindings(t, rules().CreateMPIJob(job, in), tc.want, tc.wantWarnings)
		})
	}
}

func defaultRequest(amounts ...string) func(*ClusterFacts) {
	return func(in *ClusterFacts) {
		in.LimitRanges = []corev1.LimitRange{{Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{
			{Type: corev1.LimitTypeContainer, DefaultRequest: list(amounts...)},
		}}}}
	}
}

func TestWorkerGPUs(t *testing.T) {
	gpus := func(name, count string) corev1.ResourceRequirements {
		return limitsOf("cpu", "1", "memory", "1Gi", name, count)
	}
	tooMany := func(count string) []string {
		return []string{workerTemplate + `.spec.containers: Invalid value: "` + count + `": a worker must have at most 16 GPUs`}
	}
	tests := map[string]struct {
		containers, initContainers []corev1.Container
		slots                      int32
		want, wantWarnings         []string
	}{
		"sixteen in one container":  {containers: []corev1.Container{container("main", gpus("nvidia.com/gpu", "16"))}, slots: 8, wantWarnings: slotsWarning("8", "16")},
		"sixteen in two containers": {containers: []corev1.Container{container("main", gpus("nvidia.com/gpu", "8")), container("beside", gpus("nvidia.com/gpu", "8"))}, slots: 8, wantWarnings: slotsWarning("8", "16")},
		"seventeen in two containers": {
			containers: []corev1.Container{container("main", gpus("nvidia.com/gpu", "9")), container("beside", gpus("nvidia.com/gpu", "8"))},
			slots:      8, want: tooMany("17"), wantWarnings: slotsWarning("8", "17"),
		},
		"seventeen of two vendors": {
			containers: []corev1.Container{container("main", gpus("nvidia.com/gpu", "16")), container("beside", gpus("amd.com/gpu", "1"))},
			slots:      8, want: tooMany("17"), wantWarnings: slotsWarning("8", "17"),
		},
		"seventeen of AMD's":             {containers: []corev1.Container{container("main", gpus("amd.com/gpu", "17"))}, slots: 8, want: tooMany("17"), wantWarnings: slotsWarning("8", "17")},
		"an init container is no worker": {containers: []corev1.Container{container("main", gpus("nvidia.com/gpu", "8"))}, initContainers: []corev1.Container{container("check", gpus("nvidia.com/gpu", "8"))}, slots: 8},
		"as many of AMD's as slots":      {containers: []corev1.Container{container("main", gpus("amd.com/gpu", "4"))}, slots: 4},
		"other devices are not GPUs":     {containers: []corev1.Container{container("main", gpus("rdma/hca", "99"))}, slots: 1},
		"half of AMD's": {
			containers: []corev1.Container{container("main", gpus("amd.com/gpu", "1500m"))}, slots: 2,
			want: []string{workerContainer + `.resources.limits[amd.com/gpu]: Invalid value: "1500m": must be a whole number`}, wantWarnings: slotsWarning("2", "1500m"),
		},
		"half of another device": {
			containers: []corev1.Container{container("main", gpus("example.com/license", "500m"))}, slots: 1,
			want: []string{workerContainer + `.resources.limits[example.com/license]: Invalid value: "500m": must be a whole number`},
		},
		"a GPU of no vendor": {
			containers: []corev1.Container{container("main", gpus("gpu", "1"))}, slots: 1,
			want: []string{workerContainer + `.resources.limits[gpu]: Invalid value: "gpu": is not a resource name; device resources have names like nvidia.com/gpu`},
		},
		"asked for and not limited": {
			containers: []corev1.Container{container("main", corev1.ResourceRequirements{Requests: list("cpu", "1", "amd.com/gpu", "1")})}, slots: 1,
			want: []string{workerContainer + `.resources.requests[amd.com/gpu]: Invalid value: "1": amd.com/gpu cannot be overcommitted: set a limit that equals the request, or only a limit`},
		},
		"limited to more than is asked for": {
			containers: []corev1.Container{container("main", requestsAndLimits(list("cpu", "1", "amd.com/gpu", "1"), list("amd.com/gpu", "2")))}, slots: 1,
			want: []string{workerContainer + `.resources.requests[amd.com/gpu]: Invalid value: "1": amd.com/gpu cannot be overcommitted: set a limit that equals the request, or only a limit`},
		},
		"asked for and limited alike": {containers: []corev1.Container{container("main", requestsAndLimits(list("cpu", "1", "amd.com/gpu", "1"), list("amd.com/gpu", "1")))}, slots: 1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			job := mpiJob(func(mpiJob *v2beta1.MPIJob) {
				mpiJob.Spec.SlotsPerWorker = &tc.slots
				workerPod(mpiJob).Containers, workerPod(mpiJob).InitContainers = tc.containers, tc.initContainers
			})
			wantFindings(t, rules().CreateMPIJob(job, anywhere()), tc.want, tc.wantWarnings)
		})
	}
}

func slotsWarning(slots, gpus string) []string {
	return []string{"spec.slotsPerWorker: a worker has " + slots + " slots and " + gpus + " GPUs; usually one MPI process runs on each GPU"}
}

// Every container of either role is looked at, each at its own path.
func TestContainers(t *testing.T) {
	job := mpiJob(func(mpiJob *v2beta1.MPIJob) {
		pod := workerPod(mpiJob)
		pod.InitContainers = []corev1.Container{
			{Name: "Not_A_Name", Image: "a b", Env: variables("GOOD", "", "", "", "also.good", ""), SecurityContext: &corev1.SecurityContext{Privileged: new(true)}},
			{Name: "worker", Image: "training:1"},
		}
		pod.Containers = append(pod.Containers, corev1.Container{
			Name:      "beside",
			Resources: corev1.ResourceRequirements{Requests: list("cpu", "2", "ephemeral-storage", "-1"), Limits: list("cpu", "1")},
			VolumeMounts: []corev1.VolumeMount{
				{Name: "data", MountPath: "/data"}, {Name: "data", MountPath: "/data/"}, {Name: "data"}, {Name: "none", MountPath: "/none"},
			},
		})
		pod.Volumes = []corev1.Volume{{Name: "data"}, {Name: "Not_A_Name"}}
		pod.NodeSelector = map[string]string{"a b": "c"}
		pod.Resources = &corev1.ResourceRequirements{Limits: list("cpu", "-1")}
		pod.Overhead = list("ephemeral-storage", "-1")
	})
	const spec = workerTemplate + ".spec"
	var got []string
	for _, fault := range rules().CreateMPIJob(job, anywhere()).Errors {
		// What Kubernetes' own library says of a name is long and not ours.
		text, _, _ := strings.Cut(fault.Error(), " must consist of")
		got = append(got, text)
	}
	want := []string{
		spec + `.volumes[1].name: Invalid value: "Not_A_Name": a lowercase RFC 1123 label`,
		spec + `.containers[1].image: Required value: must be set to an image`,
		spec + `.containers[1].resources.requests[ephemeral-storage]: Invalid value: "-1": must not be negative`,
		spec + `.containers[1].resources.limits[cpu]: Invalid value: "1": must be at least the request, 2`,
		spec + `.containers[1].volumeMounts[1].mountPath: Duplicate value: "/data/"`,
		spec + `.containers[1].volumeMounts[2].mountPath: Required value: must be a directory of the container`,
		spec + `.containers[1].volumeMounts[3].name: Not found: "none"`,
		spec + `.initContainers[0].name: Invalid value: "Not_A_Name": a lowercase RFC 1123 label`,
		spec + `.initContainers[0].image: Invalid value: "a b": is not a valid image name (invalid reference format); write registry/name:tag`,
		spec + `.initContainers[0].env[1].name: Invalid value: "": environment variable name must be non-empty`,
		spec + `.initContainers[0].securityContext.privileged: Forbidden: privileged containers are not allowed`,
		spec + `.initContainers[1].name: Duplicate value: "worker"`,
		spec + `.nodeSelector: Invalid value: "a b": name part`,
		spec + `.resources.limits[cpu]: Invalid value: "-1": must not be negative`,
		spec + `.overhead[ephemeral-storage]: Invalid value: "-1": must not be negative`,
	}
	wantLines(t, want, got)
}

// The operator mounts the hostfile into the container that runs mpirun, and into
// no other: there, the directory is the user's.
func TestHostfileDirectory(t *testing.T) {
	const taken = "/etc/mpi is used by the operator, for files that MPI needs; use another mountPath"
	mounts := []corev1.VolumeMount{{Name: "own", MountPath: "/etc/../etc/mpi/"}}
	own := []corev1.Volume{{Name: "own", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	for name, tc := range map[string]struct {
		change func(*v2beta1.MPIJob)
		want   []string
	}{
		"of the launcher": {
			change: func(mpiJob *v2beta1.MPIJob) { launcherOf(mpiJob).VolumeMounts = mounts },
			want:   []string{launcherContainer + ".volumeMounts[0].mountPath: Forbidden: " + taken},
		},
		"of a container beside the launcher": {change: func(mpiJob *v2beta1.MPIJob) {
			launcherPod(mpiJob).Containers = append(launcherPod(mpiJob).Containers, corev1.Container{Name: "beside", Image: "a", VolumeMounts: mounts})
		}},
		"of a worker": {change: func(mpiJob *v2beta1.MPIJob) { workerOf(mpiJob).VolumeMounts = mounts }},
	} {
		t.Run(name, func(t *testing.T) {
			job := mpiJob(tc.change, func(mpiJob *v2beta1.MPIJob) { launcherPod(mpiJob).Volumes, workerPod(mpiJob).Volumes = own, own })
			wantFindings(t, rules().CreateMPIJob(job, anywhere()), tc.want, nil)
		})
	}
}
