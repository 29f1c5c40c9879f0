package objects

import (
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/trireme-mpi/trireme/internal/server/apierror"
)

// contentOf is the JSON that a message stands for; at is where it stands.
func contentOf(message protoreflect.Message, at string) (map[string]any, error) {
	layout := layouts[message.Descriptor().FullName()]
	if unknown := message.GetUnknown(); len(unknown) > 0 {
		number, _, _ := protowire.ConsumeTag(unknown)
		return nil, apierror.Invalid(at, "%s has field number %d, which this server does not know", message.Descriptor().Name(), number)
	}
	content := map[string]any{}
	var err error
	switch {
	case layout.beside != nil && message.Has(layout.beside):
		content, err = contentOf(message.Get(layout.beside).Message(), at)
	case layout.others != nil && message.Has(layout.others):
		content, err = fromStruct(message.Get(layout.others).Message().Interface().(*structpb.Struct), at)
	}
	if err != nil {
		return nil, err
	}
	for _, field := range layout.fields {
		if message.Has(field.FieldDescriptor) {
			if err := field.write(content, message.Get(field.FieldDescriptor), at); err != nil {
				return nil, err
			}
		}
	}
	return content, nil
}

// write puts a field's value into JSON, where nothing may be yet.
func (f *field) write(content map[string]any, value protoreflect.Value, at string) error {
	if f.holder != "" {
		at = join(at, f.holder)
		if content[f.holder] == nil {
			content[f.holder] = map[string]any{}
		}
		inner, is := content[f.holder].(map[string]any)
		if !is {
			return apierror.Invalid(at, "must be an object")
		}
		content = inner
	}
	at = join(at, f.name)
	if _, twice := content[f.name]; twice {
		return apierror.Invalid(at, "is set twice: by the field %s and in other_fields", f.Name())
	}
	read, err := f.read(value, at)
	content[f.name] = read
	return err
}

// read is a field's value as JSON has it.
func (f *field) read(value protoreflect.Value, at string) (any, error) {
	switch {
	case f.IsMap():
		entries := map[string]any{}
		var err error
		value.Map().Range(func(key protoreflect.MapKey, entry protoreflect.Value) bool {
			entries[key.String()], err = plain(f.MapValue(), entry, join(at, key.String()))
			return err == nil
		})
		return entries, err
	case f.IsList():
		elements := make([]any, value.List().Len())
		for i := range elements {
			var err error
			if elements[i], err = plain(f.FieldDescriptor, value.List().Get(i), index(at, i)); err != nil {
				return nil, err
			}
		}
		return elements, nil
	default:
		return plain(f.FieldDescriptor, value, at)
	}
}

// plain is a single value as JSON has it.
func plain(field protoreflect.FieldDescriptor, value protoreflect.Value, at string) (any, error) {
	switch field.Kind() {
	case protoreflect.MessageKind:
		return plainMessage(value.Message(), at)
	case protoreflect.Int32Kind, protoreflect.Int64Kind:
		return value.Int(), nil
	default:
		return value.Interface(), nil
	}
}

func plainMessage(message protoreflect.Message, at string) (any, error) {
	switch special := message.Interface().(type) {
	case *timestamppb.Timestamp:
		if err := special.CheckValid(); err != nil {
			return nil, apierror.Invalid(at, "is not a valid time: seconds %d, nanos %d", special.GetSeconds(), special.GetNanos())
		}
		return special.AsTime().Format(time.RFC3339Nano), nil
	case *structpb.Struct:
		return fromStruct(special, at)
	default:
		return contentOf(message, at)
	}
}
