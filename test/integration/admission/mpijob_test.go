// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

// wantCause is one of the faults of an object.
type wantCause struct{ field, message string }

// wantCauses fails unless an error has exactly these causes; a message need only
// be part of what is said.
func wantCauses(t testing.TB, err error, want ...wantCause) {
	t.Helper()
	status, ok := err.(apierrors.APIStatus)
	if !ok {
		t.Fatalf("accepted, or failed otherwise: %v", err)
	}
	if status.Status().Details == nil {
		t.Fatalf("an error without details: %v", err)
	}
	var got []metav1.StatusCause
	for _, cause := range status.Status().Details.Causes {
		// What a schema refuses also has this remark about its CEL rules.
		if !strings.Contains(cause.Message, "some validation rules were not checked") {
			got = append(got, cause)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d faults, want %d: %v", len(got), len(want), err)
	}
	for _, cause := range want {
		found := false
		for _, candidate := range got {
			found = found || candidate.Field == cause.field && strings.Contains(candidate.Message, cause.message)
		}
		if !found {
			t.Errorf("no fault at %s that says %q in: %v", cause.field, cause.message, err)
		}
	}
}

const (
	launcherAt = "spec.mpiReplicaSpecs.Launcher"
	workerAt   = "spec.mpiReplicaSpecs.Worker"
)

// The ten areas of MPIJob's validation: a refusal and an acceptance of each.
var mpiJobCases = map[string]struct {
	namespaceLabels map[string]string
	change          func(*v2beta1.MPIJob)
	want            []wantCause
}{
	"a job that nothing is wrong with": {},

	"1 resources: a worker that asks for nothing": {
		change: func(job *v2beta1.MPIJob) { worker(job).Resources = corev1.ResourceRequirements{} },
		want:   []wantCause{{workerAt + ".template.spec.containers[0].resources", "Worker pod missing resource requests"}},
	},
	"1 resources: a limit below the request": {
		change: func(job *v2beta1.MPIJob) { worker(job).Resources.Requests = resources("memory", "20Gi") },
		want:   []wantCause{{workerAt + ".template.spec.containers[0].resources.limits[memory]", "must be at least the request, 20Gi"}},
	},
	"1 resources: less than a CPU and a gigabyte": {
		change: func(job *v2beta1.MPIJob) { worker(job).Resources.Limits = resources("cpu", "500m", "memory", "512Mi") },
		want: []wantCause{
			{workerAt + ".template.spec.containers[0].resources.requests[cpu]", "a worker must request at least 1 cpu"},
			{workerAt + ".template.spec.containers[0].resources.requests[memory]", "a worker must request at least 1Gi memory"},
		},
	},
	"1 resources: limits alone count as requests": {
		change: func(job *v2beta1.MPIJob) { worker(job).Resources.Limits = resources("cpu", "1", "memory", "1Gi") },
	},
	"1 resources: too many GPUs": {
		change: func(job *v2beta1.MPIJob) {
			job.Spec.SlotsPerWorker = new(int32(8))
			worker(job).Resources.Limits = resources("cpu", "1", "memory", "1Gi", "nvidia.com/gpu", "17")
		},
		want: []wantCause{{workerAt + ".template.spec.containers", "a worker must have at most 16 GPUs"}},
	},
	"1 resources: one worker": {
		change: func(job *v2beta1.MPIJob) { job.Spec.MPIReplicaSpecs["Worker"].Replicas = new(int32(1)) },
		want:   []wantCause{{workerAt + ".replicas", "Worker replicas must be between 2 and 100"}},
	},
	"1 resources: one worker and a launcher that is one": {
		change: func(job *v2beta1.MPIJob) {
			job.Spec.MPIReplicaSpecs["Worker"].Replicas = new(int32(1))
			job.Spec.RunLauncherAsWorker = new(true)
		},
	},
	"1 resources: a hundred and one workers": {
		change: func(job *v2beta1.MPIJob) { job.Spec.MPIReplicaSpecs["Worker"].Replicas = new(int32(101)) },
		want:   []wantCause{{workerAt + ".replicas", "Worker replicas must be between 2 and 100"}},
	},
	"1 resources: two launchers": {
		change: func(job *v2beta1.MPIJob) { job.Spec.MPIReplicaSpecs["Launcher"].Replicas = new(int32(2)) },
		want:   []wantCause{{launcherAt + ".replicas", "Launcher replicas must be exactly 1, got 2"}},
	},
	"1 resources: no launcher": {
		change: func(job *v2beta1.MPIJob) { delete(job.Spec.MPIReplicaSpecs, "Launcher") },
		want:   []wantCause{{launcherAt, "Launcher replica spec is required"}},
	},

	"2 slots: none": {
		change: func(job *v2beta1.MPIJob) { job.Spec.SlotsPerWorker = new(int32(0)) },
		want:   []wantCause{{"spec.slotsPerWorker", "slotsPerWorker must be between 1 and 8"}},
	},
	"2 slots: eight": {change: func(job *v2beta1.MPIJob) { job.Spec.SlotsPerWorker = new(int32(8)) }},

	"3 MPI: an unknown one": {
		change: func(job *v2beta1.MPIJob) { job.Spec.MPIImplementation = "LAM" },
		want:   []wantCause{{"spec.mpiImplementation", `supported values: "OpenMPI", "IntelMPI", "Intel", "MPICH"`}},
	},
	"3 MPI: Intel as mpi-operator calls it": {change: func(job *v2beta1.MPIJob) { job.Spec.MPIImplementation = "Intel" }},

	"4 network policy: an unknown template": {
		change: func(job *v2beta1.MPIJob) { job.Spec.NetworkPolicy = &training.NetworkPolicy{Template: "Open"} },
		want:   []wantCause{{"spec.networkPolicy.template", `supported values: "Default", "Restricted"`}},
	},
	"4 network policy: restricted": {
		change: func(job *v2beta1.MPIJob) {
			job.Spec.NetworkPolicy = &training.NetworkPolicy{Template: training.NetworkPolicyRestricted}
		},
	},

	"5 run policy: negative numbers": {
		change: func(job *v2beta1.MPIJob) {
			job.Spec.RunPolicy.TTLSecondsAfterFinished = new(int32(-1))
			job.Spec.RunPolicy.ActiveDeadlineSeconds = new(int64(-1))
			job.Spec.RunPolicy.BackoffLimit = new(int32(-1))
		},
		want: []wantCause{
			{"spec.runPolicy.ttlSecondsAfterFinished", "must be at least 0"},
			{"spec.runPolicy.activeDeadlineSeconds", "must be at least 0"},
			{"spec.runPolicy.backoffLimit", "must be at least 0"},
		},
	},
	"5 run policy: two that differ": {
		change: func(job *v2beta1.MPIJob) {
			job.Spec.CleanPodPolicy = new(training.CleanPodPolicyAll)
			job.Spec.RunPolicy.CleanPodPolicy = new(training.CleanPodPolicyNone)
		},
		want: []wantCause{{"spec.runPolicy.cleanPodPolicy", "differs from spec.cleanPodPolicy, which is All"}},
	},
	"5 run policy: restarted always": {
		change: func(job *v2beta1.MPIJob) { job.Spec.MPIReplicaSpecs["Worker"].RestartPolicy = "Always" },
		want:   []wantCause{{workerAt + ".restartPolicy", `supported values: "Never", "OnFailure"`}},
	},
	"5 run policy: everything set": {
		change: func(job *v2beta1.MPIJob) {
			job.Spec.CleanPodPolicy = new(training.CleanPodPolicyAll)
			job.Spec.RunPolicy = v2beta1.RunPolicy{
				CleanPodPolicy: new(training.CleanPodPolicyAll), TTLSecondsAfterFinished: new(int32(0)),
				ActiveDeadlineSeconds: new(int64(3600)), BackoffLimit: new(int32(0)), ManagedBy: new("kubeflow.org/mpi-operator"),
			}
		},
	},
	"5 run policy: managed by nobody we know": {
		change: func(job *v2beta1.MPIJob) { job.Spec.RunPolicy.ManagedBy = new("example.com/somebody") },
		want:   []wantCause{{"spec.runPolicy.managedBy", `supported values: "kubeflow.org/mpi-operator", "kueue.x-k8s.io/multikueue", "training.kubeflow.org/trireme"`}},
	},

	"6 scheduling: a queue that cannot be": {
		change: func(job *v2beta1.MPIJob) {
			job.Spec.RunPolicy.SchedulingPolicy = &v2beta1.SchedulingPolicy{Queue: "-Team_A", PriorityClass: "nobodys"}
		},
		want: []wantCause{
			{"spec.runPolicy.schedulingPolicy.queue", "is not a valid queue name"},
			{"spec.runPolicy.schedulingPolicy.priorityClass", "PriorityClass does not exist"},
		},
	},
	"6 scheduling: more members than pods": {
		change: func(job *v2beta1.MPIJob) {
			job.Spec.RunPolicy.SchedulingPolicy = &v2beta1.SchedulingPolicy{MinAvailable: new(int32(6))}
		},
		want: []wantCause{{"spec.runPolicy.schedulingPolicy.minAvailable", "minAvailable must be between 1 and 5"}},
	},
	"6 scheduling: a queue and a class that are there": {
		change: func(job *v2beta1.MPIJob) {
			job.Spec.RunPolicy.SchedulingPolicy = &v2beta1.SchedulingPolicy{
				Queue: "default", PriorityClass: "high-priority", MinAvailable: new(int32(5)), ScheduleTimeoutSeconds: new(int32(30)),
			}
		},
	},

	"7 containers: image, volume and directory": {
		change: func(job *v2beta1.MPIJob) {
			launcher(job).Image = "Not An Image"
			worker(job).VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
			launcher(job).VolumeMounts = []corev1.VolumeMount{{Name: "own", MountPath: "/etc/mpi/"}}
			job.Spec.MPIReplicaSpecs["Launcher"].Template.Spec.Volumes = []corev1.Volume{{Name: "own"}}
		},
		want: []wantCause{
			{launcherAt + ".template.spec.containers[0].image", "is not a valid image name"},
			{workerAt + ".template.spec.containers[0].volumeMounts[0].name", `Not found: "data"`},
			{launcherAt + ".template.spec.containers[0].volumeMounts[0].mountPath", "/etc/mpi is used by the operator, for files that MPI needs"},
		},
	},
	"7 containers: none": {
		change: func(job *v2beta1.MPIJob) {
			job.Spec.MPIReplicaSpecs["Launcher"].Template.Spec.Containers = []corev1.Container{}
		},
		want: []wantCause{{launcherAt + ".template.spec.containers", "must have at least one container"}},
	},
	"7 containers: no image": {
		change: func(job *v2beta1.MPIJob) { worker(job).Image = "" },
		want:   []wantCause{{workerAt + ".template.spec.containers[0].image", "must be set to an image"}},
	},
	"7 containers: a digest, a volume, and workers with an sshd of their own": {
		change: func(job *v2beta1.MPIJob) {
			worker(job).Image = "registry.example:5000/a/b@sha256:" + strings.Repeat("a", 64)
			worker(job).Command = []string{"/usr/sbin/sshd", "-De"}
			worker(job).VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
			job.Spec.MPIReplicaSpecs["Worker"].Template.Spec.Volumes = []corev1.Volume{{Name: "data"}}
		},
	},

	"9 security: privileged": {
		change: func(job *v2beta1.MPIJob) {
			worker(job).SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
		},
		want: []wantCause{{workerAt + ".template.spec.containers[0].securityContext.privileged", "privileged containers are not allowed"}},
	},
	"9 security: root and the host's network where the namespace is restricted": {
		namespaceLabels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
		change: func(job *v2beta1.MPIJob) {
			job.Spec.MPIReplicaSpecs["Worker"].Template.Spec.HostNetwork = true
			worker(job).SecurityContext = &corev1.SecurityContext{RunAsUser: new(int64(0))}
		},
		want: []wantCause{{workerAt + ".template", `worker pods violate PodSecurity "restricted:latest" of the namespace: host namespaces (hostNetwork=true)`}},
	},
	"9 security: an sshd of the image's where the namespace is restricted": {
		namespaceLabels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
		change:          func(job *v2beta1.MPIJob) { worker(job).Command = []string{"/usr/sbin/sshd", "-De"} },
		want: []wantCause{
			{launcherAt + ".template", `launcher pods violate PodSecurity "restricted:latest" of the namespace: allowPrivilegeEscalation != false`},
			{workerAt + ".template", `worker pods violate PodSecurity "restricted:latest" of the namespace: allowPrivilegeEscalation != false`},
		},
	},
	"9 security: the agent where the namespace is restricted": {
		namespaceLabels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	},
	"9 security: root where the namespace allows it": {
		change: func(job *v2beta1.MPIJob) {
			worker(job).SecurityContext = &corev1.SecurityContext{RunAsUser: new(int64(0))}
		},
	},

	"10 labels: of another job": {
		change: func(job *v2beta1.MPIJob) {
			job.Labels = map[string]string{training.LabelJobName: "another", training.LabelJobType: "trainjob"}
			job.Annotations = map[string]string{training.IstioInject: "maybe"}
		},
		want: []wantCause{
			{"metadata.labels[training.kubeflow.org/job-name]", "must be "},
			{"metadata.labels[training.kubeflow.org/job-type]", `must be "mpijob"`},
			{"metadata.annotations[sidecar.istio.io/inject]", `supported values: "true", "false"`},
		},
	},
	"10 labels: its own": {
		change: func(job *v2beta1.MPIJob) {
			job.Labels = map[string]string{training.LabelJobName: job.Name, training.LabelJobType: "mpijob"}
			job.Annotations = map[string]string{training.IstioInject: "false"}
		},
	},

	"a name too long for its workers": {
		change: func(job *v2beta1.MPIJob) { job.Name = strings.Repeat("n", 253) },
		want:   []wantCause{{"metadata.name", "has 253 characters; it can have at most 54, because the host name <name>-launcher"}},
	},
	"a name that no service can have": {
		change: func(job *v2beta1.MPIJob) { job.Name = "1.job" },
		want:   []wantCause{{"metadata.name", "a DNS-1035 label must"}},
	},
	"ten thousand variables": {
		change: func(job *v2beta1.MPIJob) {
			for i := range 10_000 {
				worker(job).Env = append(worker(job).Env, corev1.EnvVar{Name: fmt.Sprintf("V%d", i)})
			}
		},
		want: []wantCause{{workerAt + ".template.spec.containers[0].env", "must have at most 1000 items"}},
	},
	"one and a half megabytes": {
		change: func(job *v2beta1.MPIJob) {
			worker(job).Env = []corev1.EnvVar{{Name: "DATA", Value: strings.Repeat("x", 1_500_000)}}
		},
		want: []wantCause{{"spec", "the object must have at most 1048576 bytes"}},
	},
	"quantities below zero and above everything": {
		change: func(job *v2beta1.MPIJob) {
			worker(job).Resources.Limits = resources("cpu", "-1", "memory", "1e30", "nvidia.com/gpu", "1")
			job.Spec.SlotsPerWorker = nil
		},
		want: []wantCause{
			{workerAt + ".template.spec.containers[0].resources.limits[cpu]", "must not be negative"},
			{workerAt + ".template.spec.containers[0].resources.limits[memory]", "is more than any node has"},
		},
	},
	"everything at once": {
		change: func(job *v2beta1.MPIJob) {
			job.Spec.SlotsPerWorker = new(int32(9))
			job.Spec.MPIReplicaSpecs["Worker"].Replicas = new(int32(1))
			job.Spec.RunPolicy.BackoffLimit = new(int32(-1))
			worker(job).Image = "?"
		},
		want: []wantCause{
			{"spec.slotsPerWorker", ""}, {workerAt + ".replicas", ""}, {"spec.runPolicy.backoffLimit", ""},
			{workerAt + ".template.spec.containers[0].image", ""},
		},
	},
}

func TestMPIJob(t *testing.T) {
	cluster := sharedCluster.For(t)
	cluster.priorityClass(t, "high-priority")
	for name, tc := range mpiJobCases {
		t.Run(name, func(t *testing.T) {
			namespace := cluster.namespace(t, tc.namespaceLabels)
			job := mpiJob(namespace, "train")
			if tc.change != nil {
				tc.change(job)
			}
			// The operator learns of namespaces and classes a moment later.
			var err error
			eventually.Succeeds(t, "admission", func() error {
				attempt := job.DeepCopy()
				err = cluster.client.Create(t.Context(), attempt)
				if settled := (err == nil) == (len(tc.want) == 0); !settled {
					_ = cluster.client.Delete(t.Context(), attempt)
					return fmt.Errorf("created: %v", err)
				}
				return nil
			})
			if len(tc.want) > 0 {
				wantCauses(t, err, tc.want...)
			}
		})
	}
}

func TestMPIJobsNameBelongsToATrainJob(t *testing.T) {
	cluster := sharedCluster.For(t)
	namespace := cluster.namespace(t, nil)
	cluster.create(t, runtime(namespace, "mpi"))
	eventually.Succeeds(t, "the TrainJob", func() error { return cluster.client.Create(t.Context(), trainJob(namespace, "train")) })
	var err error
	eventually.Succeeds(t, "the MPIJob", func() error {
		if err = cluster.client.Create(t.Context(), mpiJob(namespace, "train")); err == nil {
			_ = cluster.client.Delete(t.Context(), mpiJob(namespace, "train"))
			return fmt.Errorf("accepted")
		}
		return nil
	})
	wantCauses(t, err, wantCause{"metadata.name", "a TrainJob of this name already exists in the namespace"})
}

func TestMPIJobWithGeneratedName(t *testing.T) {
	cluster := sharedCluster.For(t)
	job := mpiJob(cluster.namespace(t, nil), "")
	job.ObjectMeta = metav1.ObjectMeta{Namespace: job.Namespace, GenerateName: "train-"}
	cluster.create(t, job)
	eventually.Succeeds(t, "its audit line", func() error {
		if lines := cluster.audit.About(t, job.Name); len(lines) != 1 {
			return fmt.Errorf("%d lines about %s", len(lines), job.Name)
		}
		return nil
	})
}
