// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
)

var trainJobCases = map[string]struct {
	runtime func(*v2alpha1.TrainingRuntimeSpec)
	change  func(*v2alpha1.TrainJob)
	want    []wantCause
}{
	"a job that nothing is wrong with": {},

	"no node": {
		change: func(job *v2alpha1.TrainJob) { job.Spec.Trainer.NumNodes = new(int32(0)) },
		want:   []wantCause{{"spec.trainer.numNodes", "numNodes must be between 1 and 64"}},
	},
	"sixty-five nodes": {
		change: func(job *v2alpha1.TrainJob) { job.Spec.Trainer.NumNodes = new(int32(65)) },
		want:   []wantCause{{"spec.trainer.numNodes", "numNodes must be between 1 and 64"}},
	},
	"one node": {change: func(job *v2alpha1.TrainJob) { job.Spec.Trainer.NumNodes = new(int32(1)) }},
	"the runtime's number of nodes": {
		runtime: func(runtime *v2alpha1.TrainingRuntimeSpec) { runtime.MLPolicy.NumNodes = new(int32(8)) },
		change:  func(job *v2alpha1.TrainJob) { job.Spec.Trainer.NumNodes = nil },
	},
	"a runtime that is not there": {
		change: func(job *v2alpha1.TrainJob) { job.Spec.RuntimeRef.Name = "mpi-horovod-gpu" },
		want:   []wantCause{{"spec.runtimeRef.name", "Runtime mpi-horovod-gpu not found in namespace"}},
	},
	"a cluster runtime that is not there": {
		change: func(job *v2alpha1.TrainJob) { job.Spec.RuntimeRef.Kind = v2alpha1.RuntimeKindCluster },
		want:   []wantCause{{"spec.runtimeRef.name", "Runtime mpi not found in namespace"}},
	},
	"a runtime without MPI": {
		runtime: func(runtime *v2alpha1.TrainingRuntimeSpec) { runtime.MLPolicy.MPIImplementation = "" },
		want:    []wantCause{{"spec.runtimeRef.name", "Runtime mpi does not support MPI"}},
	},
	"a runtime of another group": {
		change: func(job *v2alpha1.TrainJob) { job.Spec.RuntimeRef.APIGroup = new("trainer.kubeflow.org") },
		want:   []wantCause{{"spec.runtimeRef.apiGroup", `supported values: "kubeflow.org"`}},
	},
	"no resources anywhere": {
		change: func(job *v2alpha1.TrainJob) { job.Spec.Trainer.ResourcesPerNode = nil },
		want:   []wantCause{{"spec.trainer.resourcesPerNode", "Worker pod missing resource requests"}},
	},
	"the runtime's resources": {
		runtime: func(runtime *v2alpha1.TrainingRuntimeSpec) {
			runtime.Template.Spec.ReplicatedJobs[1].Template.Spec.Containers[0].Resources.Requests = resources("cpu", "1", "memory", "1Gi")
		},
		change: func(job *v2alpha1.TrainJob) { job.Spec.Trainer.ResourcesPerNode = nil },
	},
	"too little": {
		change: func(job *v2alpha1.TrainJob) {
			job.Spec.Trainer.ResourcesPerNode.Limits = resources("cpu", "100m", "memory", "1Gi")
		},
		want: []wantCause{{"spec.trainer.resourcesPerNode.requests[cpu]", "a worker must request at least 1 cpu"}},
	},
	"half a GPU": {
		change: func(job *v2alpha1.TrainJob) {
			job.Spec.Trainer.ResourcesPerNode.Limits = resources("cpu", "1", "memory", "1Gi", "nvidia.com/gpu", "500m")
		},
		want: []wantCause{{"spec.trainer.resourcesPerNode.limits[nvidia.com/gpu]", "must be a whole number"}},
	},
	"an image that cannot be": {
		change: func(job *v2alpha1.TrainJob) { job.Spec.Trainer.Image = "registry.example/UPPER" },
		want:   []wantCause{{"spec.trainer.image", "is not a valid image name"}},
	},
	"no image": {
		change: func(job *v2alpha1.TrainJob) { job.Spec.Trainer.Image = "" },
		want:   []wantCause{{"spec.trainer.image", "must be set to an image"}},
	},
	"seventeen slots": {
		change: func(job *v2alpha1.TrainJob) { job.Spec.Trainer.SlotsPerWorker = new(int32(17)) },
		want:   []wantCause{{"spec.trainer.slotsPerWorker", "slotsPerWorker must be between 1 and 16"}},
	},
	"more than the runtime allows": {
		runtime: func(runtime *v2alpha1.TrainingRuntimeSpec) {
			runtime.Constraints = &v2alpha1.Constraints{MaxNodes: new(int32(2)), MaxGPUsPerNode: new(int32(1))}
		},
		want: []wantCause{
			{"spec.trainer.numNodes", "numNodes must be at most 2 with runtime mpi"},
			{"spec.trainer.resourcesPerNode", "a node must have at most 1 GPUs with runtime mpi"},
		},
	},
	"volumes that do not go together": {
		runtime: func(runtime *v2alpha1.TrainingRuntimeSpec) {
			worker := &runtime.Template.Spec.ReplicatedJobs[1].Template.Spec
			worker.Volumes = []corev1.Volume{{Name: "scratch"}, {Name: "only-workers"}}
			worker.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "scratch", MountPath: "/scratch"}}
		},
		change: func(job *v2alpha1.TrainJob) {
			job.Spec.Trainer.Volumes = []corev1.Volume{{Name: "scratch"}, {Name: "data"}}
			job.Spec.Trainer.VolumeMounts = []corev1.VolumeMount{
				{Name: "data", MountPath: "/data"}, {Name: "nobodys", MountPath: "/nobodys"},
				{Name: "only-workers", MountPath: "/workers"}, {Name: "data", MountPath: "/scratch"},
			}
		},
		want: []wantCause{
			{"spec.trainer.volumes[0].name", "the worker of runtime mpi already has a volume of this name"},
			{"spec.trainer.volumeMounts[1].name", `Not found: "nobodys"`},
			{"spec.trainer.volumeMounts[2].name", `Not found: "only-workers"`},
			{"spec.trainer.volumeMounts[3].mountPath", "/scratch is used by the runtime"},
		},
	},
	"a volume and an environment of its own": {
		change: func(job *v2alpha1.TrainJob) {
			job.Spec.Trainer.Volumes = []corev1.Volume{{Name: "data"}}
			job.Spec.Trainer.VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
			job.Spec.Trainer.Env = []corev1.EnvVar{{Name: "EPOCHS", Value: "3"}}
		},
	},
	"a variable that cannot be": {
		change: func(job *v2alpha1.TrainJob) { job.Spec.Trainer.Env = []corev1.EnvVar{{Name: "A=B"}} },
		want:   []wantCause{{"spec.trainer.env[0].name", "a valid environment variable name"}},
	},
	"an initializer without a place": {
		change: func(job *v2alpha1.TrainJob) {
			job.Spec.Initializer = &v2alpha1.Initializer{
				Dataset: &v2alpha1.Source{StorageURI: "ftp://server/data"},
				Model:   &v2alpha1.Source{StorageURI: "s3://key:password@bucket/model", SecretRef: &v2alpha1.SecretRef{Name: "Not_A_Secret"}},
			}
		},
		want: []wantCause{
			{"spec.initializer.dataset.storageUri", "must be s3://bucket/path, hf://owner/name, hf://owner/name@revision or pvc://claim/path"},
			{"spec.initializer.model.storageUri", "must not contain credentials"},
			{"spec.initializer.model.secretRef.name", "a lowercase RFC 1123 subdomain"},
			{"spec.initializer.storage", "set claimName to an existing PVC"},
		},
	},
	"a place in two ways": {
		change: func(job *v2alpha1.TrainJob) {
			job.Spec.Initializer = &v2alpha1.Initializer{
				Dataset: &v2alpha1.Source{StorageURI: "hf://owner/name"},
				Storage: &v2alpha1.InitializerStorage{ClaimName: "data", Size: new(resource.MustParse("0")), StorageClassName: new("fast")},
			}
		},
		want: []wantCause{
			{"spec.initializer.storage", "must have either claimName or size"},
			{"spec.initializer.storage.size", "must be greater than 0"},
			{"spec.initializer.storage.storageClassName", "is only for a new PVC"},
		},
	},
	"an initializer": {
		change: func(job *v2alpha1.TrainJob) {
			job.Spec.Initializer = &v2alpha1.Initializer{
				Dataset: &v2alpha1.Source{StorageURI: "s3://bucket/data", SecretRef: &v2alpha1.SecretRef{Name: "s3"}},
				Model:   &v2alpha1.Source{StorageURI: "pvc://models/llm"},
				Storage: &v2alpha1.InitializerStorage{Size: new(resource.MustParse("10Gi"))},
			}
		},
	},
	"numbers out of range": {
		change: func(job *v2alpha1.TrainJob) {
			job.Spec.ActiveDeadlineSeconds = new(int64(0))
			job.Spec.TTLSecondsAfterFinished = new(int32(-1))
			job.Spec.BackoffLimit = new(int32(-1))
			job.Spec.ManagedBy = new("example.com/somebody")
		},
		want: []wantCause{
			{"spec.activeDeadlineSeconds", "must be at least 1"},
			{"spec.ttlSecondsAfterFinished", "must be at least 0"},
			{"spec.backoffLimit", "must be at least 0"},
			{"spec.managedBy", `supported values: "kubeflow.org/trainjob-controller"`},
		},
	},
	"everything set": {
		change: func(job *v2alpha1.TrainJob) {
			job.Spec.RuntimeRef.APIGroup = new("kubeflow.org")
			job.Spec.ActiveDeadlineSeconds = new(int64(3600))
			job.Spec.TTLSecondsAfterFinished = new(int32(0))
			job.Spec.BackoffLimit = new(int32(2))
			job.Spec.ManagedBy = new("kubeflow.org/trainjob-controller")
			job.Spec.CleanPodPolicy = new(training.CleanPodPolicyAll)
			job.Spec.NetworkPolicy = &training.NetworkPolicy{Template: training.NetworkPolicyDefault}
			job.Spec.RequireAllHosts = new(true)
			job.Spec.Suspend = new(true)
			job.Spec.Launcher = &v2alpha1.Launcher{Resources: &corev1.ResourceRequirements{Requests: resources("cpu", "1")}}
		},
	},
	"pods that are kept": {
		change: func(job *v2alpha1.TrainJob) { job.Spec.CleanPodPolicy = new(training.CleanPodPolicyNone) },
	},
	"a name of 45 characters": {
		change: func(job *v2alpha1.TrainJob) { job.Name = strings.Repeat("n", 45) },
		want:   []wantCause{{"metadata.name", "has 45 characters; it can have at most 44"}},
	},
	"a name of 44 characters": {change: func(job *v2alpha1.TrainJob) { job.Name = strings.Repeat("n", 44) }},
	"a name of 253 characters": {
		change: func(job *v2alpha1.TrainJob) { job.Name = strings.Repeat("n", 253) },
		want:   []wantCause{{"metadata.name", "has 253 characters; it can have at most 44"}},
	},
	"Kueue and native gangs": {
		runtime: func(runtime *v2alpha1.TrainingRuntimeSpec) {
			runtime.PodGroupPolicy = &v2alpha1.PodGroupPolicy{Native: &v2alpha1.GangPolicy{}}
		},
		change: func(job *v2alpha1.TrainJob) { job.Labels = map[string]string{training.LabelQueue: "team"} },
	},
	"a priority class that is not there": {
		runtime: func(runtime *v2alpha1.TrainingRuntimeSpec) {
			runtime.PodGroupPolicy = &v2alpha1.PodGroupPolicy{PriorityClassName: "nobodys"}
		},
		want: []wantCause{{"spec.runtimeRef.name", "PriorityClass does not exist"}},
	},
}

func TestTrainJob(t *testing.T) {
	cluster := sharedCluster.For(t)
	for name, tc := range trainJobCases {
		t.Run(name, func(t *testing.T) {
			namespace := cluster.namespace(t, nil)
			made := runtime(namespace, "mpi")
			if tc.runtime != nil {
				tc.runtime(&made.Spec)
			}
			cluster.create(t, made)
			job := trainJob(namespace, "train")
			if tc.change != nil {
				tc.change(job)
			}
			// At once after the runtime, as kubectl apply -f does it.
			err := cluster.client.Create(t.Context(), job)
			if len(tc.want) > 0 {
				wantCauses(t, err, tc.want...)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

// A runtime is as restricted as a job's namespace asks: what its templates leave
// open is filled in, what they say is judged.
func TestTrainJobInARestrictedNamespace(t *testing.T) {
	cluster := sharedCluster.For(t)
	namespace := cluster.namespace(t, map[string]string{"pod-security.kubernetes.io/enforce": "restricted"})
	cluster.create(t, runtime(namespace, "mpi"))
	cluster.create(t, runtime(namespace, "root", func(runtime *v2alpha1.TrainingRuntimeSpec) {
		runtime.Template.Spec.ReplicatedJobs[1].Template.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(0))}
	}))
	cluster.create(t, trainJob(namespace, "train"))
	err := cluster.client.Create(t.Context(), trainJob(namespace, "as-root", func(job *v2alpha1.TrainJob) { job.Spec.RuntimeRef.Name = "root" }))
	wantCauses(t, err, wantCause{"spec.runtimeRef.name", `worker pods violate PodSecurity "restricted:latest" of the namespace: runAsNonRoot != true`})
}

var runtimeCases = map[string]struct {
	change func(*v2alpha1.TrainingRuntimeSpec)
	want   []wantCause
}{
	"a runtime that nothing is wrong with": {},
	"impatient": {
		change: func(runtime *v2alpha1.TrainingRuntimeSpec) {
			runtime.PodGroupPolicy = &v2alpha1.PodGroupPolicy{Coscheduling: &v2alpha1.GangPolicy{ScheduleTimeoutSeconds: new(int32(59))}}
		},
		want: []wantCause{{"spec.podGroupPolicy.coscheduling.scheduleTimeoutSeconds", "scheduleTimeoutSeconds must be at least 60"}},
	},
	"too patient": {
		change: func(runtime *v2alpha1.TrainingRuntimeSpec) {
			runtime.PodGroupPolicy = &v2alpha1.PodGroupPolicy{Native: &v2alpha1.GangPolicy{ScheduleTimeoutSeconds: new(int32(3601))}}
		},
		want: []wantCause{{"spec.podGroupPolicy.native.scheduleTimeoutSeconds", "scheduleTimeoutSeconds must be at most 3600"}},
	},
	"two schedulers": {
		change: func(runtime *v2alpha1.TrainingRuntimeSpec) {
			runtime.PodGroupPolicy = &v2alpha1.PodGroupPolicy{Coscheduling: &v2alpha1.GangPolicy{}, Volcano: &v2alpha1.QueuedGangPolicy{}}
		},
		want: []wantCause{{"spec.podGroupPolicy", "must have at most one of coscheduling, volcano, kai and native"}},
	},
	"two priorities": {
		change: func(runtime *v2alpha1.TrainingRuntimeSpec) {
			runtime.PodGroupPolicy = &v2alpha1.PodGroupPolicy{PriorityClass: "a", PriorityClassName: "b"}
		},
		want: []wantCause{{"spec.podGroupPolicy.priorityClassName", "differs from priorityClass, which is a"}},
	},
	"Volcano with a queue": {
		change: func(runtime *v2alpha1.TrainingRuntimeSpec) {
			runtime.PodGroupPolicy = &v2alpha1.PodGroupPolicy{Volcano: &v2alpha1.QueuedGangPolicy{
				Queue: "default", GangPolicy: v2alpha1.GangPolicy{ScheduleTimeoutSeconds: new(int32(600))}}}
		},
	},
	"no worker": {
		change: func(runtime *v2alpha1.TrainingRuntimeSpec) {
			runtime.Template.Spec.ReplicatedJobs = runtime.Template.Spec.ReplicatedJobs[:1]
		},
		want: []wantCause{{"spec.template.spec.replicatedJobs", "Runtime must define launcher and worker jobs"}},
	},
	"a third job": {
		change: func(runtime *v2alpha1.TrainingRuntimeSpec) {
			runtime.Template.Spec.ReplicatedJobs = append(runtime.Template.Spec.ReplicatedJobs,
				v2alpha1.ReplicatedJob{Name: "initializer", Template: withoutIstio(template("initializer"))})
		},
		want: []wantCause{{"spec.template.spec.replicatedJobs", "Runtime must define launcher and worker jobs"}},
	},
	"numbers out of range": {
		change: func(runtime *v2alpha1.TrainingRuntimeSpec) {
			runtime.MLPolicy.NumNodes = new(int32(65))
			runtime.MLPolicy.SlotsPerWorker = new(int32(17))
			runtime.Constraints = &v2alpha1.Constraints{MaxNodes: new(int32(0)), MaxGPUsPerNode: new(int32(-1)), RequiredNodeLabels: map[string]string{"a b": "c"}}
			runtime.Template.Spec.ReplicatedJobs[0].Replicas = new(int32(2))
			runtime.Template.Spec.ReplicatedJobs[1].Replicas = new(int32(0))
		},
		want: []wantCause{
			{"spec.mlPolicy.numNodes", "numNodes must be between 1 and 64"},
			{"spec.mlPolicy.numNodes", "numNodes must be at most constraints.maxNodes, 0"},
			{"spec.mlPolicy.slotsPerWorker", "slotsPerWorker must be between 1 and 16"},
			{"spec.constraints.maxNodes", "must be at least 1"},
			{"spec.constraints.maxGPUsPerNode", "must be at least 0"},
			{"spec.constraints.requiredNodeLabels", "name part must consist of"},
			{"spec.template.spec.replicatedJobs[0].replicas", "must be 1"},
			{"spec.template.spec.replicatedJobs[1].replicas", "replicas must be between 1 and 64"},
		},
	},
	"labels that contradict": {
		change: func(runtime *v2alpha1.TrainingRuntimeSpec) {
			runtime.Constraints = &v2alpha1.Constraints{RequiredNodeLabels: map[string]string{"gpu": "a100"}}
			runtime.Template.Spec.ReplicatedJobs[1].Template.Spec.NodeSelector = map[string]string{"gpu": "t4"}
		},
		want: []wantCause{{"spec.template.spec.replicatedJobs[1].template.spec.nodeSelector[gpu]", "differs from constraints.requiredNodeLabels"}},
	},
	"privileged": {
		change: func(runtime *v2alpha1.TrainingRuntimeSpec) {
			runtime.Template.Spec.ReplicatedJobs[1].Template.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
		},
		want: []wantCause{{"spec.template.spec.replicatedJobs[1].template.spec.containers[0].securityContext.privileged", "privileged containers are not allowed"}},
	},
	"an unknown MPI": {
		change: func(runtime *v2alpha1.TrainingRuntimeSpec) { runtime.MLPolicy.MPIImplementation = "Horovod" },
		want:   []wantCause{{"spec.mlPolicy.mpiImplementation", `supported values: "OpenMPI", "IntelMPI", "MPICH"`}},
	},
	"a second container without an image": {
		change: func(runtime *v2alpha1.TrainingRuntimeSpec) {
			worker := &runtime.Template.Spec.ReplicatedJobs[1].Template.Spec
			worker.Containers[0].Image = ""
			worker.Containers = append(worker.Containers, corev1.Container{Name: "sidecar"})
		},
		want: []wantCause{{"spec.template.spec.replicatedJobs[1].template.spec.containers[1].image", "must be set to an image"}},
	},
}

func TestRuntimes(t *testing.T) {
	cluster := sharedCluster.For(t)
	for name, tc := range runtimeCases {
		t.Run(name, func(t *testing.T) {
			namespaced := runtime(cluster.namespace(t, nil), "mpi")
			if tc.change != nil {
				tc.change(&namespaced.Spec)
			}
			everywhere := &v2alpha1.ClusterTrainingRuntime{Spec: namespaced.Spec}
			everywhere.GenerateName = "mpi-"
			for kind, err := range map[string]error{
				"TrainingRuntime":        cluster.client.Create(t.Context(), namespaced),
				"ClusterTrainingRuntime": cluster.client.Create(t.Context(), everywhere),
			} {
				if len(tc.want) > 0 {
					wantCauses(t, err, tc.want...)
				} else if err != nil {
					t.Errorf("%s: %v", kind, err)
				}
			}
		})
	}
}

func TestRuntimesAreJudgedWhenChanged(t *testing.T) {
	cluster := sharedCluster.For(t)
	made := runtime(cluster.namespace(t, nil), "mpi")
	cluster.create(t, made)
	made.Spec.MLPolicy.NumNodes = new(int32(8))
	if err := cluster.client.Update(t.Context(), made); err != nil {
		t.Errorf("a good change is refused: %v", err)
	}
	made.Spec.MLPolicy.NumNodes = new(int32(0))
	wantCauses(t, cluster.client.Update(t.Context(), made), wantCause{"spec.mlPolicy.numNodes", "numNodes must be between 1 and 64"})
}
