// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/testing/controlplane"
)

var (
	mpiJobObjects = []string{
		"ConfigMap/train-hostfile", "Job/train-launcher", "Pod/train-launcher-r0", "Pod/train-worker-0", "Pod/train-worker-1", "PodGroup/train",
		"Secret/train-ssh-key", "Service/train-worker",
	}
	trainJobObjects = []string{
		"ConfigMap/train-hostfile", "ControllerRevision/trireme-runtime", "JobSet/train", "Pod/train-launcher-0-0-r0", "Pod/train-worker-0-0-r0",
		"Pod/train-worker-0-1-r0", "PodGroup/train", "Secret/train-ssh", "Service/train-worker",
	}
)

// wantOwned fails a test unless every object belongs to the job and says so. Pods
// belong to the job's workload, except for an MPIJob's workers.
func wantOwned(t *testing.T, job client.Object, apiVersion, kind string, objects map[string]*metav1.PartialObjectMetadata) {
	t.Helper()
	owner := metav1.OwnerReference{
		APIVersion: apiVersion, Kind: kind, Name: job.GetName(), UID: job.GetUID(), Controller: new(true), BlockOwnerDeletion: new(true),
	}
	jobType := map[string]string{"MPIJob": "mpijob", "TrainJob": "trainjob"}[kind]
	workload := objects[map[string]string{"MPIJob": "Job/train-launcher", "TrainJob": "JobSet/train"}[kind]]
	for name, object := range objects {
		if object.Kind == "ControllerRevision" {
			// Jobs share it.
			if len(object.OwnerReferences) > 0 {
				t.Errorf("%s is owned by %v", name, object.OwnerReferences)
			}
			continue
		}
		want := owner
		role := object.Labels[training.LabelReplicaType]
		if role == training.RoleLauncher || role == training.RoleWorker && kind == "TrainJob" {
			want.APIVersion, want.Kind, want.Name, want.UID = workload.APIVersion, workload.Kind, workload.Name, workload.UID
			if object.Labels[training.LabelJobUID] != string(job.GetUID()) {
				t.Errorf("%s says that it belongs to job %q", name, object.Labels[training.LabelJobUID])
			}
		}
		if difference := cmp.Diff([]metav1.OwnerReference{want}, object.OwnerReferences); difference != "" {
			t.Errorf("owners of %s (-want +got):\n%s", name, difference)
		}
		if object.Labels[training.LabelJobName] != job.GetName() || object.Labels[training.LabelJobType] != jobType {
			t.Errorf("%s has the labels %v", name, object.Labels)
		}
	}
}

func TestObjectsOfAnMPIJob(t *testing.T) {
	place := parallel(t)
	job := mpiJob("train", func(job *v2beta1.MPIJob) { job.Spec.SlotsPerWorker = new(int32(2)) })
	place.Create(job)
	wantOwned(t, job, "kubeflow.org/v2beta1", "MPIJob", place.untilObjects(mpiJobObjects...))

	for index := range 2 {
		pod := mustGet(place, &corev1.Pod{}, fmt.Sprintf("train-worker-%d", index))
		for label, want := range map[string]string{
			"training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": fmt.Sprint(index),
			"training.kubeflow.org/job-role": "worker", "training.kubeflow.org/operator-name": "mpi-operator",
			"scheduling.x-k8s.io/pod-group": "train",
		} {
			if pod.Labels[label] != want {
				t.Errorf("the label %s of %s is %q, want %q", label, pod.Name, pod.Labels[label], want)
			}
		}
		if pod.Spec.Hostname != pod.Name || pod.Spec.Subdomain != "train-worker" || pod.Spec.RestartPolicy != corev1.RestartPolicyNever {
			t.Errorf("%s is the host %s.%s, and restarts %s", pod.Name, pod.Spec.Hostname, pod.Spec.Subdomain, pod.Spec.RestartPolicy)
		}
	}
	batch := mustGet(place, &batchv1.Job{}, "train-launcher")
	if batch.Spec.ManagedBy == nil || *batch.Spec.ManagedBy != training.ManagedByTrireme {
		t.Errorf("the Job is managed by %v: Kubernetes would create pods for it", batch.Spec.ManagedBy)
	}
	launcher := mustGet(place, &corev1.Pod{}, "train-launcher-r0")
	for key, want := range batch.Spec.Selector.MatchLabels {
		if launcher.Labels[key] != want {
			t.Errorf("the Job selects %s=%s, its pod has %q", key, want, launcher.Labels[key])
		}
	}
	if launcher.Labels["training.kubeflow.org/replica-type"] != "launcher" || launcher.Labels["training.kubeflow.org/operator-name"] != "mpi-operator" {
		t.Errorf("the launcher has the labels %v", launcher.Labels)
	}
	if launcher.Spec.Hostname != "train-launcher" || launcher.Spec.RestartPolicy != corev1.RestartPolicyNever || !slices.Equal(launcher.Finalizers, []string{training.FinalizerLauncher}) {
		t.Errorf("the launcher is the host %s, restarts %s, and has the finalizers %v", launcher.Spec.Hostname, launcher.Spec.RestartPolicy, launcher.Finalizers)
	}
	service := mustGet(place, &corev1.Service{}, "train-worker")
	if service.Spec.ClusterIP != corev1.ClusterIPNone || !service.Spec.PublishNotReadyAddresses {
		t.Errorf("the Service has the address %s", service.Spec.ClusterIP)
	}
	for _, labels := range []map[string]string{launcher.Labels, mustGet(place, &corev1.Pod{}, "train-worker-0").Labels} {
		for key, value := range service.Spec.Selector {
			if labels[key] != value {
				t.Errorf("the Service selects %s=%s, a pod has %q", key, value, labels[key])
			}
		}
	}
	wantHostfile(place, "train-worker-0 slots=2\ntrain-worker-1 slots=2\n")
}

func wantHostfile(place *place, want string) {
	place.Helper()
	if got := mustGet(place, &corev1.ConfigMap{}, "train-hostfile").Data["hostfile"]; got != want {
		place.Errorf("the hostfile is %q, want %q", got, want)
	}
}

func TestObjectsOfATrainJob(t *testing.T) {
	t.Parallel()
	for kind, create := range map[string]func(*place, string) client.Object{
		"TrainingRuntime": func(_ *place, name string) client.Object { return runtime(name) },
		"ClusterTrainingRuntime": func(_ *place, name string) client.Object {
			return &v2alpha1.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: runtimeSpec()}
		},
	} {
		t.Run(kind, func(t *testing.T) {
			place := parallel(t)
			// A runtime of the cluster must not meet that of another test.
			runtimeName := place.Namespace
			place.Create(create(place, runtimeName))
			job := trainJob("", "train", func(job *v2alpha1.TrainJob) {
				job.Spec.RuntimeRef = v2alpha1.RuntimeRef{Kind: v2alpha1.RuntimeKind(kind), Name: runtimeName}
			})
			place.createEventually(job)
			wantOwned(t, job, "kubeflow.org/v2alpha1", "TrainJob", place.untilObjects(trainJobObjects...))
			wantJobSet(place)
			wantHostfile(place, "train-worker-0-0 slots=1\ntrain-worker-0-1 slots=1\n")
		})
	}
}

func wantJobSet(place *place) {
	place.Helper()
	set := mustGet(place, &jobset.JobSet{}, "train")
	if set.Spec.Suspend != nil {
		place.Errorf("the JobSet's suspend is %t: that is for Kueue to say", *set.Spec.Suspend)
	}
	if set.Spec.ManagedBy == nil || *set.Spec.ManagedBy != training.ManagedByTrireme {
		place.Errorf("the JobSet is managed by %v: JobSet's controller would create pods for it", set.Spec.ManagedBy)
	}
	got := map[string]int32{}
	for _, replicated := range set.Spec.ReplicatedJobs {
		got[replicated.Name] = replicated.Replicas * *replicated.Template.Spec.Completions
	}
	if want := map[string]int32{"launcher": 1, "worker": 2}; !maps.Equal(got, want) {
		place.Errorf("the JobSet has %v pods, want %v", got, want)
	}
	for role, names := range map[string][]string{
		training.RoleLauncher: {"train-launcher-0-0-r0"}, training.RoleWorker: {"train-worker-0-0-r0", "train-worker-0-1-r0"},
	} {
		for index, name := range names {
			pod := mustGet(place, &corev1.Pod{}, name)
			for label, want := range map[string]string{
				training.LabelReplicaType: role, training.LabelJobName: "train", training.LabelJobType: "trainjob", training.LabelRestart: "0",
				jobset.JobSetNameKey: "train", jobset.JobSetUIDKey: string(set.UID), jobset.ReplicatedJobNameKey: role,
				batchv1.JobCompletionIndexAnnotation: fmt.Sprint(index),
			} {
				if pod.Labels[label] != want {
					place.Errorf("the label %s of %s is %q, want %q", label, name, pod.Labels[label], want)
				}
			}
		}
	}
}

// Which PodGroup, and that pods are in it, by what the job asks for.
func TestGangs(t *testing.T) {
	t.Parallel()
	type gangCase struct {
		name   string
		policy *v2alpha1.PodGroupPolicy
		kind   schema.GroupVersionKind
		member []string
		joined func(*corev1.Pod) bool
	}
	cases := []gangCase{
		{
			"coscheduling", &v2alpha1.PodGroupPolicy{Coscheduling: &v2alpha1.GangPolicy{ScheduleTimeoutSeconds: new(int32(120))}},
			schema.GroupVersionKind{Group: "scheduling.x-k8s.io", Version: "v1alpha1", Kind: "PodGroup"}, []string{"spec", "minMember"},
			func(pod *corev1.Pod) bool {
				return pod.Labels["scheduling.x-k8s.io/pod-group"] == "train" && pod.Spec.SchedulerName == "scheduler-plugins-scheduler"
			},
		},
		{
			"volcano", &v2alpha1.PodGroupPolicy{Volcano: &v2alpha1.QueuedGangPolicy{Queue: "team"}},
			schema.GroupVersionKind{Group: "scheduling.volcano.sh", Version: "v1beta1", Kind: "PodGroup"}, []string{"spec", "minMember"},
			func(pod *corev1.Pod) bool {
				return pod.Annotations["scheduling.k8s.io/group-name"] == "train" && pod.Spec.SchedulerName == "volcano"
			},
		},
	}
	// TestNativeGang of test/e2e also tests a release without it.
	if api := controlplane.KubernetesOf(t).GangAPI; api != "" {
		cases = append(cases, gangCase{
			"native", &v2alpha1.PodGroupPolicy{Native: &v2alpha1.GangPolicy{}},
			schema.FromAPIVersionAndKind(api, "PodGroup"), []string{"spec", "schedulingPolicy", "gang", "minCount"},
			func(pod *corev1.Pod) bool {
				return pod.Spec.SchedulingGroup != nil && pod.Spec.SchedulingGroup.PodGroupName != nil && *pod.Spec.SchedulingGroup.PodGroupName == "train"
			},
		})
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			place := parallel(t)
			place.Create(runtime("mpi", func(spec *v2alpha1.TrainingRuntimeSpec) { spec.PodGroupPolicy = tc.policy }))
			job := trainJob("", "train")
			place.createEventually(job)
			place.untilObjects(trainJobObjects...)
			group := &unstructured.Unstructured{}
			group.SetGroupVersionKind(tc.kind)
			if members, _, err := unstructured.NestedInt64(mustGet(place, group, "train").Object, tc.member...); err != nil || members != 3 {
				t.Errorf("the group has %d members (%v)", members, err)
			}
			for _, pod := range place.PodsOf(job, "") {
				if !tc.joined(pod) {
					t.Errorf("pod %s is not in the group: %+v", pod.Name, pod.Spec)
				}
			}
		})
	}
}

// What was created is not touched again: not by what happens to pods, and not when
// the operator dies and another one takes over.
func TestNothingIsUpdated(t *testing.T) {
	t.Parallel()
	cluster := startCluster(t, withJobSet)
	place := cluster.newPlace(t, nil)
	place.Create(runtime("mpi"))
	jobs := []client.Object{mpiJob("train"), trainJob("", "bert")}
	var created []map[string]*metav1.PartialObjectMetadata
	for i, job := range jobs {
		place.createEventually(job)
		want := [][]string{mpiJobObjects, {"ConfigMap/bert-hostfile", "ControllerRevision/trireme-runtime", "JobSet/bert", "PodGroup/bert", "Secret/bert-ssh", "Service/bert-worker"}}[i]
		created = append(created, place.untilTheseObjects(want))
	}
	wantSame := func(when string) {
		t.Helper()
		now := place.objects()
		for _, objects := range created {
			for name, object := range objects {
				// Pods have a status, which the tests write, and workloads one that the operator does.
				hasStatus := object.Kind == "Pod" || object.Kind == "Job" || object.Kind == "JobSet"
				got := now[name]
				if got == nil || got.UID != object.UID || got.Generation != object.Generation && object.Kind != "Pod" || got.ResourceVersion != object.ResourceVersion && !hasStatus {
					t.Errorf("%s: %s has changed", when, name)
				}
			}
		}
	}
	var pods []*corev1.Pod
	for _, job := range jobs {
		launcher, workers := place.runs(job)
		pods = append(pods, workers...)
		// Its annotation is the one thing that is ever added.
		place.Until("the launcher knows that all workers run", launcher, func() error {
			if launcher.Annotations["training.kubeflow.org/workers-running-at"] == "" {
				return fmt.Errorf("its annotations are %v", launcher.Annotations)
			}
			return nil
		})
		pods = append(pods, launcher)
	}
	wantSame("both jobs run")

	// The next one has to wait until the Lease of this one is over.
	cluster.operator.Kill()
	cluster.start(t)
	cluster.waitUntilServed(t)
	another := mpiJob("another")
	place.createEventually(another)
	place.UntilWorkers(another, 2)
	place.stays("jobs that run are left alone by another operator", func() error {
		for _, job := range jobs {
			if err := place.Get(job, job.GetName()); err != nil || progressOf(job).Phase != training.PhaseRunning {
				return fmt.Errorf("%s: %v: %+v", job.GetName(), err, progressOf(job))
			}
		}
		return nil
	})
	wantSame("after a restart")
	for _, pod := range pods {
		if before := pod.ResourceVersion; mustGet(place, pod, pod.Name).ResourceVersion != before {
			t.Errorf("after a restart: pod %s has changed", pod.Name)
		}
	}
}

// untilTheseObjects waits until these objects are there, among others.
func (place *place) untilTheseObjects(want []string) map[string]*metav1.PartialObjectMetadata {
	place.Helper()
	found := map[string]*metav1.PartialObjectMetadata{}
	place.Eventually("the job has its objects", func() error {
		all := place.objects()
		clear(found)
		for _, name := range want {
			if all[name] == nil {
				return fmt.Errorf("there is no %s among %q", name, slices.Sorted(maps.Keys(all)))
			}
			found[name] = all[name]
		}
		return nil
	})
	return found
}
