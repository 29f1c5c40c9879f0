package player

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

// PodsOf are the pods of a role; all of them if it is empty.
func (player *Player) PodsOf(job client.Object, role string) []*corev1.Pod {
	player.Helper()
	selector := client.MatchingLabels{training.LabelJobName: job.GetName()}
	if role != "" {
		selector[training.LabelReplicaType] = role
	}
	var list corev1.PodList
	if err := player.Client.List(context.Background(), &list, client.InNamespace(player.Namespace), selector); err != nil {
		player.Fatal(err)
	}
	pods := make([]*corev1.Pod, len(list.Items))
	for i := range list.Items {
		pods[i] = &list.Items[i]
	}
	return pods
}

// UntilWorkers waits until the operator has created the workers of an MPIJob.
func (player *Player) UntilWorkers(job client.Object, want int) (pods []*corev1.Pod) {
	player.Helper()
	player.Eventually("the workers are there", func() error {
		if pods = player.PodsOf(job, training.RoleWorker); len(pods) != want {
			return fmt.Errorf("%d workers, want %d; the job is %+v", len(pods), want, ProgressOf(job))
		}
		return nil
	})
	return pods
}

// StartLauncher does what the Job controller does for the launcher of an MPIJob,
// once there is a Job.
func (player *Player) StartLauncher(job client.Object) *corev1.Pod {
	player.Helper()
	batch := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: job.GetName() + "-launcher"}}
	player.Until("the launcher has a Job", batch, func() error { return nil })
	return player.StartPod(batch, batch.Name+"-", -1)
}

// StartPod creates a pod of a Job; index is that of an Indexed Job.
func (player *Player) StartPod(batch *batchv1.Job, prefix string, index int) *corev1.Pod {
	player.Helper()
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
	player.Create(pod)
	return pod
}

// StartJobSet does what JobSet and the Job controller do, once there is a JobSet.
func (player *Player) StartJobSet(job client.Object) (launcher *corev1.Pod, workers []*corev1.Pod) {
	player.Helper()
	jobs := player.StartJobsOf(job)
	for index := range int(*jobs[training.RoleWorker].Spec.Completions) {
		workers = append(workers, player.StartPod(jobs[training.RoleWorker], fmt.Sprintf("%s-worker-0-%d-", job.GetName(), index), index))
	}
	return player.StartPod(jobs[training.RoleLauncher], job.GetName()+"-launcher-0-0-", 0), workers
}

// restartAttempt is JobSet's label for how often it has begun anew.
const restartAttempt = "jobset.sigs.k8s.io/restart-attempt"

// StartJobsOf does what JobSet does: it creates a Job for each role.
func (player *Player) StartJobsOf(job client.Object) map[string]*batchv1.Job {
	player.Helper()
	set := &jobset.JobSet{ObjectMeta: metav1.ObjectMeta{Name: job.GetName()}}
	player.Until("there is a JobSet", set, func() error { return nil })
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
			labels[restartAttempt] = fmt.Sprint(set.Status.Restarts)
		}
		player.Create(batch)
		made[replicated.Name] = batch
	}
	return made
}

// StartPods has the pods of a job of either kind made.
func (player *Player) StartPods(job client.Object) (launcher *corev1.Pod, workers []*corev1.Pod) {
	player.Helper()
	if IsMPIJob(job) {
		workers = player.UntilWorkers(job, 2)
		return player.StartLauncher(job), workers
	}
	return player.StartJobSet(job)
}

// Assign gives pods a node, as a scheduler does.
func (player *Player) Assign(pods ...*corev1.Pod) {
	player.Helper()
	for i, pod := range pods {
		binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: fmt.Sprintf("node-%d", i)}}
		if err := player.Client.SubResource("binding").Create(context.Background(), pod, binding); err != nil {
			player.Fatalf("place pod %s: %v", pod.Name, err)
		}
	}
}

// SetStatus writes the status of a pod, as a kubelet does. The operator may write
// its annotation at the same time.
func (player *Player) SetStatus(pod *corev1.Pod, change func(*corev1.PodStatus)) {
	player.Helper()
	if err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		player.MustGet(pod, pod.Name)
		change(&pod.Status)
		return player.Client.Status().Update(context.Background(), pod)
	}); err != nil {
		player.Fatalf("write the status of pod %s: %v", pod.Name, err)
	}
}

// StartContainers has pods run.
func (player *Player) StartContainers(pods ...*corev1.Pod) {
	player.Helper()
	for _, pod := range pods {
		player.SetStatus(pod, func(status *corev1.PodStatus) {
			status.Phase = corev1.PodRunning
			status.ContainerStatuses = []corev1.ContainerStatus{{
				Name: pod.Spec.Containers[0].Name, Image: pod.Spec.Containers[0].Image,
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
			}}
		})
	}
}

// Ready says of pods that run that their port answers.
func (player *Player) Ready(pods ...*corev1.Pod) {
	player.Helper()
	for _, pod := range pods {
		player.SetStatus(pod, func(status *corev1.PodStatus) {
			status.ContainerStatuses[0].Ready = true
			status.Conditions = append(status.Conditions, corev1.PodCondition{
				Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now(),
			})
		})
	}
}

// Exit ends the container of a pod, and with it the pod.
func (player *Player) Exit(pod *corev1.Pod, code int32, message string) {
	player.Helper()
	player.SetStatus(pod, func(status *corev1.PodStatus) {
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

// Report is what the agent leaves when the launcher's command has ended.
func Report(reason string, hosts int) string {
	made := agent.Report{Reason: reason}
	made.Hosts.Expected, made.Hosts.Reached = hosts, hosts
	made.Timings.Connect, made.Timings.Init, made.Timings.Total = 0.2, 0.5, 2
	text, err := json.Marshal(made)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// Remove takes pods away at once, as a kubelet does with pods that are being
// deleted, and the garbage collector with those whose owner is gone.
func (player *Player) Remove(pods ...*corev1.Pod) {
	player.Helper()
	for _, pod := range pods {
		player.Delete(pod, client.GracePeriodSeconds(0))
	}
}

// RemoveDeleted plays the kubelet of pods that are being deleted.
func (player *Player) RemoveDeleted(pods ...*corev1.Pod) {
	player.Helper()
	for _, pod := range pods {
		if err := player.Get(pod, pod.Name); err == nil && pod.DeletionTimestamp != nil {
			player.Remove(pod)
		}
	}
}

// RemoveJobsOf plays the garbage collector of a JobSet that is gone.
func (player *Player) RemoveJobsOf(name string) {
	player.Helper()
	for _, role := range []string{training.RoleLauncher, training.RoleWorker} {
		player.Delete(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%s-0", name, role)}}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	}
}

// RestartJobSet does what JobSet does when one of its Jobs has failed and it may
// begin anew: the Jobs of before go, with their pods.
func (player *Player) RestartJobSet(name string, pods ...*corev1.Pod) {
	player.Helper()
	set := &jobset.JobSet{}
	player.MustGet(set, name)
	set.Status.Restarts++
	if err := player.Client.Status().Update(context.Background(), set); err != nil {
		player.Fatalf("restart JobSet %s: %v", name, err)
	}
	player.RemoveJobsOf(name)
	player.Remove(pods...)
}

// EndJob writes the end of a Job.
func (player *Player) EndJob(name string, kind batchv1.JobConditionType, reason, message string) {
	player.Helper()
	batch := &batchv1.Job{}
	player.MustGet(batch, name)
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
	if err := player.Client.Status().Update(context.Background(), batch); err != nil {
		player.Fatalf("end Job %s: %v", name, err)
	}
}
