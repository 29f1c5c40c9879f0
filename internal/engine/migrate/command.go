package migrate

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// command is what the launcher runs. Where it begins with an mpirun, the TrainJob
// has it; a plain one, which only says how many ranks there are, is left to the
// operator, so that the job grows with its number of nodes. Anything else would be
// put behind an mpirun there, so the runtime keeps it.
func (migration *migration) command(launcher *role) {
	container, trainer := launcher.container(), &migration.trainJob.Spec.Trainer
	line := slices.Concat(container.Command, container.Args)
	to := inTrainJob("spec.trainer.command")
	if len(container.Command) == 0 || !runsAsItIs(line) {
		return
	}
	if program := migration.plain(line); program != nil {
		trainer.Command = program
		why := fmt.Sprintf("without %s: the operator writes it, for every slot of every node", strings.Join(line[:len(line)-len(program)], " "))
		if migration.old.Spec.RequireAllHosts == nil {
			why += ", and the job fails if a node is not used"
		}
		migration.rewrite(launcher.main("command"), Mapped, to, why)
		migration.rewrite(launcher.main("args"), Mapped, to, why)
	} else {
		trainer.Command, trainer.Args = container.Command, container.Args
		migration.note(launcher.main("command"), Mapped, to, "")
		migration.note(launcher.main("args"), Mapped, inTrainJob("spec.trainer.args"), "")
	}
	container.Command, container.Args = nil, nil
}

// plain is the program of a command that is nothing but mpirun, the number of all
// ranks and a program; else nil.
func (migration *migration) plain(line []string) []string {
	const words = 3
	if len(line) <= words || line[0] != "mpirun" || !slices.Contains([]string{"-n", "-np"}, line[1]) || migration.before.LauncherRunsRanks || migration.before.Worker.Replicas < 1 {
		return nil
	}
	program := line[words:]
	if line[2] != strconv.Itoa(int(migration.before.WorldSize())) || strings.HasPrefix(program[0], "-") || runsAsItIs(program) {
		return nil
	}
	return program
}

// runsAsItIs tells whether a TrainJob runs a command without an mpirun before it, by
// asking for one that does.
func runsAsItIs(line []string) bool {
	trainJob := &v2alpha1.TrainJob{Spec: v2alpha1.TrainJobSpec{Trainer: v2alpha1.Trainer{Command: line}}}
	runtime := &v2alpha1.TrainingRuntimeSpec{Template: v2alpha1.RuntimeTemplate{Spec: v2alpha1.RuntimeTemplateSpec{ReplicatedJobs: []v2alpha1.ReplicatedJob{{
		Name: v2alpha1.ReplicatedJobLauncher, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{}}}},
	}}}}}
	made := job.FromTrainJob(trainJob, runtime, job.Defaults{})
	return slices.Equal(made.Launcher.Template.Spec.Containers[0].Command, line)
}

// sshd drops a worker's command that only starts an sshd: a TrainJob's workers
// need none. A command that does more stays, and so does the sshd in it.
func (migration *migration) sshd(worker *role) {
	container := worker.container()
	line := slices.Concat(container.Command, container.Args)
	switch {
	case len(line) == 0:
		migration.note("spec.sshAuthMountPath", Dropped, "", "was not used: the workers run no sshd of their own")
		return
	case !startsSSHD(line):
		const why = "does more than start an sshd, as far as can be seen, so it stays, and so does the image's sshd. Leave it out if that was all: a TrainJob's workers need no sshd"
		migration.note(worker.main("command"), Look, worker.to+".spec.containers[0].command", why)
		migration.note(worker.main("args"), Look, worker.to+".spec.containers[0].args", why)
		migration.note("spec.sshAuthMountPath", Look, "", "a TrainJob has the keys for an image's sshd in /home/mpiuser/.ssh, always")
		return
	}
	migration.ownSSHD = true
	container.Command, container.Args = nil, nil
	const why = "only starts an sshd; the operator's agent answers in its place, and the image needs none"
	migration.note(worker.main("command"), Dropped, "", why)
	migration.note(worker.main("args"), Dropped, "", why)
	migration.note("spec.sshAuthMountPath", Dropped, "", "is where the sshd of the image found its keys; the agent has its own")
	migration.probe(worker, "readinessProbe", &container.ReadinessProbe)
	migration.probe(worker, "livenessProbe", &container.LivenessProbe)
	migration.probe(worker, "startupProbe", &container.StartupProbe)
}

// startsSSHD tells whether a command does nothing but start an sshd: by itself, or by
// a shell that makes its directory before and waits afterwards.
func startsSSHD(line []string) bool {
	if path.Base(line[0]) == "sshd" {
		return true
	}
	isShell := slices.Contains([]string{"sh", "bash"}, path.Base(line[0])) && len(line) == 3 && line[1] == "-c"
	if !isShell || strings.ContainsAny(line[2], "$`|<>(){}") {
		return false
	}
	starts := false
	for _, step := range steps.Split(line[2], -1) {
		words := strings.Fields(strings.TrimPrefix(strings.TrimSpace(step), "exec "))
		switch {
		case len(words) == 0:
		case path.Base(words[0]) == "sshd", slices.Equal(words, []string{"service", "ssh", "start"}):
			starts = true
		case words[0] == "mkdir", slices.Equal(words, []string{"sleep", "infinity"}):
		default:
			return false
		}
	}
	return starts
}

// steps of a shell's script are separated by these.
var steps = regexp.MustCompile(`&&|;|\n`)

// probe drops one that asks the sshd's port.
func (migration *migration) probe(worker *role, field string, probe **corev1.Probe) {
	switch {
	case *probe == nil:
	case (*probe).TCPSocket != nil:
		*probe = nil
		migration.note(worker.main(field), Dropped, "", "asks for the sshd; the operator has a probe for the agent")
	default:
		migration.note(worker.main(field), Look, worker.to+".spec.containers[0]."+field, "may ask for the sshd, which does not run any more")
	}
}

// security: an image with an sshd of its own runs as whoever it was built for. A
// TrainJob's pods are held to PodSecurity's level "restricted" where they are
// silent.
func (migration *migration) security(launcher, worker *role) {
	if migration.before.WorkersRunAgent() {
		return
	}
	for _, role := range []*role{launcher, worker} {
		at := role.from + ".spec.securityContext"
		if saysUser(role.pod()) {
			migration.add(Entry{Path: at, Outcome: Default, To: role.to + ".spec.securityContext",
				Why: "where it is silent, the pods have no capabilities, cannot gain privileges, and have the runtime's seccomp profile; an MPIJob whose workers start an sshd is left alone"})
			continue
		}
		migration.add(Entry{Path: at, Outcome: Look, To: role.to + ".spec.securityContext",
			Why: "does not say which user runs the container, so that the image decided; the pods of a TrainJob must not be root unless they say so. Set runAsUser to the image's user, 0 for root"})
	}
}

// saysUser tells whether it is said who runs the main container.
func saysUser(pod *corev1.PodSpec) bool {
	own := pod.Containers[0].SecurityContext
	return own != nil && own.RunAsUser != nil || pod.SecurityContext != nil && pod.SecurityContext.RunAsUser != nil
}

// remoteShells are the ways to tell mpirun how to reach a host.
var remoteShells = []string{
	"plm_rsh_agent", "plm_ssh_agent", "orte_rsh_agent", "I_MPI_HYDRA_BOOTSTRAP", "HYDRA_LAUNCHER", "HYDRA_BOOTSTRAP", "-launcher", "-bootstrap", "-rsh",
}

// hosts finds words of the launcher that hold for an MPIJob only: names of its
// hosts, and a way of its own to reach them.
func (migration *migration) hosts() {
	launcher := &migration.old.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeLauncher].Template.Spec.Containers[0]
	from := replicaPath(v2beta1.MPIReplicaTypeLauncher) + ".template.spec.containers[0]."
	for i, word := range launcher.Command {
		migration.hostWord(element(from+"command", i), word)
	}
	for i, word := range launcher.Args {
		migration.hostWord(element(from+"args", i), word)
	}
	for i, variable := range launcher.Env {
		migration.hostWord(element(from+"env", i), variable.Name+" "+variable.Value)
	}
}

func (migration *migration) hostWord(path, word string) {
	name := migration.old.Name
	if name != "" && (strings.Contains(word, name+"-worker") || strings.Contains(word, name+"-launcher")) {
		migration.note(path, Look, "", fmt.Sprintf("names a host of the MPIJob. Those of the TrainJob are %s-worker-0-0 and so on; mpirun finds them by itself, and a program in /etc/mpi/hostfile", name))
	}
	if migration.ownSSHD && slices.ContainsFunc(remoteShells, func(shell string) bool { return strings.Contains(word, shell) }) {
		migration.note(path, Look, "", "says how mpirun reaches the workers, whose images' sshd does not run any more; leave it out, and the operator says it")
	}
}
