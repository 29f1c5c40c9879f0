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

// Names of the environment variables that every pod has.
const (
	nameVariable      = "MPIJOB_NAME"
	roleVariable      = "MPIJOB_ROLE"
	indexVariable     = "MPIJOB_WORKER_INDEX"
	worldSizeVariable = "MPIJOB_WORLD_SIZE"
	// upstreamRoleVariable is mpi-operator's.
	upstreamRoleVariable = "K_MPI_JOB_ROLE"
)

// launcherTemplate is the complete template of the launcher.
func launcherTemplate(made *job.Job, in Surroundings) corev1.PodTemplateSpec {
	if len(made.Launcher.Template.Spec.Containers) == 0 {
		return impossible(made, &made.Launcher, training.RoleLauncher)
	}
	template := LauncherPod(made, partsOf(made, in))
	complete(made, &template, training.RoleLauncher, in)
	if !made.LauncherRunsRanks {
		// Else NVIDIA's runtime shows it the GPUs that its node has.
		setVariable(&template.Spec.Containers[0], "NVIDIA_VISIBLE_DEVICES", "")
		setVariable(&template.Spec.Containers[0], "NVIDIA_DRIVER_CAPABILITIES", "")
	}
	return template
}

func workerTemplate(made *job.Job, in Surroundings) corev1.PodTemplateSpec {
	if len(made.Worker.Template.Spec.Containers) == 0 {
		return impossible(made, &made.Worker, training.RoleWorker)
	}
	template := WorkerPod(made, partsOf(made, in))
	complete(made, &template, training.RoleWorker, in)
	return template
}

// impossible is a template without containers, as it was written. Admission
// refuses it; where admission was not asked, the API server refuses its pods, and
// the job's owner reads why.
func impossible(made *job.Job, role *job.Role, name string) corev1.PodTemplateSpec {
	template := *role.Template.DeepCopy()
	template.Labels = with(template.Labels, PodLabels(made, name))
	return template
}

func partsOf(made *job.Job, in Surroundings) Parts {
	names := NamesOf(made)
	return Parts{Secret: names.Secret, Hostfile: names.Hostfile, Delivery: in.Delivery}
}

// complete adds what the pods of both roles have.
func complete(made *job.Job, template *corev1.PodTemplateSpec, role string, in Surroundings) {
	template.Labels = with(template.Labels, PodLabels(made, role))
	// A number that all pods of a template share is none; those that have one get it
	// later.
	delete(template.Labels, training.LabelReplicaIndex)
	template.Annotations = with(template.Annotations, map[string]string{training.IstioInject: "false"})
	pod := &template.Spec
	if pod.AutomountServiceAccountToken == nil {
		pod.AutomountServiceAccountToken = new(false)
	}
	addSearchDomain(pod, fmt.Sprintf("%s.%s.svc.%s", NamesOf(made).Service, made.Namespace, in.ClusterDomain))
	container := &pod.Containers[0]
	setVariable(container, nameVariable, made.Name)
	setVariable(container, roleVariable, role)
	setVariable(container, worldSizeVariable, strconv.Itoa(int(made.WorldSize())))
	setVariable(container, upstreamRoleVariable, role)
	if made.Initializer != nil {
		addWorkspace(pod, NamesOf(made).Workspace)
	}
	in.Gang.Join(made, template)
}

// addSearchDomain makes hosts known by their short names: Hydra's proxies call
// the launcher back by it.
func addSearchDomain(pod *corev1.PodSpec, domain string) {
	if pod.DNSConfig == nil {
		pod.DNSConfig = &corev1.PodDNSConfig{}
	}
	pod.DNSConfig.Searches = append(pod.DNSConfig.Searches, domain)
	// ClusterFirst is what Kubernetes fills in, and no choice: with the host's
	// network it does not ask the cluster at all.
	if pod.HostNetwork && (pod.DNSPolicy == "" || pod.DNSPolicy == corev1.DNSClusterFirst) {
		pod.DNSPolicy = corev1.DNSClusterFirstWithHostNet
	}
}

func addWorkspace(pod *corev1.PodSpec, claim string) {
	if mounted(&pod.Containers[0], job.WorkspaceDirectory) {
		return
	}
	ownVolumes(pod)
	pod.Volumes = append(pod.Volumes, claimVolume(workspaceVolume, claim, false))
	pod.Containers[0].VolumeMounts = append(pod.Containers[0].VolumeMounts,
		corev1.VolumeMount{Name: workspaceVolume, MountPath: job.WorkspaceDirectory})
}

func claimVolume(name, claim string, readOnly bool) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim, ReadOnly: readOnly},
	}}
}

// startPods are the pods of one start of a job, once its workload exists.
func startPods(made *job.Job, state State, in Surroundings) []*corev1.Pod {
	if state.Workload == "" {
		return nil
	}
	start := start{made: made, state: state}
	pods := make([]*corev1.Pod, 0, made.Pods())
	// A launcher that does the work itself has no workers, and no template of one.
	if made.Worker.Replicas > 0 {
		template := workerTemplate(made, in)
		for index := range made.Worker.Replicas {
			pods = append(pods, start.worker(template.DeepCopy(), index))
		}
	}
	if !HoldsLauncherBack(made, state, in) {
		pods = append(pods, start.launcher(launcherTemplate(made, in)))
	}
	return pods
}

// start is one start of a job.
type start struct {
	made  *job.Job
	state State
}

func (start start) worker(template *corev1.PodTemplateSpec, index int32) *corev1.Pod {
	number := index
	if start.made.Kind.Traits().NumbersFromLauncher && start.made.LauncherRunsRanks {
		number++
	}
	template.Labels[training.LabelReplicaIndex] = strconv.Itoa(int(number))
	if len(template.Spec.Containers) > 0 {
		setVariable(&template.Spec.Containers[0], indexVariable, strconv.Itoa(int(index)))
	}
	template.Spec.Hostname = WorkerHost(start.made, index)
	pod := start.pod(template, training.RoleWorker, index)
	if !start.made.Kind.Traits().WorkloadOwnsWorkers {
		pod.OwnerReferences = []metav1.OwnerReference{OwnerOf(start.made)}
		return pod
	}
	start.join(pod, training.RoleWorker, index)
	return pod
}

func (start start) launcher(template corev1.PodTemplateSpec) *corev1.Pod {
	if start.made.Kind.Traits().NumbersFromLauncher && start.made.LauncherRunsRanks {
		template.Labels[training.LabelReplicaIndex] = "0"
	}
	// Restarts are ours: the kubelet would restart it before the failure is known.
	template.Spec.RestartPolicy = corev1.RestartPolicyNever
	template.Spec.Hostname = NamesOf(start.made).LauncherHost
	pod := start.pod(&template, training.RoleLauncher, 0)
	pod.Finalizers = []string{training.FinalizerLauncher}
	start.join(pod, training.RoleLauncher, 0)
	return pod
}

func (start start) pod(template *corev1.PodTemplateSpec, role string, index int32) *corev1.Pod {
	template.Labels[training.LabelRestart] = strconv.Itoa(int(start.state.Restart))
	template.Spec.Subdomain = NamesOf(start.made).Service
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: start.made.Namespace, Name: PodName(start.made, role, index, start.state.Restart),
			Labels: template.Labels, Annotations: template.Annotations,
		},
		Spec: template.Spec,
	}
}

// join makes the workload the controller of a pod, and gives the pod what the
// workload's own controller would.
func (start start) join(pod *corev1.Pod, role string, index int32) {
	pod.Labels[training.LabelJobUID] = string(start.made.UID)
	if start.made.Kind.Traits().Workload == job.WorkloadJobSet {
		start.joinJobSet(pod, role, index)
		return
	}
	start.joinBatchJob(pod)
}

// workload is what stands for the pods of a job. Its templates are those of the
// model: what starts MPI is added when pods are created, so that what Kueue edits
// is what users know.
func workload(made *job.Job) gang.Object {
	if made.Kind.Traits().Workload == job.WorkloadJobSet {
		return jobSet(made)
	}
	return batchJob(made)
}

// workloadKey names the workload, if there is one to delete.
func workloadKey(made *job.Job, state State) []gang.Object {
	if state.Workload == "" {
		return nil
	}
	object := workload(made)
	object.SetUID(state.Workload)
	return []gang.Object{object}
}
