// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestPullsInProgress(t *testing.T) {
	creating := func(pods ...int) func(*Facts) {
		return func(facts *Facts) {
			for _, i := range pods {
				facts.Pods.Value[i].Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}}}
			}
		}
	}
	pulls := func(events ...corev1.Event) func(*Facts) {
		return func(facts *Facts) { facts.Pulls = append(facts.Pulls, events...) }
	}
	pulling := func(pod string, seconds int) corev1.Event {
		return event("Pod", pod, "Pulling", `Pulling image "registry.example/train:1"`, seconds, 1)
	}
	pulled := func(pod string, seconds int) corev1.Event {
		return event("Pod", pod, "Pulled", `Successfully pulled image "registry.example/train:1" in 5s (5s including waiting). Image size: 1 bytes.`, seconds, 1)
	}
	other := event("Pod", "job-worker-0", "Pulled", `Container image "agent" already present on machine`, 1, 1)
	table(t, image, pending, map[string]tableCase{
		"no event":                   {change: creating(1)},
		"a pull that has just begun": {change: all(creating(1), pulls(pulling("job-worker-0", 5))), want: []string{"note: 1 pod is pulling image registry.example/train:1"}},
		"a long pull on two nodes": {change: all(creating(1, 2), pulls(pulling("job-worker-0", 90), pulling("job-worker-1", 5))),
			want: []string{"likely: 2 pods are pulling image registry.example/train:1"}, fix: "kubectl get events -n team --field-selector involvedObject.name=job-worker-0"},
		"a pull that has ended":           {change: all(creating(1), pulls(pulling("job-worker-0", 9), pulled("job-worker-0", 2)))},
		"another image is there":          {change: all(creating(1), pulls(pulling("job-worker-0", 9), other)), want: []string{"note: 1 pod is pulling image registry.example/train:1"}},
		"a pull after one that has ended": {change: all(creating(1), pulls(pulled("job-worker-0", 20), pulling("job-worker-0", 9))), want: []string{"note: 1 pod is pulling image registry.example/train:1"}},
		"a pod that runs":                 {change: pulls(pulling("job-worker-0", 9))},
		"another pod pulls":               {change: all(creating(1), pulls(pulling("job-worker-1", 9)))},
	})
}
