// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// gangScheduler is a scheduler that places the pods of a group together or not
// at all.
type gangScheduler struct {
	name string
	// policy is what a podGroupPolicy of ours calls it.
	policy   string
	podGroup schema.GroupVersionKind
	// groupSpec is what its PodGroups need besides minMember.
	groupSpec string
	// join makes a pod a member of a group.
	join func(pod *corev1.Pod, group string)
	// tooFew are words that it says about the pods of a group that lacks some.
	tooFew string
	// running is the phase of a group whose pods run.
	running string
	// remind makes it look again at a group that it had no room for, where it does
	// not by itself.
	remind func(place *place, group string)
}

// The gang of these tests needs every node.
const (
	gang     = "gang"
	gangSize = simulatedNodes
)

var gangLabels = client.MatchingLabels{"gang": gang}

// patience is how long a scheduler is watched not to do what it must not do: a
// few of its rounds.
const patience = 5 * time.Second

func (scheduler gangScheduler) createGroup(place *place) {
	place.Helper()
	place.create(fmt.Sprintf("{apiVersion: %s, kind: PodGroup, metadata: {name: %s}, spec: {minMember: %d, %s}}", scheduler.podGroup.GroupVersion(), gang, gangSize, scheduler.groupSpec))
}

// createMembers makes the pods of the gang from one index up to another.
func (scheduler gangScheduler) createMembers(place *place, from, to int) {
	place.Helper()
	for i := from; i < to; i++ {
		pod := simulatedPod(fmt.Sprintf("%s-%d", gang, i), largePod)
		pod.Labels = maps.Clone(gangLabels)
		pod.Spec.SchedulerName = scheduler.name
		scheduler.join(pod, gang)
		place.createPod(pod)
	}
}

// runs asks for the whole gang, in the scheduler's eyes too.
func (scheduler gangScheduler) runs(place *place) func() error {
	return func() error {
		if err := place.run(gangLabels, gangSize); err != nil {
			return err
		}
		group, err := place.find(scheduler.podGroup, gang)
		if err != nil {
			return err
		}
		if phase := text(group, "status", "phase"); phase != scheduler.running {
			return fmt.Errorf("the PodGroup is %q, want %q", phase, scheduler.running)
		}
		return nil
	}
}

func (scheduler gangScheduler) placesAll(t *testing.T) {
	place := newPlace(t)
	scheduler.createGroup(place)
	scheduler.createMembers(place, 0, gangSize)
	place.eventually("the gang runs", scheduler.runs(place))
}

// waitsForMembers leaves a gang alone while it has too few pods.
func (scheduler gangScheduler) waitsForMembers(t *testing.T) {
	place := newPlace(t)
	scheduler.createGroup(place)
	scheduler.createMembers(place, 0, gangSize-1)
	place.eventually("the scheduler says why it waits", func() error {
		for _, pod := range place.pods(gangLabels) {
			if said := waitingFor(pod); !strings.Contains(said, scheduler.tooFew) {
				return fmt.Errorf("of %s it says %q, want %q", pod.Name, said, scheduler.tooFew)
			}
		}
		return nil
	})
	place.stays("no pod is placed", patience, func() error { return place.unplaced(gangLabels, gangSize-1) })
	scheduler.createMembers(place, gangSize-1, gangSize)
	place.eventually("the gang runs", scheduler.runs(place))
}

// waitsForRoom leaves a gang alone while there is room for all of it but one.
func (scheduler gangScheduler) waitsForRoom(t *testing.T) {
	place := newPlace(t)
	blocker := place.fillNode()
	scheduler.createGroup(place)
	scheduler.createMembers(place, 0, gangSize)
	refused := func() error { return place.refused(gangLabels, gangSize) }
	place.eventually("the scheduler has tried", refused)
	place.stays("no pod is placed", patience, refused)
	place.deletePod(blocker)
	place.eventually("the gang runs", func() error {
		if scheduler.remind != nil {
			scheduler.remind(place, gang)
		}
		return scheduler.runs(place)()
	})
}

// fillNode makes a pod after which one node less has room for a large one.
func (place *place) fillNode() *corev1.Pod {
	place.Helper()
	blocker := simulatedPod("blocker", largePod)
	blocker.Labels = map[string]string{"blocks": "a-node"}
	place.createPod(blocker)
	place.eventually("the blocker runs", func() error { return place.run(client.MatchingLabels(blocker.Labels), 1) })
	return blocker
}

// refused asks for that many pods with the labels, none of them on a node, and
// that the scheduler has said so of one of them.
func (place *place) refused(labels client.MatchingLabels, count int) error {
	if err := place.unplaced(labels, count); err != nil {
		return err
	}
	for _, pod := range place.pods(labels) {
		if waitingFor(pod) != "" {
			return nil
		}
	}
	return fmt.Errorf("the scheduler has not said anything about the pods with %v", labels)
}
