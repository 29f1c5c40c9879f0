// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
)

// secretFields finds every field of a type whose name says that it is a Secret, as
// Kubernetes writes paths.
func secretFields(kind reflect.Type, at string) (found []string) {
	switch kind.Kind() {
	case reflect.Pointer:
		return secretFields(kind.Elem(), at)
	case reflect.Slice:
		return secretFields(kind.Elem(), at+"[0]")
	case reflect.Struct:
		for i := range kind.NumField() {
			field := kind.Field(i)
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			path := strings.TrimPrefix(at+"."+name, ".")
			if name == "" {
				path = at
			}
			if isSecretName(field) {
				found = append(found, path)
				continue
			}
			found = append(found, secretFields(field.Type, path)...)
		}
	}
	return found
}

// isSecretName: such a field is the name itself, or a struct with a name. A SecretFile
// is a file of the node.
func isSecretName(field reflect.StructField) bool {
	if !strings.Contains(field.Name, "Secret") || field.Name == "SecretFile" {
		return false
	}
	kind := field.Type
	for kind.Kind() == reflect.Pointer || kind.Kind() == reflect.Slice {
		kind = kind.Elem()
	}
	if kind.Kind() == reflect.String {
		return true
	}
	_, hasName := kind.FieldByName("Name")
	return hasName
}

// setSecret follows a path of secretFields, and puts the name there.
func setSecret(t *testing.T, value reflect.Value, path, name string) {
	t.Helper()
	for value.Kind() == reflect.Pointer || value.Kind() == reflect.Slice {
		if value.Kind() == reflect.Slice {
			value.Set(reflect.MakeSlice(value.Type(), 1, 1))
			value = value.Index(0)
			continue
		}
		value.Set(reflect.New(value.Type().Elem()))
		value = value.Elem()
	}
	if path == "" {
		if value.Kind() == reflect.Struct {
			value = value.FieldByName("Name")
		}
		value.SetString(name)
		return
	}
	first, rest, _ := strings.Cut(path, ".")
	field, found := fieldOf(value, strings.TrimSuffix(first, "[0]"))
	if !found {
		t.Fatalf("%s has no field %s", value.Type(), first)
	}
	setSecret(t, field, rest, name)
}

func fieldOf(value reflect.Value, name string) (reflect.Value, bool) {
	for i := range value.NumField() {
		tag, _, _ := strings.Cut(value.Type().Field(i).Tag.Get("json"), ",")
		if tag == name {
			return value.Field(i), true
		}
		if tag == "" {
			if field, found := fieldOf(value.Field(i), name); found {
				return field, true
			}
		}
	}
	return reflect.Value{}, false
}

// Whichever field of a pod names a Secret, it is found, also one that a later
// Kubernetes adds.
func TestEverySecretOfAPodIsFound(t *testing.T) {
	paths := secretFields(reflect.TypeFor[corev1.PodSpec](), "")
	if len(paths) < 15 {
		t.Fatalf("only %d fields are known: %v", len(paths), paths)
	}
	for _, path := range paths {
		t.Run(path, func(t *testing.T) {
			var pod corev1.PodSpec
			setSecret(t, reflect.ValueOf(&pod).Elem(), path, "token")
			mpiJob := &v2beta1.MPIJob{}
			mpiJob.Spec.MPIReplicaSpecs = map[v2beta1.MPIReplicaType]*v2beta1.ReplicaSpec{"Worker": {Template: corev1.PodTemplateSpec{Spec: pod}}}
			got := MPIJobReferences(mpiJob)
			if len(got) != 1 || got[0].Kind != ReferenceSecret || got[0].Name != "token" {
				t.Fatalf("got %v", got)
			}
			if at := got[0].Path.String(); !strings.HasPrefix(at, "spec.mpiReplicaSpecs.Worker.template.spec."+path) {
				t.Errorf("found at %s, want %s", at, path)
			}
		})
	}
}

func TestEverySecretOfATrainJobIsFound(t *testing.T) {
	for _, path := range secretFields(reflect.TypeFor[v2alpha1.TrainJobSpec](), "") {
		trainJob := &v2alpha1.TrainJob{}
		setSecret(t, reflect.ValueOf(&trainJob.Spec).Elem(), path, "token")
		if got := TrainJobReferences(trainJob); len(got) != 1 || got[0].Name != "token" {
			t.Errorf("%s: got %v", path, got)
		}
	}
}

// Each object is asked about once, in an order that does not vary.
func TestReferencesInOrder(t *testing.T) {
	pod := func(account string, secrets ...string) corev1.PodTemplateSpec {
		spec := corev1.PodSpec{ServiceAccountName: account, DeprecatedServiceAccount: account}
		for _, secret := range secrets {
			spec.ImagePullSecrets = append(spec.ImagePullSecrets, corev1.LocalObjectReference{Name: secret})
		}
		return corev1.PodTemplateSpec{Spec: spec}
	}
	mpiJob := &v2beta1.MPIJob{}
	mpiJob.Spec.MPIReplicaSpecs = map[v2beta1.MPIReplicaType]*v2beta1.ReplicaSpec{
		"Worker": {Template: pod("robot", "b", "a", "robot")}, "Launcher": {Template: pod("default", "a", "", "a")}, "Other": nil,
	}
	var got []string
	for _, reference := range MPIJobReferences(mpiJob) {
		got = append(got, fmt.Sprintf("%s %s %s", reference.Kind, reference.Name, reference.Path))
	}
	want := []string{
		"Secret a spec.mpiReplicaSpecs.Launcher.template.spec.imagePullSecrets[0].name",
		"ServiceAccount robot spec.mpiReplicaSpecs.Worker.template.spec.serviceAccountName",
		"Secret b spec.mpiReplicaSpecs.Worker.template.spec.imagePullSecrets[0].name",
		"Secret robot spec.mpiReplicaSpecs.Worker.template.spec.imagePullSecrets[2].name",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("references (-want +got):\n%s", diff)
	}
	if len(MPIJobReferences(&v2beta1.MPIJob{})) > 0 {
		t.Error("an empty job has references")
	}
}
