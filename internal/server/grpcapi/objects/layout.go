package objects

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	wire "github.com/trireme-mpi/trireme/api/grpc/training"
)

// layout is where the fields of a message stand in JSON.
type layout struct {
	fields []field
	// holders are the objects that fields are taken out of: metadata.
	parents []string
	// beside is a message whose fields stand beside these; nil if there is none.
	inline protoreflect.FieldDescriptor
	// others is the field for all that has none; nil if there is none.
	otherFields protoreflect.FieldDescriptor
}

// field is one field, in the object holder or, if that is empty, in the message's own.
type field struct {
	protoreflect.FieldDescriptor
	parent, name string
}

const (
	otherFieldsName = "other_fields"
	inlineMark      = "."
)

// layouts of all messages of ours.
var layouts = func() map[protoreflect.FullName]*layout {
	found := map[protoreflect.FullName]*layout{}
	ours := wire.File_training_options_proto.Package()
	protoregistry.GlobalFiles.RangeFilesByPackage(ours, func(file protoreflect.FileDescriptor) bool {
		for i := range file.Messages().Len() {
			message := file.Messages().Get(i)
			found[message.FullName()] = layoutOf(message)
		}
		return true
	})
	return found
}()

func layoutOf(message protoreflect.MessageDescriptor) *layout {
	result := &layout{}
	for i := range message.Fields().Len() {
		descriptor := message.Fields().Get(i)
		jsonPath, _ := proto.GetExtension(descriptor.Options(), wire.E_Kubernetes).(string)
		if jsonPath == "" {
			jsonPath = descriptor.JSONName()
		}
		switch parts := strings.Split(jsonPath, "."); {
		case descriptor.Name() == otherFieldsName:
			result.otherFields = descriptor
		case jsonPath == inlineMark:
			result.inline = descriptor
		case len(parts) == 1:
			result.fields = append(result.fields, field{descriptor, "", jsonPath})
		case len(parts) == 2:
			result.fields = append(result.fields, field{descriptor, parts[0], parts[1]})
			if !slices.Contains(result.parents, parts[0]) {
				result.parents = append(result.parents, parts[0])
			}
		default:
			panic(fmt.Sprintf("%s is at %s: paths of more than two parts are not supported", descriptor.FullName(), jsonPath))
		}
	}
	return result
}
