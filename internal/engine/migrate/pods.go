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

// role is launcher or workers: where their pods were described, and where they
// are now.
type role struct {
	// from and to are the paths of the templates.
	from, to string
	// template is what becomes of it in the runtime.
	template *corev1.PodTemplateSpec
}

func (role *role) pod() *corev1.PodSpec         { return &role.template.Spec }
func (role *role) container() *corev1.Container { return &role.template.Spec.Containers[0] }

// main is a field of the container that runs MPI.
func (role *role) main(field string) string { return role.from + ".spec.containers[0]." + field }

func replicaPath(role v2beta1.MPIReplicaType) string { return "spec.mpiReplicaSpecs." + string(role) }

// pods splits the templates: what is particular to one training goes into the
// TrainJob, the rest into the runtime.
func (migration *migration) pods() {
	jobs := []v2alpha1.ReplicatedJob{{Name: v2alpha1.ReplicatedJobLauncher}, {Name: v2alpha1.ReplicatedJobWorker}}
	migration.runtime.Spec.Template.Spec.ReplicatedJobs = jobs
	launcher := migration.newRole(v2beta1.MPIReplicaTypeLauncher, &jobs[0], 0)
	worker := migration.newRole(v2beta1.MPIReplicaTypeWorker, &jobs[1], 1)
	migration.replicas()
	if migration.old.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeWorker] == nil {
		migration.workersOfLauncher(launcher, worker)
	}
	migration.sshd(worker)
	migration.security(launcher, worker)
	migration.command(launcher)
	migration.image(launcher, worker)
	migration.resources(launcher, worker)
	migration.environment(launcher, worker)
	migration.volumes(launcher, worker)
	for _, role := range []*role{launcher, worker} {
		migration.placedByKueue(role)
		migration.moveTemplate(role)
	}
}

func (migration *migration) newRole(kind v2beta1.MPIReplicaType, replicated *v2alpha1.ReplicatedJob, index int) *role {
	made := &role{
		from:     replicaPath(kind) + ".template",
		to:       inRuntime(fmt.Sprintf("spec.template.spec.replicatedJobs[%d].template", index)),
		template: &replicated.Template,
	}
	if replica := migration.old.Spec.MPIReplicaSpecs[kind]; replica != nil {
		migration.template(made, &replica.Template)
	}
	return made
}

// template copies what a template of a runtime can have.
func (migration *migration) template(made *role, old *corev1.PodTemplateSpec) {
	*made.template = *old.DeepCopy()
	made.template.ObjectMeta = metav1.ObjectMeta{Labels: made.template.Labels, Annotations: made.template.Annotations, Finalizers: made.template.Finalizers}
	made.pod().RestartPolicy = ""
	migration.note(made.from+".spec.restartPolicy", Dropped, "", "never counted: that of the role does, and the pods of a TrainJob have Never")
	if _, said := made.template.Annotations[training.IstioInject]; !said {
		// The operator sets it anyway; here a reader of the runtime sees it.
		if made.template.Annotations == nil {
			made.template.Annotations = map[string]string{}
		}
		made.template.Annotations[training.IstioInject] = "false"
	}
}

func (migration *migration) replicas() {
	at := replicaPath(v2beta1.MPIReplicaTypeLauncher) + ".replicas"
	if migration.before.Launcher.Replicas == 1 {
		migration.note(at, Dropped, "", "a TrainJob has one launcher, always")
	} else {
		migration.note(at, Look, "", "a TrainJob has one launcher, always")
	}
	workers := migration.before.Worker.Replicas
	migration.trainJob.Spec.Trainer.NumNodes = &workers
	at = replicaPath(v2beta1.MPIReplicaTypeWorker) + ".replicas"
	migration.note(at, Mapped, inTrainJob("spec.trainer.numNodes"), "")
	if worker := migration.old.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeWorker]; worker != nil && worker.Replicas == nil {
		migration.upstreamDefault(at, "mpi-operator makes no worker where it is not said how many; here it is one, of either kind")
	}
}

// workersOfLauncher: a launcher that does the work itself needs a worker now.
func (migration *migration) workersOfLauncher(launcher, worker *role) {
	migration.trainJob.Spec.Trainer.NumNodes = new(int32(1))
	*worker.template = *launcher.template.DeepCopy()
	worker.container().Command, worker.container().Args = nil, nil
	migration.add(Entry{Path: replicaPath(v2beta1.MPIReplicaTypeWorker), Outcome: Look, To: worker.to,
		Why: "is not there: the launcher did the work itself. The TrainJob has one worker, made from the launcher's template, and the launcher besides it; correct what either of them asks for"})
}

// image: launcher and workers of a TrainJob have the same.
func (migration *migration) image(launcher, worker *role) {
	trainer := &migration.trainJob.Spec.Trainer
	trainer.Image = worker.container().Image
	to := inTrainJob("spec.trainer.image")
	migration.note(worker.main("image"), Mapped, to, "")
	if own := launcher.container().Image; own == trainer.Image {
		migration.note(launcher.main("image"), Mapped, to, "")
	} else {
		migration.note(launcher.main("image"), Look, "", fmt.Sprintf(
			"launcher and workers of a TrainJob have the same image; the workers' was taken. See that %s has what the launcher needs, mpirun above all", trainer.Image))
	}
	launcher.container().Image, worker.container().Image = "", ""
}

// resources go into the TrainJob, unless the pod as a whole has some: the
// TrainJob's words would replace those.
func (migration *migration) resources(launcher, worker *role) {
	if asks(worker) {
		migration.trainJob.Spec.Trainer.ResourcesPerNode = worker.container().Resources.DeepCopy()
		worker.container().Resources = corev1.ResourceRequirements{}
		migration.note(worker.main("resources"), Mapped, inTrainJob("spec.trainer.resourcesPerNode"), "")
	}
	if asks(launcher) {
		migration.trainJob.Spec.Launcher = &v2alpha1.Launcher{Resources: launcher.container().Resources.DeepCopy()}
		launcher.container().Resources = corev1.ResourceRequirements{}
		migration.note(launcher.main("resources"), Mapped, inTrainJob("spec.launcher.resources"), "")
	} else if states := launcher.container().Resources; len(states.Requests)+len(states.Limits) == 0 && podIsSilent(launcher.pod()) {
		defaults := migration.rules.Defaults.LauncherResources
		migration.add(Entry{Path: launcher.main("resources"), Outcome: Default, To: inTrainJob("spec.launcher.resources"),
			Why: fmt.Sprintf("the launcher of an MPIJob that does not say it asks for nothing; that of a TrainJob gets %s CPUs and %s of memory", defaults.Cpu(), defaults.Memory())})
	}
}

func asks(role *role) bool {
	stated := role.container().Resources
	return len(stated.Requests)+len(stated.Limits) > 0 && role.pod().Resources == nil
}

func podIsSilent(pod *corev1.PodSpec) bool {
	return pod.Resources == nil || len(pod.Resources.Requests)+len(pod.Resources.Limits) == 0
}

// environment goes into the TrainJob where both roles have the same.
func (migration *migration) environment(launcher, worker *role) {
	shared := launcher.container().Env
	if len(shared) == 0 || !equality.Semantic.DeepEqual(shared, worker.container().Env) ||
		repeats(shared, func(variable corev1.EnvVar) string { return variable.Name }) {
		return
	}
	migration.trainJob.Spec.Trainer.Env = shared
	for _, role := range []*role{launcher, worker} {
		role.container().Env = nil
		migration.note(role.main("env"), Mapped, inTrainJob("spec.trainer.env"), "")
	}
}

// volumes go into the TrainJob where both roles have the same, and nobody but the
// main containers uses them.
func (migration *migration) volumes(launcher, worker *role) {
	volumes, mounts := launcher.pod().Volumes, launcher.container().VolumeMounts
	same := equality.Semantic.DeepEqual(volumes, worker.pod().Volumes) && equality.Semantic.DeepEqual(mounts, worker.container().VolumeMounts)
	if len(volumes) == 0 || len(mounts) == 0 || !same || othersMount(launcher.pod()) || othersMount(worker.pod()) ||
		repeats(volumes, func(volume corev1.Volume) string { return volume.Name }) ||
		repeats(mounts, func(mount corev1.VolumeMount) string { return mount.MountPath }) {
		return
	}
	trainer := &migration.trainJob.Spec.Trainer
	trainer.Volumes, trainer.VolumeMounts = volumes, mounts
	for _, role := range []*role{launcher, worker} {
		role.pod().Volumes, role.container().VolumeMounts = nil, nil
		migration.note(role.from+".spec.volumes", Mapped, inTrainJob("spec.trainer.volumes"), "")
		migration.note(role.main("volumeMounts"), Mapped, inTrainJob("spec.trainer.volumeMounts"), "")
	}
}

// othersMount tells whether a volume is used elsewhere than by the mounts of the
// main container.
func othersMount(pod *corev1.PodSpec) bool {
	uses := func(container corev1.Container) bool {
		return len(container.VolumeMounts) > 0 || len(container.VolumeDevices) > 0
	}
	return slices.ContainsFunc(pod.InitContainers, uses) || slices.ContainsFunc(pod.Containers[1:], uses) || len(pod.Containers[0].VolumeDevices) > 0
}

// repeats tells whether a list has a key twice, which a TrainJob's cannot.
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

// placedByKueue: while a job is admitted, its templates also have what Kueue's
// flavor says. It cannot be told from what the user wrote.
func (migration *migration) placedByKueue(role *role) {
	if !migration.options.Accepted || migration.before.Queue == "" || migration.before.Suspended {
		return
	}
	const why = "is kept, but Kueue adds to it while a job is admitted: take out what is the flavor's and not yours"
	for _, field := range []string{"spec.nodeSelector", "spec.tolerations", "spec.schedulingGates"} {
		migration.note(role.from+"."+field, Look, role.to+"."+field, why)
	}
	for _, field := range []string{"metadata.labels", "metadata.annotations"} {
		for _, at := range children(migration.raw, role.from+"."+field) {
			if strings.Contains(at, "[kueue.x-k8s.io/") {
				migration.note(at, Look, role.to+at[len(role.from):], why)
			}
		}
	}
}

// moveTemplate reports all that stays in a template: field by field, as a reader
// looks for it.
func (migration *migration) moveTemplate(role *role) {
	for _, field := range []string{"labels", "annotations", "finalizers"} {
		at := role.from + ".metadata." + field
		migration.move(at, role.to+".metadata."+field)
	}
	for _, at := range children(migration.raw, role.from+".metadata") {
		if noted, below := migration.entriesAt(at); !noted && !below {
			migration.note(at, Dropped, "", "the pods of a job get their own; the API server does not keep it in a template")
		}
	}
	spec := role.from + ".spec"
	for _, at := range children(migration.raw, spec) {
		if at != spec+".containers" {
			migration.move(at, role.to+at[len(role.from):])
		}
	}
	for i, container := range children(migration.raw, spec+".containers") {
		if i > 0 {
			migration.move(container, role.to+container[len(role.from):])
			continue
		}
		for _, at := range children(migration.raw, container) {
			migration.move(at, role.to+at[len(role.from):])
		}
	}
}
