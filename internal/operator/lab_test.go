// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	discovery "k8s.io/client-go/discovery/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/config"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
	"github.com/trireme-mpi/trireme/internal/operator/admission"
)

// lab is an operator with a fake API server.
type lab struct {
	t       *testing.T
	api     client.Client
	clock   *clocktesting.FakePassiveClock
	mpi     *Reconciler
	train   *Reconciler
	refuses func(object client.Object) error
	// mutex guards what follows: pods are created at the same time.
	mutex   sync.Mutex
	created int
}

func newLab(t *testing.T, objects ...client.Object) *lab {
	t.Helper()
	lab := &lab{t: t, clock: clocktesting.NewFakePassiveClock(time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC))}
	builder := fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(objects...).
		WithStatusSubresource(&v2alpha1.TrainJob{}, &v2beta1.MPIJob{}, &jobset.JobSet{}, &batchv1.Job{}).
		WithInterceptorFuncs(interceptor.Funcs{Create: lab.create})
	for _, index := range Indexes() {
		builder = builder.WithIndex(index.Object, index.Field, index.Values)
	}
	lab.api = builder.Build()
	settings := config.Default()
	settings.ClusterDomain, settings.Agent.Delivery = "cluster.local", config.DeliveryInitContainer
	reconcilers, err := NewReconcilers(Parts{
		Client: lab.api, Live: lab.api, Clock: lab.clock, Settings: settings, Recorder: events.NewFakeRecorder(1000),
		Discovery: &discovery.FakeDiscovery{Fake: &clienttesting.Fake{}, FakedServerVersion: &version.Info{GitVersion: "v1.36.5"}}, Audit: admission.NewAudit(io.Discard), Registry: prometheus.NewRegistry(), HasJobSet: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	lab.mpi, lab.train = reconcilers[0], reconcilers[1]
	return lab
}

func (l *lab) create(ctx context.Context, api client.WithWatch, object client.Object, options ...client.CreateOption) error {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.refuses != nil {
		if err := l.refuses(object); err != nil {
			return err
		}
	}
	l.created++
	object.SetUID(types.UID(fmt.Sprintf("%T-%d", object, l.created)))
	object.SetCreationTimestamp(metav1.NewTime(l.clock.Now()))
	return api.Create(ctx, object, options...)
}

// reconcile reconciles the job train, some time after the last reconcile.
func (l *lab) reconcile(reconciler *Reconciler, after time.Duration) ctrl.Result {
	l.t.Helper()
	l.clock.SetTime(l.clock.Now().Add(after))
	result, err := reconciler.Reconcile(l.t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "team", Name: "train"}})
	if err != nil {
		l.t.Fatal(err)
	}
	return result
}

// pods are the names of those that exist.
func (l *lab) pods() map[string]*corev1.Pod {
	l.t.Helper()
	var list corev1.PodList
	if err := l.api.List(l.t.Context(), &list); err != nil {
		l.t.Fatal(err)
	}
	pods := map[string]*corev1.Pod{}
	for i := range list.Items {
		pods[list.Items[i].Name] = &list.Items[i]
	}
	return pods
}

func (l *lab) get(object client.Object, name string) {
	l.t.Helper()
	if err := l.api.Get(l.t.Context(), client.ObjectKey{Namespace: "team", Name: name}, object); err != nil {
		l.t.Fatal(err)
	}
}

var template = corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "registry.example/train:1"}}}}

// mpiJob has two workers.
func mpiJob(uid types.UID) *v2beta1.MPIJob {
	return &v2beta1.MPIJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "train", UID: uid},
		Spec: v2beta1.MPIJobSpec{MPIReplicaSpecs: map[v2beta1.MPIReplicaType]*v2beta1.ReplicaSpec{
			v2beta1.MPIReplicaTypeLauncher: {Template: template}, v2beta1.MPIReplicaTypeWorker: {Replicas: new(int32(2)), Template: template},
		}},
	}
}

// trainJob has two workers, and is listed with its runtime.
func trainJob(uid types.UID) (*v2alpha1.TrainJob, *v2alpha1.ClusterTrainingRuntime) {
	return &v2alpha1.TrainJob{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "train", UID: uid},
			Spec: v2alpha1.TrainJobSpec{
				RuntimeRef: v2alpha1.RuntimeRef{Kind: v2alpha1.RuntimeKindCluster, Name: "mpi"},
				Trainer:    v2alpha1.Trainer{NumNodes: new(int32(2))}, BackoffLimit: new(int32(2)),
			},
		}, &v2alpha1.ClusterTrainingRuntime{
			ObjectMeta: metav1.ObjectMeta{Name: "mpi"},
			Spec: v2alpha1.TrainingRuntimeSpec{Template: v2alpha1.RuntimeTemplate{Spec: v2alpha1.RuntimeTemplateSpec{ReplicatedJobs: []v2alpha1.ReplicatedJob{
				{Name: v2alpha1.ReplicatedJobLauncher, Template: template}, {Name: v2alpha1.ReplicatedJobWorker, Template: template},
			}}}},
		}
}

// controlled is an owner reference of a controller.
func controlled(kind, name string, uid types.UID) []metav1.OwnerReference {
	return []metav1.OwnerReference{{Kind: kind, Name: name, UID: uid, Controller: new(true)}}
}

// podOf is a pod with the labels of the job train.
func podOf(kind job.Kind, role, name string, owners []metav1.OwnerReference) *corev1.Pod {
	j := &job.Job{Kind: kind, Namespace: "team", Name: "train"}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team", Name: name, UID: types.UID("pod " + name), Labels: plan.RoleSelector(j, role), OwnerReferences: owners,
	}}
}

func labelled(pod *corev1.Pod, key, value string) *corev1.Pod {
	pod.Labels[key] = value
	return pod
}
