// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var coschedulingPodGroup = schema.GroupVersionKind{Group: "scheduling.x-k8s.io", Version: "v1alpha1", Kind: "PodGroup"}

var coscheduling = gangScheduler{
	name:     "scheduler-plugins-scheduler",
	policy:   "coscheduling",
	podGroup: coschedulingPodGroup,
	join: func(pod *corev1.Pod, group string) {
		pod.Labels["scheduling.x-k8s.io/pod-group"] = group
	},
	tooFew:  "cannot find enough sibling pods",
	running: "Running",
	// The Coscheduling plugin asks to be told of pods and PodGroups that come, not
	// of pods that go: what it has rejected waits for one of these or, in a cluster
	// where nothing happens, for minutes.
	remind: func(place *place, group string) {
		place.patch(coschedulingPodGroup, group, fmt.Sprintf(`{"metadata":{"annotations":{"trireme.local/reminded":%q}}}`, time.Now().Format(time.TimeOnly)))
	},
}

func TestCoschedulingPlacesAll(t *testing.T)       { coscheduling.placesAll(t) }
func TestCoschedulingWaitsForMembers(t *testing.T) { coscheduling.waitsForMembers(t) }
func TestCoschedulingWaitsForRoom(t *testing.T)    { coscheduling.waitsForRoom(t) }
