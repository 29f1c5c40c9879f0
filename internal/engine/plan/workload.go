// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/gang"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// Names of the environment variables of launchers and workers.
const (
	nameVariable      = "MPIJOB_NAME"
	roleVariable      = "MPIJOB_ROLE"
	indexVariable     = "MPIJOB_WORKER_INDEX"
	worldSizeVariable = "MPIJOB_WORLD_SIZE"
	// upstreamRoleVariable is mpi-operator's name for roleVariable.
	upstreamRoleVariable = "K_MPI_JOB_ROLE"
)

// launcherTemplate is the complete template of the launcher.
func launcherTemplate(j *job.Job, env Environment) corev1.PodTemplateSpec {
	if len(j.Launcher.Template.Spec.Containers) == 0 {
		return templateWithoutContainers(j, &j.Launcher, training.RoleLauncher)
	}
	template := LauncherPod(j, partsOf(j, env))
	completeTemplate(j, &template, training.RoleLauncher, env)
	if !j.LauncherRunsRanks {
		// Without these, NVIDIA's container runtime exposes all GPUs of the node.
		setVariable(&template.Spec.Containers[0], "NVIDIA_VISIBLE_DEVICES", "")
		setVariable(&template.Spec.Containers[0], "NVIDIA_DRIVER_CAPABILITIES", "")
	}
	return template
}

func workerTemplate(j *job.Job, env Environment) corev1.PodTemplateSpec {
	if len(j.Worker.Template.Spec.Containers) == 0 {
		return templateWithoutContainers(j, &j.Worker, training.RoleWorker)
	}
	template := WorkerPod(j, partsOf(j, env))
	completeTemplate(j, &template, training.RoleWorker, env)
	return template
}

// templateWithoutContainers is an invalid template, unchanged except for its labels.
// Admission refuses it. If the webhook was bypassed, the API server refuses the pods,
// and the job's status shows why.
func templateWithoutContainers(j *job.Job, role *job.Role, name string) corev1.PodTemplateSpec {
	template := *role.Template.DeepCopy()
	template.Labels = merged(template.Labels, PodLabels(j, name))
	return template
}

func partsOf(j *job.Job, env Environment) Parts {
	names := NamesOf(j)
	return Parts{Secret: names.Secret, Hostfile: names.Hostfile, Delivery: env.Delivery}
}

// completeTemplate adds what the pods of both roles have in common.
func completeTemplate(j *job.Job, template *corev1.PodTemplateSpec, role string, env Environment) {
	template.Labels = merged(template.Labels, PodLabels(j, role))
	// All pods of the template would share this index. Pods that have an index get their
	// own later.
	delete(template.Labels, training.LabelReplicaIndex)
	template.Annotations = merged(template.Annotations, map[string]string{training.IstioInject: "false"})
	pod := &template.Spec
	if pod.AutomountServiceAccountToken == nil {
		pod.AutomountServiceAccountToken = new(false)
	}
	addSearchDomain(pod, fmt.Sprintf("%s.%s.svc.%s", NamesOf(j).Service, j.Namespace, env.ClusterDomain))
	container := &pod.Containers[0]
	setVariable(container, nameVariable, j.Name)
	setVariable(container, roleVariable, role)
	setVariable(container, worldSizeVariable, strconv.Itoa(int(j.WorldSize())))
	setVariable(container, upstreamRoleVariable, role)
	if j.Initializer != nil {
		addWorkspace(pod, NamesOf(j).Workspace)
	}
	addReports(pod, j, NamesOf(j).Secret, env.Reports)
	env.Gang.Join(j, template)
}

// addSearchDomain makes short host names resolvable: Hydra's proxies connect back to the
// launcher by its short name.
func addSearchDomain(pod *corev1.PodSpec, domain string) {
	if pod.DNSConfig == nil {
		pod.DNSConfig = &corev1.PodDNSConfig{}
	}
	pod.DNSConfig.Searches = append(pod.DNSConfig.Searches, domain)
	// ClusterFirst is Kubernetes' default, so it is not the user's choice. With the host's
	// network it would not use the cluster's DNS at all.
	if pod.HostNetwork && (pod.DNSPolicy == "" || pod.DNSPolicy == corev1.DNSClusterFirst) {
		pod.DNSPolicy = corev1.DNSClusterFirstWithHostNet
	}
}

func addWorkspace(pod *corev1.PodSpec, claim string) {
	if isMounted(&pod.Containers[0], job.WorkspaceDirectory) {
		return
	}
	setFSGroup(pod)
	pod.Volumes = append(pod.Volumes, pvcVolume(workspaceVolume, claim, false))
	pod.Containers[0].VolumeMounts = append(pod.Containers[0].VolumeMounts,
		corev1.VolumeMount{Name: workspaceVolume, MountPath: job.WorkspaceDirectory})
}

func pvcVolume(name, claim string, readOnly bool) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim, ReadOnly: readOnly},
	}}
}

// startPods are the pods of one start of a job, once its workload exists.
func startPods(j *job.Job, state State, env Environment) []*corev1.Pod {
	if state.Workload == "" {
		return nil
	}
	start := start{job: j, state: state}
	pods := make([]*corev1.Pod, 0, j.Pods())
	// A job that runs on its launcher alone has no template for workers.
	if j.Worker.Replicas > 0 {
		template := workerTemplate(j, env)
		for index := range j.Worker.Replicas {
			pods = append(pods, start.worker(template.DeepCopy(), index))
		}
	}
	if !HoldsLauncherBack(j, state, env) {
		pods = append(pods, start.launcher(launcherTemplate(j, env)))
	}
	return pods
}

// start is one start of a job.
type start struct {
	job   *job.Job
	state State
}

func (s start) worker(template *corev1.PodTemplateSpec, index int32) *corev1.Pod {
	replicaIndex := index
	if s.job.Kind.Traits().NumbersFromLauncher && s.job.LauncherRunsRanks {
		replicaIndex++
	}
	template.Labels[training.LabelReplicaIndex] = strconv.Itoa(int(replicaIndex))
	if len(template.Spec.Containers) > 0 {
		setVariable(&template.Spec.Containers[0], indexVariable, strconv.Itoa(int(index)))
	}
	template.Spec.Hostname = WorkerHost(s.job, index)
	pod := s.pod(template, training.RoleWorker, index)
	if !s.job.Kind.Traits().WorkloadOwnsWorkers {
		pod.OwnerReferences = []metav1.OwnerReference{OwnerOf(s.job)}
		return pod
	}
	s.join(pod, training.RoleWorker, index)
	return pod
}

func (s start) launcher(template corev1.PodTemplateSpec) *corev1.Pod {
	if s.job.Kind.Traits().NumbersFromLauncher && s.job.LauncherRunsRanks {
		template.Labels[training.LabelReplicaIndex] = "0"
	}
	// The operator restarts the launcher: the kubelet would do so before the operator can
	// read the failure.
	template.Spec.RestartPolicy = corev1.RestartPolicyNever
	template.Spec.Hostname = NamesOf(s.job).LauncherHost
	pod := s.pod(&template, training.RoleLauncher, 0)
	pod.Finalizers = []string{training.FinalizerLauncher}
	s.join(pod, training.RoleLauncher, 0)
	return pod
}

func (s start) pod(template *corev1.PodTemplateSpec, role string, index int32) *corev1.Pod {
	template.Labels[training.LabelRestart] = strconv.Itoa(int(s.state.Restart))
	template.Spec.Subdomain = NamesOf(s.job).Service
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.job.Namespace, Name: PodName(s.job, role, index, s.state.Restart),
			Labels: template.Labels, Annotations: template.Annotations,
		},
		Spec: template.Spec,
	}
}

// join makes the workload the controller of a pod, and sets what the workload's own
// controller would set.
func (s start) join(pod *corev1.Pod, role string, index int32) {
	pod.Labels[training.LabelJobUID] = string(s.job.UID)
	if s.job.Kind.Traits().Workload == job.WorkloadJobSet {
		s.joinJobSet(pod, role, index)
		return
	}
	s.joinBatchJob(pod)
}

// workload is the JobSet or batch Job of a job. Its templates are those of the model,
// so that Kueue edits what the user wrote; what starts MPI is added when pods are
// created.
func workload(j *job.Job) gang.Object {
	if j.Kind.Traits().Workload == job.WorkloadJobSet {
		return jobSet(j)
	}
	return batchJob(j)
}

// workloadKey identifies the workload for deletion, if it exists.
func workloadKey(j *job.Job, state State) []gang.Object {
	if state.Workload == "" || j.Kind.Traits().IsWorkload {
		return nil
	}
	object := workload(j)
	object.SetUID(state.Workload)
	return []gang.Object{object}
}
