// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/yaml"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/gang"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

const initializerImage = "registry.example.com/trireme/initializer:v0.1.0"

// Gang schedulers of clusters.
var (
	noGang          = gang.Available{}
	hasCoscheduling = gang.Available{Served: gang.Kinds(job.Coscheduling)}
	hasVolcano      = gang.Available{Served: gang.Kinds(job.Volcano)}
	hasNative       = gang.Available{Served: gang.Kinds(job.Native)}
	hasKAI          = gang.Available{Served: gang.Kinds(job.KAI)}
	everyGang       = []gang.Available{noGang, hasCoscheduling, hasVolcano, hasKAI, hasNative}
)

// workloadUID is the UID of the workload in these tests.
const workloadUID types.UID = "9abc"

// whole is a job, its state, and the cluster that it is planned for. By default it is
// active, with a workload, with image volumes and without a gang.
type whole struct {
	job        func() *job.Job
	state      State
	has        gang.Available
	method     Method
	noWorkload bool
}

func (tc whole) plan(t testing.TB) Plan {
	t.Helper()
	j := tc.job()
	return Of(j, tc.stateOf(), environment(t, j, tc.has, tc.method))
}

// stateOf is the state, with a workload by default.
func (tc whole) stateOf() State {
	state := tc.state
	if state.Stage == "" {
		state.Stage = Active
	}
	if !tc.noWorkload {
		state.Workload = workloadUID
	}
	return state
}

// environment is a cluster with an unusual cluster domain.
func environment(t testing.TB, j *job.Job, has gang.Available, method Method) Environment {
	t.Helper()
	backend, _, err := gang.Choose(j, has)
	if err != nil {
		t.Fatal(err)
	}
	if method == "" {
		method = ImageVolume
	}
	return Environment{
		Delivery:         Delivery{Method: method, Image: agentImage},
		InitializerImage: initializerImage, ClusterDomain: "cluster.example", Gang: backend, EgressPorts: []int32{443}, Reports: reports(),
	}
}

func reports() *Reports {
	return &Reports{URL: "https://trireme-reports.trireme-system.svc:9444", CA: []byte("the CA"), Namespace: "trireme-system", Port: 9444}
}

// workers are pods of an MPIJob called resnet in these phases.
func workers(phases ...corev1.PodPhase) []*corev1.Pod {
	return existing(mpiJob(), training.RoleWorker, 0, phases...)
}

// existing are existing pods of one role and one start in these phases.
func existing(j *job.Job, role string, restart int32, phases ...corev1.PodPhase) []*corev1.Pod {
	pods := make([]*corev1.Pod, len(phases))
	for i, phase := range phases {
		name := PodName(j, role, int32(i), restart)
		pods[i] = &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "team-a", Name: name, UID: types.UID("uid-of-" + name),
				Labels: map[string]string{training.LabelRestart: strconv.Itoa(int(restart))},
			},
			Status: corev1.PodStatus{Phase: phase},
		}
		if role == training.RoleLauncher {
			pods[i].Finalizers = []string{training.FinalizerLauncher}
		}
	}
	return pods
}

// kinds knows the kinds of all objects of a plan.
var kinds = func() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, batchv1.AddToScheme, networkingv1.AddToScheme, jobset.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			panic(err) // The kinds are constants of the libraries.
		}
	}
	return scheme
}()

func kindOf(t testing.TB, object gang.Object) schema.GroupVersionKind {
	t.Helper()
	if kind := object.GetObjectKind().GroupVersionKind(); !kind.Empty() {
		return kind
	}
	found, _, err := kinds.ObjectKinds(object)
	if err != nil {
		t.Fatal(err)
	}
	return found[0]
}

func describe(t testing.TB, object gang.Object) string {
	return fmt.Sprintf("%s %s", kindOf(t, object).Kind, object.GetName())
}

func describeAll(t testing.TB, objects []gang.Object) []string {
	var lines []string
	for _, object := range objects {
		lines = append(lines, describe(t, object))
	}
	return lines
}

// renderPlan is everything that must exist, as YAML, and then the names of what must be
// deleted.
func renderPlan(t testing.TB, plan Plan) []byte {
	t.Helper()
	var documents [][]byte
	for _, object := range slices.Concat(plan.Ensure, podObjects(plan)) {
		whole := object.DeepCopyObject()
		whole.GetObjectKind().SetGroupVersionKind(kindOf(t, object))
		documents = append(documents, document(t, whole))
	}
	if gone := describeAll(t, plan.Remove); len(gone) > 0 {
		documents = append(documents, document(t, map[string]any{"mustGo": gone}))
	}
	return bytes.Join(documents, []byte("---\n"))
}

func document(t testing.TB, content any) []byte {
	t.Helper()
	text, err := yaml.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// podObjects are the pods of a plan, as objects.
func podObjects(plan Plan) (objects []gang.Object) {
	for _, pod := range plan.Pods {
		objects = append(objects, pod)
	}
	return objects
}

// podsOf are the pods of a plan by name.
func podsOf(plan Plan) map[string]*corev1.Pod {
	found := map[string]*corev1.Pod{}
	for _, pod := range plan.Pods {
		found[pod.Name] = pod
	}
	return found
}

// launcherIn is the launcher's pod of a plan.
func launcherIn(t testing.TB, plan Plan) *corev1.Pod {
	t.Helper()
	for _, pod := range plan.Pods {
		if pod.Labels[training.LabelReplicaType] == training.RoleLauncher {
			return pod
		}
	}
	t.Fatalf("no launcher among %v", describeAll(t, podObjects(plan)))
	return nil
}

// templatesOf are the templates of the workloads among objects, by role.
func templatesOf(objects []gang.Object) map[string]*corev1.PodTemplateSpec {
	found := map[string]*corev1.PodTemplateSpec{}
	for _, object := range objects {
		switch object := object.(type) {
		case *batchv1.Job:
			found[training.RoleLauncher] = &object.Spec.Template
		case *jobset.JobSet:
			for i := range object.Spec.ReplicatedJobs {
				replicated := &object.Spec.ReplicatedJobs[i]
				found[replicated.Name] = &replicated.Template.Spec.Template
			}
		}
	}
	return found
}

// one is the only object of a type.
func one[T gang.Object](t testing.TB, objects []gang.Object) T {
	t.Helper()
	var found []T
	for _, object := range objects {
		if typed, isOne := object.(T); isOne {
			found = append(found, typed)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d of %T among %v", len(found), *new(T), describeAll(t, objects))
	}
	return found[0]
}

// container is the main container of a pod.
func container(pod *corev1.Pod) *corev1.Container { return &pod.Spec.Containers[0] }

// variables are the environment variables of a container that have values.
func variables(container *corev1.Container) map[string]string {
	found := map[string]string{}
	for _, variable := range container.Env {
		found[variable.Name] = variable.Value
	}
	return found
}
