// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/config"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/validation"
)

const namespace = "team-a"

var scheme = func() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, schedulingv1.AddToScheme, v2alpha1.AddToScheme, v2beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err) // Types of a scheme are constants of their libraries.
		}
	}
	return scheme
}()

// holding is a reader of these objects and no others.
func holding(objects ...client.Object) client.WithWatch {
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	// The cache knows that a PriorityClass is in no namespace; the fake does not.
	return interceptor.NewClient(api, interceptor.Funcs{
		List: func(ctx context.Context, reader client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if _, ofCluster := list.(*schedulingv1.PriorityClassList); ofCluster {
				options = nil
			}
			return reader.List(ctx, list, options...)
		},
	})
}

var errDown = errors.New("the API server is down")

// failing is a reader that fails for what is of the type of one of these.
func failing(reader client.WithWatch, kinds ...runtime.Object) client.WithWatch {
	fails := func(object runtime.Object) bool {
		for _, kind := range kinds {
			if kindOf(object) == kindOf(kind) {
				return true
			}
		}
		return false
	}
	return interceptor.NewClient(reader, interceptor.Funcs{
		Get: func(ctx context.Context, reader client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if fails(object) {
				return errDown
			}
			return reader.Get(ctx, key, object, options...)
		},
		List: func(ctx context.Context, reader client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if fails(list) {
				return errDown
			}
			return reader.List(ctx, list, options...)
		},
	})
}

func kindOf(object runtime.Object) string {
	kind, err := apiutil.GVKForObject(object, scheme)
	if err != nil {
		panic(err) // Only types of the scheme are asked for.
	}
	return kind.Kind
}

// untouched is a reader that nobody may read from.
func untouched(t *testing.T) Live {
	t.Helper()
	return interceptor.NewClient(holding(), interceptor.Funcs{
		Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
			t.Errorf("%T %s was read", object, key.Name)
			return errDown
		},
		List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
			t.Errorf("%T was read", list)
			return errDown
		},
		Create: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.CreateOption) error {
			t.Errorf("%T was created", object)
			return errDown
		},
	})
}

// ask sends a request to the webhook of a kind, as the API server does.
func ask(t *testing.T, cache client.Reader, live Live, audit io.Writer, path string, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	t.Helper()
	return askWith(t, job.ShareAll, cache, live, audit, path, request)
}

// askWith is ask where Trireme runs a share of the MPIJobs.
func askWith(t *testing.T, share job.Share, cache client.Reader, live Live, audit io.Writer, path string, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	t.Helper()
	handler := Handlers(validation.NewRules(config.Default(), false), share, cache, live, scheme, NewAudit(audit), true)[path]
	if handler == nil {
		t.Fatalf("nobody serves %s", path)
	}
	body, err := json.Marshal(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: request,
	})
	if err != nil {
		t.Fatal(err)
	}
	sent := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, bytes.NewReader(body))
	sent.Header.Set("Content-Type", "application/json")
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, sent)
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(recorder.Body.Bytes(), &review); err != nil || review.Response == nil {
		t.Fatalf("no answer (%v): %s", err, recorder.Body)
	}
	if review.Response.UID != request.UID {
		t.Errorf("the answer is to request %q, and not to %q", review.Response.UID, request.UID)
	}
	return review.Response
}

// paths are where the webhooks of the kinds are.
var paths = map[string]string{
	"MPIJob": "/validate/mpijob", "TrainJob": "/validate/trainjob",
	"TrainingRuntime": "/validate/trainingruntime", "ClusterTrainingRuntime": "/validate/clustertrainingruntime",
}

func requestFor(t *testing.T, operation admissionv1.Operation, object, old client.Object) *admissionv1.AdmissionRequest {
	t.Helper()
	some := object
	if some == nil {
		some = old
	}
	kind, err := apiutil.GVKForObject(some, scheme)
	if err != nil {
		t.Fatal(err)
	}
	request := &admissionv1.AdmissionRequest{
		UID: "4711", Operation: operation, Namespace: some.GetNamespace(), Name: some.GetName(),
		Kind:     metav1.GroupVersionKind{Group: kind.Group, Version: kind.Version, Kind: kind.Kind},
		UserInfo: authenticationv1.UserInfo{Username: "ada", Groups: []string{"team-vision", "system:authenticated"}},
	}
	request.Object.Raw, request.OldObject.Raw = raw(t, object), raw(t, old)
	return request
}

func raw(t *testing.T, object client.Object) []byte {
	t.Helper()
	if object == nil {
		return nil
	}
	kind, err := apiutil.GVKForObject(object, scheme)
	if err != nil {
		t.Fatal(err)
	}
	object.GetObjectKind().SetGroupVersionKind(kind)
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// create asks whether an object may be created.
func create(t *testing.T, cache client.Reader, live Live, object client.Object) *admissionv1.AdmissionResponse {
	t.Helper()
	return ask(t, cache, live, io.Discard, paths[kindOf(object)], requestFor(t, admissionv1.Create, object, nil))
}

func podTemplate(name string, command ...string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{training.IstioInject: "false"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: name, Image: "training:1", Command: command}}},
	}
}

func limits(amounts ...string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Limits: list(amounts...)}
}

// list is made of names and amounts in turn.
func list(amounts ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(amounts); i += 2 {
		list[corev1.ResourceName(amounts[i])] = resource.MustParse(amounts[i+1])
	}
	return list
}

// mpiJob is an MPIJob that nothing is wrong with.
func mpiJob(options ...func(*v2beta1.MPIJob)) *v2beta1.MPIJob {
	mpiJob := &v2beta1.MPIJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "resnet"},
		Spec: v2beta1.MPIJobSpec{MPIReplicaSpecs: map[v2beta1.MPIReplicaType]*v2beta1.ReplicaSpec{
			v2beta1.MPIReplicaTypeLauncher: {Template: podTemplate("launcher", "mpirun")},
			v2beta1.MPIReplicaTypeWorker:   {Replicas: new(int32(2)), Template: podTemplate("worker")},
		}},
	}
	workerOf(mpiJob).Containers[0].Resources = limits("cpu", "1", "memory", "1Gi")
	for _, option := range options {
		option(mpiJob)
	}
	return mpiJob
}

func workerOf(mpiJob *v2beta1.MPIJob) *corev1.PodSpec {
	return &mpiJob.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeWorker].Template.Spec
}

// trainJob is a TrainJob that nothing is wrong with, where there is its runtime.
func trainJob(options ...func(*v2alpha1.TrainJob)) *v2alpha1.TrainJob {
	trainJob := &v2alpha1.TrainJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "bert"},
		Spec: v2alpha1.TrainJobSpec{
			RuntimeRef: v2alpha1.RuntimeRef{Kind: v2alpha1.RuntimeKindNamespaced, Name: "openmpi"},
			Trainer: v2alpha1.Trainer{
				NumNodes: new(int32(2)), Image: "bert:2", Command: []string{"python"}, ResourcesPerNode: new(limits("cpu", "1", "memory", "1Gi")),
			},
		},
	}
	for _, option := range options {
		option(trainJob)
	}
	return trainJob
}

func ofCluster(trainJob *v2alpha1.TrainJob) {
	trainJob.Spec.RuntimeRef.Kind = v2alpha1.RuntimeKindCluster
}

func runtimeSpec() v2alpha1.TrainingRuntimeSpec {
	return v2alpha1.TrainingRuntimeSpec{
		MLPolicy: v2alpha1.MLPolicy{MPIImplementation: v2alpha1.MPIImplementationOpenMPI},
		Template: v2alpha1.RuntimeTemplate{Spec: v2alpha1.RuntimeTemplateSpec{ReplicatedJobs: []v2alpha1.ReplicatedJob{
			{Name: v2alpha1.ReplicatedJobLauncher, Template: podTemplate("launcher")},
			{Name: v2alpha1.ReplicatedJobWorker, Template: podTemplate("worker")},
		}}},
	}
}

func namespacedRuntime(namespace string) *v2alpha1.TrainingRuntime {
	return &v2alpha1.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "openmpi"}, Spec: runtimeSpec()}
}

func clusterRuntime() *v2alpha1.ClusterTrainingRuntime {
	return &v2alpha1.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: "openmpi"}, Spec: runtimeSpec()}
}

// place is the namespace of the jobs, with the labels in turn.
func place(labels ...string) *corev1.Namespace {
	result := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{}}}
	for i := 0; i < len(labels); i += 2 {
		result.Labels[labels[i]] = labels[i+1]
	}
	return result
}

func quotaOf(amounts ...string) *corev1.ResourceQuota {
	return &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "quota"}, Spec: corev1.ResourceQuotaSpec{Hard: list(amounts...)}}
}

func priorityClass(name string, options ...func(*schedulingv1.PriorityClass)) *schedulingv1.PriorityClass {
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, option := range options {
		option(class)
	}
	return class
}
