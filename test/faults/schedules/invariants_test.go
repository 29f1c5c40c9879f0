// SPDX-License-Identifier: Apache-2.0

package schedules

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
)

// ledger is what is known to be true, whatever the operator says.
type ledger struct {
	// roots are the jobs that objects belong to.
	roots         map[types.UID]types.UID
	jobs          map[types.UID]*facts
	deletedByUser map[types.UID]bool
	keys          [][]byte
	// runtimes counts the states of the runtime, and born is the one that was current
	// when a job was created.
	runtimes int
	born     map[types.UID]int
	// usedBy is the state of the runtime that a job's pods are created from.
	usedBy map[types.UID]int
	// undecided are jobs whose JobSet was deleted by hand before their status named the
	// runtime: nothing tells a new leader which one it was.
	undecided map[types.UID]bool
	// named is the digest that a job's status has had since it had one.
	named map[types.UID]string
	// handDeleted: somebody has deleted a snapshot.
	handDeleted bool
	// before is of the look that the present write is of: one that arrives late tells
	// what was true when its process looked.
	before *before
}

// facts are what really happened to a job.
type facts struct {
	// endedWell: a launcher's command ended with 0. wellFirst: its pod ended so before
	// anything bad had happened.
	endedWell, wellFirst bool
	// troubles by role; those of workloads have none.
	troubles  map[string][]string
	refused   bool
	suspended bool
	// scheduled is when its first pod got a place.
	scheduled time.Time
}

// suspend notes that somebody stops the job, or starts it again. An end and a deletion
// within one second cannot be told apart: the job may run once more.
func (facts *facts) suspend() { facts.suspended, facts.wellFirst = true, false }

// before is what was true when the operator began to look, and which pods it saw when
// it looked past its cache: whatever else happens while it looks is nothing that it
// could know.
type before struct{ unplaced, wellFirst bool }

func (simulation *simulation) truth() *before {
	there := simulation.present()
	if there == nil {
		return &before{}
	}
	return &before{simulation.hasUnplaced(there.GetUID()), simulation.facts(there.GetUID()).wellFirst}
}

func newLedger() ledger {
	return ledger{roots: map[types.UID]types.UID{}, jobs: map[types.UID]*facts{}, deletedByUser: map[types.UID]bool{}, born: map[types.UID]int{}, usedBy: map[types.UID]int{}, named: map[types.UID]string{}, undecided: map[types.UID]bool{}}
}

func (ledger *ledger) facts(job types.UID) *facts {
	if ledger.jobs[job] == nil {
		ledger.jobs[job] = &facts{troubles: map[string][]string{}}
	}
	return ledger.jobs[job]
}

// bad notes what happened to a pod against its job's will.
func (ledger *ledger) bad(pod client.Object, what string) {
	role := pod.GetLabels()[training.LabelReplicaType]
	known := ledger.facts(ledger.roots[pod.GetUID()])
	known.troubles[role] = append(known.troubles[role], fmt.Sprintf("%s: %s", pod.GetName(), what))
}

func (ledger *ledger) noteExit(pod *corev1.Pod, code int32) {
	known := ledger.facts(ledger.roots[pod.UID])
	switch {
	case code == 0 && pod.Labels[training.LabelReplicaType] == training.RoleLauncher:
		known.endedWell = true
	case code != 0 && pod.DeletionTimestamp == nil:
		ledger.bad(pod, fmt.Sprintf("ended with %d", code))
	}
}

// noteEnd: a launcher has ended well once its pod has. One that is lost with its node
// before has failed for Kubernetes, too.
func (ledger *ledger) noteEnd(pod *corev1.Pod, code int32) {
	known := ledger.facts(ledger.roots[pod.UID])
	if code == 0 && pod.Labels[training.LabelReplicaType] == training.RoleLauncher && pod.DeletionTimestamp == nil && len(known.troubles) == 0 {
		known.wellFirst = true
	}
}

// check looks at every change that is stored.
func (simulation *simulation) check(kind string, made change, content []byte) {
	if made.after == nil {
		simulation.note("  gone: %s %s", kind, made.before.GetName())
		return
	}
	simulation.note("  stored: %s %s %s", kind, made.after.GetName(), made.after.GetResourceVersion())
	simulation.checkSecrets(kind, made.after, content)
	if made.before == nil {
		simulation.checkOwner(kind, made.after)
		if pod, isPod := made.after.(*corev1.Pod); isPod {
			simulation.checkFlavor(pod)
			simulation.checkRuntime(pod)
		}
	}
	if kind == string(simulation.wish.kind) {
		simulation.checkStatus(made)
		simulation.checkSnapshot(made.after)
	}
}

// checkRuntime: all pods of a TrainJob are created from one state of its runtime, which
// is no older than the job.
func (simulation *simulation) checkRuntime(pod *corev1.Pod) {
	root := simulation.roots[pod.UID]
	if !simulation.wish.isTrainJob() || pod.Labels[training.LabelReplicaType] == training.RoleInitializer {
		return
	}
	state := -1
	for _, variable := range pod.Spec.Containers[0].Env {
		if variable.Name == runtimeVariable {
			state, _ = strconv.Atoi(variable.Value)
		}
	}
	if before, known := simulation.usedBy[root]; known && before != state && !simulation.undecided[root] {
		simulation.fail("pod %s is of state %d of the runtime, and others are of %d", pod.Name, state, before)
	}
	if state < simulation.born[root] {
		simulation.fail("pod %s is of state %d of the runtime, and the job was created with %d", pod.Name, state, simulation.born[root])
	}
	simulation.usedBy[root] = state
}

// checkSnapshot: when a job's status names its runtime for the first time, the snapshot
// exists.
func (simulation *simulation) checkSnapshot(object client.Object) {
	trainJob, is := object.(*v2alpha1.TrainJob)
	if !is || trainJob.Status.RuntimeDigest == "" || simulation.named[trainJob.UID] != "" {
		return
	}
	simulation.named[trainJob.UID] = trainJob.Status.RuntimeDigest
	key := client.ObjectKey{Namespace: trainJob.Namespace, Name: plan.SnapshotName(trainJob.Status.RuntimeDigest)}
	if _, err := simulation.server.get("ControllerRevision", key); err != nil && !simulation.handDeleted {
		simulation.fail("the job's runtime is %s, and there is no snapshot of it", trainJob.Status.RuntimeDigest)
	}
}

// checkSecrets: private keys are in their Secret and nowhere else.
func (simulation *simulation) checkSecrets(kind string, object client.Object, content []byte) {
	secret, isSecret := object.(*corev1.Secret)
	if !isSecret {
		simulation.checkKeys(kind+" "+object.GetName(), content)
		return
	}
	for _, entry := range []string{protocol.ClientKey, protocol.HostKey} {
		lines := bytes.Split(bytes.TrimSpace(secret.Data[entry]), []byte("\n"))
		if len(lines) < 4 {
			simulation.fail("Secret %s has no private key %s", secret.Name, entry)
			return
		}
		// What all keys of a kind have in common is in the first of them.
		simulation.keys = append(simulation.keys, lines[2:len(lines)-1]...)
	}
	// An event may come before what it is about is stored.
	simulation.checkKeys("an event", []byte(strings.Join(simulation.trace, "\n")))
}

func (simulation *simulation) checkKeys(where string, content []byte) {
	for _, key := range simulation.keys {
		if bytes.Contains(content, key) || bytes.Contains(content, []byte(base64.StdEncoding.EncodeToString(key))) {
			simulation.fail("%s has a part of a private key", where)
		}
	}
}

// checkOwner: whatever is made for a job goes with it.
func (simulation *simulation) checkOwner(kind string, object client.Object) {
	root := simulation.rootOf(object)
	simulation.roots[object.GetUID()] = root
	// Jobs share the snapshot of a runtime.
	if root == "" && !isNobodys(object) && kind != "ControllerRevision" {
		simulation.fail("%s %s has no owner", kind, object.GetName())
	}
}

// isNobodys: runtimes are the platform's, and the rival is another user's.
func isNobodys(object client.Object) bool {
	return kindOf(object) == "ClusterTrainingRuntime" || object.GetName() == rivalName.Name
}

// standing is what a status says.
type standing struct {
	phase           training.Phase
	reason          training.FailureReason
	message         string
	completion      string
	restarts        int32
	suspended       bool
	succeeded, lost bool
}

func standingOf(object client.Object) (found standing) {
	if object == nil {
		return found
	}
	progress, completion := training.Progress{}, (*metav1.Time)(nil)
	switch job := object.(type) {
	case *v2alpha1.TrainJob:
		progress, completion = job.Status.Progress, job.Status.CompletionTime
		found.suspended = meta.IsStatusConditionTrue(job.Status.Conditions, v2alpha1.ConditionSuspended)
		found.succeeded = meta.IsStatusConditionTrue(job.Status.Conditions, v2alpha1.ConditionTrainingComplete)
		found.lost = meta.IsStatusConditionTrue(job.Status.Conditions, v2alpha1.ConditionFailed)
	case *v2beta1.MPIJob:
		progress, completion = job.Status.Progress, job.Status.CompletionTime
		holds := func(kind v2beta1.JobConditionType) bool {
			return slices.ContainsFunc(job.Status.Conditions, func(one v2beta1.JobCondition) bool { return one.Type == kind && one.Status == corev1.ConditionTrue })
		}
		found.suspended, found.succeeded, found.lost = holds(v2beta1.JobSuspended), holds(v2beta1.JobSucceeded), holds(v2beta1.JobFailed)
	}
	found.phase, found.reason, found.message = progress.Phase, progress.FailureReason, progress.FailureMessage
	if progress.Restart != nil {
		found.restarts = progress.Restart.Count
	}
	if completion != nil {
		found.completion = completion.UTC().String()
	}
	return found
}

func (standing *standing) isFinal() bool {
	return standing.phase == training.PhaseSucceeded || standing.phase == training.PhaseFailed
}

// checkStatus: what was said of an end stays said, and what is said is true.
func (simulation *simulation) checkStatus(made change) {
	before, after := standingOf(made.before), standingOf(made.after)
	if before == after {
		return
	}
	simulation.note("  status: %+v", after)
	known := simulation.facts(made.after.GetUID())
	switch {
	case before.isFinal():
		simulation.fail("an end was taken back: %+v became %+v", before, after)
	case after.restarts < before.restarts || after.restarts > simulation.wish.backoff:
		simulation.fail("restart %d of at most %d follows restart %d", after.restarts, simulation.wish.backoff, before.restarts)
	case after.restarts > before.restarts && simulation.before.wellFirst:
		simulation.fail("the launcher had ended well before anything happened, and the job is restarted")
	case before.phase != "" && after.phase == "":
		simulation.fail("the phase %s was taken back", before.phase)
	case after.succeeded != (after.phase == training.PhaseSucceeded) || after.lost != (after.phase == training.PhaseFailed) || after.isFinal() != (after.completion != ""):
		simulation.fail("the status contradicts itself: %+v", after)
	case after.suspended && !known.suspended && !isSuspended(made.after):
		simulation.fail("the job is said to be suspended, and nobody has done it")
	case before.phase == training.PhaseRunning && after.phase == training.PhasePending && len(known.troubles) == 0 && !known.suspended:
		simulation.fail("a job that ran is pending again, and nothing has happened to it")
	case after.phase == training.PhaseSucceeded && !known.endedWell:
		simulation.fail("the job is said to have succeeded, and no launcher has")
	case after.phase == training.PhaseFailed:
		simulation.checkFailure(after, known)
	}
}

// checkFailure: a failure has a cause, of the kind that is told.
func (simulation *simulation) checkFailure(said standing, known *facts) {
	launcher, worker, maker := known.troubles[training.RoleLauncher], known.troubles[training.RoleWorker], known.troubles[""]
	isTrue := len(known.troubles) > 0
	switch {
	case strings.HasPrefix(said.message, "Deadline exceeded: "):
		isTrue = simulation.wish.deadline != nil && simulation.clock.Now().Sub(known.scheduled) >= time.Duration(*simulation.wish.deadline)*time.Second
	case said.reason == training.FailureGangSchedulingTimeout:
		isTrue = simulation.before.unplaced
	case said.reason == training.FailureResourceQuota:
		isTrue = known.refused
	case said.reason == training.FailureWorker:
		isTrue = len(worker)+len(maker) > 0
	case said.reason == training.FailureLauncher:
		isTrue = len(launcher)+len(worker)+len(maker) > 0
	}
	if !isTrue {
		simulation.fail("the job is said to have failed: %s: %s. What happened is %v, refused %t", said.reason, said.message, known.troubles, known.refused)
	}
	if simulation.before.wellFirst {
		simulation.fail("the launcher had ended well before anything happened, and the job is said to have failed: %s", said.message)
	}
}

// hasUnplaced tells whether a pod of a job is not scheduled, or does not exist.
func (simulation *simulation) hasUnplaced(job types.UID) bool {
	hosts := map[string]bool{}
	for _, object := range simulation.server.all("Pod") {
		pod := object.(*corev1.Pod)
		if simulation.roots[pod.UID] != job || hasEnded(pod) || pod.Spec.Hostname == "" {
			continue
		}
		if pod.Spec.NodeName == "" {
			return true
		}
		hosts[pod.Spec.Hostname] = true
	}
	return int32(len(hosts)) < simulation.wish.workers+1
}

func (simulation *simulation) isLauncher(pod *corev1.Pod) bool {
	return pod.Labels[training.LabelReplicaType] == training.RoleLauncher
}

func (simulation *simulation) workersOf(*corev1.Pod) int32 { return simulation.wish.workers }

// checkPods: of a job one launcher works at a time, no pod exists twice, and all
// pods of a TrainJob are of one start. What a process that has ended still sends may
// arrive after the next start: that is left out.
func (simulation *simulation) checkPods() {
	launchers, starts, hosts := map[types.UID]string{}, map[types.UID]*corev1.Pod{}, map[string]string{}
	for _, object := range simulation.server.all("Pod") {
		pod := object.(*corev1.Pod)
		job := simulation.roots[pod.UID]
		if pod.Labels[training.LabelReplicaType] == training.RoleInitializer || simulation.cameLate[pod.UID] {
			continue
		}
		if other := starts[job]; other != nil && simulation.startOf(other) != simulation.startOf(pod) {
			simulation.fail("pods of two starts exist: %s and %s", other.Name, pod.Name)
		}
		starts[job] = pod
		if hasEnded(pod) {
			continue
		}
		if main := mainOf(pod); simulation.isLauncher(pod) && main != nil && main.State.Running != nil {
			if launchers[job] != "" {
				simulation.fail("two launchers work: %s and %s", launchers[job], pod.Name)
			}
			launchers[job] = pod.Name
		}
		host := string(job) + " " + pod.Spec.Hostname
		if hosts[host] != "" {
			simulation.fail("two pods are the host %s: %s and %s", pod.Spec.Hostname, hosts[host], pod.Name)
		}
		hosts[host] = pod.Name
		if !simulation.isLauncher(pod) && !slices.Contains(simulation.wish.hosts(), pod.Spec.Hostname) {
			simulation.fail("worker %s was not asked for", pod.Name)
		}
	}
}

// checkEnd: once all is quiet a job has ended, or is as its user wants it, and
// nothing is left that it does not need.
func (simulation *simulation) checkEnd() {
	there := simulation.present()
	if there == nil {
		for _, object := range simulation.server.everything() {
			if !isNobodys(object) {
				simulation.fail("the job is gone, and there is still %s %s", kindOf(object), object.GetName())
			}
		}
		return
	}
	said := standingOf(there)
	switch {
	case said.isFinal():
		simulation.checkLeft(there)
	case isSuspended(there):
		if !said.suspended || said.phase != training.PhasePending {
			simulation.fail("the job is suspended, and its status does not say so: %+v", said)
		}
		simulation.checkNone("of a suspended job", "Pod", "Job", "JobSet", "PodGroup")
	default:
		simulation.fail("the job does not end: %+v", said)
	}
}

// checkLeft looks at what is left of a job that has ended.
func (simulation *simulation) checkLeft(there client.Object) {
	simulation.checkNone("of a job that has ended", "Secret", "PodGroup")
	if simulation.wish.policy == training.CleanPodPolicyAll {
		simulation.checkNone("of a job that leaves nothing", "Pod", "Job", "JobSet")
	}
	for _, object := range simulation.server.all("Pod") {
		pod := object.(*corev1.Pod)
		keptWorker := simulation.wish.policy == training.CleanPodPolicyNone && pod.Labels[training.LabelReplicaType] == training.RoleWorker
		if !hasEnded(pod) && !keptWorker {
			simulation.fail("the job has ended, and pod %s has not", pod.Name)
		}
		if slices.Contains(pod.Finalizers, training.FinalizerLauncher) {
			simulation.fail("the job has ended, and pod %s still has the finalizer", pod.Name)
		}
		if simulation.roots[pod.UID] != there.GetUID() {
			simulation.fail("pod %s is of an earlier job", pod.Name)
		}
	}
	simulation.checkWorkload(standingOf(there))
}

// checkWorkload: who looks at the JobSet, or at the launcher's Job, sees the same end.
func (simulation *simulation) checkWorkload(said standing) {
	var succeeded, failed bool
	switch workload := simulation.workload().(type) {
	case *jobset.JobSet:
		succeeded = meta.IsStatusConditionTrue(workload.Status.Conditions, string(jobset.JobSetCompleted))
		failed = meta.IsStatusConditionTrue(workload.Status.Conditions, string(jobset.JobSetFailed))
	case *batchv1.Job:
		holds := func(kind batchv1.JobConditionType) bool {
			return slices.ContainsFunc(workload.Status.Conditions, func(one batchv1.JobCondition) bool { return one.Type == kind && one.Status == corev1.ConditionTrue })
		}
		succeeded, failed = holds(batchv1.JobComplete), holds(batchv1.JobFailed)
	default:
		return
	}
	if succeeded != (said.phase == training.PhaseSucceeded) || failed != (said.phase == training.PhaseFailed) {
		simulation.fail("the job is %s, and its workload has succeeded: %t, has failed: %t", said.phase, succeeded, failed)
	}
}

func (simulation *simulation) checkNone(of string, kinds ...string) {
	for _, kind := range kinds {
		for _, object := range simulation.server.all(kind) {
			simulation.fail("%s there is still %s %s", of, kind, object.GetName())
		}
	}
}

func requestFor(key client.ObjectKey) ctrl.Request { return ctrl.Request{NamespacedName: key} }
