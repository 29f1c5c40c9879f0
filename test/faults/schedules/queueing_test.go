// SPDX-License-Identifier: Apache-2.0

package schedules

import (
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
)

// quotaName is the quota of the namespace.
const quotaName = "all"

// refusePod is the API server's answer to the creation of a pod that exceeds a quota.
func (simulation *simulation) refusePod(request *call) error {
	simulation.facts(request.job).refused = true
	return apierrors.NewForbidden(resource("Pod"), request.name, fmt.Errorf("exceeded quota: %s, requested: pods=1, used: pods=9, limited: pods=9", quotaName))
}

// rival is an older job of the other kind in the same namespace. It does nothing but
// wait for the quota, or not.
var rivalName = client.ObjectKey{Namespace: name.Namespace, Name: "rival"}

func (simulation *simulation) rivalKind() string {
	if simulation.wish.isTrainJob() {
		return "MPIJob"
	}
	return "TrainJob"
}

func (simulation *simulation) createRival() {
	metadata := metav1.ObjectMeta{Namespace: rivalName.Namespace, Name: rivalName.Name}
	var rival client.Object = &v2alpha1.TrainJob{ObjectMeta: metadata}
	if simulation.wish.isTrainJob() {
		rival = &v2beta1.MPIJob{ObjectMeta: metadata}
	}
	if _, err := simulation.server.create(rival); err != nil {
		panic(err)
	}
}

// rivalWaits says whether the older job waits for the quota.
func (simulation *simulation) rivalWaits(waits bool) {
	there, err := simulation.server.get(simulation.rivalKind(), rivalName)
	if err != nil {
		panic(err)
	}
	next := there.DeepCopyObject().(client.Object)
	var progress *training.Progress
	switch rival := next.(type) {
	case *v2alpha1.TrainJob:
		progress = &rival.Status.Progress
	case *v2beta1.MPIJob:
		progress = &rival.Status.Progress
	}
	progress.QuotaWait = nil
	if waits {
		progress.QuotaWait = &training.QuotaWait{Name: quotaName, Since: seconds(time.Now())}
	}
	simulation.olderWaits = waits
	simulation.server.replace(next)
}

// workload is the JobSet or the batch Job of the present job; nil if there is none.
func (simulation *simulation) workload() client.Object {
	there := simulation.present()
	if there == nil {
		return nil
	}
	for _, kind := range []string{"JobSet", "Job"} {
		for _, object := range simulation.server.owned(kind, there.GetUID()) {
			return object
		}
	}
	return nil
}

func suspension(workload client.Object) **bool {
	if set, is := workload.(*jobset.JobSet); is {
		return &set.Spec.Suspend
	}
	return &workload.(*batchv1.Job).Spec.Suspend
}

func isHeld(workload client.Object) bool {
	suspend := *suspension(workload)
	return suspend != nil && *suspend
}

// admit is the queue's webhook: it may hold a JobSet back from its first moment on.
func (simulation *simulation) admit(object client.Object) {
	set, is := object.(*jobset.JobSet)
	if !is || !simulation.faulty || !simulation.happens(simulation.profile.bornHeld) {
		return
	}
	set.Spec.Suspend = new(true)
	simulation.facts(simulation.rootOf(set)).suspend()
}

// flavor is the label of nodes that a queue sends pods to.
const flavor = "flavor"

// queueStep is what Kueue does next with a workload: it is suspended, or it is
// unsuspended with templates that say where its pods go.
func (simulation *simulation) queueStep(workload client.Object) {
	next := workload.DeepCopyObject().(client.Object)
	hold := !isHeld(workload)
	*suspension(next) = &hold
	next.SetGeneration(workload.GetGeneration() + 1)
	if set, is := next.(*jobset.JobSet); is && !hold {
		simulation.flavors++
		for i := range set.Spec.ReplicatedJobs {
			set.Spec.ReplicatedJobs[i].Template.Spec.Template.Spec.NodeSelector = map[string]string{flavor: fmt.Sprint(simulation.flavors)}
		}
	}
	simulation.facts(simulation.roots[workload.GetUID()]).suspend()
	simulation.server.replace(next)
}

// checkFlavor: pods of a JobSet go where its templates say, or said.
func (simulation *simulation) checkFlavor(pod *corev1.Pod) {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind != "JobSet" {
		return
	}
	wanted := pod.Spec.NodeSelector[flavor]
	for _, made := range simulation.server.of("JobSet").changes {
		set, is := made.after.(*jobset.JobSet)
		if is && set.UID == owner.UID && !isHeld(set) && set.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.NodeSelector[flavor] == wanted {
			return
		}
	}
	simulation.fail("pod %s goes to flavor %q, which its JobSet has never said while it was not suspended", pod.Name, wanted)
}
