package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/agent"
)

// podsOf are the pods of a role; all of them if it is empty.
func (place *place) podsOf(job client.Object, role string) []*corev1.Pod {
	place.Helper()
	selector := client.MatchingLabels{training.LabelJobName: job.GetName()}
	if role != "" {
		selector[training.LabelReplicaType] = role
	}
	var list corev1.PodList
	if err := place.client.List(context.Background(), &list, client.InNamespace(place.namespace), selector); err != nil {
		place.Fatal(err)
	}
	pods := make([]*corev1.Pod, len(list.Items))
	for i := range list.Items {
		pods[i] = &list.Items[i]
	}
	return pods
}

// untilWorkers waits until the operator has created the workers of an MPIJob.
func (place *place) untilWorkers(job client.Object, want int) (pods []*corev1.Pod) {
	place.Helper()
	place.eventually("the workers are there", func() error {
		if pods = place.podsOf(job, training.RoleWorker); len(pods) != want {
			return fmt.Errorf("%d workers, want %d; the job is %+v", len(pods), want, progressOf(job))
		}
		return nil
	})
	return pods
}

// startLauncher does what the Job controller does for the launcher of an MPIJob,
// once there is a Job.
func (place *place) startLauncher(job client.Object) *corev1.Pod {
	place.Helper()
	batch := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: job.GetName() + "-launcher"}}
	place.until("the launcher has a Job", batch, func() error { return nil })
	return place.startPod(batch, batch.Name+"-", -1)
}

// startPod creates a pod of a Job; index is that of an Indexed Job.
func (place *place) startPod(batch *batchv1.Job, prefix string, index int) *corev1.Pod {
	place.Helper()
	template := batch.Spec.Template.DeepCopy()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: prefix, Labels: template.Labels, Annotations: template.Annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(batch, batchv1.SchemeGroupVersion.WithKind("Job"))},
		},
		Spec: template.Spec,
	}
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[batchv1.JobNameLabel] = batch.Name
	if index >= 0 {
		pod.Labels[batchv1.JobCompletionIndexAnnotation] = fmt.Sprint(index)
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		pod.Annotations[batchv1.JobCompletionIndexAnnotation] = fmt.Sprint(index)
	}
	place.create(pod)
	return pod
}

// startJobSet does what JobSet and the Job controller do, once there is a JobSet.
func (place *place) startJobSet(job client.Object) (launcher *corev1.Pod, workers []*corev1.Pod) {
	place.Helper()
	jobs := place.startJobsOf(job)
	for index := range int(*jobs[training.RoleWorker].Spec.Completions) {
		workers = append(workers, place.startPod(jobs[training.RoleWorker], fmt.Sprintf("%s-worker-0-%d-", job.GetName(), index), index))
	}
	return place.startPod(jobs[training.RoleLauncher], job.GetName()+"-launcher-0-0-", 0), workers
}

// startJobsOf does what JobSet does: it creates a Job for each role.
func (place *place) startJobsOf(job client.Object) map[string]*batchv1.Job {
	place.Helper()
	set := &jobset.JobSet{ObjectMeta: metav1.ObjectMeta{Name: job.GetName()}}
	place.until("there is a JobSet", set, func() error { return nil })
	made := map[string]*batchv1.Job{}
	for _, replicated := range set.Spec.ReplicatedJobs {
		batch := &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("%s-%s-0", set.Name, replicated.Name), Labels: maps.Clone(replicated.Template.Labels), Annotations: replicated.Template.Annotations,
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, jobset.GroupVersion.WithKind("JobSet"))},
			},
			Spec: *replicated.Template.Spec.DeepCopy(),
		}
		for _, labels := range []map[string]string{batch.Labels, batch.Spec.Template.Labels} {
			labels[jobset.JobSetNameKey], labels[jobset.JobSetUIDKey] = set.Name, string(set.UID)
		}
		place.create(batch)
		made[replicated.Name] = batch
	}
	return made
}

// assign gives pods a node, as a scheduler does.
func (place *place) assign(pods ...*corev1.Pod) {
	place.Helper()
	for i, pod := range pods {
		binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: fmt.Sprintf("node-%d", i)}}
		if err := place.client.SubResource("binding").Create(context.Background(), pod, binding); err != nil {
			place.Fatalf("place pod %s: %v", pod.Name, err)
		}
	}
}

// setStatus writes the status of a pod, as a kubelet does. The operator may write
// its annotation at the same time.
func (place *place) setStatus(pod *corev1.Pod, change func(*corev1.PodStatus)) {
	place.Helper()
	if err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		mustGet(place, pod, pod.Name)
		change(&pod.Status)
		return place.client.Status().Update(context.Background(), pod)
	}); err != nil {
		place.Fatalf("write the status of pod %s: %v", pod.Name, err)
	}
}

// run starts the containers of pods.
func (place *place) run(pods ...*corev1.Pod) {
	place.Helper()
	for _, pod := range pods {
		place.setStatus(pod, func(status *corev1.PodStatus) {
			status.Phase = corev1.PodRunning
			status.ContainerStatuses = []corev1.ContainerStatus{{
				Name: pod.Spec.Containers[0].Name, Image: pod.Spec.Containers[0].Image,
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
			}}
		})
	}
}

// ready says of pods that run that their port answers.
func (place *place) ready(pods ...*corev1.Pod) {
	place.Helper()
	for _, pod := range pods {
		place.setStatus(pod, func(status *corev1.PodStatus) {
			status.ContainerStatuses[0].Ready = true
			status.Conditions = append(status.Conditions, corev1.PodCondition{
				Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now(),
			})
		})
	}
}

// exit ends the container of a pod, and with it the pod.
func (place *place) exit(pod *corev1.Pod, code int32, message string) {
	place.Helper()
	place.setStatus(pod, func(status *corev1.PodStatus) {
		status.Phase = corev1.PodSucceeded
		reason := "Completed"
		if code != 0 {
			status.Phase, reason = corev1.PodFailed, "Error"
		}
		started := metav1.NewTime(time.Now().Add(-3 * time.Second))
		status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: pod.Spec.Containers[0].Name, Image: pod.Spec.Containers[0].Image,
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				ExitCode: code, Reason: reason, Message: message, StartedAt: started, FinishedAt: metav1.Now(),
			}},
		}}
	})
}

// report is what the agent leaves when the launcher's command has ended.
func report(reason string, hosts int) string {
	made := agent.Report{Reason: reason}
	made.Hosts.Expected, made.Hosts.Reached = hosts, hosts
	made.Timings.Connect, made.Timings.Init, made.Timings.Total = 0.2, 0.5, 2
	text, err := json.Marshal(made)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// remove takes pods away at once, as a kubelet does with pods that are being
// deleted, and the garbage collector with those whose owner is gone.
func (place *place) remove(pods ...*corev1.Pod) {
	place.Helper()
	for _, pod := range pods {
		place.delete(pod, client.GracePeriodSeconds(0))
	}
}

// runs has a job of either kind run: every pod is placed, runs and is ready.
func (place *place) runs(job client.Object) (launcher *corev1.Pod, workers []*corev1.Pod) {
	place.Helper()
	if isMPIJob(job) {
		workers = place.untilWorkers(job, 2)
		launcher = place.startLauncher(job)
	} else {
		launcher, workers = place.startJobSet(job)
	}
	all := append([]*corev1.Pod{launcher}, workers...)
	place.assign(all...)
	place.run(all...)
	place.ready(all...)
	place.untilPhase(job, training.PhaseRunning)
	return launcher, workers
}

// endJob writes the end of a Job.
func (place *place) endJob(name string, kind batchv1.JobConditionType, reason, message string) {
	place.Helper()
	batch := mustGet(place, &batchv1.Job{}, name)
	began := metav1.NewTime(time.Now().Add(-time.Second))
	batch.Status.StartTime = &began
	before := batchv1.JobFailureTarget
	if kind == batchv1.JobComplete {
		before = batchv1.JobSuccessCriteriaMet
		batch.Status.CompletionTime = new(metav1.Now())
	}
	for _, condition := range []batchv1.JobConditionType{before, kind} {
		batch.Status.Conditions = append(batch.Status.Conditions, batchv1.JobCondition{
			Type: condition, Status: corev1.ConditionTrue, Reason: reason, Message: message, LastProbeTime: metav1.Now(), LastTransitionTime: metav1.Now(),
		})
	}
	if err := place.client.Status().Update(context.Background(), batch); err != nil {
		place.Fatalf("end Job %s: %v", name, err)
	}
}
