// SPDX-License-Identifier: Apache-2.0

package jobservice

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/kube/connection"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
	"github.com/trireme-mpi/trireme/internal/server/auth"
)

func mpiJob(name string, workers int32) *v2beta1.MPIJob {
	return &v2beta1.MPIJob{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}, Spec: v2beta1.MPIJobSpec{
		MPIReplicaSpecs: map[v2beta1.MPIReplicaType]*v2beta1.ReplicaSpec{v2beta1.MPIReplicaTypeWorker: {Replicas: &workers}},
	}}
}

func trainJob(name string, nodes int32) *v2alpha1.TrainJob {
	return &v2alpha1.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}, Spec: v2alpha1.TrainJobSpec{Trainer: v2alpha1.Trainer{NumNodes: &nodes}}}
}

// The name of a TrainJob has at most 44 characters, also after a restart.
func TestAgainHasANameThatFits(t *testing.T) {
	for length := 1; length <= 44; length++ {
		failed := trainJob(strings.Repeat("a", length), 2)
		again := New(Options{Clock: clockAt(1789456789)}).retryJob(jobview.Of(failed))
		if name := again.GetName(); len(name) > 44 {
			t.Errorf("a name of %d characters becomes %s, of %d", length, name, len(name))
		}
	}
}

// Fields that belong to the failed job are not copied.
func TestRetryJob(t *testing.T) {
	failed := mpiJob("train", 2)
	failed.UID, failed.ResourceVersion, failed.Finalizers = "b7", "12", []string{"somebody.example/waits"}
	failed.OwnerReferences = []metav1.OwnerReference{{Name: "owner"}}
	failed.Labels = map[string]string{training.LabelJobName: "train", training.LabelJobType: "mpijob", "team": "vision"}
	failed.Annotations = map[string]string{training.AnnotationCreatedBy: "ada", "kubectl.kubernetes.io/last-applied-configuration": "{}", "note": "kept"}
	failed.Status.Phase = training.PhaseFailed

	again := New(Options{Clock: clockAt(100)}).retryJob(jobview.Of(failed)).(*v2beta1.MPIJob)
	if again.Name != "train-retry-100" || again.Namespace != "team" || again.UID != "" || again.ResourceVersion != "" || len(again.OwnerReferences) > 0 || len(again.Finalizers) > 0 || again.Status.Phase != "" {
		t.Errorf("it is %+v, status %+v", again.ObjectMeta, again.Status)
	}
	if len(again.Labels) != 1 || again.Labels["team"] != "vision" || len(again.Annotations) != 1 || again.Annotations["note"] != "kept" {
		t.Errorf("labels %v, annotations %v", again.Labels, again.Annotations)
	}
	if again.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeWorker] == failed.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeWorker] {
		t.Error("both jobs share a part of their specs")
	}
	if failed.Labels[training.LabelJobName] != "train" {
		t.Error("the failed job was changed")
	}
}

// The pods get the grace period of the request, and nothing is deleted if the job may not
// be deleted.
func TestDeleteWithAGracePeriod(t *testing.T) {
	refused := errors.New("refused")
	tests := map[string]struct {
		options DeleteOptions
		refuse  string
		want    []string
	}{
		"none":             {DeleteOptions{}, "", []string{"delete mpijob"}},
		"some seconds":     {DeleteOptions{GracePeriodSeconds: new(int64(5))}, "", []string{"try to delete mpijob", "delete pods within 5 s", "delete mpijob"}},
		"none at all":      {DeleteOptions{GracePeriodSeconds: new(int64(0))}, "", []string{"try to delete mpijob", "delete pods within 0 s", "delete mpijob"}},
		"a trial":          {DeleteOptions{GracePeriodSeconds: new(int64(5)), DryRun: true}, "", []string{"try to delete mpijob", "try to delete pods within 5 s", "try to delete mpijob"}},
		"no such job":      {DeleteOptions{GracePeriodSeconds: new(int64(5))}, "try to delete mpijob", []string{"try to delete mpijob"}},
		"pods are refused": {DeleteOptions{GracePeriodSeconds: new(int64(5))}, "delete pods within 5 s", []string{"try to delete mpijob", "delete pods within 5 s"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var done []string
			note := func(dryRun []string, text string) error {
				if len(dryRun) > 0 {
					text = "try to " + text
				}
				done = append(done, text)
				if text == test.refuse {
					return refused
				}
				return nil
			}
			cluster := interceptor.NewClient(fake.NewClientBuilder().WithScheme(connection.Scheme()).Build(), interceptor.Funcs{
				Delete: func(_ context.Context, _ client.WithWatch, _ client.Object, options ...client.DeleteOption) error {
					return note((&client.DeleteOptions{}).ApplyOptions(options).DryRun, "delete mpijob")
				},
				DeleteAllOf: func(_ context.Context, _ client.WithWatch, _ client.Object, options ...client.DeleteAllOfOption) error {
					given := (&client.DeleteAllOfOptions{}).ApplyOptions(options)
					if want := "training.kubeflow.org/job-name=pi"; given.Namespace != "team" || !strings.Contains(given.LabelSelector.String(), want) {
						t.Errorf("pods of %s with %s are deleted", given.Namespace, given.LabelSelector)
					}
					return note(given.DryRun, fmt.Sprintf("delete pods within %d s", *given.GracePeriodSeconds))
				},
			})
			ctx := auth.WithCaller(t.Context(), &auth.Caller{Client: cluster})
			err := New(Options{}).Delete(ctx, JobRef{Kind: jobview.MPIJobs, Namespace: "team", Name: "pi"}, test.options)
			if wanted := test.refuse != ""; wanted != errors.Is(err, refused) {
				t.Errorf("the error is %v", err)
			}
			if diff := cmp.Diff(test.want, done); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}
