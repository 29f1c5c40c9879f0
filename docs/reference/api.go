// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/charts"
)

// definition is the part of a CRD that the reference shows.
type definition struct {
	Spec struct {
		Group string
		Scope string
		Names struct {
			Kind, Plural string
			ShortNames   []string
		}
		Versions []struct {
			Name   string
			Schema struct{ OpenAPIV3Schema property }
		}
	}
}

// property is a schema in a CRD or in the OpenAPI document.
type property struct {
	Type, Format, Description string
	Ref                       string `json:"$ref"`
	Default                   any
	Enum                      []string
	Minimum, Maximum          *int64
	Required                  []string
	Properties                map[string]property
	AdditionalProperties      *property
	Items                     *property
	AnyOf                     []property
}

// kind is a section of api.md.
type kind struct {
	Name, APIVersion, Scope, Plural, Description string
	ShortNames                                   []string
	// Types are the kind itself and the structs in it that no earlier kind has.
	Types []*structType
}

// structType is a table of api.md. A CRD has no names of types, so they come from Go.
type structType struct {
	Name, Path string
	Fields     []field
}

type field struct {
	Name, Type, Description string
	Default                 any
	Enum                    []string
	Required                bool
}

// readKinds reads the CRDs, and the Go types of their kinds.
func readKinds() (kinds []*kind, err error) {
	scheme := runtime.NewScheme()
	if err := v2alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	if err := v2beta1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	definitions := map[string]*definition{}
	for _, content := range charts.CRDs() {
		crd := &definition{}
		if err := yaml.Unmarshal(content, crd); err != nil {
			return nil, err
		}
		definitions[crd.Spec.Names.Kind] = crd
	}
	seen := map[string]reflect.Type{}
	for _, name := range []string{"TrainJob", "TrainingRuntime", "ClusterTrainingRuntime", "MPIJob"} {
		crd := definitions[name]
		delete(definitions, name)
		version := crd.Spec.Versions[0]
		object, err := scheme.New(schema.GroupVersionKind{Group: crd.Spec.Group, Version: version.Name, Kind: name})
		if err != nil {
			return nil, err
		}
		one := &kind{
			Name: name, APIVersion: crd.Spec.Group + "/" + version.Name, Scope: crd.Spec.Scope, Plural: crd.Spec.Names.Plural,
			ShortNames: crd.Spec.Names.ShortNames, Description: version.Schema.OpenAPIV3Schema.Description,
		}
		if err := one.add(seen, "", reflect.TypeOf(object).Elem(), version.Schema.OpenAPIV3Schema); err != nil {
			return nil, err
		}
		kinds = append(kinds, one)
	}
	if len(definitions) > 0 {
		return nil, fmt.Errorf("docs/reference/api.go does not list all kinds of the CRDs")
	}
	return kinds, nil
}

// add adds a struct, and then the structs of its fields.
func (k *kind) add(seen map[string]reflect.Type, path string, goType reflect.Type, schema property) error {
	switch earlier := seen[goType.Name()]; {
	case earlier == goType:
		return nil
	case earlier != nil:
		return fmt.Errorf("%s and %s would have the same heading", earlier, goType)
	}
	seen[goType.Name()] = goType
	table := &structType{Name: goType.Name(), Path: path}
	k.Types = append(k.Types, table)
	for _, member := range members(goType) {
		name, _, _ := strings.Cut(member.Tag.Get("json"), ",")
		described, known := schema.Properties[name]
		if !known {
			return fmt.Errorf("the CRD of %s has no field %s.%s", k.Name, path, name)
		}
		text, _ := typeName(member.Type)
		table.Fields = append(table.Fields, field{
			Name: name, Type: text, Description: described.Description, Default: described.Default, Enum: described.Enum, Required: slices.Contains(schema.Required, name),
		})
	}
	for _, member := range members(goType) {
		name, _, _ := strings.Cut(member.Tag.Get("json"), ",")
		_, inner := typeName(member.Type)
		if inner == nil {
			continue
		}
		nested, step := schema.Properties[name], name
		switch {
		case nested.Items != nil:
			nested, step = *nested.Items, name+"[]"
		case nested.AdditionalProperties != nil:
			nested, step = *nested.AdditionalProperties, name+".*"
		}
		if err := k.add(seen, strings.TrimPrefix(path+"."+step, "."), inner, nested); err != nil {
			return err
		}
	}
	return nil
}

// members are the fields of a struct, with those of inlined structs. apiVersion and kind,
// which every object has, are left out.
func members(goType reflect.Type) (all []reflect.StructField) {
	for i := range goType.NumField() {
		member := goType.Field(i)
		name, _, _ := strings.Cut(member.Tag.Get("json"), ",")
		switch {
		case member.Type == reflect.TypeFor[metav1.TypeMeta]():
		case name == "":
			all = append(all, members(member.Type)...)
		default:
			all = append(all, member)
		}
	}
	return all
}

// typeName is the type of a field as the page shows it, and the struct that it contains
// if that has a table of its own: structs of Kubernetes have none.
func typeName(goType reflect.Type) (string, reflect.Type) {
	isKubernetes := strings.HasPrefix(goType.PkgPath(), "k8s.io/")
	switch goType.Kind() {
	case reflect.Pointer:
		return typeName(goType.Elem())
	case reflect.Slice:
		text, inner := typeName(goType.Elem())
		return "list of " + text, inner
	case reflect.Map:
		if isKubernetes {
			return kubernetesType(goType), nil
		}
		text, inner := typeName(goType.Elem())
		return "map of " + text, inner
	case reflect.Struct:
		if isKubernetes {
			return kubernetesType(goType), nil
		}
		return fmt.Sprintf("[%s](#%s)", goType.Name(), strings.ToLower(goType.Name())), goType
	case reflect.Bool:
		return "boolean", nil
	case reflect.Int32, reflect.Int64:
		return "integer", nil
	default:
		return goType.Kind().String(), nil
	}
}

// kubernetesType links to the documentation of Kubernetes; the template has the address.
func kubernetesType(goType reflect.Type) string {
	return fmt.Sprintf("[%s][kubernetes]", goType.Name())
}
