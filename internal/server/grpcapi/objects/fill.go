// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"maps"
	"math"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// fill copies JSON content into an empty message. Content without a field, or whose value
// does not fit the field, goes to other_fields: nothing is lost.
func fill(message protoreflect.Message, content map[string]any) {
	layout := layouts[message.Descriptor().FullName()]
	rest := withoutNulls(content)
	for _, holder := range layout.parents {
		if inner, is := rest[holder].(map[string]any); is {
			rest[holder] = withoutNulls(inner)
		}
	}
	for _, field := range layout.fields {
		from := rest
		if field.parent != "" {
			from, _ = rest[field.parent].(map[string]any)
		}
		if value, isSet := from[field.name]; isSet && field.put(message, value) {
			delete(from, field.name)
		}
	}
	for _, holder := range layout.parents {
		if inner, is := rest[holder].(map[string]any); is && len(inner) == 0 {
			delete(rest, holder)
		}
	}
	switch {
	case len(rest) == 0:
	case layout.inline != nil:
		fill(message.Mutable(layout.inline).Message(), rest)
	case layout.otherFields != nil:
		message.Set(layout.otherFields, protoreflect.ValueOfMessage(structOf(rest).ProtoReflect()))
	}
}

// withoutNulls returns a copy without nulls: Kubernetes writes null for unset values.
func withoutNulls(content map[string]any) map[string]any {
	result := maps.Clone(content)
	maps.DeleteFunc(result, func(_ string, value any) bool { return value == nil })
	return result
}

// put sets a field if the value fits. An empty list or map does not: a message cannot
// distinguish it from an unset field.
func (f *field) put(message protoreflect.Message, value any) bool {
	if choice := f.ContainingOneof(); choice != nil && message.WhichOneof(choice) != nil {
		return false
	}
	switch {
	case f.IsMap():
		entries, is := value.(map[string]any)
		return is && len(entries) > 0 && f.putMap(message, entries)
	case f.IsList():
		elements, is := value.([]any)
		return is && len(elements) > 0 && f.putList(message, elements)
	default:
		converted, fits := convert(f.FieldDescriptor, func() protoreflect.Value { return message.NewField(f.FieldDescriptor) }, value)
		if fits {
			message.Set(f.FieldDescriptor, converted)
		}
		return fits
	}
}

func (f *field) putMap(message protoreflect.Message, entries map[string]any) bool {
	result := message.NewField(f.FieldDescriptor)
	for key, entry := range entries {
		value, fits := convert(f.MapValue(), result.Map().NewValue, entry)
		if !fits {
			return false
		}
		result.Map().Set(protoreflect.ValueOfString(key).MapKey(), value)
	}
	message.Set(f.FieldDescriptor, result)
	return true
}

func (f *field) putList(message protoreflect.Message, elements []any) bool {
	result := message.NewField(f.FieldDescriptor)
	for _, element := range elements {
		value, fits := convert(f.FieldDescriptor, result.List().NewElement, element)
		if !fits {
			return false
		}
		result.List().Append(value)
	}
	message.Set(f.FieldDescriptor, result)
	return true
}

// convert returns a value in the type of a field; newValue creates an empty one.
func convert(field protoreflect.FieldDescriptor, newValue func() protoreflect.Value, value any) (protoreflect.Value, bool) {
	switch value := value.(type) {
	case string:
		if field.Kind() == protoreflect.StringKind {
			return protoreflect.ValueOfString(value), true
		}
		if moment, is := timestamp(value); is && messageOf(field) == timestampName {
			return protoreflect.ValueOfMessage(moment.ProtoReflect()), true
		}
	case bool:
		return protoreflect.ValueOfBool(value), field.Kind() == protoreflect.BoolKind
	case int64:
		switch {
		case field.Kind() == protoreflect.Int32Kind && value == int64(int32(value)):
			return protoreflect.ValueOfInt32(int32(value)), true
		case field.Kind() == protoreflect.Int64Kind:
			return protoreflect.ValueOfInt64(value), true
		case field.Kind() == protoreflect.DoubleKind && isExact(value):
			return protoreflect.ValueOfFloat64(float64(value)), true
		}
	case float64:
		return protoreflect.ValueOfFloat64(value), field.Kind() == protoreflect.DoubleKind
	case map[string]any:
		return convertObject(field, newValue, value)
	}
	return protoreflect.Value{}, false
}

func convertObject(field protoreflect.FieldDescriptor, newValue func() protoreflect.Value, value map[string]any) (protoreflect.Value, bool) {
	name := messageOf(field)
	if name == structName {
		return protoreflect.ValueOfMessage(structOf(value).ProtoReflect()), true
	}
	if layouts[name] == nil {
		return protoreflect.Value{}, false
	}
	message := newValue()
	fill(message.Message(), value)
	return message, true
}

// Messages with a JSON form of their own.
var (
	timestampName = proto.MessageName(&timestamppb.Timestamp{})
	structName    = proto.MessageName(&structpb.Struct{})
)

// messageOf returns the message type of a field; empty if it is not a message.
func messageOf(field protoreflect.FieldDescriptor) protoreflect.FullName {
	if field.Message() == nil {
		return ""
	}
	return field.Message().FullName()
}

func timestamp(text string) (*timestamppb.Timestamp, bool) {
	moment, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return nil, false
	}
	result := timestamppb.New(moment)
	return result, result.IsValid()
}

// maxExact is the largest integer that is exact in a double: 1<<53 may have been rounded.
const maxExact = 1<<53 - 1

func isExact(number int64) bool { return -maxExact <= number && number <= maxExact }

// int64Key is the key of an integer that a Struct cannot hold.
const int64Key = "@int64"

// isWhole tells whether a double is exactly an integer.
func isWhole(number float64) bool {
	return number == math.Trunc(number) && math.Abs(number) <= maxExact
}
