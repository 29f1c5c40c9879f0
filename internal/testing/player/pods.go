// SPDX-License-Identifier: Apache-2.0

package player

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/agent/protocol"
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

// UntilWorkers waits until the operator has created the workers of a job's present
// start.
func (player *Player) UntilWorkers(job client.Object, want int) (pods []*corev1.Pod) {
	player.Helper()
	player.Eventually("the workers exist", func() error {
		if pods = player.started(job, training.RoleWorker); len(pods) != want {
			return fmt.Errorf("%d workers, want %d; the job is %+v", len(pods), want, ProgressOf(job))
		}
		return nil
	})
	return pods
}

// UntilLauncher waits until the operator has created the launcher of a job's present
// start.
func (player *Player) UntilLauncher(job client.Object) (launcher *corev1.Pod) {
	player.Helper()
	player.Eventually("the launcher exists", func() error {
		pods := player.started(job, training.RoleLauncher)
		if len(pods) != 1 {
			return fmt.Errorf("%d launchers, want 1; the job is %+v", len(pods), ProgressOf(job))
		}
		launcher = pods[0]
		return nil
	})
	return launcher
}

// UntilPods waits until the operator has created the pods of a job with two workers.
func (player *Player) UntilPods(job client.Object) (launcher *corev1.Pod, workers []*corev1.Pod) {
	player.Helper()
	workers = player.UntilWorkers(job, 2)
	return player.UntilLauncher(job), workers
}

// started are the pods of a role that belong to the present start of a job, as its
// status counts them. An MPIJob keeps its workers when it is restarted.
func (player *Player) started(job client.Object, role string) []*corev1.Pod {
	player.Helper()
	player.MustGet(job, job.GetName())
	restart := "0"
	if told := ProgressOf(job).Restart; told != nil {
		restart = fmt.Sprint(told.Count)
	}
	keepsWorkers := IsMPIJob(job) && role == training.RoleWorker
	return slices.DeleteFunc(player.PodsOf(job, role), func(pod *corev1.Pod) bool {
		return pod.DeletionTimestamp != nil || !keepsWorkers && pod.Labels[training.LabelRestart] != restart
	})
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
			status.PodIP = addressFor(pod)
			status.PodIPs = []corev1.PodIP{{IP: status.PodIP}}
			status.ContainerStatuses = []corev1.ContainerStatus{{
				Name: pod.Spec.Containers[0].Name, Image: pod.Spec.Containers[0].Image,
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
			}}
		})
	}
}

// addressFor is an address that most likely no other pod of its namespace has, and that
// it has again where the same is played once more.
func addressFor(pod *corev1.Pod) string {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(pod.Name))
	sum := hash.Sum32()
	return netip.AddrFrom4([4]byte{10, byte(sum >> 16), byte(sum >> 8), byte(sum)}).String()
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
	made := protocol.Report{Reason: reason}
	made.Hosts.Expected, made.Hosts.Reached = hosts, hosts
	made.Timings.Connect, made.Timings.Init, made.Timings.Total = 0.2, 0.5, 2
	text, err := json.Marshal(made)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// Remove takes pods away at once, as a kubelet does with pods that are being
// deleted, and the garbage collector with those whose owner is gone. What has a
// finalizer stays until that is removed.
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
