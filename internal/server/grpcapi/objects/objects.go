// SPDX-License-Identifier: Apache-2.0

// Package objects converts Kubernetes objects to messages and back, without loss.
//
// The conversion follows the proto files: a field of a message is the field with the same
// name in the object's JSON, or the one that the option "kubernetes" names. All other
// content is in other_fields. So new fields of Kubernetes need no change here.
package objects

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	kjson "sigs.k8s.io/json"

	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/server/apierror"
)

// ToMessage copies an object into an empty message.
func ToMessage(object any, message proto.Message) error {
	content, err := asContent(object)
	if err != nil {
		return err
	}
	fill(message.ProtoReflect(), content)
	return nil
}

// ToStruct converts an object to a protobuf Struct.
func ToStruct(object any) (*structpb.Struct, error) {
	content, err := asContent(object)
	if err != nil {
		return nil, err
	}
	return structOf(content), nil
}

func asContent(object any) (content map[string]any, err error) {
	encoded, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("%T as JSON: %w", object, err)
	}
	// Integers must not become floats.
	if err := kjson.UnmarshalCaseSensitivePreserveInts(encoded, &content); err != nil {
		return nil, fmt.Errorf("%T as JSON: %w", object, err)
	}
	return content, nil
}

// FromMessage copies a message into an empty object. Its errors are apierror.Error and
// name the field.
func FromMessage(message proto.Message, object any) error {
	content, err := contentOf(message.ProtoReflect(), "")
	if err != nil {
		return err
	}
	encoded, err := json.Marshal(content)
	if err != nil {
		return apierror.Invalid("other_fields", "cannot be encoded as JSON: %v", err)
	}
	if huge, is := errors.AsType[*job.QuantityError](job.CheckQuantities(encoded)); is {
		return apierror.Invalid(huge.Field, "%s", huge.Reason())
	}
	unknown, err := kjson.UnmarshalStrict(encoded, object)
	if err != nil {
		return wrongType(err)
	}
	if len(unknown) > 0 {
		return unknownFields(unknown)
	}
	return nil
}

// wrongType is the error for a value with the wrong type.
func wrongType(err error) error {
	if wrong, is := errors.AsType[*json.UnmarshalTypeError](err); is && wrong.Field != "" {
		return apierror.Invalid(wrong.Field, "has the wrong type: %s", wrong.Value)
	}
	return apierror.Invalid("other_fields", "is invalid: %v", err)
}

// unknownFields is the error for fields that the kind does not have: a misspelt field must
// not be dropped silently.
func unknownFields(unknown []error) error {
	apiErr := apierror.New(http.StatusBadRequest, "BadRequest", "other_fields has unknown fields", "See the fields: kubectl explain trainjob.spec --recursive, or mpijob.spec")
	for _, fault := range unknown {
		_, field, _ := strings.Cut(fault.Error(), `"`)
		field, _, _ = strings.Cut(field, `"`)
		apiErr.Details = append(apiErr.Details, apierror.Detail{Field: field, Reason: fault.Error()})
		apiErr.Message += ": " + fault.Error()
	}
	return apiErr
}
