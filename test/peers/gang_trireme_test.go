// SPDX-License-Identifier: Apache-2.0

//go:build operator

package peers

import (
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestCoschedulingOfMPIJobs(t *testing.T)   { coscheduling.placesJobs(t, triremeMPIJob) }
func TestCoschedulingOfTrainJobs(t *testing.T) { coscheduling.placesJobs(t, trainJob) }
func TestVolcanoOfMPIJobs(t *testing.T)        { volcano.placesJobs(t, triremeMPIJob) }
func TestVolcanoOfTrainJobs(t *testing.T)      { volcano.placesJobs(t, trainJob) }
func TestKAIOfMPIJobs(t *testing.T)            { kai.placesJobs(t, triremeMPIJob) }
func TestKAIOfTrainJobs(t *testing.T)          { kai.placesJobs(t, trainJob) }

// placesJobs has a job on all nodes together, or on none.
func (scheduler gangScheduler) placesJobs(t *testing.T, kind jobKind) {
	t.Run("all of one", func(t *testing.T) {
		place := newPlace(t)
		kind.create(place, jobShape{name: gang, cpus: largePod, gang: scheduler})
		place.eventually("the job runs", scheduler.runsJob(place, kind))
		place.delete(kind.kind, gang)
		place.eventually("the PodGroup goes with the job", func() error {
			if _, err := place.find(scheduler.podGroup, gang); !apierrors.IsNotFound(err) {
				return fmt.Errorf("it is still there (%v)", err)
			}
			return nil
		})
	})
	t.Run("none of one that has no room", func(t *testing.T) {
		place := newPlace(t)
		blocker := place.fillNode()
		kind.create(place, jobShape{name: gang, cpus: largePod, gang: scheduler})
		refused := func() error { return place.refused(kind.pods(gang), jobPods) }
		place.eventually("the scheduler has tried", refused)
		place.stays("no pod is placed", patience, refused)
		place.deletePod(blocker)
		// Nobody but the operator reminds a scheduler that needs it.
		place.eventually("the job runs", scheduler.runsJob(place, kind))
	})
}

// runsJob asks for all pods of the job, in a group that counts all of them and
// belongs to the job.
func (scheduler gangScheduler) runsJob(place *place, kind jobKind) func() error {
	return func() error {
		if err := place.run(kind.pods(gang), jobPods); err != nil {
			return err
		}
		group, err := place.find(scheduler.podGroup, gang)
		if err != nil {
			return err
		}
		if members, _, _ := unstructured.NestedInt64(group.Object, "spec", "minMember"); members != jobPods {
			return fmt.Errorf("minMember of the PodGroup is %d, want %d", members, jobPods)
		}
		if owner := metav1.GetControllerOf(group); owner == nil || owner.Kind != kind.kind.Kind || owner.Name != gang {
			return fmt.Errorf("the PodGroup belongs to %+v, want %s %s", owner, kind.kind.Kind, gang)
		}
		if phase := text(group, "status", "phase"); phase != scheduler.running {
			return fmt.Errorf("the PodGroup is %q, want %q", phase, scheduler.running)
		}
		return kind.says(place, gang, stateRunning)
	}
}
