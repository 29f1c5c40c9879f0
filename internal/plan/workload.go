package plan

import (
	"fmt"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/gang"
	"github.com/trireme-mpi/trireme/internal/job"
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

// completionIndex is where a pod of an Indexed Job finds its number.
const completionIndex = "metadata.annotations['" + batchv1.JobCompletionIndexAnnotation + "']"

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

// workerPods are the workers of an MPIJob.
func workerPods(made *job.Job, in Surroundings) []*corev1.Pod {
	// A launcher that does the work itself has none, and no template of one.
	if made.Worker.Replicas < 1 {
		return nil
	}
	template := workerTemplate(made, in)
	subdomain := NamesOf(made).Service
	// mpi-operator numbers the launcher 0 where it runs ranks, and so does Kueue.
	first := int32(0)
	if made.LauncherRunsRanks {
		first = 1
	}
	pods := make([]*corev1.Pod, made.Worker.Replicas)
	for index := range made.Worker.Replicas {
		one := template.DeepCopy()
		name := job.WorkerName(made.Name, index)
		one.Labels[training.LabelReplicaIndex] = strconv.Itoa(int(first + index))
		one.Spec.Hostname, one.Spec.Subdomain = name, subdomain
		tellNumber(&one.Spec, corev1.EnvVar{Value: strconv.Itoa(int(index))})
		pods[index] = &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: made.Namespace, Name: name, Labels: one.Labels, Annotations: one.Annotations},
			Spec:       one.Spec,
		}
	}
	return pods
}

// launcherJob is the launcher of an MPIJob: a batch Job starts it anew if need
// be.
func launcherJob(made *job.Job, in Surroundings) *batchv1.Job {
	names := NamesOf(made)
	template := launcherTemplate(made, in)
	template.Spec.Hostname, template.Spec.Subdomain = names.LauncherHost, names.Service
	if made.LauncherRunsRanks {
		template.Labels[training.LabelReplicaIndex] = "0"
	}
	if made.Lifetime.BackoffLimit == 0 {
		// Kubelet would start it anew before the Job notices that it must not.
		template.Spec.RestartPolicy = corev1.RestartPolicyNever
	}
	return &batchv1.Job{
		ObjectMeta: object(made, names.Launcher),
		Spec: batchv1.JobSpec{
			BackoffLimit: new(made.Lifetime.BackoffLimit), Template: template,
			// Two launchers at a time would fight over the workers.
			PodReplacementPolicy: new(batchv1.Failed),
		},
	}
}

// jobSet is launcher and workers of a TrainJob.
func jobSet(made *job.Job, in Surroundings) *jobset.JobSet {
	names := NamesOf(made)
	worker := workerTemplate(made, in)
	tellNumber(&worker.Spec, corev1.EnvVar{ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: completionIndex}}})
	metadata := object(made, names.JobSet)
	metadata.Labels = with(metadata.Labels, made.QueueLabels)
	return &jobset.JobSet{
		ObjectMeta: metadata,
		Spec: jobset.JobSetSpec{
			Network: &jobset.Network{EnableDNSHostnames: new(true), Subdomain: names.Service, PublishNotReadyAddresses: new(true)},
			SuccessPolicy: &jobset.SuccessPolicy{
				Operator: jobset.OperatorAll, TargetReplicatedJobs: []string{training.RoleLauncher},
			},
			// The old workers must be gone before a new launcher calls.
			FailurePolicy: &jobset.FailurePolicy{MaxRestarts: made.Lifetime.BackoffLimit, RestartStrategy: jobset.BlockingRecreate},
			ReplicatedJobs: []jobset.ReplicatedJob{
				replicatedJob(made, training.RoleLauncher, 1, launcherTemplate(made, in)),
				replicatedJob(made, training.RoleWorker, made.Worker.Replicas, worker),
			},
		},
	}
}

// replicatedJob is one Indexed Job for all pods of a role: a pod that fails ends
// it, and JobSet decides what becomes of the whole.
func replicatedJob(made *job.Job, role string, pods int32, template corev1.PodTemplateSpec) jobset.ReplicatedJob {
	return jobset.ReplicatedJob{
		Name: role, GroupName: "default", Replicas: 1,
		Template: batchv1.JobTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: Selector(made)},
			Spec: batchv1.JobSpec{
				Parallelism: &pods, Completions: &pods, CompletionMode: new(batchv1.IndexedCompletion),
				BackoffLimit: new(int32(0)), Template: template,
			},
		},
	}
}

// tellNumber tells a worker which one it is.
func tellNumber(pod *corev1.PodSpec, number corev1.EnvVar) {
	number.Name = indexVariable
	if len(pod.Containers) > 0 {
		addVariable(&pod.Containers[0], number)
	}
}

// workloadKeys name launcher and workers as they were made.
func workloadKeys(made *job.Job, state State) []gang.Object {
	names := NamesOf(made)
	if made.Kind == job.KindTrainJob {
		return []gang.Object{&jobset.JobSet{ObjectMeta: key(made, names.JobSet)}}
	}
	keys := []gang.Object{&batchv1.Job{ObjectMeta: key(made, names.Launcher)}}
	for _, pod := range state.Workers {
		keys = append(keys, &corev1.Pod{ObjectMeta: key(made, pod.Name)})
	}
	return keys
}
