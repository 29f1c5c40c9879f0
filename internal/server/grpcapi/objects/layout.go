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
	holders []string
	// beside is a message whose fields stand beside these; nil if there is none.
	beside protoreflect.FieldDescriptor
	// others is the field for all that has none; nil if there is none.
	others protoreflect.FieldDescriptor
}

// field is one field, in the object holder or, if that is empty, in the message's own.
type field struct {
	protoreflect.FieldDescriptor
	holder, name string
}

const (
	othersName = "other_fields"
	besideMark = "."
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
	made := &layout{}
	for i := range message.Fields().Len() {
		descriptor := message.Fields().Get(i)
		path, _ := proto.GetExtension(descriptor.Options(), wire.E_Kubernetes).(string)
		if path == "" {
			path = descriptor.JSONName()
		}
		switch parts := strings.Split(path, "."); {
		case descriptor.Name() == othersName:
			made.others = descriptor
		case path == besideMark:
			made.beside = descriptor
		case len(parts) == 1:
			made.fields = append(made.fields, field{descriptor, "", path})
		case len(parts) == 2:
			made.fields = append(made.fields, field{descriptor, parts[0], parts[1]})
			if !slices.Contains(made.holders, parts[0]) {
				made.holders = append(made.holders, parts[0])
			}
		default:
			panic(fmt.Sprintf("%s is at %s: paths of more than two parts are not supported", descriptor.FullName(), path))
		}
	}
	return made
}
