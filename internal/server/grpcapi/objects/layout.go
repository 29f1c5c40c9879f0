// SPDX-License-Identifier: Apache-2.0

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

// layout maps the fields of a message to JSON.
type layout struct {
	fields []field
	// parents are the JSON objects that fields are taken from: metadata.
	parents []string
	// inline is a message whose fields are inlined here; nil if there is none.
	inline protoreflect.FieldDescriptor
	// otherFields is the field for all content without a field; nil if there is none.
	otherFields protoreflect.FieldDescriptor
}

// field is one field, in the JSON object parent or, if that is empty, at the top level.
type field struct {
	protoreflect.FieldDescriptor
	parent, name string
}

const (
	otherFieldsName = "other_fields"
	inlineMark      = "."
)

// layouts of all messages in this API.
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
