// SPDX-License-Identifier: Apache-2.0

package jobview

import (
	"encoding/json"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	kjson "sigs.k8s.io/json"

	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// Decode decodes a job of a kind. unknown lists unknown and duplicate fields, which would
// be lost silently.
func (kind *Kind) Decode(document []byte) (object client.Object, unknown []error, err error) {
	object = kind.NewObject()
	if err := job.CheckQuantities(document); err != nil {
		return object, nil, err
	}
	unknown, err = kjson.UnmarshalStrict(document, object)
	if wrong, is := errors.AsType[*json.UnmarshalTypeError](err); is && wrong.Field == "" {
		err = fmt.Errorf("it is a JSON %s, not an object", wrong.Value)
	} else if is {
		err = fmt.Errorf("%s must be %s, not a %s", wrong.Field, wrong.Type, wrong.Value)
	}
	return object, unknown, err
}
