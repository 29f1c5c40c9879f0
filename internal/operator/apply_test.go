package operator

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/config"
	"github.com/trireme-mpi/trireme/internal/diagnosis"
	"github.com/trireme-mpi/trireme/internal/job"
	"github.com/trireme-mpi/trireme/internal/plan"
)

// What has the name of something that a job needs may be its own, or go, or be in its
// way for good.
func TestWhose(t *testing.T) {
	made := &job.Job{Kind: job.KindMPIJob, Namespace: "team", Name: "train", UID: "job"}
	ownedBy := func(owner types.UID) *corev1.ConfigMap {
		earlier := *made
		earlier.UID = owner
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "train-hostfile", OwnerReferences: []metav1.OwnerReference{plan.OwnerOf(&earlier)}}}
	}
	going := ownedBy("job")
	going.DeletionTimestamp, going.Finalizers = new(metav1.Now()), []string{"example.com/kept"}
	strangers := ownedBy("")
	strangers.OwnerReferences = nil
	for name, test := range map[string]struct {
		there          *corev1.ConfigMap
		waits, refused bool
	}{
		"its own":                  {ownedBy("job"), false, false},
		"its own, which goes":      {going, true, false},
		"an earlier job's":         {ownedBy("an earlier job"), true, false},
		"somebody's":               {strangers, false, true},
		"what has gone in between": {nil, true, false},
	} {
		builder := fake.NewClientBuilder().WithScheme(Scheme())
		if test.there != nil {
			builder = builder.WithObjects(test.there)
		}
		reader := builder.Build()
		reconciler := &Reconciler{Client: reader, Live: reader}
		refusal, err := reconciler.whose(t.Context(), made, around{}, ownedBy("job"))
		_, waits := errors.AsType[*notYet](err)
		if waits != test.waits || (err != nil) != test.waits || (refusal != nil) != test.refused {
			t.Errorf("%s: %v, refused %v", name, err, refusal)
		}
	}
}

// What is there when it is created, and gone when it is looked at, is made at the next
// look: that comes soon, and nothing is made before that would wait for it.
func TestWhatGoesInBetweenIsWaitedFor(t *testing.T) {
	template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "registry.example/train:1"}}}}
	object := &v2beta1.MPIJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "train", UID: "job"},
		Spec: v2beta1.MPIJobSpec{MPIReplicaSpecs: map[v2beta1.MPIReplicaType]*v2beta1.ReplicaSpec{
			v2beta1.MPIReplicaTypeLauncher: {Template: template}, v2beta1.MPIReplicaTypeWorker: {Replicas: new(int32(2)), Template: template},
		}},
	}
	made := job.FromMPIJob(object, config.Default().JobDefaults())
	going := true
	api := fake.NewClientBuilder().WithScheme(Scheme()).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, api client.WithWatch, created client.Object, options ...client.CreateOption) error {
			if _, is := created.(*corev1.ConfigMap); is && going {
				return apierrors.NewAlreadyExists(corev1.Resource("configmaps"), created.GetName())
			}
			return api.Create(ctx, created, options...)
		},
	}).Build()
	reconciler := &Reconciler{Client: api, Live: api, Clock: clock.RealClock{}}
	look := func() (wait bool, configMaps, pods int) {
		result, err := reconciler.carryOut(t.Context(), object, made, diagnosis.Observed{}, diagnosis.Verdict{Stage: plan.Active}, around{}.withoutGang())
		if err != nil {
			t.Fatal(err)
		}
		var maps corev1.ConfigMapList
		var workers corev1.PodList
		if err := errors.Join(api.List(t.Context(), &maps), api.List(t.Context(), &workers)); err != nil {
			t.Fatal(err)
		}
		return result.RequeueAfter == deletionPause, len(maps.Items), len(workers.Items)
	}
	if wait, configMaps, pods := look(); !wait || configMaps+pods > 0 || reconciler.submitted.obstacle(made.UID) == nil {
		t.Errorf("the job waits: %t; there are %d ConfigMaps and %d pods", wait, configMaps, pods)
	}
	going = false
	if wait, configMaps, pods := look(); wait || configMaps != 1 || pods != 2 || reconciler.submitted.obstacle(made.UID) != nil {
		t.Errorf("the job waits: %t; there are %d ConfigMaps and %d pods", wait, configMaps, pods)
	}
}
