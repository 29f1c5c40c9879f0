// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
)

func ownRuntime(namespace, name string) *v2alpha1.TrainingRuntime {
	trainingRuntime := &v2alpha1.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, CreationTimestamp: ago(90)}, Spec: *runtimeNamed(name).Spec.DeepCopy()}
	trainingRuntime.Spec.MLPolicy.MPIImplementation = v2alpha1.MPIImplementationMPICH
	trainingRuntime.Spec.PodGroupPolicy = &v2alpha1.PodGroupPolicy{Native: &v2alpha1.GangPolicy{}}
	trainingRuntime.Spec.Template.Spec.ReplicatedJobs[1].Template.Spec.Containers[0].Image = "quay.io/team/train:7"
	return trainingRuntime
}

func TestRuntimeListAndValidate(t *testing.T) {
	some := []client.Object{runtimeNamed("mpi-openmpi-cpu"), runtimeNamed("a-first"), ownRuntime("default", "ours"), ownRuntime("other", "theirs")}
	with := func(on terminal, objects ...client.Object) session { return session{terminal: on, objects: objects} }
	checkGolden(t, "runtime", map[string]struct {
		session
		line string
	}{
		"list":                    {with(noTerminal, some...), "runtime list"},
		"list all":                {with(noTerminal, some...), "runtime list -A"},
		"list wide":               {with(noTerminal, some...), "runtime list -o wide"},
		"list name":               {with(noTerminal, some...), "runtimes get -o name"},
		"list json":               {with(noTerminal, runtimeNamed("one")), "runtime list -o json"},
		"list columns":            {with(noTerminal, some...), "runtime list -o custom-columns=N:.metadata.name,MPI:.spec.mlPolicy.mpiImplementation"},
		"list nothing":            {with(noTerminal), "runtime list"},
		"list forbidden":          {session{objects: some, answers: forbidden()}, "runtime list"},
		"list unknown output":     {with(noTerminal), "runtime list -o picture"},
		"validate good":           {with(noTerminal), "runtime validate testdata/runtimes/good.yaml"},
		"validate huge":           {with(noTerminal), "runtime validate testdata/runtimes/huge.yaml"},
		"validate odd":            {with(noTerminal), "runtime validate testdata/runtimes/odd.yaml"},
		"validate odd narrow":     {with(narrow), "runtime validate testdata/runtimes/odd.yaml"},
		"validate odd colourful":  {with(colourful), "runtime validate testdata/runtimes/odd.yaml"},
		"validate odd json":       {with(noTerminal), "runtime validate testdata/runtimes/odd.yaml -o json"},
		"validate both":           {with(noTerminal), "runtime validate testdata/runtimes/good.yaml testdata/runtimes/odd.yaml -o yaml"},
		"validate stdin":          {session{stdin: "# nothing\n"}, "runtime validate -"},
		"validate no file":        {with(noTerminal), "runtime validate nothing.yaml"},
		"validate without a file": {with(noTerminal), "runtime validate"},
		"test no image":           {with(noTerminal, some...), "runtime test mpi-openmpi-cpu"},
		"test no runtime":         {with(noTerminal, some...), "runtime test nothing --image x"},
		"test no amount":          {with(noTerminal, some...), "runtime test ours --cpu much"},
		"test of another kind":    {with(noTerminal, some...), "runtime test ours --kind ClusterTrainingRuntime"},
		"test no kind":            {with(noTerminal, some...), "runtime test ours --kind Deployment"},
		"test of what is hidden":  {session{objects: some, answers: forbidden("ClusterTrainingRuntime")}, "runtime test theirs --image x"},
		"test forbidden":          {session{objects: some, answers: forbidden("ClusterTrainingRuntime")}, "runtime test mpi-openmpi-cpu --kind clustertrainingruntime --image x"},
	})
}

// The line of a field, in every style of YAML.
func TestLineOf(t *testing.T) {
	const text = `spec:
  a: 1
  template:
    # spec: a comment
    metadata:
      spec: 1
    spec:
      jobs:
      - name: one
        spec:
          containers:
            - name: c
              image: x
            -
              name: d
      - name: two
        "quoted": 1
        spec: {containers: [{name: e}]}
last: 1
`
	part := filePart{line: 10, text: text}
	for path, want := range map[string]int{
		"spec": 10, "spec.a": 11, "spec.template.spec": 16, "spec.template.spec.jobs[0].name": 18, "spec.template.spec.jobs[0].spec.containers[0].image": 22,
		"spec.template.spec.jobs[0].spec.containers[1].name": 24, "spec.template.spec.jobs[1].name": 25, "spec.template.spec.jobs[1].quoted": 26,
		"spec.template.spec.jobs[1].spec.containers[0].name": 27, "spec.template.spec.jobs[2].name": 17, "last": 28, "nothing": 0, "spec.nothing.more": 10,
		"spec.template.spec.jobs[0].image": 18,
	} {
		if got := part.lineOf(path); got != want {
			t.Errorf("%s is on line %d, want %d", path, got, want)
		}
	}
}

func TestNumbered(t *testing.T) {
	parts := numbered("a: 1\n---\nb: 2\n---  \n---text\nc: 3")
	want := []filePart{{1, "a: 1\n"}, {3, "b: 2\n"}, {5, "---text\nc: 3"}}
	if !slices.Equal(parts, want) {
		t.Errorf("%+v", parts)
	}
}
