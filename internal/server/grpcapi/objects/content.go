// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/trireme-mpi/trireme/internal/server/apierror"
)

// contentOf returns the JSON content of a message; path is its path, for errors.
func contentOf(message protoreflect.Message, path string) (map[string]any, error) {
	layout := layouts[message.Descriptor().FullName()]
	if unknown := message.GetUnknown(); len(unknown) > 0 {
		number, _, _ := protowire.ConsumeTag(unknown)
		return nil, apierror.Invalid(path, "%s has field number %d, which this server does not know", message.Descriptor().Name(), number)
	}
	content := map[string]any{}
	var err error
	switch {
	case layout.inline != nil && message.Has(layout.inline):
		content, err = contentOf(message.Get(layout.inline).Message(), path)
	case layout.otherFields != nil && message.Has(layout.otherFields):
		content, err = fromStruct(message.Get(layout.otherFields).Message().Interface().(*structpb.Struct), path)
	}
	if err != nil {
		return nil, err
	}
	for _, field := range layout.fields {
		if message.Has(field.FieldDescriptor) {
			if err := field.write(content, message.Get(field.FieldDescriptor), path); err != nil {
				return nil, err
			}
		}
	}
	return content, nil
}

// write sets a field in the JSON content. It must not be set yet.
func (f *field) write(content map[string]any, value protoreflect.Value, path string) error {
	if f.parent != "" {
		path = join(path, f.parent)
		if content[f.parent] == nil {
			content[f.parent] = map[string]any{}
		}
		inner, is := content[f.parent].(map[string]any)
		if !is {
			return apierror.Invalid(path, "must be an object")
		}
		content = inner
	}
	path = join(path, f.name)
	if _, twice := content[f.name]; twice {
		return apierror.Invalid(path, "is set twice: by the field %s and in other_fields", f.Name())
	}
	read, err := f.read(value, path)
	content[f.name] = read
	return err
}

// read returns the value of a field for JSON.
func (f *field) read(value protoreflect.Value, path string) (any, error) {
	switch {
	case f.IsMap():
		entries := map[string]any{}
		var err error
		value.Map().Range(func(key protoreflect.MapKey, entry protoreflect.Value) bool {
			entries[key.String()], err = jsonValue(f.MapValue(), entry, join(path, key.String()))
			return err == nil
		})
		return entries, err
	case f.IsList():
		elements := make([]any, value.List().Len())
		for i := range elements {
			var err error
			if elements[i], err = jsonValue(f.FieldDescriptor, value.List().Get(i), index(path, i)); err != nil {
				return nil, err
			}
		}
		return elements, nil
	default:
		return jsonValue(f.FieldDescriptor, value, path)
	}
}

// jsonValue returns a single value for JSON.
func jsonValue(field protoreflect.FieldDescriptor, value protoreflect.Value, path string) (any, error) {
	switch field.Kind() {
	case protoreflect.MessageKind:
		return jsonOfMessage(value.Message(), path)
	case protoreflect.Int32Kind, protoreflect.Int64Kind:
		return value.Int(), nil
	default:
		return value.Interface(), nil
	}
}

func jsonOfMessage(message protoreflect.Message, path string) (any, error) {
	switch special := message.Interface().(type) {
	case *timestamppb.Timestamp:
		if err := special.CheckValid(); err != nil {
			return nil, apierror.Invalid(path, "is not a valid time: seconds %d, nanos %d", special.GetSeconds(), special.GetNanos())
		}
		return special.AsTime().Format(time.RFC3339Nano), nil
	case *structpb.Struct:
		return fromStruct(special, path)
	default:
		return contentOf(message, path)
	}
}
