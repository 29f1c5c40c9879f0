// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/testing/goldenfile"
)

// goldens are groups and their pods.
var goldens = map[string]struct {
	job     func() *job.Job
	backend Backend
}{
	"coscheduling":                            {backend: coscheduling{DefaultCoschedulerName}, job: of(timeout(300), priority("high"))},
	"coscheduling with the longest timeout":   {backend: coscheduling{DefaultCoschedulerName}, job: of(timeout(3600))},
	"coscheduling without a timeout":          {backend: coscheduling{"gangs"}, job: of()},
	"coscheduling with fewer members":         {backend: coscheduling{DefaultCoschedulerName}, job: of(minMember(2))},
	"coscheduling with resources of the user": {backend: coscheduling{DefaultCoschedulerName}, job: of(minResourcesOf("nvidia.com/gpu", "24"))},
	"coscheduling without resources":          {backend: coscheduling{DefaultCoschedulerName}, job: of(minResourcesOf())},
	"volcano":                                 {backend: volcano{"volcano"}, job: of(timeout(300))},
	"volcano with a queue and a priority":     {backend: volcano{"volcano"}, job: of(volcanoQueueOf("gold"), priority("high"))},
	"volcano for templates of the user":       {backend: volcano{"volcano-gpu"}, job: of(decorated, scheduledBy("volcano-gpu", "default-scheduler"))},
	"kai":                                     {backend: kai{"kai-scheduler"}, job: of(timeout(300))},
	"kai with a queue and a priority":         {backend: kai{"kai-scheduler"}, job: of(volcanoQueueOf("gold"), priority("high"))},
	"native":                                  {backend: native{kind: nativeAlpha}, job: of(timeout(300), priority("high"), minResourcesOf("cpu", "9"))},
	"native with a scheduler of the user":     {backend: native{nativeAlpha, "mine"}, job: of(scheduledBy("", "mine"))},
	"native beta":                             {backend: native{kind: nativeBeta}, job: of(timeout(300), minResourcesOf("cpu", "9"))},
	"native beta with a priority":             {backend: native{kind: nativeBeta}, job: of(priority("high"))},
	"native beta with a priority of workers":  {backend: native{kind: nativeBeta}, job: of(priority("high"), workerPriority("higher"))},
	"native beta with a scheduler":            {backend: native{nativeBeta, "mine"}, job: of(scheduledBy("", "mine"))},
	"none":                                    {backend: none{}, job: of(decorated)},
}

func of(options ...option) func() *job.Job {
	return func() *job.Job { return mpiJob(options...) }
}

// golden is the output of a backend for a job.
type golden struct {
	Group    Object                 `json:"group"`
	Launcher corev1.PodTemplateSpec `json:"launcher"`
	Worker   corev1.PodTemplateSpec `json:"worker"`
}

func TestGoldens(t *testing.T) {
	files := map[string]bool{}
	for name, tc := range goldens {
		file := filepath.Join("testdata", strings.NewReplacer(" ", "-", "'", "").Replace(name)+".golden.json")
		files[file] = true
		t.Run(name, func(t *testing.T) {
			got := render(t, tc.backend, tc.job())
			goldenfile.Check(t, file, got)
		})
	}
	goldenfile.NoOthers(t, "testdata/*", files)
}

func render(t *testing.T, backend Backend, j *job.Job) []byte {
	t.Helper()
	labels := map[string]string{"training.kubeflow.org/job-name": j.Name}
	result := golden{Group: backend.Group(j, labels), Launcher: *j.Launcher.Template.DeepCopy(), Worker: *j.Worker.Template.DeepCopy()}
	backend.Join(j, &result.Launcher)
	backend.Join(j, &result.Worker)
	text, err := json.MarshalIndent(result, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return append(text, '\n')
}

// MinMember reads typed and unstructured groups.
func TestMinMember(t *testing.T) {
	for name, tc := range goldens {
		t.Run(name, func(t *testing.T) {
			j := tc.job()
			group := tc.backend.Group(j, nil)
			if tc.backend.Name() == None {
				if group != nil {
					t.Fatalf("unexpected group %v", group)
				}
				return
			}
			if kind := group.GetObjectKind().GroupVersionKind(); kind != tc.backend.GroupKind() {
				t.Errorf("kind %v, want %v", kind, tc.backend.GroupKind())
			}
			for form, object := range map[string]Object{"written": group, "read": reread(t, group)} {
				if got, found := tc.backend.MinMember(object); !found || got != j.Gang.MinMember {
					t.Errorf("%s: minMember %d, %t, want %d", form, got, found, j.Gang.MinMember)
				}
			}
		})
	}
}

// reread is an object as an untyped client returns it.
func reread(t *testing.T, object Object) Object {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	read := &unstructured.Unstructured{}
	if err := read.UnmarshalJSON(text); err != nil {
		t.Fatal(err)
	}
	return read
}

func TestMinMemberOfInvalidGroups(t *testing.T) {
	spec := func(spec any) Object {
		return &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	}
	tests := map[string]struct {
		backend Backend
		group   Object
	}{
		"no group":                             {backend: coscheduling{}},
		"an empty object":                      {backend: coscheduling{}, group: &unstructured.Unstructured{}},
		"no spec":                              {backend: volcano{}, group: &unstructured.Unstructured{Object: map[string]any{"kind": podGroup}}},
		"a spec without the field":             {backend: volcano{}, group: spec(map[string]any{"queue": "gold"})},
		"an invalid spec":                      {backend: volcano{}, group: spec("gold")},
		"a string":                             {backend: coscheduling{}, group: spec(map[string]any{"minMember": "4"})},
		"too large":                            {backend: coscheduling{}, group: spec(map[string]any{"minMember": int64(1) << 40})},
		"negative":                             {backend: coscheduling{}, group: spec(map[string]any{"minMember": int64(-1)})},
		"a native group that is not a gang":    {backend: native{}, group: notAGang()},
		"a native group for another scheduler": {backend: coscheduling{}, group: native{kind: nativeBeta}.Group(mpiJob(), nil)},
		"a typed nil":                          {backend: native{}, group: (*schedulingv1alpha2.PodGroup)(nil)},
		"the backend none":                     {backend: none{}, group: spec(map[string]any{"minMember": int64(4)})},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got, found := tc.backend.MinMember(tc.group); found || got != 0 {
				t.Errorf("minMember %d, %t, want none", got, found)
			}
		})
	}
}

// notAGang is a native PodGroup whose pods are scheduled one by one.
func notAGang() Object {
	group := &schedulingv1alpha2.PodGroup{}
	group.Spec.SchedulingPolicy.Basic = &schedulingv1alpha2.BasicSchedulingPolicy{}
	return group
}

// A backend must not change the job or the labels that it is given.
func TestInputsAreNotChanged(t *testing.T) {
	for name, tc := range goldens {
		t.Run(name, func(t *testing.T) {
			j, labels := tc.job(), map[string]string{"team": "a"}
			if group := tc.backend.Group(j, labels); group != nil {
				group.GetLabels()["team"] = "b"
				changed := group.GetLabels()
				changed["another"] = "label"
				group.SetLabels(changed)
			}
			if diff := cmp.Diff(tc.job(), j); diff != "" {
				t.Errorf("the job changed (-before +after):\n%s", diff)
			}
			if diff := cmp.Diff(map[string]string{"team": "a"}, labels); diff != "" {
				t.Errorf("the labels changed (-before +after):\n%s", diff)
			}
		})
	}
}
