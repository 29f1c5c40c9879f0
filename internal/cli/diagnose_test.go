// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
)

// plainCluster responds like an API server without Kueue and gang schedulers, to a user
// with all permissions.
func plainCluster(api client.WithWatch) client.WithWatch {
	return interceptor.NewClient(api, interceptor.Funcs{
		List: func(ctx context.Context, api client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if _, optional := list.(*unstructured.UnstructuredList); optional {
				return apierrors.NewNotFound(schema.GroupResource{}, "")
			}
			return api.List(ctx, list, options...)
		},
		Create: func(ctx context.Context, api client.WithWatch, object client.Object, options ...client.CreateOption) error {
			if review, asks := object.(*authorizationv1.SelfSubjectAccessReview); asks {
				review.Status.Allowed = true
				return nil
			}
			return api.Create(ctx, object, options...)
		},
	})
}

// forbidden denies creating anything, and reading anything but the given kinds.
func forbidden(except ...string) func(client.WithWatch) client.WithWatch {
	no := func(kind string) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: kind}, "", errors.New("alice may not"))
	}
	return func(api client.WithWatch) client.WithWatch {
		return interceptor.NewClient(api, interceptor.Funcs{
			Get: func(ctx context.Context, api client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
				for _, name := range except {
					if strings.HasSuffix(typeOf(object), name) {
						return api.Get(ctx, key, object, options...)
					}
				}
				return no("things")
			},
			List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
				return no("things")
			},
			Create: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.CreateOption) error {
				if _, asks := object.(*authorizationv1.SelfSubjectAccessReview); asks {
					return nil
				}
				return no("jobs")
			},
		})
	}
}

func typeOf(object client.Object) string {
	switch object.(type) {
	case *v2alpha1.TrainJob:
		return "TrainJob"
	case *v2alpha1.ClusterTrainingRuntime:
		return "ClusterTrainingRuntime"
	}
	return ""
}

// place is a healthy cluster: namespace, nodes and operator.
func place(nodes ...string) []client.Object {
	objects := []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default", Labels: map[string]string{corev1.LabelMetadataName: "default"}}},
		runtimeNamed("mpi-openmpi-cpu"),
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "trireme-system", Name: "trireme-operator"}, Status: appsv1.DeploymentStatus{Replicas: 2, ReadyReplicas: 2}},
	}
	for _, name := range nodes {
		objects = append(objects, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("16"), corev1.ResourceMemory: resource.MustParse("64Gi")},
			Images:      []corev1.ContainerImage{{Names: []string{"quay.io/team/train:7"}}},
		}})
	}
	return objects
}

// stuck is a pod that cannot pull its image.
func stuck(name string) *corev1.Pod {
	pod := podOf(training.JobTypeTrainJob, "mnist", training.RoleWorker, name, "node-1", 0)
	pod.Labels[training.LabelJobType] = training.JobTypeTrainJob
	pod.Status.Phase = corev1.PodPending
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: training.RoleWorker, Image: "quay.io/team/train:7", State: corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: `Back-off pulling image "quay.io/team/train:7": manifest unknown`},
	}}}
	return pod
}

func denyAll() *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "deny-all"}, Spec: networkingv1.NetworkPolicySpec{
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
	}}
}

func TestDiagnose(t *testing.T) {
	trouble := slices.Concat(place("node-1", "node-2"), []client.Object{
		trainJobNamed("mnist", waiting), stuck("mnist-worker-0"), stuck("mnist-worker-1"), denyAll(),
		eventOf("Pod", "mnist-worker-0", "FailedMount", "MountVolume.SetUp failed for volume \"data\"", 30),
	})
	healthy := slices.Concat(place("node-1", "node-2"), []client.Object{trainJobNamed("mnist", running), trainJobNamed("done", succeeded), mpiJobNamed("solve", failed), mpiJobNamed("raised", raised), trainJobNamed("queued", queued)})
	of := func(objects []client.Object, on terminal) session {
		return session{terminal: on, objects: objects, answers: plainCluster}
	}
	checkGolden(t, "diagnose", map[string]struct {
		session
		line string
	}{
		"running":           {of(healthy, noTerminal), "diagnose mnist"},
		"succeeded":         {of(healthy, noTerminal), "diagnose trainjob/done"},
		"failed":            {of(healthy, noTerminal), "diagnose solve"},
		"failed narrow":     {of(healthy, narrow), "mpijob diagnose solve"},
		"raised":            {of(healthy, noTerminal), "diagnose raised"},
		"raised json":       {of(healthy, noTerminal), "diagnose raised -o json"},
		"queued":            {of(healthy, noTerminal), "trainjob diagnose queued"},
		"trouble":           {of(trouble, noTerminal), "diagnose mnist"},
		"trouble narrow":    {of(trouble, narrow), "diagnose mnist"},
		"trouble wide":      {of(trouble, wide), "diagnose mnist"},
		"trouble colourful": {of(trouble, colourful), "diagnose mnist"},
		"trouble json":      {of(trouble, narrow), "diagnose mnist -o json"},
		"trouble yaml":      {of(trouble, narrow), "training diagnose trainjob mnist -o yaml"},
		"few rights":        {session{objects: trouble, answers: forbidden("TrainJob", "ClusterTrainingRuntime")}, "diagnose mnist"},
		"few rights narrow": {session{terminal: narrow, objects: trouble, answers: forbidden("TrainJob")}, "diagnose mnist"},
		"forbidden":         {session{objects: trouble, answers: forbidden()}, "diagnose mnist"},
		"not found":         {of(healthy, noTerminal), "diagnose nobody"},
		"not of this kind":  {of(healthy, noTerminal), "mpijob diagnose mnist"},
		"no kind of job":    {of(healthy, noTerminal), "diagnose pod/mnist"},
		"unknown output":    {of(healthy, noTerminal), "diagnose mnist -o table"},
		"no name":           {of(healthy, noTerminal), "diagnose"},
	})
}
