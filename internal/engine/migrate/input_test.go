// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestOldVersionsAreRecognised(t *testing.T) {
	for version, words := range map[string]string{"v1": "mainContainer", "v1alpha2": "mainContainer", "v1alpha1": "numNodes", "v3": "v2beta1"} {
		_, err := Read(documents(t, "apiVersion: kubeflow.org/"+version+"\nkind: MPIJob\nmetadata: {name: old}\n"))
		tooOld, is := errors.AsType[*TooOldError](err)
		if !is || !strings.Contains(err.Error(), "MPIJob old has version "+version) || !strings.Contains(strings.Join(tooOld.Advice, " "), words) {
			t.Errorf("%s: %v", version, err)
		}
	}
}

func TestRead(t *testing.T) {
	for name, test := range map[string]struct {
		text, want, err string
	}{
		"documents":              {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\n" + jobWith(), "ConfigMap a, MPIJob small", ""},
		"a list":                 {"apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Secret, metadata: {name: s}}\n", "Secret s", ""},
		"a typed list":           {"apiVersion: kubeflow.org/v2beta1\nkind: MPIJobList\nitems:\n- metadata: {generateName: b-}\n", "MPIJob b-", ""},
		"JSON":                   {`{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}`, "Secret s", ""},
		"no object":              {"a: b", "", "document 1 is not a Kubernetes object: apiVersion or kind is missing"},
		"nothing":                {"", "", "apiVersion or kind is missing"},
		"an old job in a list":   {"apiVersion: kubeflow.org/v1\nkind: MPIJobList\nitems: [{metadata: {name: b}}]\n", "", "MPIJob b has version v1"},
		"another group's MPIJob": {"apiVersion: example.com/v1\nkind: MPIJob\nmetadata: {name: b}\n", "MPIJob b", ""},
	} {
		t.Run(name, func(t *testing.T) {
			objects, err := Read(documents(t, test.text))
			if (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Fatalf("the error is %v, want %q", err, test.err)
			}
			var names []string
			for _, object := range objects {
				names = append(names, object.Named())
			}
			if got := strings.Join(names, ", "); got != test.want {
				t.Errorf("read %q, want %q", got, test.want)
			}
		})
	}
}

func TestWhatIsNoJobIsRefused(t *testing.T) {
	for name, test := range map[string]struct{ spec, err string }{
		"no launcher":                 {"mpiReplicaSpecs: {Worker: {}}", "has no launcher"},
		"a launcher without contents": {"mpiReplicaSpecs: {Launcher: {}}", "has no launcher"},
		"workers without contents":    {"mpiReplicaSpecs: {Launcher: {template: {spec: {containers: [{name: a}]}}}, Worker: {replicas: 2}}", "workers without a container"},
		"another type":                {"slotsPerWorker: many", "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			objects, err := Read(documents(t, "apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nmetadata: {name: odd}\nspec:\n  "+test.spec+"\n"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Convert(objects[0], Options{}); err == nil || !strings.Contains(err.Error(), test.err) || !strings.Contains(err.Error(), "MPIJob odd") {
				t.Errorf("%v does not say %q", err, test.err)
			}
		})
	}
}

func TestAJobWithoutANameIsRefused(t *testing.T) {
	objects, err := Read(documents(t, strings.Replace(jobWith(ranks, needs), "{name: small}", "{labels: {a: b}}", 1)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Convert(objects[0], Options{}); err == nil || !strings.Contains(err.Error(), "has no name") {
		t.Error(err)
	}
}

func TestPaths(t *testing.T) {
	value := map[string]any{"a": []any{map[string]any{"b.c/d": "1", `e]"`: "2", "7": "3"}}, "empty": map[string]any{}}
	var got []string
	for _, path := range leaves(value, "") {
		found, there := lookup(value, path)
		if !there {
			t.Errorf("%s leads nowhere", path)
		}
		text, _ := found.(string)
		got = append(got, path+"="+text)
	}
	want := []string{`a[0][7]=3`, `a[0][b.c/d]=1`, `a[0]["e]\""]=2`, `empty=`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if isBelow("spec.abc", "spec.ab") || !isBelow("spec.ab[0]", "spec.ab") || isBelow("spec", "") {
		t.Error("a path is not below what it only begins with")
	}
}

func TestReadHugeQuantity(t *testing.T) {
	_, err := Read(documents(t, "apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nspec: {runPolicy: {schedulingPolicy: {minResources: {cpu: 1E99999}}}}\n"))
	if want := "document 1: spec.runPolicy.schedulingPolicy.minResources.cpu: 1E99999 is too large or too small for a quantity"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
