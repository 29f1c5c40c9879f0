package objects

import (
	"math"
	"strconv"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/trireme-mpi/trireme/internal/server/apierror"
)

// structOf is JSON as a message of protobuf's own.
func structOf(content map[string]any) *structpb.Struct {
	made := &structpb.Struct{Fields: make(map[string]*structpb.Value, len(content))}
	for name, value := range content {
		made.Fields[name] = structValue(value)
	}
	return made
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
			return structpb.NewStructValue(structOf(map[string]any{largeMark: strconv.FormatInt(value, 10)}))
		}
		return structpb.NewNumberValue(float64(value))
	default:
		return structpb.NewNullValue()
	}
}

// fromStruct is the JSON in a message of protobuf's own. A number that is too large
// to be certain is refused: nobody knows which one was meant.
func fromStruct(message *structpb.Struct, at string) (map[string]any, error) {
	content := make(map[string]any, len(message.GetFields()))
	for name, value := range message.GetFields() {
		read, err := fromStructValue(value, join(at, name))
		if err != nil {
			return nil, err
		}
		content[name] = read
	}
	return content, nil
}

func fromStructValue(value *structpb.Value, at string) (any, error) {
	switch value := value.GetKind().(type) {
	case *structpb.Value_StructValue:
		if large, is := value.StructValue.GetFields()[largeMark]; is && len(value.StructValue.GetFields()) == 1 {
			return largeNumber(large.GetStringValue(), at)
		}
		return fromStruct(value.StructValue, at)
	case *structpb.Value_ListValue:
		list := []any{}
		for i, element := range value.ListValue.GetValues() {
			read, err := fromStructValue(element, index(at, i))
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
		return number(value.NumberValue, at)
	default:
		return nil, nil
	}
}

func number(value float64, at string) (any, error) {
	switch {
	case math.IsNaN(value) || math.IsInf(value, 0):
		return nil, apierror.Invalid(at, "%v is not a number that Kubernetes accepts", value)
	case isWhole(value):
		return int64(value), nil
	case math.Abs(value) > mostExact:
		return nil, apierror.Invalid(at, `the number %.0f is too large to be exact in other_fields; write {"%s": "%.0f"}`, value, largeMark, value)
	default:
		return value, nil
	}
}

func largeNumber(text, at string) (any, error) {
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil, apierror.Invalid(at, "%s %q is not a 64-bit integer", largeMark, text)
	}
	return value, nil
}

// join is the place of a field within an object.
func join(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}

// index is the place of an element of a list.
func index(at string, number int) string { return at + "[" + strconv.Itoa(number) + "]" }
