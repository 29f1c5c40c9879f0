// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

// childrenRole is more than the cluster's role for editors: also statuses, and the
// finalizers of jobs, which an owner reference needs.
var childrenRole = &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "creates-children"}, Rules: []rbacv1.PolicyRule{
	{APIGroups: []string{""}, Resources: []string{"pods", "pods/status"}, Verbs: []string{"*"}},
	{APIGroups: []string{"batch"}, Resources: []string{"jobs", "jobs/status", "jobs/finalizers"}, Verbs: []string{"*"}},
	{APIGroups: []string{"jobset.x-k8s.io"}, Resources: []string{"jobsets", "jobsets/status", "jobsets/finalizers"}, Verbs: []string{"*"}},
	{APIGroups: []string{"kubeflow.org"}, Resources: []string{"mpijobs", "mpijobs/finalizers", "trainjobs", "trainjobs/finalizers"}, Verbs: []string{"*"}},
}}

// creators returns a client for each name, all of whom may create pods, Jobs and
// JobSets in a namespace, with any owner.
func (cluster *cluster) creators(t *testing.T, namespace string, names ...string) map[string]client.Client {
	t.Helper()
	cluster.createIfMissing(t, childrenRole.DeepCopy())
	found := map[string]client.Client{}
	for _, name := range names {
		cluster.bind(t, namespace, name, childrenRole.Name, false)
		identity, err := cluster.environment.AddUser(envtest.User{Name: name, Groups: []string{"system:authenticated"}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		found[name] = cluster.as(t, identity.Config())
		eventually.Succeeds(t, name+" may create pods", func() error {
			return cluster.allowed(t, name, namespace, "create pods", true)
		})
	}
	return found
}

func plainPod(namespace string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "pod-"}, Spec: template("main").Spec,
	}
}

func plainJob(namespace string) *batchv1.Job {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "job-"}, Spec: batchv1.JobSpec{Template: template("main"), Suspend: new(true)}}
	job.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	return job
}

func plainJobSet(namespace string) *jobset.JobSet {
	return &jobset.JobSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "set-"},
		Spec: jobset.JobSetSpec{ReplicatedJobs: []jobset.ReplicatedJob{{
			Name: "main", Replicas: 1, Template: batchv1.JobTemplateSpec{Spec: plainJob(namespace).Spec},
		}}},
	}
}

func ownerOf(kind, version string, object client.Object) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: version, Kind: kind, Name: object.GetName(), UID: object.GetUID(), Controller: new(true)}}
}

// forgery is a change that makes a plain object look like one of a job's.
type forgery struct {
	object func(namespace string) client.Object
	change func(client.Object)
	want   string
}

// forgeries need the jobs, because they have the right UIDs.
func forgeries(mpi, train client.Object) map[string]forgery {
	pod := func(namespace string) client.Object { return plainPod(namespace) }
	batch := func(namespace string) client.Object { return plainJob(namespace) }
	set := func(namespace string) client.Object { return plainJobSet(namespace) }
	label := func(pairs ...string) func(client.Object) {
		return func(object client.Object) {
			labels := map[string]string{}
			for i := 0; i < len(pairs); i += 2 {
				labels[pairs[i]] = pairs[i+1]
			}
			object.SetLabels(labels)
		}
	}
	owned := func(kind, version string, owner client.Object) func(client.Object) {
		return func(object client.Object) { object.SetOwnerReferences(ownerOf(kind, version, owner)) }
	}
	const ownerOfMPIJob = "remove the reference to MPIJob train"
	const ownerOfTrainJob = "remove the reference to TrainJob bert"
	return map[string]forgery{
		"a pod of an MPIJob":        {pod, owned("MPIJob", "kubeflow.org/v2beta1", mpi), ownerOfMPIJob},
		"a pod of an older version": {pod, owned("MPIJob", "kubeflow.org/v1", mpi), ownerOfMPIJob},
		"a pod of a TrainJob":       {pod, owned("TrainJob", "kubeflow.org/v2alpha1", train), ownerOfTrainJob},
		"a Job of an MPIJob":        {batch, owned("MPIJob", "kubeflow.org/v2beta1", mpi), ownerOfMPIJob},
		"a JobSet of a TrainJob":    {set, owned("TrainJob", "kubeflow.org/v2alpha1", train), ownerOfTrainJob},
		"a pod with a job's labels": {pod, label(training.LabelJobName, "train", training.LabelJobType, "mpijob"), "do not add or change training.kubeflow.org/job-name, training.kubeflow.org/job-type"},
		"a pod with a job's UID":    {pod, label(training.LabelJobUID, string(mpi.GetUID())), "do not add or change training.kubeflow.org/job-uid"},
		"a pod of a restart":        {pod, label(training.LabelRestart, "1"), "do not add or change training.kubeflow.org/restart"},
		"a pod with our finalizer": {pod, func(object client.Object) {
			object.SetFinalizers([]string{training.FinalizerLauncher})
		}, "remove this finalizer"},
		"a Job whose pods have a job's UID": {batch, func(object client.Object) {
			template := &object.(*batchv1.Job).Spec.Template
			template.Labels = maps.Clone(template.Labels)
			metav1.SetMetaDataLabel(&template.ObjectMeta, training.LabelJobUID, string(mpi.GetUID()))
		}, "spec.template.metadata.labels"},
	}
}

// managed are forgeries of a field that cannot be changed later.
var managed = map[string]forgery{
	"a Job that Trireme manages": {func(namespace string) client.Object { return plainJob(namespace) }, func(object client.Object) {
		object.(*batchv1.Job).Spec.ManagedBy = new(training.ManagedByTrireme)
	}, "spec.managedBy"},
	"a JobSet that Trireme manages": {func(namespace string) client.Object { return plainJobSet(namespace) }, func(object client.Object) {
		object.(*jobset.JobSet).Spec.ManagedBy = new(training.ManagedByTrireme)
	}, "spec.managedBy"},
}

func wantForbidden(t *testing.T, err error, want string) {
	t.Helper()
	if !apierrors.IsForbidden(err) || !contains(err, want) || !contains(err, "only the Trireme operator") {
		t.Errorf("the answer is %v, want a refusal that says %q", err, want)
	}
}

const (
	theOperator   = "system:serviceaccount:trireme-system:trireme-operator"
	jobController = "system:serviceaccount:kube-system:job-controller"
)

// Whoever may create pods can write a job's UID as their owner. An object that only
// looks like one of a job's is refused from everybody but the operator.
func TestForgedChildrenAreRefused(t *testing.T) {
	cluster := sharedCluster.For(t)
	namespace := cluster.namespace(t, nil)
	cluster.create(t, runtime(namespace, "mpi"))
	mpi, train := mpiJob(namespace, "train"), trainJob(namespace, "bert")
	cluster.create(t, mpi)
	cluster.createEventually(t, train)
	clients := cluster.creators(t, namespace, "mallory", "system:serviceaccount:"+namespace+":trireme-operator", theOperator, jobController)
	// Somebody who may do everything is not the operator either.
	clients["admin"] = cluster.client
	cluster.waitForPolicy(t)
	cases := forgeries(mpi, train)
	for name, more := range managed {
		cases[name] = more
	}
	for what, tc := range cases {
		t.Run(what, func(t *testing.T) {
			for name, asUser := range clients {
				forged := tc.object(namespace)
				tc.change(forged)
				err := asUser.Create(t.Context(), forged, client.DryRunAll)
				if name == theOperator || name == jobController {
					if err != nil {
						t.Errorf("%s: %v", name, err)
					}
					continue
				}
				wantForbidden(t, err, tc.want)
			}
			if _, isManaged := managed[what]; isManaged {
				return
			}
			mallory := clients["mallory"]
			own := tc.object(namespace)
			if err := mallory.Create(t.Context(), own); err != nil {
				t.Fatalf("an object of one's own: %v", err)
			}
			before := own.DeepCopyObject().(client.Object)
			tc.change(own)
			wantForbidden(t, mallory.Patch(t.Context(), own.DeepCopyObject().(client.Object), client.MergeFrom(before)), tc.want)
			if err := clients[theOperator].Patch(t.Context(), own, client.MergeFrom(before)); err != nil {
				t.Errorf("the operator adds it: %v", err)
			}
		})
	}
}

// Labels can also be written with a status.
func TestForgedChildrenAreRefusedInAStatus(t *testing.T) {
	cluster := sharedCluster.For(t)
	namespace := cluster.namespace(t, nil)
	mallory := cluster.creators(t, namespace, "mallory")["mallory"]
	cluster.waitForPolicy(t)
	pod, batch := plainPod(namespace), plainJob(namespace)
	for _, object := range []client.Object{pod, batch} {
		if err := mallory.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	err := mallory.Status().Patch(t.Context(), pod, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"training.kubeflow.org/job-type":"mpijob"}}}`)))
	wantForbidden(t, err, "training.kubeflow.org/job-type")
	err = mallory.Status().Patch(t.Context(), batch, client.RawPatch(types.MergePatchType, []byte(
		`{"metadata":{"ownerReferences":[{"apiVersion":"kubeflow.org/v2beta1","kind":"MPIJob","name":"train","uid":"1"}]}}`)))
	wantForbidden(t, err, "remove the reference to MPIJob train")
}

// What a job's children have besides is anybody's to change, and what is protected can
// be removed: a finalizer, when Trireme is not there any more.
func TestChildrenCanBeChanged(t *testing.T) {
	cluster := sharedCluster.For(t)
	namespace := cluster.namespace(t, nil)
	mpi := mpiJob(namespace, "train")
	cluster.create(t, mpi)
	clients := cluster.creators(t, namespace, "mallory", theOperator)
	cluster.waitForPolicy(t)
	pod := plainPod(namespace)
	pod.Labels = map[string]string{training.LabelJobName: "train", training.LabelJobType: "mpijob", training.LabelReplicaType: "worker", training.LabelRestart: "0"}
	pod.OwnerReferences, pod.Finalizers = ownerOf("MPIJob", "kubeflow.org/v2beta1", mpi), []string{training.FinalizerLauncher}
	batch := plainJob(namespace)
	batch.Spec.ManagedBy, batch.OwnerReferences = new(training.ManagedByTrireme), ownerOf("MPIJob", "kubeflow.org/v2beta1", mpi)
	for _, object := range []client.Object{pod, batch} {
		if err := clients[theOperator].Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	mallory := clients["mallory"]
	for _, label := range []string{
		training.LabelJobName, training.LabelJobType, training.LabelJobUID, training.LabelJobRole,
		training.LabelOperatorName, training.LabelReplicaIndex, training.LabelReplicaType, training.LabelRestart,
	} {
		patch := fmt.Sprintf(`{"metadata":{"labels":{%q:"7"}}}`, label)
		wantForbidden(t, mallory.Patch(t.Context(), pod.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch))), "do not add or change "+label+";")
	}
	for _, tc := range []struct {
		what        string
		object      client.Object
		patch, want string
	}{
		{"a label of one's own", pod, `{"metadata":{"labels":{"team":"vision"}}}`, ""},
		{"a queue's edits of a suspended Job", batch, `{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":"gpu"}},"spec":{"suspend":false,"template":{"spec":{"nodeSelector":{"pool":"gpu"}}}}}`, ""},
		{"another role", pod, `{"metadata":{"labels":{"training.kubeflow.org/replica-type":"launcher"}}}`, "training.kubeflow.org/replica-type"},
		{"another job's name", pod, `{"metadata":{"labels":{"training.kubeflow.org/job-name":"other"}}}`, "training.kubeflow.org/job-name"},
		{"another owner", pod, fmt.Sprintf(`{"metadata":{"ownerReferences":[{"apiVersion":"kubeflow.org/v2beta1","kind":"MPIJob","name":"other","uid":"%sx","controller":true}]}}`, mpi.UID), "remove the reference to MPIJob other"},
		{"no finalizer", pod, `{"metadata":{"finalizers":null}}`, ""},
		{"no owner", pod, `{"metadata":{"ownerReferences":null}}`, ""},
		{"no labels", pod, `{"metadata":{"labels":null}}`, ""},
		{"the labels again", pod, `{"metadata":{"labels":{"training.kubeflow.org/job-type":"mpijob"}}}`, "training.kubeflow.org/job-type"},
	} {
		err := mallory.Patch(t.Context(), tc.object.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, []byte(tc.patch)))
		if tc.want != "" {
			wantForbidden(t, err, tc.want)
		} else if err != nil {
			t.Errorf("%s: %v", tc.what, err)
		}
	}
}

// The objects of others pass: also those of training-operator and of Kubeflow's
// Trainer, whose labels and kinds look much like ours.
func TestOthersObjectsPass(t *testing.T) {
	cluster := sharedCluster.For(t)
	namespace := cluster.namespace(t, nil)
	mallory := cluster.creators(t, namespace, "mallory")["mallory"]
	cluster.waitForPolicy(t)
	theirs := plainPod(namespace)
	theirs.Labels = map[string]string{
		training.LabelJobName: "mnist", training.LabelReplicaType: "worker", training.LabelReplicaIndex: "0",
		training.LabelOperatorName: "pytorchjob-controller", training.LabelJobRole: "master",
	}
	batch := plainJob(namespace)
	batch.Spec.ManagedBy = new("example.com/other")
	for what, object := range map[string]client.Object{
		"a pod": plainPod(namespace), "a Job": plainJob(namespace), "a JobSet": plainJobSet(namespace), "a pod of training-operator": theirs, "a Job of another manager": batch,
	} {
		if err := mallory.Create(t.Context(), object); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, owner := range []metav1.OwnerReference{
		{APIVersion: "kubeflow.org/v1", Kind: "PyTorchJob"}, {APIVersion: "trainer.kubeflow.org/v1alpha1", Kind: "TrainJob"}, {APIVersion: "batch/v1", Kind: "Job"},
	} {
		object := plainPod(namespace)
		owner.Name, owner.UID = "theirs", "1"
		object.OwnerReferences = []metav1.OwnerReference{owner}
		if err := mallory.Create(t.Context(), object); err != nil {
			t.Errorf("a pod of a %s: %v", owner.Kind, err)
		}
	}
}

func TestNamespacesWithoutAdmissionMayForge(t *testing.T) {
	cluster := sharedCluster.For(t)
	namespace := cluster.namespace(t, map[string]string{"training.kubeflow.org/admission": "disabled"})
	mpi := mpiJob(namespace, "train")
	cluster.create(t, mpi)
	mallory := cluster.creators(t, namespace, "mallory")["mallory"]
	cluster.waitForPolicy(t)
	for what, tc := range forgeries(mpi, mpi) {
		forged := tc.object(namespace)
		tc.change(forged)
		if err := mallory.Create(t.Context(), forged); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// waitForPolicy waits until the API server knows the policy.
func (cluster *cluster) waitForPolicy(t *testing.T) {
	t.Helper()
	eventually.Succeeds(t, "the policy holds", func() error {
		pod := plainPod("default")
		pod.Finalizers = []string{training.FinalizerLauncher}
		if err := cluster.client.Create(t.Context(), pod, client.DryRunAll); !contains(err, "metadata.finalizers") {
			return fmt.Errorf("a pod with the finalizer of launchers: %w", err)
		}
		return nil
	})
}

// createEventually creates a job once the operator knows its runtime.
func (cluster *cluster) createEventually(t *testing.T, object client.Object) {
	t.Helper()
	eventually.Succeeds(t, "the job is accepted", func() error { return cluster.client.Create(t.Context(), object) })
}

// The API server checks the types of expressions, and keeps what it finds.
func TestPolicyHasNoTypeWarnings(t *testing.T) {
	cluster := sharedCluster.For(t)
	output, err := cluster.kubectl(t, "", "get", "validatingadmissionpolicy", "trireme-children", "-o", "jsonpath={.status.typeChecking.expressionWarnings}")
	if err != nil || strings.TrimSpace(output) != "" {
		t.Errorf("the API server warns of the policy (%v): %s", err, output)
	}
}
