package schedules

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trireme-mpi/trireme/api/training"
)

// step is something that can happen next.
type step struct {
	name   string
	weight int
	do     func()
}

// kubernetes are the steps that Kubernetes and JobSet could take now. None of them
// is ever in a hurry: how late they are is the schedule's to say.
func (simulation *simulation) kubernetes() (steps []step) {
	add := func(name string, do func()) {
		if do != nil {
			steps = append(steps, step{name, 4, do})
		}
	}
	for _, object := range simulation.server.all("JobSet") {
		add("jobset controller: "+object.GetName(), simulation.syncJobSet(object.(*jobset.JobSet)))
	}
	for _, object := range simulation.server.all("Job") {
		add("job controller: "+object.GetName(), simulation.syncJob(object.(*batchv1.Job)))
	}
	for _, object := range simulation.server.all("Pod") {
		pod := object.(*corev1.Pod)
		add("job controller: lets go of pod "+pod.Name, simulation.releasePod(pod))
		add("scheduler: "+pod.Name, simulation.placePod(pod))
		add("kubelet: "+pod.Name, simulation.runPod(pod))
		add("node lifecycle: "+pod.Name, simulation.losePod(pod))
	}
	return append(steps, simulation.collectGarbage()...)
}

// collectGarbage deletes what has lost its owner, and what a deletion in the
// foreground waits for.
func (simulation *simulation) collectGarbage() (steps []step) {
	all := simulation.server.everything()
	owners, dependents := map[types.UID]client.Object{}, map[types.UID]int{}
	for _, object := range all {
		owners[object.GetUID()] = object
		for _, owner := range object.GetOwnerReferences() {
			dependents[owner.UID]++
		}
	}
	for _, object := range all {
		name := fmt.Sprintf("garbage collector: %s %s", kindOf(object), object.GetName())
		if owner := metav1.GetControllerOf(object); owner != nil && object.GetDeletionTimestamp() == nil {
			there := owners[owner.UID]
			if there == nil || slices.Contains(there.GetFinalizers(), foreground) {
				steps = append(steps, step{name, 4, func() { simulation.delete(object, metav1.DeletePropagationBackground) }})
			}
		}
		if slices.Contains(object.GetFinalizers(), foreground) && dependents[object.GetUID()] == 0 {
			steps = append(steps, step{name, 4, func() { simulation.withoutFinalizer(object, foreground) }})
		}
	}
	return steps
}

func (simulation *simulation) delete(object client.Object, policy metav1.DeletionPropagation) {
	_ = simulation.server.delete(kindOf(object), client.ObjectKeyFromObject(object), client.DeleteOptions{PropagationPolicy: &policy})
}

func (simulation *simulation) withoutFinalizer(object client.Object, name string) {
	next := object.DeepCopyObject().(client.Object)
	next.SetFinalizers(slices.DeleteFunc(next.GetFinalizers(), func(one string) bool { return one == name }))
	simulation.server.replace(next)
}

func (simulation *simulation) changeJob(batch *batchv1.Job, change func(*batchv1.Job)) {
	next := batch.DeepCopy()
	change(next)
	simulation.server.replace(next)
}

func isTrue(batch *batchv1.Job, kind batchv1.JobConditionType) bool {
	return slices.ContainsFunc(batch.Status.Conditions, func(condition batchv1.JobCondition) bool {
		return condition.Type == kind && condition.Status == corev1.ConditionTrue
	})
}

func jobCondition(kind batchv1.JobConditionType, reason, message string) batchv1.JobCondition {
	return batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: message, LastTransitionTime: seconds(time.Now())}
}

// jobPods are the pods of a Job, as its controller counts them.
type jobPods struct {
	// active run or wait; ending are deleted and have not ended; ended are not counted
	// yet.
	active, ending, ended []*corev1.Pod
	indexes               map[string]bool
	restarts              int32
}

func (simulation *simulation) podsOf(batch *batchv1.Job) jobPods {
	found := jobPods{indexes: map[string]bool{}}
	for _, object := range simulation.server.owned("Pod", batch.UID) {
		pod := object.(*corev1.Pod)
		uncounted := slices.Contains(pod.Finalizers, batchv1.JobTrackingFinalizer)
		replaced := batch.Spec.PodReplacementPolicy == nil || *batch.Spec.PodReplacementPolicy != batchv1.Failed
		switch {
		case hasEnded(pod) && uncounted, pod.DeletionTimestamp != nil && replaced && uncounted:
			found.ended = append(found.ended, pod)
		case hasEnded(pod):
		case pod.DeletionTimestamp != nil:
			found.ending = append(found.ending, pod)
		default:
			found.active = append(found.active, pod)
			found.indexes[pod.Labels[batchv1.JobCompletionIndexAnnotation]] = true
			for _, status := range pod.Status.ContainerStatuses {
				found.restarts += status.RestartCount
			}
		}
	}
	return found
}

// syncJob is what Kubernetes' Job controller does next with a Job; nil for nothing.
func (simulation *simulation) syncJob(batch *batchv1.Job) func() {
	if batch.DeletionTimestamp != nil || isTrue(batch, batchv1.JobComplete) || isTrue(batch, batchv1.JobFailed) {
		return nil
	}
	pods := simulation.podsOf(batch)
	if batch.Spec.Suspend != nil && *batch.Spec.Suspend {
		return simulation.syncSuspended(batch, pods)
	}
	if len(pods.ended) > 0 {
		return func() { simulation.countPod(batch, pods.ended[0]) }
	}
	if ending := simulation.syncEnding(batch, pods); ending != nil {
		return ending
	}
	switch {
	case isTrue(batch, batchv1.JobSuccessCriteriaMet) || isTrue(batch, batchv1.JobFailureTarget):
		return nil
	case batch.Status.Succeeded >= completions(batch):
		return func() {
			simulation.changeJob(batch, func(next *batchv1.Job) {
				next.Status.Conditions = append(next.Status.Conditions, jobCondition(batchv1.JobSuccessCriteriaMet, "CompletionsReached", "Reached expected number of succeeded pods"))
			})
		}
	case batch.Status.Failed > *batch.Spec.BackoffLimit || isPastLimit(pods.restarts, *batch.Spec.BackoffLimit):
		return func() {
			simulation.changeJob(batch, func(next *batchv1.Job) {
				next.Status.Conditions = append(next.Status.Conditions, jobCondition(batchv1.JobFailureTarget, "BackoffLimitExceeded", "Job has reached the specified backoff limit"))
			})
		}
	}
	if missing, is := missingPod(batch, pods); is {
		return func() { simulation.createPod(batch, missing) }
	}
	if active := int32(len(pods.active)); batch.Status.Active != active || batch.Status.StartTime == nil {
		return func() {
			simulation.changeJob(batch, func(next *batchv1.Job) { next.Status.Active, next.Status.StartTime = active, new(seconds(time.Now())) })
		}
	}
	return nil
}

// isPastLimit: restarts of a container count as failures, and two words of the
// documentation decide from which one on.
func isPastLimit(restarts, limit int32) bool { return restarts > 0 && restarts >= limit }

func completions(batch *batchv1.Job) int32 {
	if batch.Spec.Completions == nil {
		return 1
	}
	return *batch.Spec.Completions
}

func (simulation *simulation) syncSuspended(batch *batchv1.Job, pods jobPods) func() {
	if len(pods.active) > 0 {
		return func() { simulation.delete(pods.active[0], metav1.DeletePropagationBackground) }
	}
	if !isTrue(batch, batchv1.JobSuspended) {
		return func() {
			simulation.changeJob(batch, func(next *batchv1.Job) {
				next.Status.StartTime, next.Status.Active = nil, 0
				next.Status.Conditions = append(next.Status.Conditions, jobCondition(batchv1.JobSuspended, "JobSuspended", "Job suspended"))
			})
		}
	}
	return nil
}

// syncEnding: a Job has ended when the last of its pods has.
func (simulation *simulation) syncEnding(batch *batchv1.Job, pods jobPods) func() {
	end := batchv1.JobComplete
	switch {
	case isTrue(batch, batchv1.JobFailureTarget):
		end = batchv1.JobFailed
	case !isTrue(batch, batchv1.JobSuccessCriteriaMet):
		return nil
	}
	if len(pods.active) > 0 {
		return func() { simulation.delete(pods.active[0], metav1.DeletePropagationBackground) }
	}
	if len(pods.ending) > 0 {
		return nil
	}
	return func() {
		simulation.changeJob(batch, func(next *batchv1.Job) {
			next.Status.Active = 0
			first := batch.Status.Conditions[len(batch.Status.Conditions)-1]
			next.Status.Conditions = append(next.Status.Conditions, jobCondition(end, first.Reason, first.Message))
		})
	}
}

// countPod writes down how a pod ended, and lets go of it.
func (simulation *simulation) countPod(batch *batchv1.Job, pod *corev1.Pod) {
	simulation.changeJob(batch, func(next *batchv1.Job) {
		if pod.Status.Phase == corev1.PodSucceeded {
			next.Status.Succeeded++
		} else {
			next.Status.Failed++
		}
	})
	simulation.withoutFinalizer(pod, batchv1.JobTrackingFinalizer)
}

// releasePod lets go of a pod whose Job counts no more.
func (simulation *simulation) releasePod(pod *corev1.Pod) func() {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind != "Job" || !slices.Contains(pod.Finalizers, batchv1.JobTrackingFinalizer) {
		return nil
	}
	there, err := simulation.server.get("Job", client.ObjectKey{Namespace: pod.Namespace, Name: owner.Name})
	if err == nil && there.GetUID() == owner.UID && there.GetDeletionTimestamp() == nil {
		batch := there.(*batchv1.Job)
		stopped := batch.Spec.Suspend != nil && *batch.Spec.Suspend || isTrue(batch, batchv1.JobComplete) || isTrue(batch, batchv1.JobFailed)
		if !stopped || pod.DeletionTimestamp == nil && !hasEnded(pod) {
			return nil
		}
	}
	return func() { simulation.withoutFinalizer(pod, batchv1.JobTrackingFinalizer) }
}

// missingPod is the index of a pod that a Job lacks; empty for Jobs without indexes.
func missingPod(batch *batchv1.Job, pods jobPods) (index string, missing bool) {
	if batch.Spec.CompletionMode == nil || *batch.Spec.CompletionMode != batchv1.IndexedCompletion {
		return "", len(pods.active)+len(pods.ending) == 0
	}
	for index := range completions(batch) {
		if name := strconv.Itoa(int(index)); !pods.indexes[name] {
			// One that has ended well is not replaced; where one has failed the Job has.
			return name, batch.Status.Succeeded+int32(len(pods.active)) < completions(batch)
		}
	}
	return "", false
}

func (simulation *simulation) createPod(batch *batchv1.Job, index string) {
	template := batch.Spec.Template.DeepCopy()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: batch.Namespace, GenerateName: batch.Name + "-", Labels: template.Labels, Annotations: template.Annotations,
			Finalizers:      []string{batchv1.JobTrackingFinalizer},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(batch, batchv1.SchemeGroupVersion.WithKind("Job"))},
		},
		Spec: template.Spec, Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	pod.Labels[batchv1.JobNameLabel] = batch.Name
	if index != "" {
		pod.GenerateName += index + "-"
		pod.Labels[batchv1.JobCompletionIndexAnnotation] = index
	}
	if simulation.faulty && simulation.happens(simulation.profile.quota) {
		simulation.refusePod(batch)
		return
	}
	_, _ = simulation.server.create(pod)
}

// refusePod: what the API server refuses to the Job controller is told in an event.
func (simulation *simulation) refusePod(batch *batchv1.Job) {
	simulation.facts(simulation.roots[batch.UID]).refused = true
	_, _ = simulation.server.create(&corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: batch.Namespace, GenerateName: batch.Name + "."},
		InvolvedObject: corev1.ObjectReference{Kind: "Job", Namespace: batch.Namespace, Name: batch.Name, UID: batch.UID},
		Reason:         "FailedCreate", LastTimestamp: seconds(time.Now()),
		Message: fmt.Sprintf("Error creating: %v", apierrors.NewForbidden(resource("Pod"), batch.Name+"-", errQuota)),
	})
}

// syncJobSet is what the JobSet controller does next; nil for nothing.
func (simulation *simulation) syncJobSet(set *jobset.JobSet) func() {
	if set.DeletionTimestamp != nil {
		return nil
	}
	jobs := map[string]*batchv1.Job{}
	var old, failed *batchv1.Job
	for _, object := range simulation.server.owned("Job", set.UID) {
		batch := object.(*batchv1.Job)
		switch {
		case batch.Labels[restartAttempt] != strconv.Itoa(int(set.Status.Restarts)):
			old = batch
		case isTrue(batch, batchv1.JobFailed) && failed == nil:
			failed = batch
		}
		jobs[batch.Labels[jobset.ReplicatedJobNameKey]] = batch
	}
	if isOver(set) {
		return simulation.stopJobs(jobs)
	}
	switch {
	case old != nil && old.DeletionTimestamp == nil:
		return func() { simulation.delete(old, metav1.DeletePropagationForeground) }
	case old != nil:
		// Nothing is begun anew before all that was is gone.
		return nil
	case failed != nil && set.Status.Restarts >= set.Spec.FailurePolicy.MaxRestarts:
		return simulation.endJobSet(set, jobset.JobSetFailed, "ReachedMaxRestarts",
			fmt.Sprintf("jobset failed due to reaching max number of restarts (first failed job: %s)", failed.Name))
	case failed != nil:
		return func() {
			next := set.DeepCopy()
			next.Status.Restarts++
			simulation.server.replace(next)
		}
	case jobs[training.RoleLauncher] != nil && isTrue(jobs[training.RoleLauncher], batchv1.JobComplete):
		return simulation.endJobSet(set, jobset.JobSetCompleted, "AllJobsCompleted", "jobset completed successfully")
	}
	for i := range set.Spec.ReplicatedJobs {
		if replicated := &set.Spec.ReplicatedJobs[i]; jobs[replicated.Name] == nil {
			return simulation.createJob(set, replicated)
		}
	}
	return nil
}

// restartAttempt is JobSet's label for how often it has begun anew.
const restartAttempt = "jobset.sigs.k8s.io/restart-attempt"

func isOver(set *jobset.JobSet) bool {
	return meta.IsStatusConditionTrue(set.Status.Conditions, string(jobset.JobSetCompleted)) ||
		meta.IsStatusConditionTrue(set.Status.Conditions, string(jobset.JobSetFailed))
}

func (simulation *simulation) endJobSet(set *jobset.JobSet, kind jobset.JobSetConditionType, reason, message string) func() {
	return func() {
		next := set.DeepCopy()
		meta.SetStatusCondition(&next.Status.Conditions, metav1.Condition{
			Type: string(kind), Status: metav1.ConditionTrue, Reason: reason, Message: message, LastTransitionTime: seconds(time.Now()),
		})
		simulation.server.replace(next)
	}
}

// stopJobs ends the Jobs of a JobSet that is over, which still run.
func (simulation *simulation) stopJobs(jobs map[string]*batchv1.Job) func() {
	for _, name := range slices.Sorted(maps.Keys(jobs)) {
		batch := jobs[name]
		if batch.DeletionTimestamp == nil && !isTrue(batch, batchv1.JobComplete) && !isTrue(batch, batchv1.JobFailed) {
			return func() { simulation.delete(batch, metav1.DeletePropagationForeground) }
		}
	}
	return nil
}

func (simulation *simulation) createJob(set *jobset.JobSet, replicated *jobset.ReplicatedJob) func() {
	key := client.ObjectKey{Namespace: set.Namespace, Name: fmt.Sprintf("%s-%s-0", set.Name, replicated.Name)}
	if _, err := simulation.server.get("Job", key); err == nil {
		return nil
	}
	template := replicated.Template.DeepCopy()
	more := map[string]string{
		jobset.JobSetNameKey: set.Name, jobset.JobSetUIDKey: string(set.UID), jobset.ReplicatedJobNameKey: replicated.Name,
		restartAttempt: strconv.Itoa(int(set.Status.Restarts)),
	}
	maps.Copy(template.Labels, more)
	maps.Copy(template.Spec.Template.Labels, more)
	return func() {
		_, _ = simulation.server.create(&batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: key.Namespace, Name: key.Name, Labels: template.Labels,
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, jobset.SchemeGroupVersion.WithKind("JobSet"))},
			},
			Spec: template.Spec,
		})
	}
}
