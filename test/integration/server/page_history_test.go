// SPDX-License-Identifier: Apache-2.0

//go:build web

package server

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
)

// The dashboard shows a job, its log and its events after the job was deleted, and after only
// its pods were.
func TestPageShowsTheHistory(t *testing.T) {
	cluster := sharedCluster.For(t)
	ada, kubelet, keeper := cluster.person(t, "ada"), cluster.startKubelet(t), cluster.startHistory(t)
	server := cluster.startPageServer(t, "--history-url", keeper.url, "--history-directory", keeper.directory)

	deleted := cluster.run(t, kubelet, ada.namespace, "bert")
	deleted.Create(&corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "bert.1"}, Type: corev1.EventTypeWarning, Reason: "Slow", Message: "a node is slow", LastTimestamp: metav1.Now(),
		InvolvedObject: corev1.ObjectReference{Kind: "MPIJob", Namespace: ada.namespace, Name: "bert", UID: deleted.job.UID},
	})
	kubelet.print(deleted.launcher, "[1,0]<stdout>:I am rank 0", "[1,1]<stdout>:I am rank 1", "[1,1]<stderr>:RuntimeError: <img src=x onerror='window.attacked=1'>")
	keeper.untilFollowed(t, deleted)
	deleted.MustGet(deleted.job, "bert")
	deleted.job.Status.FailureReason, deleted.job.Status.FailureMessage = training.FailureLauncher, "The launcher failed with exit code 1"
	if err := cluster.client.Status().Update(t.Context(), deleted.job); err != nil {
		t.Fatal(err)
	}
	deleted.finish(1, training.PhaseFailed)
	if summary := deleted.untilRecorded(t, keeper, server.program, ada); summary.LogLines != 3 {
		t.Errorf("the summary is %+v\n%s", summary, keeper.log)
	}
	deleted.remove()

	kept := cluster.run(t, kubelet, ada.namespace, "gpt")
	kubelet.print(kept.launcher, "[1,0]<stdout>:done")
	keeper.untilFollowed(t, kept)
	kept.finish(0, training.PhaseSucceeded)
	if summary := kept.untilRecorded(t, keeper, server.program, ada); summary.LogLines != 1 {
		t.Errorf("the summary is %+v\n%s", summary, keeper.log)
	}
	kept.Delete(kept.launcher, client.GracePeriodSeconds(0))

	cluster.browse(t, server, "test-history", "TOKEN="+ada.token, "NAMESPACE="+ada.namespace, "UID_OF_DELETED="+string(deleted.job.UID))
}
