// SPDX-License-Identifier: Apache-2.0

package job

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/mpi"
)

// Names of replicated jobs, containers and volumes in JobSets of Kubeflow's Trainer.
const (
	trainerNode        = "node"
	trainerDataset     = "dataset-initializer"
	trainerModel       = "model-initializer"
	trainerKeys        = "mpi-ssh-auth"
	trainerHostfile    = "mpi-hostfile"
	hostfileKey        = "hostfile"
	coschedulingLabel  = "scheduling.x-k8s.io/pod-group"
	volcanoAnnotation  = "scheduling.k8s.io/group-name"
	trainerGroupPrefix = "trainer.kubeflow.org/"
	trainerJobKind     = "TrainJob"
)

// trainerVariables are what Trainer sets for its own way to start Open MPI.
var trainerVariables = []string{
	"OMPI_MCA_orte_default_hostfile", "OMPI_MCA_orte_keep_fqdn_hostnames", "OMPI_MCA_orte_set_default_slots", "OMPI_MCA_plm_rsh_args",
}

// IsOfTrainer reports whether Kubeflow's Trainer has created an object for a TrainJob of
// its own API.
func IsOfTrainer(object metav1.Object) bool {
	owner := metav1.GetControllerOf(object)
	return owner != nil && owner.Kind == trainerJobKind && strings.HasPrefix(owner.APIVersion, trainerGroupPrefix)
}

// RunsJobSet reports whether Trireme runs a JobSet as a job: Trainer has created it, and
// its runtime names Trireme.
func RunsJobSet(set *jobset.JobSet) bool {
	return orElse(set.Spec.ManagedBy, "") == training.ManagedByTrireme && IsOfTrainer(set)
}

// TrainerHosts are the settings of MPI that only the hostfile has which Trainer writes.
type TrainerHosts struct {
	Slots int32 `json:"slots"`
	// Launcher: ranks run on the launcher, too.
	Launcher bool `json:"launcher,omitempty"`
}

// HostfileConfigMap is the name of the ConfigMap with Trainer's hostfile, and the key of
// the hostfile in it. The name is empty for a JobSet that does not use MPI.
func HostfileConfigMap(set *jobset.JobSet) (name, key string) {
	launcher := replicatedJob(set, training.RoleLauncher)
	if launcher == nil {
		return "", ""
	}
	for i := range launcher.Template.Spec.Template.Spec.Volumes {
		if volume := &launcher.Template.Spec.Template.Spec.Volumes[i]; volume.Name == trainerHostfile && volume.ConfigMap != nil {
			return volume.ConfigMap.Name, hostfileKey
		}
	}
	return "", ""
}

// ParseTrainerHosts reads the hostfile that Trainer has written for a JobSet.
func ParseTrainerHosts(set, hostfile string) (TrainerHosts, error) {
	hosts, err := mpi.ParseHostfile(hostfile)
	if err != nil {
		return TrainerHosts{}, err
	}
	found := TrainerHosts{Slots: 1}
	for i, host := range hosts {
		if i > 0 && host.Slots != int(found.Slots) {
			return found, fmt.Errorf("the hosts %s and %s have different numbers of slots", hosts[0].Name, host.Name)
		}
		found.Slots = int32(host.Slots)
		name, _, _ := strings.Cut(host.Name, ".")
		found.Launcher = found.Launcher || name == set+traits[KindJobSet].LauncherHostSuffix
	}
	return found, nil
}

// FromJobSet is the job that a JobSet of Kubeflow's Trainer describes.
func FromJobSet(set *jobset.JobSet, hosts TrainerHosts, defaults Defaults) *Job {
	j := OfJobSet(set)
	j.Queue, j.QueueLabels = set.Labels[training.LabelQueue], queueLabels(set.Labels)
	j.TagOutput = set.Annotations[training.AnnotationTagOutput] == "true"
	j.MPI, j.Slots, j.LauncherRunsRanks = OpenMPI, max(hosts.Slots, 1), hosts.Launcher
	j.Hang, j.NetworkPolicy = defaults.Hang, defaults.NetworkPolicy
	j.Set, j.Unsupported = setOf(set), unsupported(set, defaults)
	for i := range set.Spec.ReplicatedJobs {
		replicated := &set.Spec.ReplicatedJobs[i]
		switch replicated.Name {
		case training.RoleLauncher:
			j.Launcher = trainerRole(replicated)
		case trainerNode:
			j.Worker = trainerRole(replicated)
		default:
			j.Steps = append(j.Steps, trainerStep(replicated))
		}
	}
	j.SSHDirectory = trainerKeyDirectory(&j.Worker.Template.Spec)
	for _, role := range []*Role{&j.Launcher, &j.Worker} {
		withoutTrainer(&role.Template.Spec)
	}
	withoutSSHD(&j.Worker.Template.Spec)
	j.Claims = trainerClaims(set, j)
	j.Lifetime = trainerLifetime(set)
	j.Gang = trainerGang(j, defaults)
	for _, role := range []*Role{&j.Launcher, &j.Worker} {
		pod := &role.Template.Spec
		pod.RestartPolicy = corev1.RestartPolicyNever
		if j.WorkersRunAgent() || !MainRunsAsRoot(pod) {
			restrictByDefault(pod, defaults.RunAsUser)
		}
	}
	return j
}

// OfJobSet is only the identity of the job that a JobSet describes.
func OfJobSet(set *jobset.JobSet) *Job {
	return &Job{Kind: KindJobSet, Namespace: set.Namespace, Name: set.Name, UID: set.UID}
}

func replicatedJob(set *jobset.JobSet, name string) *jobset.ReplicatedJob {
	for i := range set.Spec.ReplicatedJobs {
		if set.Spec.ReplicatedJobs[i].Name == name {
			return &set.Spec.ReplicatedJobs[i]
		}
	}
	return nil
}

// setOf is what pods show of their JobSet.
func setOf(set *jobset.JobSet) *Set {
	shown := &Set{}
	if set.Spec.Network != nil {
		shown.Subdomain = set.Spec.Network.Subdomain
	}
	steps := 0
	for i := range set.Spec.ReplicatedJobs {
		replicated := ReplicatedJob{Name: set.Spec.ReplicatedJobs[i].Name, Group: set.Spec.ReplicatedJobs[i].GroupName}
		switch replicated.Name {
		case training.RoleLauncher:
			replicated.Role = training.RoleLauncher
		case trainerNode:
			replicated.Role = training.RoleWorker
		default:
			replicated.Role, replicated.Step = training.RoleInitializer, steps
			steps++
		}
		shown.Jobs = append(shown.Jobs, replicated)
	}
	if coordinator := set.Spec.Coordinator; coordinator != nil {
		shown.Coordinator = fmt.Sprintf("%s-%s-%d-%d.%s", set.Name, coordinator.ReplicatedJob, coordinator.JobIndex, coordinator.PodIndex, cmp.Or(shown.Subdomain, set.Name))
	}
	return shown
}

// trainerRole is the role of a replicated job. Logs and settings are those of the
// container node, which need not be the first.
func trainerRole(replicated *jobset.ReplicatedJob) Role {
	role := newRole(new(orElse(replicated.Template.Spec.Parallelism, 1)), &replicated.Template.Spec.Template)
	containers := role.Template.Spec.Containers
	if main := slices.IndexFunc(containers, func(container corev1.Container) bool { return container.Name == trainerNode }); main > 0 {
		node := containers[main]
		role.Template.Spec.Containers = slices.Insert(slices.Delete(containers, main, main+1), 0, node)
	}
	return role
}

// trainerStep is the pod of an initializer. The kubelet restarts its container, as
// upstream does.
func trainerStep(replicated *jobset.ReplicatedJob) Step {
	step := Step{Name: replicated.Name, Template: *replicated.Template.Spec.Template.DeepCopy()}
	pod := &step.Template.Spec
	pod.RestartPolicy = cmp.Or(pod.RestartPolicy, corev1.RestartPolicyOnFailure)
	if pod.ActiveDeadlineSeconds == nil {
		pod.ActiveDeadlineSeconds = replicated.Template.Spec.ActiveDeadlineSeconds
	}
	return step
}

// withoutTrainer removes what Trainer has added to a template to start MPI by ssh: its
// keys, its hostfile and its settings of mpirun. Trireme adds its own.
func withoutTrainer(pod *corev1.PodSpec) {
	isTrainers := func(name string) bool { return name == trainerKeys || name == trainerHostfile }
	pod.Volumes = slices.DeleteFunc(pod.Volumes, func(volume corev1.Volume) bool { return isTrainers(volume.Name) })
	for _, containers := range [][]corev1.Container{pod.InitContainers, pod.Containers} {
		for i := range containers {
			containers[i].VolumeMounts = slices.DeleteFunc(containers[i].VolumeMounts, func(mount corev1.VolumeMount) bool { return isTrainers(mount.Name) })
			containers[i].Env = slices.DeleteFunc(containers[i].Env, func(variable corev1.EnvVar) bool { return slices.Contains(trainerVariables, variable.Name) })
		}
	}
}

// withoutSSHD removes the command of a node that only starts an sshd, and the probes of
// its port: the agent takes its place.
func withoutSSHD(worker *corev1.PodSpec) {
	if len(worker.Containers) == 0 {
		return
	}
	node := &worker.Containers[0]
	line := slices.Concat(node.Command, node.Args)
	if len(line) == 0 || !StartsSSHD(line) {
		return
	}
	node.Command, node.Args = nil, nil
	for _, probe := range []**corev1.Probe{&node.ReadinessProbe, &node.LivenessProbe, &node.StartupProbe} {
		if *probe != nil && (*probe).TCPSocket != nil {
			*probe = nil
		}
	}
}

// trainerKeyDirectory is where nodes with an sshd of their own expect the keys.
func trainerKeyDirectory(worker *corev1.PodSpec) string {
	for i := range worker.Containers {
		for _, mount := range worker.Containers[i].VolumeMounts {
			if mount.Name == trainerKeys {
				return mount.MountPath
			}
		}
	}
	return sshDirectory(worker)
}

// trainerClaims are the PVCs of a JobSet. As JobSet's controller does, it also adds the
// volumes to the pods that mount them.
func trainerClaims(set *jobset.JobSet, j *Job) (claims []Claim) {
	pods := []*corev1.PodSpec{&j.Launcher.Template.Spec, &j.Worker.Template.Spec}
	for i := range j.Steps {
		pods = append(pods, &j.Steps[i].Template.Spec)
	}
	for _, policy := range set.Spec.VolumeClaimPolicies {
		retained := policy.RetentionPolicy != nil && orElse(policy.RetentionPolicy.WhenDeleted, jobset.RetentionPolicyDelete) == jobset.RetentionPolicyRetain
		for i := range policy.Templates {
			template := policy.Templates[i].DeepCopy()
			claim := Claim{Name: template.Name + "-" + set.Name, Labels: template.Labels, Annotations: template.Annotations, Spec: template.Spec, Retained: retained}
			claims = append(claims, claim)
			for _, pod := range pods {
				addClaim(pod, template.Name, claim.Name)
			}
		}
	}
	return claims
}

func addClaim(pod *corev1.PodSpec, volume, claim string) {
	mounts := func(container corev1.Container) bool {
		return slices.ContainsFunc(container.VolumeMounts, func(mount corev1.VolumeMount) bool { return mount.Name == volume })
	}
	if slices.ContainsFunc(slices.Concat(pod.InitContainers, pod.Containers), mounts) {
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}})
	}
}

// trainerLifetime combines the limits of the JobSet and of its Jobs. Upstream restarts
// the pods of a Job, and the JobSet when a Job has failed; here each is a restart of the
// whole job. Without a limit, a Job is not restarted.
func trainerLifetime(set *jobset.JobSet) Lifetime {
	lifetime := Lifetime{CleanPodPolicy: training.CleanPodPolicyRunning}
	if ttl := set.Spec.TTLSecondsAfterFinished; ttl != nil {
		lifetime.TTLSecondsAfterFinished = new(max(*ttl, minTrainerTTL))
	}
	perJob := int32(0)
	for _, name := range []string{training.RoleLauncher, trainerNode} {
		replicated := replicatedJob(set, name)
		if replicated == nil {
			continue
		}
		perJob = max(perJob, orElse(replicated.Template.Spec.BackoffLimit, 0))
		if deadline := replicated.Template.Spec.ActiveDeadlineSeconds; deadline != nil {
			lifetime.ActiveDeadlineSeconds = new(min(*deadline, orElse(lifetime.ActiveDeadlineSeconds, *deadline)))
		}
	}
	restarts := int64(0)
	if set.Spec.FailurePolicy != nil {
		restarts = int64(set.Spec.FailurePolicy.MaxRestarts)
	}
	lifetime.BackoffLimit = int32(min((restarts+1)*(int64(perJob)+1)-1, maxRestarts))
	return lifetime
}

// minTrainerTTL is how long a finished JobSet stays at least. Trainer creates a JobSet again
// that is deleted before it has seen the result.
const minTrainerTTL = 10

// maxRestarts keeps products of limits from overflowing.
const maxRestarts = 1 << 20

// trainerGang is the gang of a job. Where Trainer has created a PodGroup, its pods say so.
func trainerGang(j *Job, defaults Defaults) Gang {
	gang := Gang{MinMember: j.Pods(), TimeoutSeconds: defaults.ScheduleTimeoutSeconds, PriorityClass: j.Worker.Template.Spec.PriorityClassName}
	for _, role := range []*Role{&j.Launcher, &j.Worker} {
		gang.External = gang.External || role.Template.Labels[coschedulingLabel] != "" || role.Template.Annotations[volcanoAnnotation] != ""
	}
	return gang
}

// isIndexed reports whether the pods of a Job have an index. Every Job of a JobSet has
// by default.
func isIndexed(spec *batchv1.JobSpec) bool {
	return orElse(spec.CompletionMode, batchv1.IndexedCompletion) == batchv1.IndexedCompletion
}
