package jobview

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"

	"sigs.k8s.io/controller-runtime/pkg/client"
	kjson "sigs.k8s.io/json"
)

// hugeExponent finds a number, as such or as text, with an exponent of four digits or
// more.
var hugeExponent = regexp.MustCompile(`[:\[,]\s*"?([+-]?[0-9.]+[eE][+-]?[0-9]{4,})["\s,}\]]`)

// Decode reads a job of a kind. Fields that there are not, or twice, would be lost
// without a word: they are told.
func (kind *Kind) Decode(document []byte) (object client.Object, unknown []error, err error) {
	object = kind.NewObject()
	// Kubernetes' quantities are computed to the last digit: this one has more of them
	// than any memory.
	if found := hugeExponent.FindSubmatch(document); found != nil {
		return object, nil, fmt.Errorf("%s is too large or too small for a quantity", found[1])
	}
	unknown, err = kjson.UnmarshalStrict(document, object)
	if wrong, is := errors.AsType[*json.UnmarshalTypeError](err); is && wrong.Field == "" {
		err = fmt.Errorf("it is a JSON %s, and not an object", wrong.Value)
	} else if is {
		err = fmt.Errorf("%s takes %s, and not a %s", wrong.Field, wrong.Type, wrong.Value)
	}
	return object, unknown, err
}
