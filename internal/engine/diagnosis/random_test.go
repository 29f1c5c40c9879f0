// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"fmt"
	"math/rand/v2"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
)

// randomJob generates a random job and random observations: likely, unlikely and
// impossible ones.
type randomJob struct {
	*rand.Rand
	job *job.Job
	now float64
	// invalidPercent is how many of a hundred pods, Jobs and JobSets are invalid.
	invalidPercent int
	// restart is how often the job was restarted, according to its status.
	restart int32
	// isFull: a quota is exceeded.
	isFull bool
}

func newRandomJob(seed uint64, kind job.Kind) *randomJob {
	chance := &randomJob{Rand: rand.New(rand.NewPCG(seed, uint64(len(kind))))}
	scene := newScene(nil, kind, chance.Int32N(4),
		restartPolicies(either(chance, corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure), either(chance, corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure)),
		backoffLimit(chance.Int32N(3)))
	if chance.oneIn(3) {
		deadline(chance.Int64N(400))(scene)
	}
	if chance.oneIn(3) {
		ttl(chance.Int32N(100))(scene)
	}
	if chance.oneIn(4) {
		withInitializer(scene)
	}
	scene.job.LauncherWaits, scene.job.LauncherRunsRanks = chance.oneIn(3), chance.oneIn(3)
	chance.job = scene.job
	return chance
}

// oneIn is true once in so many times.
func (chance *randomJob) oneIn(times int) bool { return chance.IntN(times) == 0 }

func either[T any](chance *randomJob, values ...T) T { return values[chance.IntN(len(values))] }

// second is a time around now.
func (chance *randomJob) second() float64 { return chance.now - 20 + float64(chance.IntN(30)) }

func (chance *randomJob) stamp() metav1.Time {
	if chance.oneIn(10) {
		return metav1.Time{}
	}
	return stamp(chance.second())
}

// observe is the next observation, at the same time or later.
func (chance *randomJob) observe() Observed {
	chance.now += float64(chance.IntN(60))
	chance.invalidPercent = either(chance, 0, 0, 10, 30, 100)
	observed := Observed{Now: at(chance.now), Timeouts: timeouts, Confirmed: chance.oneIn(2), OlderWaits: chance.oneIn(3), ScaleUp: chance.oneIn(4), GangMessage: "."}
	observed.Workload = chance.workload()
	if chance.isInvalid() && chance.oneIn(5) {
		observed.Refusal = &Refusal{Role: either(chance, "", training.RoleWorker, training.RoleLauncher), Object: "Pod x", Message: either(chance, exceeded, "no."), Quota: chance.oneIn(2), QuotaName: either(chance, "", "compute")}
	}
	// A quota refuses for a while.
	if chance.oneIn(8) {
		chance.isFull = !chance.isFull
	}
	if chance.isFull {
		observed.Refusal = &Refusal{Role: training.RoleWorker, Object: "Pod x", Message: exceeded, Quota: true, QuotaName: "compute"}
	}
	if chance.isInvalid() && chance.oneIn(5) {
		observed.Obstacle = &Condition{Reason: "NoGangScheduler", Message: "Install one."}
	}
	for restart := chance.restart; restart >= 0 && !chance.oneIn(3); restart-- {
		observed.Launchers = append(observed.Launchers, chance.pod(training.RoleLauncher, 0, restart))
	}
	for index := range chance.job.Worker.Replicas {
		if chance.isInvalid() && chance.oneIn(6) {
			continue
		}
		observed.Workers = append(observed.Workers, chance.pod(training.RoleWorker, index, chance.restart))
	}
	if chance.isInvalid() && chance.oneIn(5) {
		odd := chance.pod(training.RoleWorker, 0, chance.restart)
		odd.Spec.Hostname = either(chance, "", "x", "train-worker-", "train-worker-99999999999", "train-worker-0--1")
		observed.Workers = append(observed.Workers, odd)
	}
	for restart := chance.restart; restart >= 0 && !chance.oneIn(3); restart-- {
		observed.Initializers = append(observed.Initializers, chance.pod(training.RoleInitializer, 0, restart))
	}
	return observed
}

func (chance *randomJob) isInvalid() bool { return chance.IntN(100) < chance.invalidPercent }

func (chance *randomJob) workload() Workload {
	if !chance.isInvalid() {
		return Workload{Exists: true}
	}
	return Workload{Exists: !chance.oneIn(5), Suspended: chance.oneIn(8)}
}

func (chance *randomJob) pod(role string, index, restart int32) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: plan.PodName(chance.job, role, index, restart), CreationTimestamp: chance.stamp()}}
	if chance.isInvalid() && chance.oneIn(40) {
		return pod
	}
	pod.Labels = plan.RoleSelector(chance.job, role)
	pod.Labels[training.LabelRestart] = strconv.Itoa(int(restart))
	pod.Spec.Hostname = plan.NamesOf(chance.job).LauncherHost
	if role == training.RoleWorker {
		pod.Spec.Hostname = plan.WorkerHost(chance.job, index)
	}
	if !chance.isInvalid() {
		pod.Spec.RestartPolicy, pod.Spec.Containers = corev1.RestartPolicyNever, []corev1.Container{{Name: "main"}}
		change(pod, []podOption{either(chance, nothing, pullsImage, starts, runs, runs, runs)})
		if role == training.RoleLauncher && chance.oneIn(8) {
			end := chance.end()
			exits(end.ExitCode, "Error", end.Message, chance.second())(pod)
		}
		return pod
	}
	if chance.oneIn(3) {
		pod.Labels[training.LabelRestart] = either(chance, "0", "0", "1", "2", "-1", "x", "99999999999999")
	}
	pod.Spec.RestartPolicy = either(chance, corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure, "")
	pod.Spec.NodeName = either(chance, "node-1", "node-1", "")
	if !chance.oneIn(20) {
		pod.Spec.Containers = []corev1.Container{{Name: "main"}, {Name: "logs"}}
	}
	if chance.oneIn(3) {
		pod.DeletionTimestamp = new(chance.stamp())
		if !chance.oneIn(3) {
			pod.DeletionGracePeriodSeconds = new(either(chance, int64(0), 30, 1<<62, -5))
		}
	}
	chance.status(&pod.Status)
	return pod
}

func (chance *randomJob) status(status *corev1.PodStatus) {
	status.Phase = either(chance, corev1.PodPending, corev1.PodRunning, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed, corev1.PodUnknown, "")
	if chance.oneIn(10) {
		status.Reason, status.Message = either(chance, "Evicted", "NodeLost", "OutOfcpu", "ä ö", "Preempting", "DeadlineExceeded"), either(chance, "", "low on memory. ")
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodReady, corev1.DisruptionTarget, corev1.PodScheduled} {
		if chance.oneIn(3) && !(kind == corev1.DisruptionTarget && chance.oneIn(2)) {
			status.Conditions = append(status.Conditions, corev1.PodCondition{
				Type: kind, Status: either(chance, corev1.ConditionTrue, corev1.ConditionTrue, corev1.ConditionFalse, "", "?"), LastTransitionTime: chance.stamp(),
				Reason: either(chance, "", "Unschedulable", "PreemptionByScheduler", "DeletionByTaintManager"), Message: either(chance, "", noGPUs),
			})
		}
	}
	for _, name := range []string{"main", "logs"} {
		if !chance.oneIn(4) {
			status.ContainerStatuses = append(status.ContainerStatuses, chance.container(name))
		}
	}
	if chance.oneIn(4) {
		status.InitContainerStatuses = []corev1.ContainerStatus{chance.container(either(chance, plan.GateContainer, "unpack", ""))}
	}
}

func (chance *randomJob) container(name string) corev1.ContainerStatus {
	status := corev1.ContainerStatus{Name: name, Image: "train:1", RestartCount: chance.Int32N(4)}
	switch chance.IntN(5) {
	case 0:
		status.State.Waiting = &corev1.ContainerStateWaiting{Message: pullFailure, Reason: either(chance,
			"", "ContainerCreating", "ImagePullBackOff", "ErrImagePull", "InvalidImageName", "CreateContainerConfigError", crashLoop)}
	case 1:
		status.State.Terminated = chance.end()
	case 2, 3:
		status.State.Running = &corev1.ContainerStateRunning{}
	}
	if chance.oneIn(4) {
		status.LastTerminationState.Terminated = chance.end()
	}
	return status
}

func (chance *randomJob) end() *corev1.ContainerStateTerminated {
	reason := either(chance, "", "WorkerFailed", "TrainingError", "SSHConnectionFailed", "MPIInitializationFailed", "LauncherFailed", "Unhappy")
	report := fmt.Sprintf(`{"reason":%q,"message":%q,"host":%q,"rank":%d,"timings":{"dns":%g,"init":%g},"hosts":{"expected":2,"reached":%d}}`,
		reason, either(chance, "", "it broke."), either(chance, "", "train-worker-0-1.train", "train-worker-1", "train-launcher", "x"), chance.IntN(9)-1,
		either(chance, 0, 1, 1e300, -4), either(chance, 0, 3, 1e300), chance.IntN(3))
	return &corev1.ContainerStateTerminated{
		ExitCode: either(chance, int32(0), 0, 1, 70, 128, 137, 143, 255, -1), Reason: either(chance, "", "Error", "Completed", "OOMKilled", "StartError", "so so"),
		Message: either(chance, "", report, report, report, "null", "{}", "[]", `"x"`, "{", "plain words"), StartedAt: chance.stamp(), FinishedAt: chance.stamp(),
	}
}
