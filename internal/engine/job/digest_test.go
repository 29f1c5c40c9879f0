// SPDX-License-Identifier: Apache-2.0

package job

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
)

func storedRuntime() *v2alpha1.TrainingRuntimeSpec {
	pod := func() corev1.PodTemplateSpec {
		template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			NodeSelector: map[string]string{"pool": "gpu"},
			Containers:   []corev1.Container{{Name: "main", Image: "registry.example/train:1", Env: []corev1.EnvVar{{Name: "MODE", Value: "<old> & slow"}}}},
		}}
		template.Labels = map[string]string{"team": "a"}
		return template
	}
	return &v2alpha1.TrainingRuntimeSpec{
		MLPolicy:    v2alpha1.MLPolicy{NumNodes: new(int32(2)), MPIImplementation: v2alpha1.MPIImplementationOpenMPI},
		Constraints: &v2alpha1.Constraints{RequiredNodeLabels: map[string]string{"zone": "a"}},
		Template: v2alpha1.RuntimeTemplate{Spec: v2alpha1.RuntimeTemplateSpec{ReplicatedJobs: []v2alpha1.ReplicatedJob{
			{Name: v2alpha1.ReplicatedJobLauncher, Template: pod()}, {Name: v2alpha1.ReplicatedJobWorker, Template: pod()},
		}}},
	}
}

func TestRuntimeFrom(t *testing.T) {
	spec := storedRuntime()
	digest, content, err := RuntimeDigest(spec)
	if err != nil || !IsDigest(digest) || len(ShortDigest(digest)) != 32 {
		t.Fatalf("the digest is %q (%v)", digest, err)
	}
	for name, tc := range map[string]struct {
		content   string
		wantError string
	}{
		"as it was stored":       {content: string(content)},
		"with other white space": {content: strings.ReplaceAll(string(content), ",", ",\n  ")},
		"with a field changed":   {content: strings.Replace(string(content), "train:1", "train:2", 1), wantError: "not " + digest},
		"with a field more":      {content: strings.Replace(string(content), "{", `{"other":1,`, 1), wantError: "not " + digest},
		"no JSON":                {content: "{", wantError: "decode the runtime"},
		"nothing":                {wantError: "decode the runtime"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := RuntimeFrom([]byte(tc.content), digest)
			if tc.wantError != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantError) {
					t.Errorf("the error is %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if difference := cmp.Diff(spec, got); difference != "" {
				t.Errorf("(-want +got):\n%s", difference)
			}
		})
	}
}

func TestIsDigest(t *testing.T) {
	right := "sha256:" + strings.Repeat("0123456789abcdef", 4)
	for text, want := range map[string]bool{
		right: true, "": false, "sha256:": false, strings.TrimPrefix(right, "sha256:"): false, right + "00": false, right[:70]: false,
		strings.ToUpper(right): false, "sha256:" + strings.Repeat("z", 64): false, "sha256:" + strings.Repeat("A", 64): false,
	} {
		if got := IsDigest(text); got != want {
			t.Errorf("IsDigest(%q) is %v", text, got)
		}
	}
}

// Jobs share a decoded runtime, so a model must not share memory with it.
func TestModelCopiesRuntime(t *testing.T) {
	runtime := storedRuntime()
	j := FromTrainJob(&v2alpha1.TrainJob{}, runtime, Defaults{})
	shared := map[uintptr]string{}
	pointers(reflect.ValueOf(runtime).Elem(), "runtime", shared)
	found := map[uintptr]string{}
	pointers(reflect.ValueOf(j).Elem(), "job", found)
	for pointer, where := range found {
		if also, is := shared[pointer]; is {
			t.Errorf("%s is %s", where, also)
		}
	}
	if len(shared) < 5 {
		t.Errorf("the runtime has only %v", shared)
	}
}

// pointers are the pointers, maps and slices that are reachable from a value.
func pointers(value reflect.Value, where string, found map[uintptr]string) {
	switch value.Kind() {
	case reflect.Pointer:
		if !value.IsNil() {
			found[value.Pointer()] = where
			pointers(value.Elem(), where, found)
		}
	case reflect.Slice:
		if value.Cap() > 0 {
			found[value.Pointer()] = where
		}
		for i := range value.Len() {
			pointers(value.Index(i), where+"[]", found)
		}
	case reflect.Map:
		if value.Len() > 0 {
			found[value.Pointer()] = where
		}
	case reflect.Struct:
		for i := range value.NumField() {
			pointers(value.Field(i), where+"."+value.Type().Field(i).Name, found)
		}
	}
}
