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

// fill puts what JSON says into an empty message. What has no field there, or does
// not fit it, goes to the other fields: there is nothing that cannot be carried.
func fill(message protoreflect.Message, content map[string]any) {
	layout := layouts[message.Descriptor().FullName()]
	rest := withoutNulls(content)
	for _, holder := range layout.holders {
		if inner, is := rest[holder].(map[string]any); is {
			rest[holder] = withoutNulls(inner)
		}
	}
	for _, field := range layout.fields {
		from := rest
		if field.holder != "" {
			from, _ = rest[field.holder].(map[string]any)
		}
		if value, said := from[field.name]; said && field.put(message, value) {
			delete(from, field.name)
		}
	}
	for _, holder := range layout.holders {
		if inner, is := rest[holder].(map[string]any); is && len(inner) == 0 {
			delete(rest, holder)
		}
	}
	switch {
	case len(rest) == 0:
	case layout.beside != nil:
		fill(message.Mutable(layout.beside).Message(), rest)
	case layout.others != nil:
		message.Set(layout.others, protoreflect.ValueOfMessage(structOf(rest).ProtoReflect()))
	}
}

// withoutNulls is a copy: Kubernetes writes null for what is not said.
func withoutNulls(content map[string]any) map[string]any {
	kept := maps.Clone(content)
	maps.DeleteFunc(kept, func(_ string, value any) bool { return value == nil })
	return kept
}

// put sets a field if a value fits it. An empty list or map does not: in a message
// it would be none at all.
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
		made, fits := fitting(f.FieldDescriptor, func() protoreflect.Value { return message.NewField(f.FieldDescriptor) }, value)
		if fits {
			message.Set(f.FieldDescriptor, made)
		}
		return fits
	}
}

func (f *field) putMap(message protoreflect.Message, entries map[string]any) bool {
	made := message.NewField(f.FieldDescriptor)
	for key, entry := range entries {
		value, fits := fitting(f.MapValue(), made.Map().NewValue, entry)
		if !fits {
			return false
		}
		made.Map().Set(protoreflect.ValueOfString(key).MapKey(), value)
	}
	message.Set(f.FieldDescriptor, made)
	return true
}

func (f *field) putList(message protoreflect.Message, elements []any) bool {
	made := message.NewField(f.FieldDescriptor)
	for _, element := range elements {
		value, fits := fitting(f.FieldDescriptor, made.List().NewElement, element)
		if !fits {
			return false
		}
		made.List().Append(value)
	}
	message.Set(f.FieldDescriptor, made)
	return true
}

// fitting is a value in the form of a field; blank makes an empty one.
func fitting(field protoreflect.FieldDescriptor, blank func() protoreflect.Value, value any) (protoreflect.Value, bool) {
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
		return fittingObject(field, blank, value)
	}
	return protoreflect.Value{}, false
}

func fittingObject(field protoreflect.FieldDescriptor, blank func() protoreflect.Value, value map[string]any) (protoreflect.Value, bool) {
	name := messageOf(field)
	if name == structName {
		return protoreflect.ValueOfMessage(structOf(value).ProtoReflect()), true
	}
	if layouts[name] == nil {
		return protoreflect.Value{}, false
	}
	made := blank()
	fill(made.Message(), value)
	return made, true
}

// The messages that stand for something else than an object of their own.
var (
	timestampName = proto.MessageName(&timestamppb.Timestamp{})
	structName    = proto.MessageName(&structpb.Struct{})
)

// messageOf is the message in a field; none if the field has no message.
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
	made := timestamppb.New(moment)
	return made, made.IsValid()
}

// mostExact is the largest integer that is certain in a double: 1<<53 may have been
// one more.
const mostExact = 1<<53 - 1

func isExact(number int64) bool { return -mostExact <= number && number <= mostExact }

// largeMark marks an integer that a Struct cannot hold.
const largeMark = "@int64"

// isWhole tells whether a double is an integer that it certainly was meant to be.
func isWhole(number float64) bool {
	return number == math.Trunc(number) && math.Abs(number) <= mostExact
}
