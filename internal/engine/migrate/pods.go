// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
)

// role is the launcher or the workers, with their template before and after.
type role struct {
	// from and to are the paths of the templates.
	from, to string
	// template is the one in the runtime.
	template *corev1.PodTemplateSpec
}

func (r *role) pod() *corev1.PodSpec         { return &r.template.Spec }
func (r *role) container() *corev1.Container { return &r.template.Spec.Containers[0] }

// main returns the path of a field of the container that runs MPI.
func (r *role) main(field string) string { return r.from + ".spec.containers[0]." + field }

func replicaPath(role v2beta1.MPIReplicaType) string { return "spec.mpiReplicaSpecs." + string(role) }

// pods splits the templates: settings of one training are in the TrainJob, the rest in
// the runtime.
func (m *migration) pods() {
	jobs := []v2alpha1.ReplicatedJob{{Name: v2alpha1.ReplicatedJobLauncher}, {Name: v2alpha1.ReplicatedJobWorker}}
	m.runtime.Spec.Template.Spec.ReplicatedJobs = jobs
	launcher := m.newRole(v2beta1.MPIReplicaTypeLauncher, &jobs[0], 0)
	worker := m.newRole(v2beta1.MPIReplicaTypeWorker, &jobs[1], 1)
	m.replicas()
	if m.old.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeWorker] == nil {
		m.workersOfLauncher(launcher, worker)
	}
	m.sshd(worker)
	m.security(launcher, worker)
	m.command(launcher)
	m.image(launcher, worker)
	m.resources(launcher, worker)
	m.environment(launcher, worker)
	m.volumes(launcher, worker)
	for _, role := range []*role{launcher, worker} {
		m.changedByKueue(role)
		m.moveTemplate(role)
	}
}

func (m *migration) newRole(kind v2beta1.MPIReplicaType, replicated *v2alpha1.ReplicatedJob, index int) *role {
	converted := &role{
		from:     replicaPath(kind) + ".template",
		to:       inRuntime(fmt.Sprintf("spec.template.spec.replicatedJobs[%d].template", index)),
		template: &replicated.Template,
	}
	if replica := m.old.Spec.MPIReplicaSpecs[kind]; replica != nil {
		m.template(converted, &replica.Template)
	}
	return converted
}

// template copies the fields that a template of a runtime can have.
func (m *migration) template(converted *role, old *corev1.PodTemplateSpec) {
	*converted.template = *old.DeepCopy()
	converted.template.ObjectMeta = metav1.ObjectMeta{Labels: converted.template.Labels, Annotations: converted.template.Annotations, Finalizers: converted.template.Finalizers}
	converted.pod().RestartPolicy = ""
	m.note(converted.from+".spec.restartPolicy", Dropped, "", "has no effect in an MPIJob: the role's restartPolicy applies. Pods of a TrainJob have Never")
	if _, set := converted.template.Annotations[training.IstioInject]; !set {
		// The operator sets it anyway; this shows it to readers of the runtime.
		if converted.template.Annotations == nil {
			converted.template.Annotations = map[string]string{}
		}
		converted.template.Annotations[training.IstioInject] = "false"
	}
}

func (m *migration) replicas() {
	at := replicaPath(v2beta1.MPIReplicaTypeLauncher) + ".replicas"
	if m.before.Launcher.Replicas == 1 {
		m.note(at, Dropped, "", "a TrainJob always has one launcher")
	} else {
		m.note(at, Review, "", "a TrainJob always has one launcher")
	}
	workers := m.before.Worker.Replicas
	m.trainJob.Spec.Trainer.NumNodes = &workers
	at = replicaPath(v2beta1.MPIReplicaTypeWorker) + ".replicas"
	m.note(at, Mapped, inTrainJob("spec.trainer.numNodes"), "")
	if worker := m.old.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeWorker]; worker != nil && worker.Replicas == nil {
		m.upstreamDefault(at, "by default mpi-operator creates no worker; here the default is one, for MPIJobs and TrainJobs")
	}
}

// workersOfLauncher adds a worker to a job whose launcher does the work itself.
func (m *migration) workersOfLauncher(launcher, worker *role) {
	m.trainJob.Spec.Trainer.NumNodes = new(int32(1))
	*worker.template = *launcher.template.DeepCopy()
	worker.container().Command, worker.container().Args = nil, nil
	m.add(Entry{Path: replicaPath(v2beta1.MPIReplicaTypeWorker), Outcome: Review, To: worker.to,
		Why: "is missing: the launcher did the work itself. The TrainJob has a launcher and one worker, a copy of the launcher's template; correct the resources of both"})
}

// image converts the images: launcher and workers of a TrainJob have the same.
func (m *migration) image(launcher, worker *role) {
	trainer := &m.trainJob.Spec.Trainer
	trainer.Image = worker.container().Image
	to := inTrainJob("spec.trainer.image")
	m.note(worker.main("image"), Mapped, to, "")
	if own := launcher.container().Image; own == trainer.Image {
		m.note(launcher.main("image"), Mapped, to, "")
	} else {
		m.note(launcher.main("image"), Review, "", fmt.Sprintf(
			"launcher and workers of a TrainJob have the same image; that of the workers is used. Make sure that %s has what the launcher needs, especially mpirun", trainer.Image))
	}
	launcher.container().Image, worker.container().Image = "", ""
}

// resources moves resources to the TrainJob, unless the pod has pod-level resources:
// those of the TrainJob would replace them.
func (m *migration) resources(launcher, worker *role) {
	if hasResources(worker) {
		m.trainJob.Spec.Trainer.ResourcesPerNode = worker.container().Resources.DeepCopy()
		worker.container().Resources = corev1.ResourceRequirements{}
		m.note(worker.main("resources"), Mapped, inTrainJob("spec.trainer.resourcesPerNode"), "")
	}
	if hasResources(launcher) {
		m.trainJob.Spec.Launcher = &v2alpha1.Launcher{Resources: launcher.container().Resources.DeepCopy()}
		launcher.container().Resources = corev1.ResourceRequirements{}
		m.note(launcher.main("resources"), Mapped, inTrainJob("spec.launcher.resources"), "")
	} else if own := launcher.container().Resources; len(own.Requests)+len(own.Limits) == 0 && noPodResources(launcher.pod()) {
		defaults := m.rules.Defaults.LauncherResources
		m.add(Entry{Path: launcher.main("resources"), Outcome: Default, To: inTrainJob("spec.launcher.resources"),
			Why: fmt.Sprintf("by default the launcher of an MPIJob requests nothing; that of a TrainJob requests %s CPUs and %s of memory", defaults.Cpu(), defaults.Memory())})
	}
}

func hasResources(role *role) bool {
	own := role.container().Resources
	return len(own.Requests)+len(own.Limits) > 0 && role.pod().Resources == nil
}

func noPodResources(pod *corev1.PodSpec) bool {
	return pod.Resources == nil || len(pod.Resources.Requests)+len(pod.Resources.Limits) == 0
}

// environment moves variables to the TrainJob if both roles have the same.
func (m *migration) environment(launcher, worker *role) {
	shared := launcher.container().Env
	if len(shared) == 0 || !equality.Semantic.DeepEqual(shared, worker.container().Env) ||
		repeats(shared, func(variable corev1.EnvVar) string { return variable.Name }) {
		return
	}
	m.trainJob.Spec.Trainer.Env = shared
	for _, role := range []*role{launcher, worker} {
		role.container().Env = nil
		m.note(role.main("env"), Mapped, inTrainJob("spec.trainer.env"), "")
	}
}

// volumes moves volumes to the TrainJob if both roles have the same, and only the main
// containers mount them.
func (m *migration) volumes(launcher, worker *role) {
	volumes, mounts := launcher.pod().Volumes, launcher.container().VolumeMounts
	same := equality.Semantic.DeepEqual(volumes, worker.pod().Volumes) && equality.Semantic.DeepEqual(mounts, worker.container().VolumeMounts)
	if len(volumes) == 0 || len(mounts) == 0 || !same || othersMount(launcher.pod()) || othersMount(worker.pod()) ||
		repeats(volumes, func(volume corev1.Volume) string { return volume.Name }) ||
		repeats(mounts, func(mount corev1.VolumeMount) string { return mount.MountPath }) {
		return
	}
	trainer := &m.trainJob.Spec.Trainer
	trainer.Volumes, trainer.VolumeMounts = volumes, mounts
	for _, role := range []*role{launcher, worker} {
		role.pod().Volumes, role.container().VolumeMounts = nil, nil
		m.note(role.from+".spec.volumes", Mapped, inTrainJob("spec.trainer.volumes"), "")
		m.note(role.main("volumeMounts"), Mapped, inTrainJob("spec.trainer.volumeMounts"), "")
	}
}

// othersMount reports whether a volume is used other than by volumeMounts of the main
// container.
func othersMount(pod *corev1.PodSpec) bool {
	uses := func(container corev1.Container) bool {
		return len(container.VolumeMounts) > 0 || len(container.VolumeDevices) > 0
	}
	return slices.ContainsFunc(pod.InitContainers, uses) || slices.ContainsFunc(pod.Containers[1:], uses) || len(pod.Containers[0].VolumeDevices) > 0
}

// repeats reports whether a list has a key twice, which a TrainJob does not allow.
func repeats[T any](list []T, key func(T) string) bool {
	seen := map[string]bool{}
	for _, item := range list {
		if seen[key(item)] {
			return true
		}
		seen[key(item)] = true
	}
	return false
}

// changedByKueue reports fields that Kueue changes: templates of an admitted job contain
// the settings of its flavor, which cannot be told from the user's.
func (m *migration) changedByKueue(role *role) {
	if !m.options.Accepted || m.before.Queue == "" || m.before.Suspended {
		return
	}
	const why = "is kept, but Kueue adds to it while a job is admitted: remove the settings of the flavor"
	for _, field := range []string{"spec.nodeSelector", "spec.tolerations", "spec.schedulingGates"} {
		m.note(role.from+"."+field, Review, role.to+"."+field, why)
	}
	for _, field := range []string{"metadata.labels", "metadata.annotations"} {
		for _, at := range children(m.raw, role.from+"."+field) {
			if strings.Contains(at, "[kueue.x-k8s.io/") {
				m.note(at, Review, role.to+at[len(role.from):], why)
			}
		}
	}
}

// moveTemplate reports every field that stays in a template.
func (m *migration) moveTemplate(role *role) {
	for _, field := range []string{"labels", "annotations", "finalizers"} {
		at := role.from + ".metadata." + field
		m.move(at, role.to+".metadata."+field)
	}
	for _, at := range children(m.raw, role.from+".metadata") {
		if noted, below := m.entriesAt(at); !noted && !below {
			m.note(at, Dropped, "", "the pods of a job get their own; the API server does not store it in a template")
		}
	}
	spec := role.from + ".spec"
	for _, at := range children(m.raw, spec) {
		if at != spec+".containers" {
			m.move(at, role.to+at[len(role.from):])
		}
	}
	for i, container := range children(m.raw, spec+".containers") {
		if i > 0 {
			m.move(container, role.to+container[len(role.from):])
			continue
		}
		for _, at := range children(m.raw, container) {
			m.move(at, role.to+at[len(role.from):])
		}
	}
}
