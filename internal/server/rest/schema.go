// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"encoding/json"
	"reflect"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// schema is a part of the OpenAPI document.
type schema = map[string]any

func reference(name string) schema { return schema{"$ref": "#/components/schemas/" + name} }

// schemas collects the JSON schemas of Go types.
type schemas map[string]schema

// of returns the schema of a type; structs with a name get a component of their own.
func (s schemas) of(kind reflect.Type) schema {
	switch kind {
	case reflect.TypeFor[time.Time](), reflect.TypeFor[metav1.Time]():
		return schema{"type": "string", "format": "date-time"}
	case reflect.TypeFor[resource.Quantity]():
		return schema{"type": "string"}
	case reflect.TypeFor[json.RawMessage]():
		return schema{"type": "object"}
	}
	switch kind.Kind() {
	case reflect.Pointer:
		return schema{"anyOf": []any{s.of(kind.Elem()), schema{"type": "null"}}}
	case reflect.Slice:
		return schema{"type": "array", "items": s.of(kind.Elem())}
	case reflect.Map:
		return schema{"type": "object", "additionalProperties": s.of(kind.Elem())}
	case reflect.String:
		return schema{"type": "string"}
	case reflect.Bool:
		return schema{"type": "boolean"}
	case reflect.Int, reflect.Int32, reflect.Int64:
		if _, isText := reflect.New(kind).Interface().(interface{ MarshalText() ([]byte, error) }); isText {
			return schema{"type": "string"}
		}
		return schema{"type": "integer"}
	case reflect.Float64:
		return schema{"type": "number"}
	case reflect.Struct:
		return s.ofStruct(kind)
	default:
		return schema{}
	}
}

func (s schemas) ofStruct(kind reflect.Type) schema {
	name := strings.ToUpper(kind.Name()[:1]) + kind.Name()[1:]
	if _, known := s[name]; !known {
		properties, required := schema{}, []string{}
		// Added before its fields, for types that contain themselves.
		s[name] = schema{"type": "object", "properties": properties}
		s.addFields(kind, properties, &required)
		s[name]["required"] = required
	}
	return reference(name)
}

func (s schemas) addFields(kind reflect.Type, properties schema, required *[]string) {
	for i := range kind.NumField() {
		field := kind.Field(i)
		tag, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case field.Anonymous && tag == "":
			embedded := field.Type
			if embedded.Kind() == reflect.Pointer {
				embedded = embedded.Elem()
			}
			s.addFields(embedded, properties, required)
		case tag == "" || tag == "-":
		default:
			properties[tag] = s.of(field.Type)
			if !strings.Contains(options, "omitempty") {
				*required = append(*required, tag)
			}
		}
	}
}
