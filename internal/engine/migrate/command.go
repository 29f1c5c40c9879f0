// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// command converts the command of the launcher. If it starts with mpirun, it moves to
// the TrainJob; a plain mpirun, with only the number of ranks, is left to the operator,
// so that the job scales with its number of nodes. Any other command stays in the
// runtime, because the operator would add an mpirun to it in the TrainJob.
func (m *migration) command(launcher *role) {
	container, trainer := launcher.container(), &m.trainJob.Spec.Trainer
	line := slices.Concat(container.Command, container.Args)
	to := inTrainJob("spec.trainer.command")
	if len(container.Command) == 0 || !runsUnchanged(line) {
		return
	}
	if program := m.plain(line); program != nil {
		trainer.Command = program
		why := fmt.Sprintf("without %s: the operator adds it, for every slot of every node", strings.Join(line[:len(line)-len(program)], " "))
		if m.old.Spec.RequireAllHosts == nil {
			why += ", and the job fails if a node is not used"
		}
		m.rewrite(launcher.main("command"), Mapped, to, why)
		m.rewrite(launcher.main("args"), Mapped, to, why)
	} else {
		trainer.Command, trainer.Args = container.Command, container.Args
		m.note(launcher.main("command"), Mapped, to, "")
		m.note(launcher.main("args"), Mapped, inTrainJob("spec.trainer.args"), "")
	}
	container.Command, container.Args = nil, nil
}

// plain returns the program of a command that is only mpirun, the number of all ranks
// and a program; else nil.
func (m *migration) plain(line []string) []string {
	const prefix = 3
	if len(line) <= prefix || line[0] != "mpirun" || !slices.Contains([]string{"-n", "-np"}, line[1]) || m.before.LauncherRunsRanks || m.before.Worker.Replicas < 1 {
		return nil
	}
	program := line[prefix:]
	if line[2] != strconv.Itoa(int(m.before.WorldSize())) || strings.HasPrefix(program[0], "-") || runsUnchanged(program) {
		return nil
	}
	return program
}

// runsUnchanged reports whether a TrainJob runs a command without adding mpirun. It
// builds the model of such a job to find out.
func runsUnchanged(line []string) bool {
	trainJob := &v2alpha1.TrainJob{Spec: v2alpha1.TrainJobSpec{Trainer: v2alpha1.Trainer{Command: line}}}
	runtime := &v2alpha1.TrainingRuntimeSpec{Template: v2alpha1.RuntimeTemplate{Spec: v2alpha1.RuntimeTemplateSpec{ReplicatedJobs: []v2alpha1.ReplicatedJob{{
		Name: v2alpha1.ReplicatedJobLauncher, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{}}}},
	}}}}}
	model := job.FromTrainJob(trainJob, runtime, job.Defaults{})
	return slices.Equal(model.Launcher.Template.Spec.Containers[0].Command, line)
}

// sshd drops a worker's command that only starts an sshd: a TrainJob's workers need
// none. A command that does more stays.
func (m *migration) sshd(worker *role) {
	container := worker.container()
	line := slices.Concat(container.Command, container.Args)
	switch {
	case len(line) == 0:
		m.note("spec.sshAuthMountPath", Dropped, "", "has no effect: the workers do not run an sshd")
		return
	case !job.StartsSSHD(line):
		const why = "may do more than start an sshd, so it is kept. Remove it if it only starts an sshd: a TrainJob's workers need none"
		m.note(worker.main("command"), Review, worker.to+".spec.containers[0].command", why)
		m.note(worker.main("args"), Review, worker.to+".spec.containers[0].args", why)
		m.note("spec.sshAuthMountPath", Review, "", "a TrainJob always mounts the keys for an image's sshd at /home/mpiuser/.ssh")
		return
	}
	m.ownSSHD = true
	container.Command, container.Args = nil, nil
	const why = "only starts an sshd; the operator's agent replaces it, and the image needs none"
	m.note(worker.main("command"), Dropped, "", why)
	m.note(worker.main("args"), Dropped, "", why)
	m.note("spec.sshAuthMountPath", Dropped, "", "is for the keys of the image's sshd; the agent has its own")
	m.probe(worker, "readinessProbe", &container.ReadinessProbe)
	m.probe(worker, "livenessProbe", &container.LivenessProbe)
	m.probe(worker, "startupProbe", &container.StartupProbe)
}

// probe drops a TCP probe, which checks the port of the sshd.
func (m *migration) probe(worker *role, field string, probe **corev1.Probe) {
	switch {
	case *probe == nil:
	case (*probe).TCPSocket != nil:
		*probe = nil
		m.note(worker.main(field), Dropped, "", "checks the sshd; the operator adds a probe for the agent")
	default:
		m.note(worker.main(field), Review, worker.to+".spec.containers[0]."+field, "may check the sshd, which no longer runs")
	}
}

// security reports the security context of images with their own sshd, which may run as
// any user. Pods of a TrainJob get the settings of PodSecurity's level "restricted" by
// default.
func (m *migration) security(launcher, worker *role) {
	if m.before.WorkersRunAgent() {
		return
	}
	for _, role := range []*role{launcher, worker} {
		at := role.from + ".spec.securityContext"
		if setsUser(role.pod()) {
			m.add(Entry{Path: at, Outcome: Default, To: role.to + ".spec.securityContext",
				Why: "by default the pods have no capabilities, no privilege escalation, and the seccomp profile RuntimeDefault; an MPIJob whose workers start an sshd has no such defaults"})
			continue
		}
		m.add(Entry{Path: at, Outcome: Review, To: role.to + ".spec.securityContext",
			Why: "does not set a user, so the user of the image was used; pods of a TrainJob do not run as root by default. Set runAsUser to the image's user, 0 for root"})
	}
}

// setsUser reports whether runAsUser is set for the main container.
func setsUser(pod *corev1.PodSpec) bool {
	own := pod.Containers[0].SecurityContext
	return own != nil && own.RunAsUser != nil || pod.SecurityContext != nil && pod.SecurityContext.RunAsUser != nil
}

// remoteShells are the options and variables that set mpirun's remote shell.
var remoteShells = []string{
	"plm_rsh_agent", "plm_ssh_agent", "orte_rsh_agent", "I_MPI_HYDRA_BOOTSTRAP", "HYDRA_LAUNCHER", "HYDRA_BOOTSTRAP", "-launcher", "-bootstrap", "-rsh",
}

// hosts finds settings of the launcher that only work for an MPIJob: names of its hosts,
// and its own remote shell.
func (m *migration) hosts() {
	launcher := &m.old.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeLauncher].Template.Spec.Containers[0]
	from := replicaPath(v2beta1.MPIReplicaTypeLauncher) + ".template.spec.containers[0]."
	for i, argument := range launcher.Command {
		m.hostArgument(element(from+"command", i), argument)
	}
	for i, argument := range launcher.Args {
		m.hostArgument(element(from+"args", i), argument)
	}
	for i, variable := range launcher.Env {
		m.hostArgument(element(from+"env", i), variable.Name+" "+variable.Value)
	}
}

func (m *migration) hostArgument(path, argument string) {
	name := m.old.Name
	if name != "" && (strings.Contains(argument, name+"-worker") || strings.Contains(argument, name+"-launcher")) {
		m.note(path, Review, "", fmt.Sprintf("contains a host name of the MPIJob. Hosts of the TrainJob are %s-worker-0-0 and so on; mpirun finds them by itself, and programs can read /etc/mpi/hostfile", name))
	}
	if m.ownSSHD && slices.ContainsFunc(remoteShells, func(shell string) bool { return strings.Contains(argument, shell) }) {
		m.note(path, Review, "", "sets mpirun's remote shell for the sshd of the workers, which no longer runs; remove it, and the operator sets it")
	}
}
