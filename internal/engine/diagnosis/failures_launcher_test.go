// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
)

// onLauncher changes the launcher's pod.
func onLauncher(options ...podOption) func(*scene) {
	return func(scene *scene) { scene.launcher(options...) }
}

// reports is a launcher that exits with a report of the agent about a worker's host.
func reports(report protocol.Report, worker int32, second float64) func(*scene) {
	return func(scene *scene) {
		if worker >= 0 {
			report.Host = plan.WorkerHost(scene.job, worker)
		}
		scene.launcher(exits(1, "Error", reportText(scene.t, report), second))
	}
}

const (
	launcherLog = "kubectl logs {launcher} -c main -n team"
	noWorker    = -1
	// judged is after workerStatusTimeout.
	judged = 50
)

// reportedFailures are failures that the agent reports.
var reportedFailures = []failureRow{
	{
		name: "a rank raised", happen: reports(protocol.Report{Reason: protocol.ReasonTraining, Message: "rank 2 exited with code 1", Rank: new(2), ExitCode: 1}, 1, judged),
		reason: training.FailureTraining, subject: "Rank 2 on worker 1 (pod {worker 1} on node node-1)", cause: "rank 2 exited with code 1", advice: launcherLog,
	},
	{
		name:   "a rank raised, with a message",
		happen: reports(protocol.Report{Reason: protocol.ReasonTraining, Message: "rank 2 exited with code 1: RuntimeError: no data", Rank: new(2), RankExitCode: new(1), Error: "RuntimeError: no data", ExitCode: 1}, 1, judged),
		reason: training.FailureTraining, subject: "Rank 2 on worker 1 (pod {worker 1} on node node-1) exited with code 1", cause: " exited with code 1: RuntimeError: no data. ", advice: launcherLog,
	},
	{
		name:   "a rank raised on a host that is not known",
		happen: reports(protocol.Report{Reason: protocol.ReasonTraining, Message: "rank 2 exited with code 1: RuntimeError: no data", Rank: new(2), RankExitCode: new(1), Error: "RuntimeError: no data", ExitCode: 1}, noWorker, judged),
		reason: training.FailureTraining, subject: theLauncher, cause: "rank 2 exited with code 1: RuntimeError: no data", advice: launcherLog,
	},
	{
		name: "a GPU is out of memory",
		happen: reports(protocol.Report{Reason: protocol.ReasonTraining, Message: "rank 2 exited with code 1", Rank: new(2), RankExitCode: new(1), ExitCode: 1,
			Error: "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 16.00 GiB."}, 1, judged),
		reason: training.FailureTraining, subject: "Rank 2 on worker 1 (pod {worker 1} on node node-1) exited with code 1",
		cause: "CUDA out of memory. Tried to allocate 16.00 GiB. The GPU is out of memory: reduce the batch size", advice: launcherLog,
	},
	{
		name: "a container without a driver, on a host that is not known",
		happen: reports(protocol.Report{Reason: protocol.ReasonTraining, Message: "rank 2 exited with code 1: RuntimeError: Found no NVIDIA driver on your system.", Rank: new(2),
			ExitCode: 1, LastLines: []string{"RuntimeError: Found no NVIDIA driver on your system."}}, noWorker, judged),
		reason: training.FailureTraining, subject: theLauncher, cause: "The container has no NVIDIA driver: request nvidia.com/gpu for the workers", advice: launcherLog,
	},
	{
		name:   "a message speaks of signal 9, and no rank was killed",
		happen: reports(protocol.Report{Reason: protocol.ReasonTraining, Message: "rank 2 exited with code 1: signal 9 is lost", Rank: new(2), RankExitCode: new(1), ExitCode: 1}, 1, judged),
		reason: training.FailureTraining, subject: "Rank 2 on worker 1", cause: "signal 9 is lost", advice: launcherLog,
	},
	{
		name: "a program left a report with a secret in it", happen: reports(protocol.Report{Reason: protocol.ReasonTraining, Message: "the login failed: password=hunter2", ExitCode: 1}, noWorker, judged),
		reason: training.FailureTraining, subject: theLauncher, cause: "the login failed: password=[redacted]", advice: launcherLog,
	},
	{
		name: "a rank raised on the launcher itself", options: []option{func(scene *scene) { scene.job.LauncherRunsRanks = true }},
		happen: func(scene *scene) {
			host := plan.NamesOf(scene.job).LauncherHost + ".train-worker.team.svc"
			reports(protocol.Report{Reason: protocol.ReasonTraining, Message: "rank 0 exited with code 1", Host: host, Rank: new(0)}, noWorker, judged)(scene)
		},
		reason: training.FailureTraining, subject: "Rank 0 on the launcher (pod {launcher} on node node-launcher)", cause: "rank 0 exited with code 1", advice: launcherLog,
	},
	{
		name: "the command failed", happen: reports(protocol.Report{Reason: protocol.ReasonTraining, Message: "the command exited with code 2", ExitCode: 2}, noWorker, judged),
		reason: training.FailureTraining, subject: theLauncher, cause: "the command exited with code 2", advice: launcherLog,
	},
	{
		name: "a host is not known", happen: reports(protocol.Report{Reason: protocol.ReasonTraining, Message: "rank 7 died", Host: "elsewhere", Rank: new(7)}, noWorker, judged),
		reason: training.FailureTraining, subject: theLauncher, cause: "rank 7 died", advice: launcherLog,
	},
	{
		name: "a worker cannot be reached", start: starts,
		happen: reports(protocol.Report{Reason: protocol.ReasonSSH, Message: "cannot reach train-worker-1: no answer; a NetworkPolicy blocks the port", ExitCode: 70}, 1, judged),
		reason: training.FailureSSHConnection, subject: secondWorker, cause: "no answer; a NetworkPolicy blocks the port", advice: "kubectl describe pod {worker 1} -n team",
	},
	{
		name: "several workers cannot be reached", start: starts,
		happen: func(scene *scene) {
			hosts := protocol.Hosts{Expected: 2, Missing: []string{plan.WorkerHost(scene.job, 0), plan.WorkerHost(scene.job, 1)}}
			reports(protocol.Report{Reason: protocol.ReasonSSH, Message: "cannot reach 2 of 2 workers", ExitCode: 70, Hosts: hosts}, 0, judged)(scene)
		},
		reason: training.FailureSSHConnection, subject: theLauncher + ": cannot reach 2 of 2 workers", cause: "cannot reach 2 of 2 workers", advice: "kubectl describe pod {worker 0} -n team",
	},
	{
		name: "workers cannot connect to each other", start: starts,
		happen: func(scene *scene) {
			report := protocol.Report{Reason: protocol.ReasonMPI, Trouble: protocol.PortsBlocked, Peer: plan.WorkerHost(scene.job, 0), ExitCode: 71,
				Message: "train-worker-1 cannot connect to train-worker-0 on TCP port 41234 (no answer)"}
			reports(report, 1, judged)(scene)
		},
		reason: training.FailureMPIInitialization, subject: secondWorker, cause: "train-worker-1 cannot connect to train-worker-0 on TCP port 41234", advice: "kubectl get networkpolicy -n team",
	},
	{
		name: "a worker cannot connect to one that was killed for its memory", start: starts,
		happen: func(scene *scene) {
			report := protocol.Report{Reason: protocol.ReasonMPI, Trouble: protocol.PortsBlocked, Peer: plan.WorkerHost(scene.job, 0), ExitCode: 71,
				Message: "train-worker-1 cannot connect to train-worker-0 on TCP port 41234 (connection refused)"}
			reports(report, 1, judged)(scene)
			scene.worker(0, outOfMemory(judged))
		},
		reason: training.FailureWorker, subject: "Worker 0", cause: "exceeded its memory limit of 4Gi", advice: "Raise the memory limit of the workers",
	},
	{
		name: "a worker is known by its whole name",
		happen: func(scene *scene) {
			host := plan.WorkerHost(scene.job, 1) + ".train-worker.team.svc.cluster.local"
			reports(protocol.Report{Reason: protocol.ReasonTraining, Message: "rank 2 exited with code 1", Host: host, Rank: new(2)}, noWorker, judged)(scene)
		},
		reason: training.FailureTraining, subject: "Rank 2 on worker 1 (pod {worker 1} on node node-1)", cause: "rank 2 exited with code 1", advice: launcherLog,
	},
	{
		name: "MPI did not start", happen: reports(protocol.Report{Reason: protocol.ReasonMPI, Message: "ORTE was unable to reliably start one or more daemons", ExitCode: 71}, 1, judged),
		reason: training.FailureMPIInitialization, subject: secondWorker, cause: "unable to reliably start one or more daemons", advice: launcherLog,
	},
	{
		name:   "the image has no mpirun",
		happen: reports(protocol.Report{Reason: protocol.ReasonMPI, Message: "the image has no mpirun; use an image with MPI in it.", ExitCode: 127}, noWorker, judged),
		reason: training.FailureMPIInitialization, subject: theLauncher, cause: "the image has no mpirun", advice: "use an image with MPI in it",
	},
	{
		name: "a worker was lost, with an unknown cause", happen: reports(protocol.Report{Reason: protocol.ReasonWorker, Message: "lost worker train-worker-1 in the middle of the run; its pod says why"}, 1, judged),
		reason: training.FailureWorker, subject: secondWorker, cause: "lost worker train-worker-1", advice: "kubectl describe pod {worker 1} -n team",
	},
	{
		name: "a worker was lost, and was killed for its memory a second later",
		happen: func(scene *scene) {
			reports(protocol.Report{Reason: protocol.ReasonWorker, Message: "lost worker train-worker-1"}, 1, judged)(scene)
			scene.worker(1, outOfMemory(judged+1))
		},
		reason: training.FailureWorker, subject: secondWorker, cause: "exceeded its memory limit of 4Gi", advice: "Raise the memory limit of the workers",
	},
	{
		name: "a rank was killed, and its worker for its memory a second later",
		happen: func(scene *scene) {
			reports(protocol.Report{Reason: protocol.ReasonTraining, Message: "rank 3 exited on signal 9", Signal: 9, Rank: new(3)}, 1, judged)(scene)
			scene.worker(1, outOfMemory(judged+1))
		},
		reason: training.FailureWorker, subject: secondWorker, cause: "exceeded its memory limit of 4Gi", advice: "Raise the memory limit of the workers",
	},
	{
		name:   "a rank was killed, and its worker keeps running",
		happen: reports(protocol.Report{Reason: protocol.ReasonTraining, Message: "rank 3 exited on signal 9", Signal: 9, Rank: new(3)}, 1, judged),
		reason: training.FailureWorker, subject: "Rank 3 on worker 1 (pod {worker 1} on node node-1)", cause: "rank 3 exited on signal 9", advice: "Most likely out of memory: its memory limit is 4Gi. Raise the memory limit of the workers",
	},
	{
		name: "a worker was lost because it was deleted",
		happen: func(scene *scene) {
			reports(protocol.Report{Reason: protocol.ReasonWorker, Message: "lost worker train-worker-1: it was told to end; its pod says why"}, 1, judged)(scene)
			scene.worker(1, deleted(judged))
		},
		reason: training.FailureWorker, subject: secondWorker, cause: "was deleted while the job ran", advice: "Start the job again",
	},
	{
		name: "the agent could not begin", happen: reports(protocol.Report{Reason: protocol.ReasonLauncher, Message: "read the hostfile: no such file", ExitCode: 2}, noWorker, judged),
		reason: training.FailureLauncher, subject: theLauncher, cause: "read the hostfile: no such file", advice: launcherLog,
	},
	{
		name: "a report without a message", happen: reports(protocol.Report{Reason: protocol.ReasonTraining, ExitCode: 4}, noWorker, judged),
		reason: training.FailureTraining, subject: theLauncher, cause: "the run failed", advice: launcherLog,
	},
	{
		name:   "the program forges a report",
		happen: onLauncher(exits(5, "Error", `{"reason": "Unhappy", "message": "so it is"}`, 50)),
		reason: training.FailureTraining, subject: theLauncher, cause: "exited with code 5", advice: launcherLog,
	},
	{
		name: "a gate was not passed", start: pullsImage,
		happen: func(scene *scene) {
			report := protocol.Report{Reason: protocol.ReasonSSH, Message: "cannot reach 2 of 2 workers", Host: plan.WorkerHost(scene.job, 1), ExitCode: 70}
			scene.launcher(gateExits(70, "Error", reportText(scene.t, report), judged))
		},
		reason: training.FailureSSHConnection, subject: secondWorker, cause: "cannot reach 2 of 2 workers", advice: "kubectl describe pod {worker 1} -n team",
	},
}

// launcherFailures are launchers without a report, or with one that does not count.
var launcherFailures = []failureRow{
	{
		name: "exited with an error", happen: onLauncher(exits(1, "Error", "", 50)),
		reason: training.FailureTraining, subject: theLauncher, cause: "exited with code 1", advice: launcherLog,
	},
	{
		name: "exited with an error, the phase changes later", happen: onLauncher(exitsFirst(1, "Error", "", 50)),
		reason: training.FailureTraining, subject: theLauncher, cause: "exited with code 1", advice: launcherLog,
	},
	{
		name: "killed", happen: onLauncher(exits(137, "Error", "", 50)),
		reason: training.FailureLauncher, subject: theLauncher, cause: "was killed by signal 9 (exit code 137)", advice: launcherLog,
	},
	{
		name: "killed for its memory", happen: onLauncher(outOfMemory(50)),
		reason: training.FailureLauncher, subject: theLauncher, cause: "exceeded its memory limit of 1Gi", advice: "Raise the memory limit of the launcher",
	},
	{
		name:   "killed for its memory, in spite of its report",
		happen: onLauncher(exits(137, "OOMKilled", `{"reason": "TrainingError", "message": "rank 0 died"}`, 50)),
		reason: training.FailureLauncher, subject: theLauncher, cause: "exceeded its memory limit of 1Gi", advice: "Raise the memory limit of the launcher",
	},
	{
		name: "one of its processes was killed for its memory", happen: onLauncher(exits(1, "OOMKilled", "", 50)),
		reason: training.FailureLauncher, subject: theLauncher, cause: "exceeded its memory limit of 1Gi and was killed (OOMKilled, exit code 1)", advice: "Raise the memory limit of the launcher",
	},
	{
		name: "its command is missing", happen: onLauncher(exits(128, "StartError", `exec: "/train": permission denied`, 50)),
		reason: training.FailureLauncher, subject: theLauncher, cause: `could not be started: exec: "/train": permission denied`, advice: "be executable",
	},
	{
		name: "its command is missing, and has a secret in it", happen: onLauncher(exits(128, "StartError", `exec: "train --api-key 3q9fK2mWx7LrT5vB": no such file or directory`, 50)),
		reason: training.FailureLauncher, subject: theLauncher, cause: `exec: "train --api-key [redacted]": no such file or directory`, advice: "be executable",
	},
	{
		name: "evicted by its kubelet", happen: onLauncher(terminatedByNode("Evicted", "The node was low on resource: ephemeral-storage.", 50)),
		reason: training.FailureLauncher, subject: theLauncher, cause: "was evicted from its node: The node was low on resource: ephemeral-storage", advice: "requests as high as its limits",
	},
	{
		name: "evicted by its kubelet, with a report", happen: onLauncher(
			exits(143, "Error", `{"reason": "TrainingError", "message": "the command exited with code 143"}`, 51),
			terminatedByNode("Evicted", "The node was low on resource: ephemeral-storage.", 50)),
		reason: training.FailureLauncher, subject: theLauncher, cause: "was evicted from its node", advice: "requests as high as its limits",
	},
	{
		name: "preempted", happen: onLauncher(disrupted("PreemptionByScheduler", "default-scheduler: preempting", 50)),
		reason: training.FailureLauncher, subject: theLauncher, cause: "is being removed from its node: default-scheduler: preempting", advice: "higher priority class",
	},
	{
		name: "drained, with a report", happen: onLauncher(
			disrupted("EvictionByEvictionAPI", "Eviction API: evicting", 50), deleted(50),
			exits(143, "Error", `{"reason": "TrainingError", "message": "the command exited with code 143"}`, 51)),
		reason: training.FailureLauncher, subject: theLauncher, cause: "Eviction API: evicting", advice: "Its node is being drained",
	},
	{
		name: "deleted by a user", happen: onLauncher(deleted(50), exits(143, "Error", "", 51)),
		reason: training.FailureLauncher, subject: theLauncher, cause: "was deleted while the job ran", advice: "Start the job again",
	},
	{
		name: "deleted by a user, with a report", happen: onLauncher(deleted(50),
			exits(143, "Error", `{"reason": "TrainingError", "message": "the command exited with code 143"}`, 51)),
		reason: training.FailureLauncher, subject: theLauncher, cause: "was deleted while the job ran", advice: "Start the job again",
	},
	{
		name: "refused by its node", start: pullsImage, happen: onLauncher(terminatedByNode("NodeAffinity", "Predicate NodeAffinity failed", 50)),
		reason: training.FailureLauncher, subject: theLauncher, cause: "was refused by its node: NodeAffinity", advice: "kubectl describe node node-launcher",
	},
	{
		name: "its init container failed", start: pullsImage, happen: onLauncher(initExits("unpack", 1, "Error", "", 50)),
		reason: training.FailureLauncher, subject: theLauncher, cause: "exited with code 1 in its container unpack", advice: "kubectl logs {launcher} -c unpack -n team",
	},
	{
		name: "its gate was killed and leaves no report", start: pullsImage, happen: onLauncher(gateExits(137, "OOMKilled", "", 50)),
		reason: training.FailureLauncher, subject: theLauncher, cause: "was killed in its container " + plan.GateContainer + " (OOMKilled", advice: "Raise the memory limit of the launcher",
	},
	{
		name: "its gate failed without a report", start: pullsImage, happen: onLauncher(gateExits(2, "Error", "", 50)),
		reason: training.FailureLauncher, subject: theLauncher, cause: "exited with code 2 in its container " + plan.GateContainer, advice: "kubectl logs {launcher} -c " + plan.GateContainer,
	},
}

func TestFailedProcess(t *testing.T) {
	long := strings.Repeat("日", 5000)
	tests := map[string]struct {
		report protocol.Report
		want   *training.FailedProcess
	}{
		"nothing is known": {report: protocol.Report{Message: "the command exited with code 2", ExitCode: 2}},
		"all is known": {
			report: protocol.Report{Rank: new(3), RankExitCode: new(1), Error: "ValueError: password=hunter2", LastLines: []string{`File "a.py", line 1`, "ValueError: password=hunter2"}},
			want: &training.FailedProcess{Rank: new(int32(3)), ExitCode: new(int32(1)), Error: "ValueError: password=[redacted]",
				LastLines: []string{`File "a.py", line 1`, "ValueError: password=[redacted]"}},
		},
		"a signal": {report: protocol.Report{Rank: new(0), Signal: 11}, want: &training.FailedProcess{Rank: new(int32(0)), Signal: new(int32(11))}},
		"a report that a program made up": {
			report: protocol.Report{Rank: new(1 << 40), Error: "a\x1b[31mb\n", LastLines: []string{long, "\x00", "1", "2", "3", "4", "5"}},
			want:   &training.FailedProcess{Error: "ab", LastLines: []string{"1", "2", "3", "4", "5"}},
		},
	}
	for name, tc := range tests {
		for _, kind := range kinds {
			t.Run(fmt.Sprintf("%s/%s", name, kind), func(t *testing.T) {
				scene := startedScene(t, kind, runs)
				tc.report.Reason = protocol.ReasonTraining
				reports(tc.report, noWorker, judged)(scene)
				if diff := cmp.Diff(tc.want, scene.storeVerdict().FailedProcess); diff != "" {
					t.Errorf("process (-want +got):\n%s", diff)
				}
			})
		}
	}
}
