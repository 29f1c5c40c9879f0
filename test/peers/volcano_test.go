// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var volcano = gangScheduler{
	name:     "volcano",
	policy:   "volcano",
	podGroup: schema.GroupVersionKind{Group: "scheduling.volcano.sh", Version: "v1beta1", Kind: "PodGroup"},
	join: func(pod *corev1.Pod, group string) {
		pod.Annotations = map[string]string{"scheduling.k8s.io/group-name": group}
	},
	tooFew:  "2 Pending, 3 minAvailable",
	running: "Running",
}

func TestVolcanoPlacesAll(t *testing.T)       { volcano.placesAll(t) }
func TestVolcanoWaitsForMembers(t *testing.T) { volcano.waitsForMembers(t) }
func TestVolcanoWaitsForRoom(t *testing.T)    { volcano.waitsForRoom(t) }
