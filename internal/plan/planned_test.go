package plan

import (
	"bytes"
	"fmt"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/yaml"

	"github.com/trireme-mpi/trireme/internal/gang"
	"github.com/trireme-mpi/trireme/internal/job"
)

const initializerImage = "registry.example.com/trireme/initializer:v0.1.0"

// What clusters have to place pods together.
var (
	noGang          = gang.Available{}
	hasCoscheduling = gang.Available{Coscheduling: true}
	hasVolcano      = gang.Available{Volcano: true}
	hasNative       = gang.Available{Native: true}
	everyGang       = []gang.Available{noGang, hasCoscheduling, hasVolcano, hasNative}
)

// whole is a job, where it stands, and the cluster that it is planned for. It is
// active, with image volumes and without a gang, unless it says otherwise.
type whole struct {
	job    func() *job.Job
	state  State
	has    gang.Available
	method Method
}

func (tc whole) plan(t testing.TB) Plan {
	t.Helper()
	made, state := tc.job(), tc.state
	if state.Stage == "" {
		state.Stage = Active
	}
	return Of(made, state, surroundings(t, made, tc.has, tc.method))
}

// surroundings are a cluster whose Services do not end in what most do.
func surroundings(t testing.TB, made *job.Job, has gang.Available, method Method) Surroundings {
	t.Helper()
	backend, _, err := gang.Choose(made, has)
	if err != nil {
		t.Fatal(err)
	}
	if method == "" {
		method = ImageVolume
	}
	return Surroundings{
		Delivery:         Delivery{Method: method, Image: agentImage},
		InitializerImage: initializerImage, ClusterDomain: "cluster.example", Gang: backend, EgressPorts: []int32{443},
	}
}

// workers are pods of an MPIJob called resnet, by their phases.
func workers(phases ...corev1.PodPhase) []*corev1.Pod {
	pods := make([]*corev1.Pod, len(phases))
	for i, phase := range phases {
		pods[i] = &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: job.WorkerName("resnet", int32(i))},
			Status:     corev1.PodStatus{Phase: phase},
		}
	}
	return pods
}

// kinds knows the kinds of everything that a plan is made of.
var kinds = func() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, batchv1.AddToScheme, networkingv1.AddToScheme, schedulingv1alpha2.AddToScheme, jobset.AddToScheme,
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

// renderPlan is everything that must exist, as it is sent to an API server, and
// then the names of what must go.
func renderPlan(t testing.TB, plan Plan) []byte {
	t.Helper()
	var documents [][]byte
	for _, object := range plan.Ensure {
		whole := object.DeepCopyObject()
		whole.GetObjectKind().SetGroupVersionKind(kindOf(t, object))
		documents = append(documents, document(t, whole))
	}
	if gone := describeAll(t, plan.Remove); len(gone) > 0 || plan.StopLauncher {
		documents = append(documents, document(t, map[string]any{"mustGo": gone, "stopLauncher": plan.StopLauncher}))
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

// podsOf are all pods that come of objects, by the names of what makes them.
func podsOf(objects []gang.Object) map[string]*corev1.PodTemplateSpec {
	found := map[string]*corev1.PodTemplateSpec{}
	for _, object := range objects {
		switch object := object.(type) {
		case *corev1.Pod:
			found["Pod "+object.Name] = &corev1.PodTemplateSpec{ObjectMeta: object.ObjectMeta, Spec: object.Spec}
		case *batchv1.Job:
			found["Job "+object.Name] = &object.Spec.Template
		case *jobset.JobSet:
			for i := range object.Spec.ReplicatedJobs {
				replicated := &object.Spec.ReplicatedJobs[i]
				found["JobSet "+object.Name+" "+replicated.Name] = &replicated.Template.Spec.Template
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

// container is the first one of a pod: the one that runs the user's program.
func container(template *corev1.PodTemplateSpec) *corev1.Container {
	return &template.Spec.Containers[0]
}

// variables are the environment of a container whose variables have values.
func variables(container *corev1.Container) map[string]string {
	found := map[string]string{}
	for _, variable := range container.Env {
		found[variable.Name] = variable.Value
	}
	return found
}
