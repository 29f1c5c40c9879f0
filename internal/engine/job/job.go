// Package job is the one model of a job. A TrainJob with its runtime and an
// MPIJob both become a Job, with every default applied; what comes after, from
// admission to status, knows nothing of kinds.
//
// The package is pure: no client, no clock, no randomness. What a user wrote is
// read and never changed.
package job

import (
	"maps"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trireme-mpi/trireme/api/training"
)

// Job is what shall run, whichever kind it was written as.
type Job struct {
	Kind      Kind
	Namespace string
	Name      string
	UID       types.UID

	// Suspended jobs have no pods.
	Suspended bool
	// Queue is Kueue's local queue that the job waits in, if any.
	Queue string
	// QueueLabels are what the job tells Kueue, the queue among it.
	QueueLabels map[string]string
	// ManagedBy is who else runs the job; empty for the jobs that are ours.
	ManagedBy string
	// RuntimeDigest identifies the runtime that the job was built from; empty for kinds
	// without one.
	RuntimeDigest string

	MPI             MPI
	Slots           int32
	Launcher        Role
	Worker          Role
	RequireAllHosts bool
	// LauncherRunsRanks: the launcher is in the hostfile too.
	LauncherRunsRanks bool
	// LauncherWaits: the launcher starts once all workers are ready.
	LauncherWaits bool
	// TagOutput: every line of output begins with its rank.
	TagOutput bool
	// SSHDirectory is where containers with an sshd of their own find the keys.
	SSHDirectory string

	Initializer   *Initializer
	NetworkPolicy training.NetworkPolicyTemplate
	Gang          Gang
	Lifetime      Lifetime
}

// MPI is an implementation of MPI.
type MPI string

const (
	OpenMPI  MPI = "OpenMPI"
	IntelMPI MPI = "IntelMPI"
	MPICH    MPI = "MPICH"
)

// Role is the pods of one role. Its template is complete except for what starts
// MPI.
type Role struct {
	Replicas int32
	Template corev1.PodTemplateSpec
}

// Gang is how the pods are placed together.
type Gang struct {
	// Scheduler is the one that was asked for; empty means what the cluster has.
	Scheduler Scheduler
	// MinMember is how many pods must have a place before any starts.
	MinMember int32
	// MinResources replaces the sum of what the pods ask for.
	MinResources corev1.ResourceList
	// TimeoutSeconds is how long the pods may wait; 0 is for ever.
	TimeoutSeconds int32
	PriorityClass  string
	// Queue of Volcano or KAI.
	Queue string
}

// Scheduler places the pods of a job together.
type Scheduler string

const (
	Coscheduling Scheduler = "coscheduling"
	Volcano      Scheduler = "volcano"
	KAI          Scheduler = "kai"
	Native       Scheduler = "native"
)

// Lifetime is how long a job lives and what is left of it.
type Lifetime struct {
	CleanPodPolicy training.CleanPodPolicy
	// BackoffLimit is how often it is started anew.
	BackoffLimit            int32
	ActiveDeadlineSeconds   *int64
	TTLSecondsAfterFinished *int32
}

// Initializer is what is fetched before the pods are asked for.
type Initializer struct {
	Dataset, Model *Source
	// ClaimName is a claim that is there; if empty, one of Size is made.
	ClaimName        string
	Size             resource.Quantity
	StorageClassName *string
}

// Source is something to fetch.
type Source struct {
	URI    string
	Secret string
}

// Defaults are what a job gets that does not say otherwise. They are the
// operator's configuration.
type Defaults struct {
	// LauncherResources of a TrainJob.
	LauncherResources corev1.ResourceList
	// ScheduleTimeoutSeconds of a TrainJob, and of an MPIJob, where 0 is no limit.
	ScheduleTimeoutSeconds, MPIJobScheduleTimeoutSeconds int32
	// MinScheduleTimeoutSeconds is what a shorter limit of an MPIJob is raised to.
	MinScheduleTimeoutSeconds int32
	// RunAsUser is the UID of pods that name none and must not run as root. Nil
	// leaves it to the cluster, as OpenShift wants it.
	RunAsUser *int64
}

const (
	// HostfileDirectory is where the launcher finds the hostfile.
	HostfileDirectory = "/etc/mpi"
	// AgentDirectory, KeyDirectory and ClockDirectory are where pods find the agent
	// and what it needs.
	AgentDirectory = "/opt/trireme"
	KeyDirectory   = "/etc/trireme/ssh"
	ClockDirectory = "/etc/trireme/pod"
	// AgentPort is where the agent answers, in the first container of a pod.
	AgentPort = 2222
	// WorkspaceDirectory is where pods find what the initializer fetched.
	WorkspaceDirectory = "/workspace"
)

// Pods is the number of pods, without initializers.
func (j *Job) Pods() int32 { return j.Launcher.Replicas + j.Worker.Replicas }

// WorkerIndex is the index of a worker's pod, from 0, by its host name.
func (j *Job) WorkerIndex(pod *corev1.Pod) (int32, bool) {
	text, isWorker := strings.CutPrefix(pod.Spec.Hostname, j.Name+j.Kind.Traits().WorkerHostInfix)
	index, err := strconv.ParseInt(text, 10, 32)
	return int32(index), isWorker && err == nil && index >= 0 && int32(index) < j.Worker.Replicas
}

// WorldSize is the number of MPI processes.
func (j *Job) WorldSize() int32 {
	hosts := j.Worker.Replicas
	if j.LauncherRunsRanks {
		hosts += j.Launcher.Replicas
	}
	return hosts * j.Slots
}

// WorkersRunAgent tells whether workers are started by the agent. A worker
// whose container has a command of its own runs an sshd of its image's; where
// there is no worker, there is no such image.
func (j *Job) WorkersRunAgent() bool {
	return j.Worker.Replicas == 0 || runsAgent(&j.Worker.Template)
}

func runsAgent(template *corev1.PodTemplateSpec) bool {
	containers := template.Spec.Containers
	return len(containers) > 0 && len(containers[0].Command) == 0 && len(containers[0].Args) == 0
}

// queueLabels are those of a job's labels that are for Kueue.
func queueLabels(labels map[string]string) map[string]string {
	var queueLabels map[string]string
	for key, value := range labels {
		if !strings.HasPrefix(key, "kueue.x-k8s.io/") {
			continue
		}
		if queueLabels == nil {
			queueLabels = map[string]string{}
		}
		queueLabels[key] = value
	}
	return queueLabels
}

// Objects are the numbers of the objects that a job is made of besides its
// pods, by the names that a ResourceQuota counts them under.
func (j *Job) Objects() map[corev1.ResourceName]int64 {
	objects := map[corev1.ResourceName]int64{"services": 1, "secrets": 1, "configmaps": 1}
	maps.Copy(objects, j.Kind.Traits().Objects)
	for _, name := range []corev1.ResourceName{"services", "secrets", "configmaps"} {
		objects["count/"+name] = objects[name]
	}
	if j.NetworkPolicy != "" {
		objects["count/networkpolicies.networking.k8s.io"] = 1
	}
	if j.Initializer != nil && j.Initializer.ClaimName == "" {
		objects["persistentvolumeclaims"], objects["count/persistentvolumeclaims"] = 1, 1
		objects["requests.storage"] = j.Initializer.Size.Value()
		if class := j.Initializer.StorageClassName; class != nil {
			objects[corev1.ResourceName(*class+".storageclass.storage.k8s.io/requests.storage")] = j.Initializer.Size.Value()
			objects[corev1.ResourceName(*class+".storageclass.storage.k8s.io/persistentvolumeclaims")] = 1
		}
	}
	return objects
}
