// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"math"
	"strconv"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/trireme-mpi/trireme/internal/server/apierror"
)

// structOf converts JSON content to a protobuf Struct.
func structOf(content map[string]any) *structpb.Struct {
	result := &structpb.Struct{Fields: make(map[string]*structpb.Value, len(content))}
	for name, value := range content {
		result.Fields[name] = structValue(value)
	}
	return result
}

func structValue(value any) *structpb.Value {
	switch value := value.(type) {
	case map[string]any:
		return structpb.NewStructValue(structOf(value))
	case []any:
		list := &structpb.ListValue{}
		for _, element := range value {
			list.Values = append(list.Values, structValue(element))
		}
		return structpb.NewListValue(list)
	case string:
		return structpb.NewStringValue(value)
	case bool:
		return structpb.NewBoolValue(value)
	case float64:
		return structpb.NewNumberValue(value)
	case int64:
		if !isExact(value) {
			return structpb.NewStructValue(structOf(map[string]any{int64Key: strconv.FormatInt(value, 10)}))
		}
		return structpb.NewNumberValue(float64(value))
	default:
		return structpb.NewNullValue()
	}
}

// fromStruct converts a protobuf Struct to JSON content. It refuses numbers that are too
// large to be exact.
func fromStruct(message *structpb.Struct, path string) (map[string]any, error) {
	content := make(map[string]any, len(message.GetFields()))
	for name, value := range message.GetFields() {
		read, err := fromStructValue(value, join(path, name))
		if err != nil {
			return nil, err
		}
		content[name] = read
	}
	return content, nil
}

func fromStructValue(value *structpb.Value, path string) (any, error) {
	switch value := value.GetKind().(type) {
	case *structpb.Value_StructValue:
		if large, is := value.StructValue.GetFields()[int64Key]; is && len(value.StructValue.GetFields()) == 1 {
			return largeNumber(large.GetStringValue(), path)
		}
		return fromStruct(value.StructValue, path)
	case *structpb.Value_ListValue:
		list := []any{}
		for i, element := range value.ListValue.GetValues() {
			read, err := fromStructValue(element, index(path, i))
			if err != nil {
				return nil, err
			}
			list = append(list, read)
		}
		return list, nil
	case *structpb.Value_StringValue:
		return value.StringValue, nil
	case *structpb.Value_BoolValue:
		return value.BoolValue, nil
	case *structpb.Value_NumberValue:
		return number(value.NumberValue, path)
	default:
		return nil, nil
	}
}

func number(value float64, path string) (any, error) {
	switch {
	case math.IsNaN(value) || math.IsInf(value, 0):
		return nil, apierror.Invalid(path, "%v is not a number that Kubernetes accepts", value)
	case isWhole(value):
		return int64(value), nil
	case math.Abs(value) > maxExact:
		return nil, apierror.Invalid(path, `the number %.0f is too large to be exact in other_fields; write {"%s": "%.0f"}`, value, int64Key, value)
	default:
		return value, nil
	}
}

func largeNumber(text, path string) (any, error) {
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil, apierror.Invalid(path, "%s %q is not a 64-bit integer", int64Key, text)
	}
	return value, nil
}

// join returns the path of a field in an object.
func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// index returns the path of an element of a list.
func index(path string, number int) string { return path + "[" + strconv.Itoa(number) + "]" }
