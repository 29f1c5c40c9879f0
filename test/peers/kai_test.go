// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kai says nothing about a group that lacks pods, and writes no phase of a group: one of
// its controllers that is not installed here does.
var kai = gangScheduler{
	name:      "kai-scheduler",
	policy:    "kai",
	podGroup:  schema.GroupVersionKind{Group: "scheduling.run.ai", Version: "v2alpha2", Kind: "PodGroup"},
	groupSpec: "queue: default-queue",
	join: func(pod *corev1.Pod, group string) {
		pod.Annotations = map[string]string{"pod-group-name": group}
		pod.Labels["kai.scheduler/queue"] = "default-queue"
	},
}

func TestKAIPlacesAll(t *testing.T)       { kai.placesAll(t) }
func TestKAIWaitsForMembers(t *testing.T) { kai.waitsForMembers(t) }
func TestKAIWaitsForRoom(t *testing.T)    { kai.waitsForRoom(t) }
