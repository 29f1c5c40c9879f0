// SPDX-License-Identifier: Apache-2.0

package api

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

func schemaOf(t *testing.T, file string) *apiextensionsv1.JSONSchemaProps {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../charts/trireme/crds", file))
	if err != nil {
		t.Fatal(err)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(text, &crd); err != nil {
		t.Fatal(err)
	}
	if len(crd.Spec.Versions) != 1 {
		t.Fatalf("%d versions in %s", len(crd.Spec.Versions), file)
	}
	return crd.Spec.Versions[0].Schema.OpenAPIV3Schema
}

// walk visits a schema and all in it. A path has * for the keys of a map and []
// for the items of a list.
func walk(at string, schema *apiextensionsv1.JSONSchemaProps, visit func(at string, schema *apiextensionsv1.JSONSchemaProps)) {
	visit(at, schema)
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		property := schema.Properties[name]
		walk(at+"."+name, &property, visit)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		walk(at+".*", schema.AdditionalProperties.Schema, visit)
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		walk(at+"[]", schema.Items.Schema, visit)
	}
	for _, several := range [][]apiextensionsv1.JSONSchemaProps{schema.AllOf, schema.AnyOf, schema.OneOf} {
		for i := range several {
			walk(at, &several[i], visit)
		}
	}
}

// What mpi-operator stored must read back unchanged. Kubernetes' own schema of a
// pod has defaults, as that of mpi-operator has; ours has none.
func TestMPIJobHasNoDefaultsBesideThoseOfPods(t *testing.T) {
	ofPods := regexp.MustCompile(`^\.spec\.mpiReplicaSpecs\.\*\.template\.`)
	fields, podDefaults := 0, 0
	walk("", schemaOf(t, "kubeflow.org_mpijobs.yaml"), func(at string, schema *apiextensionsv1.JSONSchemaProps) {
		fields++
		switch {
		case schema.Default == nil:
		case ofPods.MatchString(at):
			podDefaults++
		default:
			t.Errorf("%s has the default %s", at, schema.Default.Raw)
		}
	})
	// A port without a protocol is TCP: if not even that is seen, nothing is.
	if fields < 1000 || podDefaults == 0 {
		t.Errorf("%d fields, and %d defaults in pods: the schema was not understood", fields, podDefaults)
	}
}

// What a type has and its CRD has not would be pruned without a word. The CRDs
// are generated; this finds one that was not generated anew.
func TestEveryFieldIsInItsCRD(t *testing.T) {
	for file, kind := range map[string]int{
		"kubeflow.org_mpijobs.yaml": 0, "kubeflow.org_trainjobs.yaml": 1, "kubeflow.org_trainingruntimes.yaml": 2, "kubeflow.org_clustertrainingruntimes.yaml": 3,
	} {
		t.Run(file, func(t *testing.T) {
			described := map[string]string{}
			walk("", schemaOf(t, file), func(at string, schema *apiextensionsv1.JSONSchemaProps) {
				// A choice such as integer or string comes after the field itself.
				if described[at] == "" {
					described[at] = schema.Description
				}
			})
			for _, at := range jsonPaths("", kinds[kind]) {
				if description, found := described[at]; !found || description == "" {
					t.Errorf("%s is in the type, and in the CRD: %t, described as %q", at, found, description)
				}
			}
		})
	}
}

// jsonPaths are where the fields of our own structs stand in an object.
func jsonPaths(at string, visited reflect.Type) []string {
	switch visited.Kind() {
	case reflect.Pointer:
		return jsonPaths(at, visited.Elem())
	case reflect.Slice:
		return jsonPaths(at+"[]", visited.Elem())
	case reflect.Map:
		return jsonPaths(at+".*", visited.Elem())
	case reflect.Struct:
		if !strings.HasPrefix(visited.PkgPath(), module) {
			return nil
		}
	default:
		return nil
	}
	var paths []string
	for i := range visited.NumField() {
		switch name, _, _ := strings.Cut(visited.Field(i).Tag.Get("json"), ","); name {
		case "metadata":
		case "":
			paths = append(paths, jsonPaths(at, visited.Field(i).Type)...)
		default:
			paths = append(append(paths, at+"."+name), jsonPaths(at+"."+name, visited.Field(i).Type)...)
		}
	}
	return paths
}

// Operator and server decode every stored job, also those that no webhook has checked. A
// quantity with a huge exponent would need all of their memory.
func TestQuantitiesHaveSmallExponents(t *testing.T) {
	files, err := filepath.Glob("../charts/trireme/crds/*.yaml")
	if err != nil || len(files) != 4 {
		t.Fatalf("%d CRDs, %v", len(files), err)
	}
	for _, file := range files {
		quantities := 0
		walk("", schemaOf(t, filepath.Base(file)), func(at string, schema *apiextensionsv1.JSONSchemaProps) {
			if !strings.Contains(schema.Pattern, "Ki") && !strings.Contains(schema.Pattern, "[KMGTPE]i") {
				return
			}
			quantities++
			pattern := regexp.MustCompile(schema.Pattern)
			for value, want := range map[string]bool{"1": true, "0.5": true, "16Gi": true, "100m": true, "1e3": true, "1E+18": true, "1e99999": false, "1234567890123456789e999999999": false} {
				if pattern.MatchString(value) != want {
					t.Errorf("%s %s: accepting %s is %t, want %t", file, at, value, !want, want)
				}
			}
		})
		if quantities == 0 {
			t.Errorf("%s has no quantities: the schema was not understood", file)
		}
	}
}
