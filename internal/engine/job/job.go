// SPDX-License-Identifier: Apache-2.0

// Package job is the model of a job. A TrainJob with its runtime and an MPIJob both
// become a Job with every default applied. All later code, from admission to status,
// does not depend on the kind.
//
// The package is pure: no client, no clock, no randomness. It never changes its inputs.
package job

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trireme-mpi/trireme/api/training"
)

// Job is a job of any kind.
type Job struct {
	Kind      Kind
	Namespace string
	Name      string
	UID       types.UID

	// Suspended jobs have no pods.
	Suspended bool
	// Queue is the name of Kueue's LocalQueue, if the job sets one.
	Queue string
	// QueueLabels are the job's labels for Kueue, including the queue.
	QueueLabels map[string]string
	// ManagedBy is the controller that manages the job; empty for Trireme.
	ManagedBy string
	// RuntimeDigest identifies the job's runtime; empty for kinds without one.
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
	// ProgressPattern finds the progress in a line of output; empty for none.
	ProgressPattern string
	// Hang is what happens if the ranks make no progress.
	Hang Hang
	// SSHDirectory is where images with their own sshd expect the keys.
	SSHDirectory string

	Initializer *Initializer
	// Steps run before launcher and workers, in pods of their own templates.
	Steps []Step
	// Claims are volumes that the job's pods share and that are created with it.
	Claims []Claim
	// Set describes the JobSet of a job that is its own workload; nil for others.
	Set *Set
	// Unsupported are the settings that Trireme cannot honor. Such a job fails before it
	// has pods.
	Unsupported []string

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

// Role describes the pods of one role. Its template is complete except for what starts
// MPI.
type Role struct {
	Replicas int32
	Template corev1.PodTemplateSpec
}

// newRole removes empty resources of the whole pod: 1.37 ignores them, older releases then
// ignore the resources of the containers.
func newRole(replicas *int32, template *corev1.PodTemplateSpec) Role {
	role := Role{Replicas: orElse(replicas, 1), Template: *template.DeepCopy()}
	if whole := role.Template.Spec.Resources; isUnset(whole) && (whole == nil || len(whole.Claims) == 0) {
		role.Template.Spec.Resources = nil
	}
	return role
}

// Gang are the gang scheduling settings of a job.
type Gang struct {
	// Scheduler is the gang scheduler that the runtime sets; empty chooses one that the
	// cluster has.
	Scheduler Scheduler
	// MinMember is how many pods must be scheduled before any starts.
	MinMember int32
	// External: another controller has created the PodGroup of the pods.
	External bool
	// MinResources replaces the sum of the pods' requests.
	MinResources corev1.ResourceList
	// TimeoutSeconds is how long the pods may wait to be scheduled; 0 is no limit.
	TimeoutSeconds int32
	PriorityClass  string
	// Queue of Volcano or KAI.
	Queue string
}

// Scheduler is the name of a gang scheduler.
type Scheduler string

const (
	Coscheduling Scheduler = "coscheduling"
	Volcano      Scheduler = "volcano"
	KAI          Scheduler = "kai"
	Native       Scheduler = "native"
)

// Hang sets when a job is stalled, and what happens then.
type Hang struct {
	// After is how long the ranks may make no progress; 0 disables the detection.
	After  time.Duration
	Action training.HangAction
}

// newHang takes each setting from the first that has it: the job, its runtime, the operator.
func newHang(defaults Hang, settings ...*training.Hang) Hang {
	hang := defaults
	for _, setting := range slices.Backward(settings) {
		if setting == nil {
			continue
		}
		hang.Action = orElse(setting.Action, hang.Action)
		if setting.After != nil {
			hang.After = setting.After.Duration
		}
	}
	return hang
}

// Lifetime limits how long a job runs and how long it and its pods are kept.
type Lifetime struct {
	CleanPodPolicy training.CleanPodPolicy
	// BackoffLimit is how often a failed job is restarted.
	BackoffLimit            int32
	ActiveDeadlineSeconds   *int64
	TTLSecondsAfterFinished *int32
}

// Initializer fetches data before the launcher and the workers are created.
type Initializer struct {
	Dataset, Model *Source
	// ClaimName is an existing PVC; if empty, one of Size is created.
	ClaimName        string
	Size             resource.Quantity
	StorageClassName *string
}

// Step is a pod that must succeed before launcher and workers are created.
type Step struct {
	// Name of its replicated job.
	Name     string
	Template corev1.PodTemplateSpec
}

// Claim is a PVC of a job.
type Claim struct {
	Name                string
	Labels, Annotations map[string]string
	Spec                corev1.PersistentVolumeClaimSpec
	// Retained: the PVC outlives the job.
	Retained bool
}

// Set is what the pods of a JobSet that another controller created show of it.
type Set struct {
	// Jobs are its replicated jobs, in their order.
	Jobs []ReplicatedJob
	// Subdomain of the host names; empty for the name of the JobSet.
	Subdomain string
	// Coordinator is the address of the pod that the JobSet names as coordinator.
	Coordinator string
}

// ReplicatedJob is a replicated job of a JobSet. Each has one replica.
type ReplicatedJob struct {
	Name, Group string
	// Role of its pods, and the index of an initializer among the steps.
	Role string
	Step int
}

// Source is something to fetch.
type Source struct {
	URI    string
	Secret string
}

// Defaults apply to jobs that do not set these values. They come from the operator's
// configuration.
type Defaults struct {
	// LauncherResources of a TrainJob.
	LauncherResources corev1.ResourceList
	// ScheduleTimeoutSeconds applies to TrainJobs, the other to MPIJobs; 0 is no limit.
	ScheduleTimeoutSeconds, MPIJobScheduleTimeoutSeconds int32
	// MaxNodes limits the nodes of JobSets, which no webhook of Trireme validates; 0 is no
	// limit.
	MaxNodes int32
	// MinScheduleTimeoutSeconds is the minimum for MPIJobs; lower values are raised to it.
	MinScheduleTimeoutSeconds int32
	// RunAsUser is the UID of pods that set none and must not run as root. Nil leaves the
	// choice to the cluster, as OpenShift requires.
	RunAsUser *int64
	// Hang applies to jobs that do not set it, and whose runtime does not.
	Hang Hang
	// NetworkPolicy is the template of jobs that set none; empty creates no NetworkPolicy.
	NetworkPolicy training.NetworkPolicyTemplate
}

const (
	// HostfileDirectory is where the hostfile is mounted.
	HostfileDirectory = "/etc/mpi"
	// AgentDirectory, KeyDirectory and ClockDirectory are where the agent and its files
	// are mounted.
	AgentDirectory = "/opt/trireme"
	KeyDirectory   = "/etc/trireme/ssh"
	ClockDirectory = "/etc/trireme/pod"
	// AgentPort is the port of the agent, in the first container of a pod.
	AgentPort = 2222
	// WorkspaceDirectory is where the data that the initializer fetched is mounted.
	WorkspaceDirectory = "/workspace"
)

// Pods is the number of pods, without initializers.
func (j *Job) Pods() int32 { return j.Launcher.Replicas + j.Worker.Replicas }

// Initializers is how many pods must succeed before launcher and workers are created.
func (j *Job) Initializers() int {
	if j.Initializer != nil {
		return 1
	}
	return len(j.Steps)
}

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

// WorkersRunAgent reports whether workers run the agent. A worker whose container has a
// command runs its image's own sshd. A job without workers has no such image.
func (j *Job) WorkersRunAgent() bool {
	return j.Worker.Replicas == 0 || runsAgent(&j.Worker.Template)
}

func runsAgent(template *corev1.PodTemplateSpec) bool {
	containers := template.Spec.Containers
	return len(containers) > 0 && len(containers[0].Command) == 0 && len(containers[0].Args) == 0
}

// queueLabels are the labels for Kueue among a job's labels.
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

// Objects are the numbers of the job's objects other than pods, by their names in a
// ResourceQuota.
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
