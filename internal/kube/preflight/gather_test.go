// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
	"github.com/trireme-mpi/trireme/internal/kube/connection"
)

// holding is a cluster of these objects.
func holding(objects ...client.Object) client.WithWatch {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v2alpha1.AddToScheme, v2beta1.AddToScheme} {
		utilruntime.Must(add(scheme))
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
}

// notServing answers as an API server without the kinds that not every cluster has.
func notServing(api client.WithWatch) client.WithWatch {
	return interceptor.NewClient(api, interceptor.Funcs{List: func(ctx context.Context, api client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
		if _, optional := list.(*unstructured.UnstructuredList); optional {
			return apierrors.NewNotFound(schema.GroupResource{}, "")
		}
		return api.List(ctx, list, options...)
	}})
}

// forbidding lets nobody read anything.
func forbidding(api client.WithWatch) client.WithWatch {
	no := apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no"))
	return interceptor.NewClient(api, interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return no },
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return no
		},
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return no },
	})
}

func gathererOf(api client.Reader) *Gatherer {
	return &Gatherer{Reader: api, Now: now, OperatorNamespace: DefaultOperatorNamespace}
}

func clusterRuntime() *v2alpha1.ClusterTrainingRuntime {
	return &v2alpha1.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: "runtime"}, Spec: *runtimeSpec()}
}

// surroundingObjects are what is around the job in its cluster.
func surroundingObjects() []client.Object {
	model := kinds()[job.KindMPIJob]
	worker, earlier, foreign := podOf(model, training.RoleWorker, "job-worker-0"), podOf(model, training.RoleWorker, "job-worker-old"), podOf(model, training.RoleWorker, "web")
	earlier.CreationTimestamp, foreign.Labels = ago(600), nil
	foreign.Spec.NodeName, foreign.Status.Phase = "a", corev1.PodRunning
	worker.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "login"}, {Name: "gone"}}
	worker.Spec.Volumes = []corev1.Volume{{Name: "d", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	a := node("a")
	about, other := event("Pod", "job-worker-0", "FailedMount", "no", 5, 1), event("Pod", "web", "FailedMount", "no", 5, 1)
	about.ObjectMeta, other.ObjectMeta = metav1.ObjectMeta{Namespace: namespace, Name: "about"}, metav1.ObjectMeta{Namespace: namespace, Name: "other"}
	pulling, foreignPull := event("Pod", "job-worker-0", "Pulling", "x", 5, 1), event("Pod", "web", "Pulling", "x", 5, 1)
	for name, pull := range map[string]*corev1.Event{"pulling": &pulling, "foreign-pull": &foreignPull} {
		pull.Type, pull.ObjectMeta = corev1.EventTypeNormal, metav1.ObjectMeta{Namespace: namespace, Name: name}
	}
	return []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{"a": "b"}}},
		&worker, &earlier, &foreign, &a, &about, &other, &pulling, &foreignPull,
		&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "quota"}},
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "job-worker"}},
		&discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "x", Labels: map[string]string{discoveryv1.LabelServiceName: "job-worker"}}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "login"}},
		&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "data"}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "coredns", Labels: map[string]string{"k8s-app": "kube-dns"}}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: autoscalerStatus}},
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: DefaultOperatorNamespace, Name: operatorName}},
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: DefaultOperatorNamespace, Name: leaseName}},
	}
}

func TestGather(t *testing.T) {
	stored := mpiJob(func(mpiJob *v2beta1.MPIJob) {
		mpiJob.Status.Phase = training.PhasePending
		mpiJob.Status.Conditions = []v2beta1.JobCondition{{Type: v2beta1.JobPending, Status: "True", Reason: "Waiting", Message: "words"}}
	})
	facts := gathererOf(notServing(holding(append(surroundingObjects(), stored)...))).OfJob(t.Context(), stored)
	if got := facts.Pods.Value; len(got) != 1 || got[0].Name != "job-worker-0" {
		t.Errorf("the pods are %v", got)
	}
	if cpu := facts.Used.Value["a"]["cpu"]; cpu.String() != "4" {
		t.Errorf("used is %v", facts.Used.Value)
	}
	if got := facts.Events.Value; len(got) != 1 || got[0].Name != "about" {
		t.Errorf("the events are %v", got)
	}
	if got := facts.Pulls; len(got) != 1 || got[0].Name != "pulling" {
		t.Errorf("the pulls are %v", got)
	}
	if !facts.PullSecrets["login"].Value || facts.PullSecrets["gone"].Value || facts.Claims["data"].Value == nil || facts.Service.Value == nil ||
		len(facts.Endpoints.Value) != 1 || len(facts.Nameservers.Value) != 1 || facts.Deployment.Value == nil || facts.Lease.Value == nil || !facts.Autoscaled ||
		len(facts.Quotas.Value) != 1 || len(facts.Nodes.Value) != 1 || facts.NamespaceObject.Value.Labels["a"] != "b" || facts.Job.Worker.Replicas != 2 || facts.KueueServed {
		t.Errorf("the facts are %+v", facts)
	}
	if answer := facts.waitsFor(); answer == nil || answer.Message != "words" {
		t.Errorf("it waits for %v", answer)
	}
}

// With no right at all there is still an answer.
func TestGatherWithoutRights(t *testing.T) {
	api := forbidding(holding())
	for _, object := range []client.Object{mpiJob(), trainJob()} {
		facts := gathererOf(api).OfJob(t.Context(), object)
		for _, unknown := range []string{facts.Pods.Unknown, facts.Events.Unknown, facts.Quotas.Unknown, facts.Nodes.Unknown, facts.Policies.Unknown, facts.NamespaceObject.Unknown, facts.Service.Unknown, facts.Deployment.Unknown} {
			if !strings.HasPrefix(unknown, "may not ") {
				t.Errorf("%T: %q", object, unknown)
			}
		}
		for _, finding := range Diagnose(facts) {
			if finding.Rank != NotKnown && finding.Title != "The operator has not processed the job" {
				t.Errorf("%T: %+v", object, finding)
			}
		}
		report := Preflight(gathererOf(api).BeforeSubmission(t.Context(), api, object))
		if report.Number(Fail) > 0 || report.Number(Unknown) < 6 {
			t.Errorf("%T: %+v", object, report)
		}
	}
}

func TestGatherRuntime(t *testing.T) {
	kept := runtimeSpec()
	kept.MLPolicy.NumNodes = new(int32(7))
	digest, content, err := job.RuntimeDigest(kept)
	if err != nil {
		t.Fatal(err)
	}
	snapshot, forged := plan.Snapshot(namespace, digest, content), plan.Snapshot(namespace, digest, []byte("{}"))
	going := clusterRuntime()
	going.DeletionTimestamp, going.Finalizers = new(metav1.NewTime(time.Now())), []string{"example.com/hold"}
	for name, test := range map[string]struct {
		objects []client.Object
		digest  string
		workers int32
		missing bool
	}{
		"the runtime as it is":             {objects: []client.Object{clusterRuntime(), snapshot}, workers: 2},
		"the runtime of the snapshot":      {objects: []client.Object{clusterRuntime(), snapshot}, digest: digest, workers: 7},
		"the runtime is missing":           {missing: true},
		"missing, but there is a snapshot": {objects: []client.Object{snapshot}, digest: digest, workers: 7},
		"a snapshot of another content":    {objects: []client.Object{clusterRuntime(), forged}, digest: digest, workers: 2},
		"the runtime is being deleted":     {objects: []client.Object{going}, missing: true},
	} {
		t.Run(name, func(t *testing.T) {
			stored := trainJob(func(trainJob *v2alpha1.TrainJob) { trainJob.Status.RuntimeDigest = test.digest })
			facts := gathererOf(notServing(holding(test.objects...))).OfJob(t.Context(), stored)
			if facts.RuntimeMissing != test.missing || (facts.Job == nil) != test.missing {
				t.Fatalf("missing: %v, %s", facts.RuntimeMissing, facts.NoModel)
			}
			if !test.missing && facts.Job.Worker.Replicas != test.workers {
				t.Errorf("%d workers", facts.Job.Worker.Replicas)
			}
		})
	}
}

func optionalObject(version schema.GroupVersion, kind, name string, owner ...metav1.OwnerReference) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(version.WithKind(kind))
	object.SetNamespace(namespace)
	object.SetName(name)
	object.SetOwnerReferences(owner)
	return object
}

func TestGatherOptionalKinds(t *testing.T) {
	inQueue := trainJob(func(trainJob *v2alpha1.TrainJob) { trainJob.Labels = map[string]string{training.LabelQueue: "main"} })
	beta := connection.KueueVersions[0]
	mate := optionalObject(beta, "Workload", "mate")
	mate.Object["spec"] = map[string]any{"queueName": "main"}
	api := holding(clusterRuntime(), mate, optionalObject(beta, "LocalQueue", "main"), optionalObject(beta, "LocalQueue", "other"),
		optionalObject(beta, "Workload", "mine", metav1.OwnerReference{Kind: "JobSet", Name: "job"}), optionalObject(beta, "Workload", "theirs", metav1.OwnerReference{Kind: "JobSet", Name: "other"}),
		optionalObject(schema.GroupVersion{Group: "scheduling.x-k8s.io", Version: "v1alpha1"}, "PodGroup", "job"))
	facts := gathererOf(api).OfJob(t.Context(), inQueue)
	if !facts.KueueServed || facts.Queue.Value == nil || facts.Queue.Value.GetName() != "main" || facts.Workload.Value == nil || facts.Workload.Value.GetName() != "mine" ||
		len(facts.Workloads) != 1 || facts.Workloads[0].GetName() != "mate" || len(facts.PodGroups.Value) != 1 {
		t.Errorf("%v %+v %+v %+v %+v", facts.KueueServed, facts.Queue, facts.Workload, facts.Workloads, facts.PodGroups)
	}
	served := gathererOf(notServing(api)).OfJob(t.Context(), inQueue)
	if served.KueueServed || served.Queue.Unknown != "" || len(served.PodGroups.Value) > 0 || served.PodGroups.Unknown != "" {
		t.Errorf("%+v %+v", served.Queue, served.PodGroups)
	}
	var kinds []string
	for _, kind := range connection.OptionalKinds() {
		kinds = append(kinds, kind.Kind)
	}
	slices.Sort(kinds)
	if diff := cmp.Diff([]string{"LocalQueue", "LocalQueue", "PodGroup", "PodGroup", "PodGroup", "PodGroup", "PodGroup", "Workload", "Workload"}, kinds); diff != "" {
		t.Error(diff)
	}
}

// judging answers what a user may do, and what it would say to a job.
func judging(api client.WithWatch, allowed bool, refusal error) client.WithWatch {
	return interceptor.NewClient(api, interceptor.Funcs{Create: func(_ context.Context, _ client.WithWatch, object client.Object, options ...client.CreateOption) error {
		if review, asks := object.(*authorizationv1.SelfSubjectAccessReview); asks {
			review.Status.Allowed = allowed || review.Spec.ResourceAttributes.Verb != "create"
			return nil
		}
		if !slices.Contains(options, client.CreateOption(client.DryRunAll)) {
			panic("preflight stores something")
		}
		return refusal
	}})
}

func TestGatherBeforeSubmission(t *testing.T) {
	api := notServing(holding(clusterRuntime(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	for _, object := range []client.Object{mpiJob(), trainJob()} {
		facts := gathererOf(api).BeforeSubmission(t.Context(), judging(api, true, nil), object)
		if !facts.Submission.DryRun || facts.Submission.Refusal != nil || facts.Submission.Rules.Value == nil || len(facts.Submission.Rules.Value.Errors) > 0 || len(facts.Submission.Permissions.Value) != 4 || facts.Stored {
			t.Errorf("%T: %+v", object, facts.Submission)
		}
		facts = gathererOf(api).BeforeSubmission(t.Context(), judging(api, false, mayNot), object)
		if needed := facts.Submission.Permissions.Value[0]; needed.Allowed || !needed.Needed || facts.Submission.Refusal == nil {
			t.Errorf("%T: %+v", object, facts.Submission)
		}
	}
	facts := gathererOf(api).BeforeSubmission(t.Context(), judging(api, true, nil), trainJob(func(trainJob *v2alpha1.TrainJob) { trainJob.Spec.RuntimeRef.Name = "none" }))
	if !facts.RuntimeMissing || facts.Submission.Rules.Unknown != "ClusterTrainingRuntime none does not exist" {
		t.Errorf("%+v", facts.Submission.Rules)
	}
	place := gathererOf(api).OfNamespace(t.Context(), judging(api, true, nil), namespace)
	if len(place.Submission.Permissions.Value) != 5 || place.NamespaceObject.Value == nil {
		t.Errorf("%+v", place.Submission.Permissions)
	}
}

// The rules find what is wrong, and leave quotas to their own check.
func TestRulesWithoutQuotas(t *testing.T) {
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "quota"}, Spec: corev1.ResourceQuotaSpec{Hard: amounts("pods", "1")},
	}
	bad := mpiJob(func(mpiJob *v2beta1.MPIJob) { mpiJob.Spec.SlotsPerWorker = new(int32(99)) })
	api := notServing(holding(quota))
	facts := gathererOf(api).BeforeSubmission(t.Context(), judging(api, true, quotaRefusal), bad)
	if faults := facts.Submission.Rules.Value.Errors; len(faults) != 1 || faults[0].Field != "spec.slotsPerWorker" {
		t.Errorf("%v", faults)
	}
	if findings := quotas(facts); len(findings) != 1 || findings[0].Rank != Certain {
		t.Errorf("%+v", findings)
	}
}
